"""Attacks on bundles. Each must show as a failed row, none as a traceback (promise 7)."""

from __future__ import annotations

import base64
import io
import json
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from app.cli import evidence as command
from core.canonical import canonical_bytes, sha256_hex
from core.errors import InputError
from evidence import layout
from evidence.chain import ChainHead, EventType, append, timestamp
from evidence.commitments import commit, disclosure, reason_path
from evidence.container import Container
from evidence.receipts import ReceiptStatus
from evidence.signing import FileSigner, PublicKey, open_envelope, pae
from evidence.verify import Row, Status, Verification, main, verify_bundle

Files = dict[str, bytes]


def rows_failed(result: Verification) -> dict[str, str]:
    return {row.check: row.detail for row in result.rows if row.status is Status.FAILED}


def row_named(result: Verification, check: str) -> Row:
    return next(row for row in result.rows if row.check == check)


@pytest.mark.req("U-7")
def test_a_genuine_bundle_verifies_and_says_what_it_does_not_prove(workshop: Any) -> None:
    result = verify_bundle(workshop.save(workshop.build()), public_key=workshop.key)
    assert rows_failed(result) == {}
    assert result.ok
    statuses = {row.check: row.status for row in result.rows}
    assert statuses["signature"] is Status.OK
    assert statuses["transparency log"] is Status.NOT_PROVEN
    assert statuses["time"] is Status.NOT_PROVEN
    assert "14 events" in row_named(result, "chain").detail
    assert "2 values disclosed" in row_named(result, "disclosures").detail
    assert "1 in signed files only" in row_named(result, "disclosures").detail


def test_an_extracted_bundle_verifies_too(workshop: Any) -> None:
    assert verify_bundle(workshop.extract(workshop.build()), public_key=workshop.key).ok


def test_without_a_pinned_key_the_table_says_trust_on_first_use(workshop: Any) -> None:
    result = verify_bundle(workshop.save(workshop.build()))
    row = row_named(result, "signature")
    assert result.ok
    assert row.status is Status.WARNING
    assert workshop.signer.public_key.key_id in row.detail


def test_another_pinned_key_fails_and_nothing_else_is_claimed(workshop: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(FileSigner(Ed25519PrivateKey.generate()).public_key.pem)
    result = verify_bundle(workshop.save(workshop.build()), public_key=other)
    assert set(rows_failed(result)) == {"signature"}
    assert [row.check for row in result.rows if row.status is Status.OK] == ["container"]


def test_a_bundle_brings_the_key_that_signed_it_also_where_another_is_pinned(workshop: Any) -> None:
    files = workshop.unzip(workshop.build())
    files[layout.PUBLIC_KEY] = FileSigner(Ed25519PrivateKey.generate()).public_key.pem
    signed = workshop.pack(workshop.resign(files, workshop.signer))
    for pinned in (workshop.key, None):
        assert "signature" in rows_failed(verify_bundle(signed, public_key=pinned))


@pytest.mark.req("U-7")
def test_any_single_changed_byte_of_any_file_is_detected(workshop: Any) -> None:
    files = workshop.unzip(workshop.build())
    root = workshop.extract(workshop.build())
    undetected: list[str] = []
    for name, data in files.items():
        stride = 1 if len(data) <= 200 else len(data) // 40
        for position in range(0, len(data), stride):
            changed = bytearray(data)
            changed[position] ^= 1 << position % 8
            (root / name).write_bytes(changed)
            if verify_bundle(root, public_key=workshop.key).ok:
                undetected.append(f"{name}[{position}]")
        (root / name).write_bytes(data)
    assert undetected == []
    assert verify_bundle(root, public_key=workshop.key).ok


def test_any_changed_byte_of_the_envelope_is_detected(workshop: Any) -> None:
    """Every byte of the one file that is not among its own subjects, where DSSE itself leaves bits unsigned."""
    envelope = workshop.unzip(workshop.build())[layout.ENVELOPE]
    key = workshop.signer.public_key
    for position in range(len(envelope)):
        for mask in (0x01, 0x20):
            changed = bytearray(envelope)
            changed[position] ^= mask
            with pytest.raises(InputError):
                open_envelope(bytes(changed), layout.PAYLOAD_TYPE, key)


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.replace(b'{"payload"', b'{ "payload"'),
        lambda e: e + b"\n",
        lambda e: e.replace(b'"signatures"', b'"signatures":[],"signatures"'),
        lambda e: e.replace(b'"keyid"', b'"extra":1,"keyid"'),
    ],
)
def test_the_envelope_has_one_spelling(workshop: Any, change: Callable[[bytes], bytes]) -> None:
    files = workshop.unzip(workshop.build())
    files[layout.ENVELOPE] = change(files[layout.ENVELOPE])
    assert "signature" in rows_failed(verify_bundle(workshop.pack(files), public_key=workshop.key))


def test_every_truncation_of_the_archive_fails_without_a_traceback(workshop: Any) -> None:
    data = workshop.build()
    for length in range(0, len(data), max(1, len(data) // 97)):
        assert not verify_bundle(workshop.save(data[:length]), public_key=workshop.key).ok


@pytest.mark.parametrize("suffix", [".zip", ""])
def test_removed_added_and_renamed_files_are_detected(workshop: Any, suffix: str) -> None:
    files = workshop.unzip(workshop.build())
    for name in files:
        assert not verify_bundle(workshop.pack({n: d for n, d in files.items() if n != name})).ok, name
    added = verify_bundle(workshop.pack({**files, f"receipts/evil{suffix or '.json'}": b"{}"}))
    assert "integrity" in rows_failed(added)
    renamed = dict(files)
    renamed["receipts/receipt-9.json"] = renamed.pop("receipts/receipt-1.json")
    assert "integrity" in rows_failed(verify_bundle(workshop.pack(renamed)))


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "a/b/c", "receipts/../x", ".hidden", "a\\b", "C:x", "receipts/", "run.JSON"]
)
def test_names_that_could_mean_two_things_are_refused(workshop: Any, name: str) -> None:
    files = workshop.unzip(workshop.build())
    assert "container" in rows_failed(verify_bundle(workshop.pack({**files, name: b"x"})))


def test_two_entries_of_one_name_are_refused(workshop: Any) -> None:
    buffer = io.BytesIO(workshop.build())
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(layout.EVENTS, b"")
    assert "two files" in rows_failed(verify_bundle(workshop.save(buffer.getvalue())))["container"]


def test_links_and_bombs_are_refused(workshop: Any) -> None:
    files = workshop.unzip(workshop.build())
    path = workshop.pack(files)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("receipts/link.json")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    assert "container" in rows_failed(verify_bundle(path))
    with zipfile.ZipFile(path := workshop.pack(files), "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("receipts/bomb.json", bytes(65 * 1024**2))
    assert "at most" in rows_failed(verify_bundle(path))["container"]
    root = workshop.extract(workshop.build())
    (root / layout.RUN_FILE).unlink()
    (root / layout.RUN_FILE).symlink_to("/etc/hostname")
    assert "container" in rows_failed(verify_bundle(root))


@pytest.mark.parametrize("garbage", [b"", b"PK", b"\0" * 100, b"PK\5\6" + bytes(18), b"not a zip" * 50])
def test_garbage_fails_and_does_not_crash(workshop: Any, garbage: bytes) -> None:
    assert not verify_bundle(workshop.save(garbage)).ok


def test_missing_input_and_unusable_keys_are_unusable_input(workshop: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        verify_bundle(tmp_path / "nothing.zip")
    with pytest.raises(InputError, match="cannot be read"):
        verify_bundle(workshop.save(workshop.build()), public_key=tmp_path / "nothing.pem")
    (tmp_path / "bad.pem").write_text("hello")
    assert main([str(workshop.save(workshop.build())), "--key", str(tmp_path / "bad.pem")]) == 2
    bundle = str(workshop.save(workshop.build()))
    assert main([bundle, "--key", bundle]) == 2, "the key of a bundle would say that of itself"


def retold(files: Files, run_id: str, appends: list[list[bytes]]) -> None:
    """Make these the appends of the bundle, and the head what they come to."""
    head = ChainHead.of(f"run:{run_id}")
    for lines in appends:
        head = head.after(lines)
    sizes = [len(lines) for lines in appends]
    told = {**json.loads(files[layout.RUN_HEAD]), "count": head.count, "head": head.hash, "appends": sizes}
    files[layout.EVENTS] = b"".join(line + b"\n" for lines in appends for line in lines)
    files[layout.RUN_HEAD] = json.dumps(told).encode()


def appends_of(files: Files) -> list[list[bytes]]:
    lines = iter(files[layout.EVENTS].splitlines())
    return [[next(lines) for _ in range(size)] for size in json.loads(files[layout.RUN_HEAD])["appends"]]


def resized(change: Callable[[list[int]], Any]) -> Callable[[Files, Any], None]:
    """Change the appends and leave the events and the head as they are."""

    def apply(files: Files, workshop: Any) -> None:
        told = json.loads(files[layout.RUN_HEAD])
        files[layout.RUN_HEAD] = json.dumps({**told, "appends": change(told["appends"])}).encode()

    return apply


def rebordered(files: Files, workshop: Any) -> None:
    appends = appends_of(files)
    appends[2].insert(0, appends[1].pop())
    retold(files, workshop.run_id, appends)


def appends_swapped(files: Files, workshop: Any) -> None:
    appends = appends_of(files)
    appends[1], appends[2] = appends[2], appends[1]
    sizes = [len(lines) for lines in appends]
    files[layout.EVENTS] = b"".join(line + b"\n" for lines in appends for line in lines)
    files[layout.RUN_HEAD] = json.dumps({**json.loads(files[layout.RUN_HEAD]), "appends": sizes}).encode()


def of_another_run(files: Files, workshop: Any) -> None:
    """The book of another run, which is whole, in the place of this one's."""
    told = json.loads(files[layout.RUN_HEAD])
    head = ChainHead.of("run:another")
    for lines in appends_of(files):
        head = head.after(lines)
    files[layout.RUN_HEAD] = json.dumps({**told, "head": head.hash}).encode()


def drop_receipt(story: Any) -> None:
    story.receipts.pop()


def drop_approval(story: Any) -> None:
    story.approvals.clear()


def without(kind: EventType) -> Callable[[Any], None]:
    def change(story: Any) -> None:
        story.events = [event for event in story.events if event.type is not kind]

    return change


def data_of(kind: EventType, **data: object) -> Callable[[Any], None]:
    """Change the data of the last event of a kind."""

    def change(story: Any) -> None:
        at = max(number for number, event in enumerate(story.events) if event.type is kind)
        story.events[at] = replace(story.events[at], data={**story.events[at].data, **data})

    return change


def votes_gone(story: Any) -> None:
    story.approvals = [replace(approval, votes=()) for approval in story.approvals]


def card_swapped(story: Any) -> None:
    other = disclosure(b"x" * 32, "/approval/a1/card", {"title": "harmless"})
    commitment = sha256_hex(base64.urlsafe_b64decode(other + "=" * (-len(other) % 4)))
    story.approvals = [
        replace(approval, card_disclosure=other, card_commitment=commitment) for approval in story.approvals
    ]


def receipt_polished(story: Any) -> None:
    story.receipts[0] = replace(story.receipts[0], reversible=False)


def superseded_before_use(story: Any) -> None:
    at = next(
        n for n, event in enumerate(story.events) if event.data.get("approval") == "a1" and "receipt" in event.data
    )
    story.events.insert(at, replace(story.events[at], type=EventType.APPROVAL_SUPERSEDED, data={"approval": "a1"}))


def approval_used_twice(story: Any) -> None:
    intent = next(event for event in story.events if event.data.get("approval") == "a1" and "receipt" in event.data)
    story.events.insert(-1, replace(intent, data={**intent.data, "receipt": "receipt-3"}))


def effect_repeated(story: Any) -> None:
    intent = next(event for event in story.events if event.type is EventType.ACTION_INTENDED)
    story.events.insert(-1, replace(intent, at=story.events[-1].at))


def effect_without_intent(story: Any) -> None:
    story.events.insert(1, replace(story.events[1], type=EventType.ACTION_SUCCEEDED, data={"receipt": "receipt-0"}))


def forged_disclosure(story: Any) -> None:
    story.disclosures.append(disclosure(b"x" * 32, "/receipt/receipt-1/input/priority", "2"))


@pytest.mark.req("Q-21")
@pytest.mark.parametrize(
    ("change", "check"),
    [
        (drop_receipt, "receipts"),
        (receipt_polished, "receipts"),
        (drop_approval, "approvals"),
        (votes_gone, "approvals"),
        (card_swapped, "approvals"),
        (without(EventType.DECISION_MADE), "authority"),
        (without(EventType.APPROVAL_REQUESTED), "authority"),
        (without(EventType.APPROVAL_VOTED), "authority"),
        (without(EventType.APPROVAL_DECIDED), "authority"),
        (without(EventType.ACTION_INTENDED), "authority"),
        (without(EventType.RUN_CLOSED), "completeness"),
        (data_of(EventType.DECISION_MADE, outcome="deny"), "authority"),
        (data_of(EventType.DECISION_MADE, action="another"), "authority"),
        (data_of(EventType.DECISION_MADE, policies=[]), "authority"),
        (data_of(EventType.DECISION_MADE, policies=None), "authority"),
        (data_of(EventType.DECISION_MADE, policies=[{"name": "it-operations"}]), "authority"),
        (data_of(EventType.APPROVAL_REQUESTED, action="another"), "authority"),
        (data_of(EventType.APPROVAL_DECIDED, outcome="rejected"), "authority"),
        (data_of(EventType.ACTION_INTENDED, approval=None), "authority"),
        (data_of(EventType.ACTION_INTENDED, decision=["?"]), "authority"),
        (data_of(EventType.ACTION_DOUBT_RESOLVED, resolution={"?": 1}), "authority"),
        (data_of(EventType.RUN_CLOSED, status="failed_terminal"), "run"),
        (data_of(EventType.RUN_OPENED, workflow={"name": "triage", "version": 4, "digest": "0" * 64}), "statement"),
        (data_of(EventType.RUN_OPENED, workflow="triage"), "statement"),
        (superseded_before_use, "authority"),
        (approval_used_twice, "authority"),
        (effect_repeated, "authority"),
        (effect_without_intent, "authority"),
        (forged_disclosure, "disclosures"),
    ],
)
def test_signed_but_untrue_histories_fail_the_right_check(
    workshop: Any, change: Callable[[Any], None], check: str
) -> None:
    """Here the attacker even gets the changed rows signed: what contradicts the events or promise 1 still shows."""
    story = workshop.tell()
    change(story)
    result = verify_bundle(workshop.save(workshop.build(story)), public_key=workshop.key)
    assert check in rows_failed(result), result.to_text()


def test_an_unfinished_run_is_accepted_only_where_asked(workshop: Any) -> None:
    story = workshop.tell()
    story.events.pop()
    path = workshop.save(workshop.build(story))
    assert rows_failed(verify_bundle(path, public_key=workshop.key)).keys() == {"completeness"}
    relaxed = verify_bundle(path, public_key=workshop.key, require_final=False)
    assert relaxed.ok
    assert row_named(relaxed, "completeness").status is Status.WARNING


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize(("finished", "allowed", "code"), [(True, False, 0), (False, False, 1), (False, True, 0)])
def test_both_command_lines_say_the_same_of_an_unfinished_run(
    workshop: Any, capsys: pytest.CaptureFixture[str], pinned: bool, finished: bool, allowed: bool, code: int
) -> None:
    story = workshop.tell()
    if not finished:
        story.events.pop()
    path, key = workshop.save(workshop.build(story)), workshop.key if pinned else None
    given = [str(path), *(["--key", str(key)] if pinned else []), *(["--allow-unfinished"] if allowed else [])]
    told = verify_bundle(path, public_key=key, require_final=not allowed)
    for more, wanted in ([], told.to_text()), (["--json"], json.dumps(told.to_json(), indent=2)):
        code = code if pinned or code else 6
        assert main([*given, *more]) == code
        assert capsys.readouterr() == (f"{wanted}\n", "")
        try:
            command.verify(path, key=[key] if pinned else None, allow_unfinished=allowed, as_json=bool(more))
            ended = 0
        except typer.Exit as stopped:
            ended = stopped.exit_code
        assert (ended, capsys.readouterr().out) == (code, f"{wanted}\n")


def test_clock_steps_back_warn(workshop: Any) -> None:
    story = workshop.tell()
    last = max(n for n, event in enumerate(story.events) if event.step is not None)
    story.events[last] = replace(story.events[last], at=story.events[0].at)
    result = verify_bundle(workshop.save(workshop.build(story)), public_key=workshop.key)
    assert result.ok
    assert row_named(result, "clock").status is Status.WARNING


def edited(name: str, change: Callable[[bytes], bytes]) -> Callable[[Files, Any], None]:
    def apply(files: Files, workshop: Any) -> None:
        before = files[name]
        files[name] = change(before)
        assert files[name] != before

    return apply


def tail_cut(files: Files, workshop: Any) -> None:
    files[layout.EVENTS] = b"".join(files[layout.EVENTS].splitlines(keepends=True)[:-1])


def rebuilt(files: Files, workshop: Any) -> None:
    lines, _ = append(ChainHead.of(f"run:{workshop.run_id}"), workshop.tell().events[:1] + workshop.tell().events[-1:])
    retold(files, workshop.run_id, [lines])


def rebuilt_as_it_was(files: Files, workshop: Any) -> None:
    """Cut the tail in whole appends, and make the head that of the rest."""
    retold(files, workshop.run_id, appends_of(files)[:-1])


def lines_swapped(files: Files, workshop: Any) -> None:
    lines = files[layout.EVENTS].splitlines(keepends=True)
    lines[4], lines[5] = lines[5], lines[4]
    files[layout.EVENTS] = b"".join(lines)


FILE_ATTACKS = [
    (edited(layout.EVENTS, lambda d: d.replace(b'"allow"', b'"deny!"', 1)), "chain"),
    (edited(layout.EVENTS, lambda d: d.replace(b'"outcome":"allow"', b'"outcome":"deny","outcome":"allow"')), "chain"),
    (edited(layout.EVENTS, lambda d: d.replace(b'"attempt":1', b'"attempt":1.5', 1)), "chain"),
    (edited(layout.EVENTS, lambda d: d[:-1]), "chain"),
    (edited(layout.EVENTS, lambda d: b""), "chain"),
    (edited(layout.EVENTS, lambda d: b"[" * 100_000 + b"\n"), "chain"),
    (lines_swapped, "chain"),
    (tail_cut, "chain"),
    (rebuilt_as_it_was, "completeness"),
    (rebuilt_as_it_was, "statement"),
    (rebuilt, "statement"),
    (rebordered, "statement"),
    (appends_swapped, "chain"),
    (of_another_run, "chain"),
    (resized(lambda sizes: [sizes[0] + 1, sizes[1] - 1, *sizes[2:]]), "chain"),
    (resized(lambda sizes: [sum(sizes[:2]), *sizes[2:]]), "chain"),
    (resized(lambda sizes: [1, *sizes]), "chain"),
    (resized(lambda sizes: sizes[:-1]), "chain"),
    (resized(lambda sizes: [*sizes, 1]), "chain"),
    (resized(lambda sizes: [*sizes, 0]), "chain"),
    (resized(lambda sizes: ["1", *sizes[1:]]), "chain"),
    (resized(lambda sizes: {}), "chain"),
    (edited(layout.RUN_HEAD, lambda d: d.replace(b'"count":14', b'"count":13')), "chain"),
    (edited(layout.RUN_HEAD, lambda d: d.replace(b'"final":true', b'"final":false')), "run"),
    (edited(layout.RUN_HEAD, lambda d: b"[]"), "chain"),
    (edited(layout.RUN_HEAD, lambda d: b"[" * 50_000), "chain"),
    (edited(layout.RUN_FILE, lambda d: d.replace(b'"succeeded"', b'"canceled"')), "run"),
    (edited(layout.RUN_FILE, lambda d: d.replace(b'"run"', b'"run": "x", "run"')), "run"),
    (edited(layout.COSTS, lambda d: d.replace(b"0.0012", b"0.0001")), "costs"),
    (edited(layout.COSTS, lambda d: b"\xff"), "costs"),
    (edited(layout.CHECKPOINTS, lambda d: b"[]"), "checkpoints"),
    (edited(layout.CHECKPOINTS, lambda d: d.replace(b'"input"', b'"retry"')), "checkpoints"),
    (edited(layout.CHECKPOINTS, lambda d: d.replace(b'"source"', b'"sauce"')), "checkpoints"),
    (edited(layout.DECISIONS, lambda d: d.replace(b'"allow"', b'"deny"')), "decisions"),
    (edited("workflow/triage-4.yaml", lambda d: d + b"# harmless\n"), "workflow and policies"),
    (edited("policy/it-operations-7.yaml", lambda d: d + b"# harmless\n"), "workflow and policies"),
    (edited("approvals/a1.json", lambda d: d.replace(b'"maria"', b'"mario"')), "approvals"),
    (edited("approvals/a1.json", lambda d: d.replace(b"Raise", b"Lower")), "approvals"),
    (edited("approvals/a1.json", lambda d: d.replace(b'"votes": [', b'"votes": [1, ')), "approvals"),
    (edited("receipts/receipt-1.json", lambda d: d.replace(b"true", b"false")), "receipts"),
    (edited("receipts/receipt-2.json", lambda d: d.replace(b'"succeeded"', b'"failed"')), "receipts"),
    (edited(layout.DISCLOSURES, lambda d: d + b"AAAA\n"), "disclosures"),
    (edited(layout.DISCLOSURES, lambda d: d + b"\xff\n"), "disclosures"),
]


@pytest.mark.parametrize(("attack", "check"), FILE_ATTACKS)
def test_changed_files_fail_with_and_without_the_signing_key(
    workshop: Any, attack: Callable[[Files, Any], None], check: str
) -> None:
    files = workshop.unzip(workshop.build())
    attack(files, workshop)
    keyless = verify_bundle(workshop.pack(files), public_key=workshop.key)
    assert "integrity" in rows_failed(keyless)
    insider = verify_bundle(workshop.pack(workshop.resign(files, workshop.signer)), public_key=workshop.key)
    assert "integrity" not in rows_failed(insider)
    assert check in rows_failed(insider), insider.to_text()


def test_history_rebuilt_and_signed_by_a_stranger_fails_against_the_pinned_key(workshop: Any) -> None:
    stranger = FileSigner(Ed25519PrivateKey.generate())
    files = workshop.unzip(workshop.build())
    rebuilt(files, workshop)
    files[layout.PUBLIC_KEY] = stranger.public_key.pem
    path = workshop.pack(workshop.resign(files, stranger))
    assert "signature" in rows_failed(verify_bundle(path, public_key=workshop.key))


@pytest.mark.parametrize(
    "predicate",
    [{"count": 13}, {"final": False}, {"final": 1}, {"head": "0" * 64}, {"run": "x"}, {"policies": []},
     {"policies": None}, {"policies": [{"digest": "0" * 64}]}, {"workflow": {}},
     {"tenant": "other"}, {"status": "failed_terminal"}],
)  # fmt: skip
def test_a_statement_that_disagrees_with_its_events_fails(workshop: Any, predicate: dict[str, Any]) -> None:
    files = workshop.resign(workshop.unzip(workshop.build()), workshop.signer, predicate)
    assert not verify_bundle(workshop.pack(files), public_key=workshop.key).ok


def test_a_statement_that_names_more_policies_than_were_asked_fails(workshop: Any) -> None:
    files = workshop.unzip(workshop.build())
    named = workshop.tell()
    more = [named.named(named.policy), {"name": "kinder", "version": 1, "digest": "0" * 64}]
    told = verify_bundle(workshop.pack(workshop.resign(files, workshop.signer, {"policies": more})))
    assert "the policies differ" in rows_failed(told).get("statement", "")


@pytest.mark.parametrize("name", ["evil.sh", "receipts/evil.txt", "workflow/evil.json", "more/evil.json"])
def test_a_file_that_no_bundle_holds_fails_though_it_is_signed(workshop: Any, name: str) -> None:
    files = workshop.resign({**workshop.unzip(workshop.build()), name: b"{}"}, workshop.signer)
    failed = rows_failed(verify_bundle(workshop.pack(files), public_key=workshop.key))
    assert f"has {name}" in failed.get("integrity", "")


@pytest.mark.parametrize("name", sorted(layout.ALWAYS[2] - {layout.ENVELOPE, layout.SUMS, layout.PUBLIC_KEY}))
def test_a_file_that_every_bundle_holds_is_missed_though_nobody_signed_it(workshop: Any, name: str) -> None:
    files = workshop.unzip(workshop.build())
    del files[name]
    signed = workshop.pack(workshop.resign(files, workshop.signer))
    assert f"lacks {name}" in rows_failed(verify_bundle(signed, public_key=workshop.key)).get("integrity", "")


def test_what_is_withheld_is_counted(workshop: Any) -> None:
    story = workshop.tell()
    shown = verify_bundle(workshop.save(workshop.build(story)), public_key=workshop.key)
    assert row_named(shown, "approvals").detail.endswith("; 0 cards withheld")
    story.approvals = [replace(one, card_disclosure=None) for one in story.approvals]
    place = reason_path("a1", "maria", timestamp(next(e.at for e in story.events if e.type == "approval.voted")))
    data_of(EventType.APPROVAL_VOTED, committed=[[place, commit(workshop.run_key, place, "because")]])(story)
    hidden = verify_bundle(workshop.save(workshop.build(story)), public_key=workshop.key)
    assert hidden.ok, hidden.to_text()
    assert row_named(hidden, "approvals").detail.endswith("; 1 cards withheld; 1 reasons withheld")


def test_a_file_that_grows_while_it_is_read_is_refused(workshop: Any) -> None:
    root = workshop.extract(workshop.build())
    container = Container(root)
    assert container.read(layout.RUN_FILE) == (root / layout.RUN_FILE).read_bytes()
    with (root / layout.RUN_FILE).open("ab") as file:
        file.write(b" ")
    with pytest.raises(InputError, match="longer than its entry says"):
        container.read(layout.RUN_FILE)


@pytest.mark.req("Q-4")
def test_an_attempt_under_way_is_not_bound_by_the_receipt_of_the_one_before(workshop: Any) -> None:
    """The beginning of a history: an action failed, and is tried again."""
    story = workshop.tell()
    story.events, first = story.events[:3], replace(story.receipts[0], status=ReceiptStatus.FAILED)
    story.settle(EventType.ACTION_FAILED, first)
    story.intend(first, "d1", attempt=2)
    story.approvals, story.status = [], "executing"
    story.receipts = [replace(first, status=ReceiptStatus.INTENDED, attempt=2)]
    result = verify_bundle(workshop.save(workshop.build(story)), public_key=workshop.key, require_final=False)
    assert result.ok, result.to_text()
    assert "1 bound to the events by id" in row_named(result, "receipts").detail


def test_a_statement_about_another_run_is_refused_as_such(workshop: Any) -> None:
    """No file of it is wrong: they are all of one run, and the statement is signed (promise 7)."""
    files = workshop.resign(workshop.unzip(workshop.build()), workshop.signer, {"run": "x"})
    said = {row.check: row.detail for row in verify_bundle(workshop.pack(files), public_key=workshop.key).rows}
    assert any("about another run" in detail for detail in said.values()), said


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs coreutils")
def test_sha256sum_agrees(workshop: Any) -> None:
    root = workshop.extract(workshop.build())
    done = subprocess.run(["sha256sum", "--strict", "-c", layout.SUMS], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) - {"OK"} == {
        f"{name}:" for name in workshop.unzip(workshop.build()) if name not in (layout.SUMS, layout.ENVELOPE)
    }


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_agrees(workshop: Any, tmp_path: Path) -> None:
    files = workshop.unzip(workshop.build())
    envelope = json.loads(files[layout.ENVELOPE])
    message, signature = tmp_path / "pae", tmp_path / "sig"
    signature.write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(workshop.key), "-rawin"]
    command += ["-in", str(message), "-sigfile", str(signature)]
    payload = base64.b64decode(envelope["payload"])
    message.write_bytes(pae(envelope["payloadType"], payload))
    assert subprocess.run(command, capture_output=True).returncode == 0
    message.write_bytes(pae(envelope["payloadType"], payload + b" "))
    assert subprocess.run(command, capture_output=True).returncode != 0


@pytest.mark.skipif(shutil.which("openssl") is None or shutil.which("sha256sum") is None, reason="needs the tools")
def test_the_readme_s_own_steps_work(workshop: Any) -> None:
    root = workshop.extract(workshop.build())
    text = (root / layout.README).read_text()
    script = text.split("software of ours")[1].split("FILES\n")[0]
    shell = "\n".join(line[4:] for line in script.splitlines() if line.startswith("    "))
    done = subprocess.run(["bash", "-e", "-c", shell], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "files match the statement" in done.stdout
    assert "Signature Verified Successfully" in done.stdout
    assert "chain ok" in done.stdout


def test_the_command_line(workshop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = workshop.save(workshop.build())
    assert main([str(path), "--key", str(workshop.key)]) == 0
    assert "no check failed" in capsys.readouterr().out
    assert main([str(path), "--json"]) == 6, "nobody has said that the key is to be trusted"
    assert json.loads(capsys.readouterr().out)["ok"] is True
    path.write_bytes(path.read_bytes().replace(b"maria", b"mario"))
    assert main([str(path), "--key", str(workshop.key)]) == 1
    assert "VERIFICATION FAILED" in capsys.readouterr().out
    assert main(["/nowhere/bundle.zip"]) == 2


def test_the_verifier_stands_alone(workshop: Any) -> None:
    """Importing it loads two packages of ours, and four of others: no CEL, no YAML, no database, no network."""
    path = workshop.save(workshop.build())
    probe = (
        "import sys, runpy; sys.argv = ['v', *sys.argv[1:]]\n"
        "try: runpy.run_module('evidence.verify', run_name='__main__')\n"
        "except SystemExit as end: code = end.code\n"
        "of = lambda part: {name.partition('.')[0] for name, each in [*sys.modules.items()]"
        " if part in (getattr(each, '__file__', None) or '')}\n"
        "bad = of('site-packages') - {'core', 'evidence', 'cryptography', '_cffi_backend', 'msgspec', 'orjson',"
        " 'rfc8785', 'typing_extensions', '_distutils_hack'}\n"
        "bad |= {'socket', 'ssl', 'asyncio', 'http', 'app', 'runtime', 'policy', 'connectors'} & {*sys.modules}\n"
        "sys.exit(code or (f'imported {bad}' if bad else 0))"
    )
    command = [sys.executable, "-c", probe, str(path), "--key", str(workshop.key)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_terminal_is_not_fooled() -> None:
    text = Verification((Row("run", Status.OK, "name\x1b[2J\u202eevil"),)).to_text()
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_statement_is_canonical_and_about_every_other_file(workshop: Any) -> None:
    files = workshop.unzip(workshop.build())
    payload = open_envelope(files[layout.ENVELOPE], layout.PAYLOAD_TYPE, PublicKey.from_pem(files[layout.PUBLIC_KEY]))
    statement = json.loads(payload)
    assert canonical_bytes(statement) == payload
    assert {subject["name"] for subject in statement["subject"]} == set(files) - {layout.ENVELOPE}
