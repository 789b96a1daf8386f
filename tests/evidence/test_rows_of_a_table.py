"""The verifier's table row by row: in which order, with which result, and what follows a failure."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from core.canonical import canonical_bytes
from evidence import container, layout
from evidence.chain import EventType
from evidence.verify import Row, Status, Verification, main, verify_bundle, verify_unsigned
from tests.support.evidence_signing import P256Signer
from tests.support.second_format import assemble, build_bundle

pytestmark = pytest.mark.req("Q-21", "U-7")

BEFORE = ["integrity", "checksums", "chain", "completeness", "statement"]
CHECKS = [
    "run", "workflow and policies", "decisions", "authority", "origins", "approvals", "receipts", "checkpoints",
    "costs", "disclosures",
]  # fmt: skip
UNPROVEN = ["recorded in full", "transparency log", "time", "target systems"]
LATE = {"receipt": "receipt-1", "attempt": 1, "epoch": 1, "known": "in_doubt", "sent": True}


def told(workshop: Any, story: Any) -> Verification:
    one = assemble(story.content(), workshop.signer.public_key)
    return verify_unsigned(one.files, one.statement)


def late(workshop: Any, *known: str) -> Any:
    """A story with late answers about an action that succeeded, the last of them after the end."""
    story = workshop.tell()
    for each in known:
        story.add(EventType.ACTION_LATE, {**LATE, "known": each})
    facts = [{name: value for name, value in {**LATE, "known": each}.items() if name != "receipt"} for each in known]
    story.receipts[0] = replace(story.receipts[0], late=tuple(facts))
    return story


@pytest.mark.parametrize("back", [0, 1, 2])
@pytest.mark.parametrize("known", [(), ("in_doubt",), ("in_doubt", "failed"), ("failed", "in_doubt", "failed")])
def test_the_rows_have_one_order_and_a_row_for_what_there_is(workshop: Any, back: int, known: tuple[str, ...]) -> None:
    story = late(workshop, *known)
    for at in range(1, back + 1):
        story.events[2 * at] = replace(story.events[2 * at], at=story.events[0].at - timedelta(seconds=at))
    rows = told(workshop, story).rows
    by_name = {row.check: row for row in rows}
    more = ["judged"] + ["late answers"] * bool(known) + ["clock"] * bool(back)
    assert by_name["judged"].status is Status.WARNING, "these bundles are of the second format"
    assert [row.check for row in rows] == [*BEFORE, *CHECKS, *more, *UNPROVEN]
    if back:
        assert by_name["clock"] == Row("clock", Status.WARNING, f"{back} events are dated before the event above them")
    after = f", with {len(known)} late answers that came after it" if known else ""
    count = len(story.events) - len(known)
    assert by_name["completeness"] == Row(
        "completeness", Status.OK, f"the run is closed; its last event counts {count} events, and all are here{after}"
    )
    if known:
        odd = "attempt 1 of servicenow.incident.update: failed. It counts as done."
        odds = "; ".join([odd] * known.count("failed"))
        status = Status.WARNING if odds else Status.OK
        assert by_name["late answers"] == Row("late answers", status, odds or "1; none contradicts its receipt")


def test_an_answer_that_came_before_the_end_is_late_and_not_after_it(workshop: Any) -> None:
    story = late(workshop, "in_doubt", "in_doubt")
    closed, *answers = story.events[-3:]
    story.events[-3:] = [answers[0], closed, answers[1]]
    story.events = [replace(event, at=story.events[0].at) for event in story.events]
    by_name = {row.check: row.detail for row in told(workshop, story).rows}
    assert by_name["completeness"].endswith("and all are here, with 1 late answers that came after it")
    assert by_name["late answers"] == "2; none contradicts its receipt"


REST = Row("everything else", Status.NOT_PROVEN, "not checked, because of the failure above")


def test_behind_a_broken_chain_or_signature_nothing_is_claimed(workshop: Any) -> None:
    one = assemble(workshop.tell().content(), workshop.signer.public_key)
    lines = one.files[layout.EVENTS].split(b"\n")
    files = {**one.files, layout.EVENTS: b"\n".join([lines[1], lines[0], *lines[2:]])}
    rows = verify_unsigned(files, one.statement).rows
    assert [(row.check, row.status) for row in rows[:-1]] == [
        ("integrity", "failed"), ("checksums", "ok"), ("chain", "failed")
    ]  # fmt: skip
    assert rows[2].detail.startswith("events.jsonl: line 1: ")
    assert rows[-1] == REST
    broken = verify_bundle(workshop.pack({**workshop.unzip(workshop.build()), layout.ENVELOPE: b"{}"}))
    assert [(row.check, row.status) for row in broken.rows] == [
        ("container", "ok"), ("signature", "failed"), ("everything else", "not_proven")
    ]  # fmt: skip
    assert broken.rows[-1] == REST
    path = workshop.save(b"no archive")
    assert [row.check for row in verify_bundle(path).rows] == ["container", "everything else"]
    assert verify_unsigned({"no such name!": b""}, canonical_bytes({})).rows[0].status is Status.FAILED


@pytest.mark.parametrize("own", ["ed25519", "ecdsa-p256-sha256"])
@pytest.mark.parametrize("pinned", ["ed25519", "ecdsa-p256-sha256"])
def test_a_pinned_key_is_the_only_one_whatever_key_a_bundle_brings(workshop: Any, own: str, pinned: str) -> None:
    """Keys of both algorithms, with a bundle that is true and signed by the key that it brings."""
    signers: Any = {each.public_key.algorithm: each for each in (workshop.signer, P256Signer())}
    bundle = build_bundle(workshop.tell().content(), signers[own])
    path, key = workshop.save(bundle.bytes), workshop.directory / "pinned.pem"
    key.write_bytes(signers[pinned].public_key.pem)
    found, key_id = verify_bundle(path, public_key=key), signers[pinned].public_key.key_id
    if own == pinned:
        assert found.ok
        assert found.rows[1] == Row("signature", Status.OK, f"by your key {key_id} ({own})")
    else:
        assert [(row.check, row.status) for row in found.rows[1:]] == [
            ("signature", "failed"), ("everything else", "not_proven")
        ]  # fmt: skip
        assert found.rows[1].detail == f"envelope: names the key {signers[own].public_key.key_id}, not {key_id}"
    unpinned = verify_bundle(path)
    assert (unpinned.ok, unpinned.rows[1].status) == (True, Status.WARNING)
    assert signers[own].public_key.key_id in unpinned.rows[1].detail


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("required", [True, False])
def test_an_unfinished_run_fails_or_is_to_be_judged_with_any_key(
    workshop: Any, pinned: bool, closed: bool, required: bool
) -> None:
    story = workshop.tell()
    if not closed:
        story.events.pop()
        story.status = "running"
    path, key = workshop.save(workshop.build(story)), workshop.key if pinned else None
    by_name = {row.check: row for row in verify_bundle(path, public_key=key, require_final=required).rows}
    status = Status.OK if closed else Status.FAILED if required else Status.WARNING
    assert by_name["completeness"].status is status
    assert by_name["signature"].status is (Status.OK if pinned else Status.WARNING)
    assert [*by_name][:3] == ["container", "signature", "integrity"]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
def test_a_bundle_is_hashed_whole_however_it_is_read(
    workshop: Any, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    data = workshop.build()
    monkeypatch.setattr(container, "CHUNK_BYTES", chunk)
    for path in (workshop.save(data), workshop.extract(data)):
        assert verify_bundle(path, public_key=workshop.key).ok
    readme = workshop.directory / "extracted" / layout.README
    readme.write_bytes(readme.read_bytes()[:-1] + b"x")
    found = verify_bundle(workshop.directory / "extracted", public_key=workshop.key)
    assert [row.check for row in found.failed] == ["integrity"]
    assert found.failed[0].detail == f"changed since signing: {layout.README}"


def test_a_table_is_ok_if_none_of_its_rows_failed_wherever_that_is() -> None:
    rows = [Row(status.value, status, "") for status in Status]
    whole = Verification(tuple(rows))
    assert (whole.ok, [row.check for row in whole.failed]) == (False, ["failed"])
    for at in range(len(rows)):
        placed = [row for row in rows if row.status is not Status.FAILED]
        assert Verification(tuple(placed)).ok
        placed.insert(at, Row("bad", Status.FAILED, "no"))
        found = Verification(tuple(placed))
        assert (found.ok, found.failed) == (False, (placed[at],))
        assert found.to_json() == {
            "ok": False,
            "trusted": False,
            "rows": [{"check": row.check, "status": row.status.value, "detail": row.detail} for row in placed],
        }
    assert Verification(()).ok
    rows = [Row("a", Status.OK, ""), Row("long", Status.WARNING, "x\ty\n\x1b[0m z")]
    text = Verification(tuple(rows), trusted=True).to_text()
    assert text.splitlines() == [
        "a     ok", "long  warning     x\\ty\\n\\x1b[0m z", "", "no check failed: 1 ok, 1 warning"
    ]  # fmt: skip


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_line_says_by_its_code_and_on_which_output_what_it_found(
    workshop: Any, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    story = workshop.tell()
    good = str(workshop.save(workshop.build(story)))
    unfinished = workshop.directory / "unfinished.zip"
    story.events.pop()
    unfinished.write_bytes(workshop.build(story))
    nowhere, key = str(workshop.directory / "nowhere"), str(workshop.key)
    flags = ["--json"] * as_json
    for arguments, code in (
        ([good], 6), ([good, "--key", key], 0), ([good, "--key", key, "--run", "b"], 1),
        ([good, "--key", nowhere], 2), ([good, "--key", good], 2),
        ([nowhere], 2), ([str(unfinished)], 1), ([str(unfinished), "--allow-unfinished"], 6),
        ([str(unfinished), "--key", key], 1),
    ):  # fmt: skip
        assert main([*arguments, *flags]) == code, arguments
        told = capsys.readouterr()
        assert (bool(told.out), bool(told.err)) == (code != 2, code == 2)
        if code != 2:
            ok, trusted = (code != 1, code == 0)
            words = {0: "no check failed", 1: "VERIFICATION FAILED", 6: "intact, but NOBODY HAS SAID"}[code]
            if as_json:
                assert (json.loads(told.out)["ok"], json.loads(told.out)["trusted"] or not ok) == (
                    ok,
                    trusted or not ok,
                )
            else:
                assert words in told.out


def test_a_file_is_listed_once_and_with_its_digest_as_it_is_written(workshop: Any) -> None:
    one = assemble(workshop.tell().content(), workshop.signer.public_key)
    statement = json.loads(one.statement)
    first, *rest = statement["subject"]
    upper, other = ({**first, "digest": {"sha256": each}} for each in (first["digest"]["sha256"].upper(), "0" * 64))
    differ = "integrity: the files differ from the signed list"
    for listed, said in (
        ([*rest, first], None),
        ([other, first, *rest], "container: statement: lists a file twice or without its SHA-256"),
        ([first, *rest, other], "container: statement: lists a file twice or without its SHA-256"),
        ([first, first, *rest], "container: statement: lists a file twice or without its SHA-256"),
        ([upper, *rest], f"integrity: changed since signing: {first['name']}"),
        ([other, *rest], f"integrity: changed since signing: {first['name']}"),
        (rest, f"{differ}: missing none, extra {first['name']}"),
        ([first, {**other, "name": "more"}, *rest], f"{differ}: missing more, extra none"),
    ):  # fmt: skip
        found = verify_unsigned(one.files, canonical_bytes({**statement, "subject": listed}))
        assert [f"{row.check}: {row.detail}" for row in found.failed][:1] == ([said] if said else [])
