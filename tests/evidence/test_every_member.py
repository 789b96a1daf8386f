"""Every member of every file, every event and the statement of a bundle, changed or gone: what the verifier says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core.canonical import canonical_bytes, digest, sha256_hex
from core.errors import CountersealError
from evidence import layout
from evidence.bundle import BundleContent, CancelRecord, ContradictionError, Unsigned, assemble, build_bundle
from evidence.chain import Actor, EventType, timestamp
from evidence.commitments import commit, disclosure, path_of, reason_path
from evidence.history import ATTEMPTED
from evidence.verify import Row, Status, Verification, main, verify_bundle, verify_unsigned
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("Q-21", "U-7")

EXPECTED = Path(__file__).with_name("every_member.json")


def unsigned(workshop: Any, story: Any = None) -> Unsigned:
    return assemble((story or full(workshop)).content(), workshop.signer.public_key)


def full(workshop: Any) -> Any:
    """A story with a reason, a value of an attempt, a late answer and what was asked, on top of the usual one."""
    story, key = workshop.tell(), workshop.run_key
    place, why = path_of("approval", "a1", "asked"), None
    for at, event in enumerate(story.events):
        if event.type is EventType.APPROVAL_REQUESTED:
            data = {**event.data, "committed": [[place, commit(key, place, {"kind": "action"})]]}
            story.events[at] = replace(event, data=data)
        if event.type is EventType.APPROVAL_VOTED:
            why = reason_path("a1", "maria", timestamp(event.at))
            story.events[at] = replace(event, data={**event.data, "committed": [[why, commit(key, why, "fine")]]})
    assert why is not None
    vote = replace(story.approvals[0].votes[0], reason=disclosure(key, why, "fine"))
    asked = disclosure(key, place, {"kind": "action"})
    story.approvals = [replace(story.approvals[0], votes=(vote,), asked=asked)]
    return story


def verified(files: dict[str, bytes], statement: dict[str, Any]) -> list[str]:
    """The failed checks, in words, after the list of files was made anew as by somebody who holds the key."""
    files = {name: data for name, data in files.items() if name != layout.SUMS}
    files[layout.SUMS] = "".join(f"{sha256_hex(files[name])}  {name}\n" for name in sorted(files)).encode()
    subject = [{"name": name, "digest": {"sha256": sha256_hex(files[name])}} for name in sorted(files)]
    return said(verify_unsigned(files, canonical_bytes({**statement, "subject": subject})))


def said(found: Verification) -> list[str]:
    return [f"{row.check}: {row.detail}" for row in found.failed]


def changes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the value with one leaf changed or one member gone, with its place; of lists only the last item."""
    if isinstance(value, dict):
        for name in value:
            yield f"{name} gone", {key: item for key, item in value.items() if key != name}
            for place, changed in changes(value[name]):
                yield f"{name}.{place}", {**value, name: changed}
    elif isinstance(value, list):
        if value:
            yield "last gone", value[:-1]
            for place, changed in changes(value[-1]):
                yield f"last.{place}", [*value[:-1], changed]
    else:
        yield "=", other(value)


def other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value[:-1]}x"
        case _:
            return "x"


def test_every_member_of_a_file_is_bound_as_it_was(workshop: Any) -> None:
    one = unsigned(workshop)
    files, statement = dict(one.files), json.loads(one.statement)
    assert verified(files, statement) == []
    found: dict[str, Any] = {}
    for name in sorted(name for name in files if name.endswith(".json") and name != "receipts/receipt-2.json"):
        for place, changed in changes(json.loads(files[name])):
            found[f"{name}: {place}"] = verified({**files, name: json.dumps(changed).encode()}, statement)
    for name in sorted(files.keys() - {layout.SUMS}):
        found[f"{name} gone"] = verified({key: data for key, data in files.items() if key != name}, statement)
        found[f"{name} empty"] = verified({**files, name: b""}, statement)
    for name in ("workflow/x-1.yaml", "policy/x-1.yaml", "approvals/x.json", "receipts/x.json", "x.json"):
        found[f"{name} more"] = verified({**files, name: b"{}"}, statement)
    lines = files[layout.DISCLOSURES].splitlines()
    for place, listed in {
        "twice": [*lines, lines[0]],
        "a stray": [*lines, disclosure(workshop.run_key, "/stray", 1).encode()],
        "of another value": [disclosure(workshop.run_key, "/receipt/receipt-1/target", "x").encode()],
        "not base64url": [b"!"],
        "not ASCII": ["é".encode()],
        "an empty line": [b""],
    }.items():
        found[f"disclosures: {place}"] = verified({**files, layout.DISCLOSURES: b"\n".join([*listed, b""])}, statement)
    found["disclosures: unfinished"] = verified({**files, layout.DISCLOSURES: lines[0]}, statement)
    as_it_was(EXPECTED, found)


def test_every_member_of_the_file_of_a_run_in_which_nothing_happened_is_bound_as_it_was(workshop: Any) -> None:
    story = workshop.tell()
    story.events = [event for event in story.events if event.type in (EventType.RUN_OPENED, EventType.RUN_CLOSED)]
    story.approvals, story.receipts, story.disclosures = [], [], []
    content = story.content()
    with pytest.raises(ContradictionError, match="is not named by any event"):
        build_bundle(content, workshop.signer)
    one = assemble(replace(content, policies=()), workshop.signer.public_key)
    files, statement = dict(one.files), json.loads(one.statement)
    found: dict[str, Any] = {"whole": verify_unsigned(files, one.statement).to_json()}
    for name in (layout.RUN_FILE, layout.RUN_HEAD):
        for place, changed in changes(json.loads(files[name])):
            found[f"{name}: {place}"] = verified({**files, name: json.dumps(changed).encode()}, statement)
    failed = replace(content, policies=(), run=replace(content.run, status="failed_terminal"))
    other = assemble(failed, workshop.signer.public_key)
    found["another status, signed"] = said(verify_unsigned(other.files, other.statement))
    as_it_was(EXPECTED.with_name("every_bare_member.json"), found)


def canceled(workshop: Any) -> BundleContent:
    """A run that had inputs and was canceled twice, with what its bundle tells of the attempts at its actions."""
    story, key = full(workshop), workshop.run_key
    inputs = [["/trigger/number", commit(key, "/trigger/number", "A1")], ["/trigger/by", "3" * 64]]
    opened = story.events[0]
    committed = [*inputs, ["/other", "2" * 64]]
    story.events[0], story.status = replace(opened, data={**opened.data, "committed": committed}), "canceled"
    (at,) = [
        at for at, one in enumerate(story.events) if one.data.get("receipt") == "receipt-2" and "attempt" in one.data
    ]
    values = [["/attempt/priority", commit(key, "/attempt/priority", "1")]]
    story.events[at] = replace(story.events[at], data={**story.events[at].data, "values": digest(values)})
    story.events.pop()
    why = path_of("cancel", "reason")
    reason = {"committed": [[why, commit(key, why, "no longer wanted")]]}
    story.add(EventType.RUN_CANCELED, reason, Actor("person", "olga"), None)
    story.add(EventType.RUN_CANCELED, {}, Actor("person", "otto"), None)
    story.add(EventType.RUN_CLOSED, {"status": "canceled"}, step=None)
    attempts = [
        {**{name: one.data.get(name) for name in ATTEMPTED}, "seq": seq, "step": one.step, "ts": timestamp(one.at)}
        for seq, one in enumerate(story.events)
        if one.type is EventType.ACTION_INTENDED
    ]
    attempts[-1]["values"] = values
    content: BundleContent = story.content()
    by = CancelRecord("olga", disclosure(key, why, "no longer wanted"))
    return replace(content, run=replace(content.run, inputs=inputs, attempts=attempts, canceled=by))


def test_every_member_of_the_file_of_a_run_that_was_canceled_is_bound_as_it_was(workshop: Any) -> None:
    one = assemble(canceled(workshop), workshop.signer.public_key)
    files, statement = dict(one.files), json.loads(one.statement)
    assert verified(files, statement) == []
    run = json.loads(files[layout.RUN_FILE])
    values: list[Any] = [None, {}, [], "", False, "x"]
    more = {
        f"{name} = {value!r}": {**run, name: value}
        for name in ("canceled", "attempts", "inputs", "origins")
        for value in values
    }
    more["attempts in another order"] = {**run, "attempts": run["attempts"][::-1]}
    more["the first attempt gone"] = {**run, "attempts": run["attempts"][1:]}
    more["another attempt's values"] = {
        **run,
        "attempts": [{**run["attempts"][0], "values": run["attempts"][1]["values"]}, run["attempts"][1]],
    }
    more["canceled by the second"] = {**run, "canceled": {**run["canceled"], "by": "otto"}}
    found = {
        place: verified({**files, layout.RUN_FILE: json.dumps(changed).encode()}, statement)
        for place, changed in (*changes(run), *more.items())
    }
    as_it_was(EXPECTED.with_name("every_canceled_member.json"), found)


@pytest.mark.parametrize("around", [("", "\n"), (" ", ""), ("", " "), ("", "\r\n"), ("\n", "\n")])
def test_a_statement_is_signed_to_its_last_byte(workshop: Any, around: tuple[str, str]) -> None:
    one = unsigned(workshop)
    before, behind = (part.encode() for part in around)
    assert verify_unsigned(dict(one.files), one.statement).ok
    failed = verify_unsigned(dict(one.files), before + one.statement + behind)
    assert said(failed) == ["container: statement: is not canonical JSON"]


def test_every_member_of_the_statement_is_bound_as_it_was(workshop: Any) -> None:
    one = unsigned(workshop)
    files, statement = dict(one.files), json.loads(one.statement)
    found = {place: said(verify_unsigned(files, canonical_bytes(each))) for place, each in changes(statement)}
    for place, text in {
        "spaces": json.dumps(statement).encode(),
        "a list": b"[]",
        "nothing": b"",
        "twice": canonical_bytes({**statement, "subject": [statement["subject"][0]] * 2}),
        "no list": canonical_bytes({**statement, "subject": {}}),
        "no predicate": canonical_bytes({**statement, "predicate": []}),
        **{
            f"the run {name!r}": canonical_bytes({**statement, "predicate": {**statement["predicate"], "run": name}})
            for name in ("", workshop.run_id[1:], workshop.run_id[:-1], f"run:{workshop.run_id}")
        },
    }.items():
        found[place] = said(verify_unsigned(files, text))
    as_it_was(EXPECTED.with_name("every_statement.json"), found)


def test_every_member_of_an_event_is_bound_as_it_was(workshop: Any) -> None:
    """Change the story, not the files: its chain is true to the changed events, and the files to the true ones."""
    genuine, found = full(workshop), dict[str, Any]()
    for at, event in enumerate(genuine.events):
        for place, data in changes(event.data):
            story = copied(genuine)
            story.events[at] = replace(event, data=data)
            found[f"{at} {event.type}: {place}"] = told(workshop, story)
        for place, changed in {
            "another actor": replace(event, actor=Actor("person", "mallory")),
            "another step": replace(event, step="s9"),
        }.items():
            story = copied(genuine)
            story.events[at] = changed
            found[f"{at} {event.type}: {place}"] = told(workshop, story)
        story = copied(genuine)
        del story.events[at]
        found[f"{at} {event.type}: gone"] = told(workshop, story)
        story = copied(genuine)
        story.events.insert(at, event)
        found[f"{at} {event.type}: twice"] = told(workshop, story)
    as_it_was(EXPECTED.with_name("every_event.json"), found)


def copied(story: Any) -> Any:
    return dataclasses.replace(story, events=[*story.events])


def told(workshop: Any, story: Any) -> Any:
    try:
        one = unsigned(workshop, story)
    except CountersealError as error:
        return f"{type(error).__name__}: {error}"
    return said(verify_unsigned(one.files, one.statement))


@pytest.mark.parametrize("closed", [True, False])
def test_the_command_line_answers_as_it_did(workshop: Any, closed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    story = full(workshop)
    if not closed:
        story.events.pop()
    path = workshop.save(workshop.build(story))
    trusted = ["--key", str(workshop.key)]
    ends = {}
    for options in ((), ("--allow-unfinished",), ("--json",), ("--json", "--allow-unfinished")):
        ends[options] = main([str(path), *trusted, *options])
        shown = capsys.readouterr()
        report = verify_bundle(path, public_key=workshop.key, require_final="--allow-unfinished" not in options)
        expected = json.dumps(report.to_json(), indent=2) if "--json" in options else report.to_text()
        assert (shown.out, shown.err) == (f"{expected}\n", "")
        [row] = [one for one in report.rows if one.check == "completeness"]
        allowed = Status.WARNING if options[-1:] == ("--allow-unfinished",) else Status.FAILED
        assert row.status is (Status.OK if closed else allowed)
    assert [*ends.values()] == ([0, 0, 0, 0] if closed else [1, 0, 1, 0])
    assert main([str(path)]) == 1 - closed
    assert "trust on first use" in capsys.readouterr().out
    assert main([f"{path}.gone"]) == 2
    assert capsys.readouterr() == ("", f"{path}.gone: does not exist\n")
    workshop.key.write_text("no key")
    assert main([str(path), *trusted]) == 2
    assert capsys.readouterr() == ("", f"{workshop.key}: is not a PEM public key\n")


def test_a_table_is_drawn_as_it_was() -> None:
    rows = (
        Row("a", Status.OK, "fine"),
        Row("a longer name", Status.FAILED, "x\x1b[31m\u202e " + "word " * 30),
        Row("b", Status.WARNING, ""),
        Row("c", Status.NOT_PROVEN, "not"),
        Row("d", Status.OK, "well\nchain  ok\tx"),
    )
    assert Verification(rows).to_text().split("\n") == [
        "a              ok          fine",
        "a longer name  failed      x\\x1b[31m\\u202e word word word word word word word word word word word",
        "                           word word word word word word word word word word word word word word",
        "                           word word word word word",
        "b              warning",
        "c              not_proven  not",
        "d              ok          well\\nchain  ok\\tx",
        "",
        "VERIFICATION FAILED: 2 ok, 1 failed, 1 warning, 1 not_proven",
    ]
    assert Verification(rows[:1]).to_text() == "a  ok          fine\n\nno check failed: 1 ok"
    assert not Verification(rows).ok
    assert Verification(rows[2:4]).ok
