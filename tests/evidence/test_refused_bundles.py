"""Contradictions are not signed: a bundle is verified before, by the checks that an auditor will make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core.errors import InputError
from evidence import container
from evidence.bundle import ContradictionError
from evidence.chain import Actor, EventType
from evidence.commitments import commit, disclosure
from evidence.signing import FileSigner
from evidence.verify import verify_bundle, verify_unsigned
from tests.support.second_format import CancelRecord, VoteRecord, assemble, build_bundle


class Counting:
    """A signer that counts what it signs."""

    def __init__(self, signer: FileSigner) -> None:
        self._signer = signer
        self.public_key = signer.public_key
        self.signed = 0

    def sign(self, data: bytes) -> bytes:
        self.signed += 1
        return self._signer.sign(data)


def vote_gone(story: Any) -> None:
    story.approvals = [replace(approval, votes=()) for approval in story.approvals]


def receipt_gone(story: Any) -> None:
    story.receipts.pop()


def receipt_elsewhere(story: Any) -> None:
    story.receipts[0] = replace(story.receipts[0], target="incident/another")


def not_closed(story: Any) -> None:
    story.events.pop()


def no_decision(story: Any) -> None:
    story.events = [event for event in story.events if event.type is not EventType.DECISION_MADE]


def reason_added(story: Any) -> None:
    line = disclosure(b"k" * 32, f"/approval/a1/vote/maria/{story.approvals[0].votes[0].at}/reason", "I was asked to")
    vote = VoteRecord("maria", "approve", "slack", story.approvals[0].votes[0].at, line)
    story.approvals = [replace(story.approvals[0], votes=(vote,))]


def asked_otherwise(story: Any) -> None:
    line = disclosure(b"k" * 32, "/approval/a1/asked", {"kind": "gate"})
    story.approvals = [replace(story.approvals[0], asked=line)]


def late_answer_hidden(story: Any) -> None:
    """Hide it in a receipt that no event binds, because its attempt is still under way."""
    at = next(at for at, event in enumerate(story.events) if event.type is EventType.ACTION_SUCCEEDED)
    told = {"receipt": "receipt-1", "attempt": 1, "epoch": 1, "known": "failed", "sent": True}
    story.events[at] = replace(story.events[at], type=EventType.ACTION_LATE, data=told)
    story.receipts[0] = replace(story.receipts[0], status="intended")


@pytest.mark.req("Q-21")
@pytest.mark.parametrize(
    ("change", "check"),
    [
        (asked_otherwise, "approvals"),
        (late_answer_hidden, "receipts"),
        (vote_gone, "approvals"),
        (reason_added, "approvals"),
        (receipt_gone, "receipts"),
        (receipt_elsewhere, "receipts"),
        (not_closed, "completeness"),
        (no_decision, "authority"),
    ],
)
def test_what_does_not_verify_is_not_signed(workshop: Any, change: Callable[[Any], None], check: str) -> None:
    story = workshop.tell()
    change(story)
    signer = Counting(workshop.signer)
    with pytest.raises(ContradictionError) as caught:
        build_bundle(story.content(), signer)
    assert check in caught.value.checks
    assert f"{check}: " in str(caught.value)
    assert signer.signed == 0
    build_bundle(workshop.tell().content(), signer)
    assert signer.signed == 1


def test_what_is_larger_than_a_verifier_reads_is_not_signed(workshop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "FILES_MAX", 12)
    with pytest.raises(ContradictionError, match="more than 12 files"):
        build_bundle(workshop.tell().content(), workshop.signer)


def canceled(story: Any, by: str = "maria", reason: str = "not needed") -> Any:
    """The content of a story whose run maria canceled because it was not needed, as somebody tells it."""
    path = "/cancel/reason"
    data = {"reason_given": True, "committed": [[path, commit(b"k" * 32, path, "not needed")]]}
    story.add(EventType.RUN_CANCELED, data, Actor("person", "maria"), None)
    story.events[-2:] = story.events[:-3:-1]
    content = story.content()
    told = CancelRecord(by, disclosure(b"k" * 32, path, reason))
    return replace(content, run=replace(content.run, canceled=told))


def test_who_canceled_a_run_and_why_is_bound(workshop: Any) -> None:
    bundle = build_bundle(canceled(workshop.tell()), workshop.signer)
    assert verify_bundle(workshop.save(bundle.bytes), public_key=workshop.key).ok
    for told in ({"by": "mario"}, {"reason": "it was late"}):
        with pytest.raises(ContradictionError, match="canceled"):
            build_bundle(canceled(workshop.tell(), **told), workshop.signer)


def test_a_bundle_s_chain_is_told_by_its_events_and_its_appends(workshop: Any) -> None:
    story = workshop.tell()
    one = assemble(story.content(), workshop.signer.public_key)
    rows = {row.check: row.detail for row in verify_unsigned(one.files, one.statement).rows}
    head = story.content().head
    assert rows["chain"] == f"{head.count} events in {len(story.content().appends)} appends, unbroken, head {head.hash}"
    assert head.count > len(story.content().appends) > 1


def test_a_bundle_is_closed_when_it_was_checked_and_a_key_is_looked_at_first(
    workshop: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed: list[Any] = []
    close = container.Container.close
    monkeypatch.setattr(container.Container, "close", lambda self: closed.append(self) or close(self))
    path = workshop.save(build_bundle(workshop.tell().content(), workshop.signer).bytes)
    assert verify_bundle(path, public_key=workshop.key).ok
    assert len(closed) == 1
    nowhere, no_key, zeros = tmp_path / "nowhere.zip", tmp_path / "no.pem", tmp_path / "zeros.pem"
    zeros.write_bytes(workshop.key.read_bytes() + b"\0")
    for bundle_at, key, words in (
        (nowhere, None, f"{nowhere}: does not exist"), (nowhere, workshop.key, f"{nowhere}: does not exist"),
        (path, no_key, f"{no_key}: cannot be read"), (nowhere, no_key, f"{no_key}: cannot be read"),
        (path, zeros, f"{zeros}: is not a PEM public key"),
        (path, tmp_path, f"{tmp_path}: cannot be read"), (path, path, f"{path}: is not a PEM public key"),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            verify_bundle(bundle_at, public_key=key)
        assert str(caught.value).startswith(words)


def test_a_run_whose_lines_are_of_the_third_format_has_no_bundle_of_the_second(workshop: Any) -> None:
    """Nothing judges the second format, so nobody may choose it."""
    story = workshop.tell()
    story.events[0] = replace(story.events[0], data={**story.events[0].data, "tenant": "acme"})
    (row,) = verify_bundle(workshop.save(workshop.build(story)), public_key=workshop.key).failed
    assert (row.check, "this is the second" in row.detail) == ("run", True)
