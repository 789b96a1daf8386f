"""Late answers in a bundle: only they may follow the end of a run, and what contradicts a receipt is a warning."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evidence import layout
from evidence.chain import Actor, ChainHead, EventType, verify_lines
from evidence.receipts import ReceiptStatus
from evidence.verify import Row, Status, Verification, verify_bundle

LATE = {"attempt": 1, "epoch": 1, "known": "succeeded", "sent": "2026-11-21T10:30:01.000000Z"}


def answered(story: Any, number: int = 0, **more: Any) -> Any:
    """A late answer about one of the story's receipts, told now."""
    told = {**LATE, **more, "external_id": "x-9"}
    receipt = replace(story.receipts[number], late=(*story.receipts[number].late, told))
    story.receipts[number] = receipt
    public = {name: told[name] for name in told if name != "external_id"}
    story.settle(EventType.ACTION_LATE, receipt, **public)
    return story


def checked(workshop: Any, story: Any) -> Verification:
    return verify_bundle(workshop.save(workshop.build(story)), public_key=workshop.key)


def row(found: Verification, name: str) -> Row | None:
    return next((row for row in found.rows if row.check == name), None)


@pytest.mark.req("U-7")
def test_an_edition_after_the_end_verifies_and_the_one_before_is_its_beginning(workshop: Any) -> None:
    first = workshop.unzip(workshop.build())
    story = answered(workshop.tell())
    second = workshop.unzip(workshop.build(story))
    assert second[layout.EVENTS].startswith(first[layout.EVENTS])
    found = checked(workshop, story)
    assert found.ok, found.to_text()
    late, complete = row(found, "late answers"), row(found, "completeness")
    assert late is not None
    assert complete is not None
    assert (late.status, late.detail) == (Status.OK, "1; none contradicts its receipt")
    closed = first[layout.EVENTS].count(b"\n")
    assert f"counts {closed} events, and all are here, with 1 late answers that came after it" in complete.detail
    assert row(checked(workshop, workshop.tell()), "late answers") is None


def test_late_answers_before_the_end_are_not_counted_after_it(workshop: Any) -> None:
    """Also not those of an earlier end, after which the run went on."""
    story = workshop.tell()
    story.sizes, closed = (1,), story.events.pop()
    answered(story)
    reopened = replace(closed, type=EventType.RUN_REOPENED, data={"bundle": "b", "steps": []})
    for events in ([closed], [reopened, closed]):
        story.events += events
        told = row(checked(workshop, answered(story, 1)), "completeness")
        assert told is not None
        counted = f"counts {len(story.events) - 1} events, and all are here, with 1 late answers that came after it"
        assert counted in told.detail


def test_what_contradicts_its_receipt_is_a_warning_with_words(workshop: Any) -> None:
    story = workshop.tell()
    failed = replace(story.receipts[0], status=ReceiptStatus.FAILED)
    story.receipts[0] = failed
    index = next(n for n, event in enumerate(story.events) if event.type is EventType.ACTION_SUCCEEDED)
    kept, story.events = story.events[index + 1 :], story.events[:index]
    story.settle(EventType.ACTION_FAILED, failed)
    story.events += kept
    found = checked(workshop, answered(story))
    assert found.ok, found.to_text()
    late = row(found, "late answers")
    assert late is not None
    assert (late.status, late.detail) == (
        Status.WARNING,
        "attempt 1 of servicenow.incident.update: succeeded. It counts as failed.",
    )


def test_each_late_answer_that_contradicts_its_receipt_is_told(workshop: Any) -> None:
    story = answered(answered(answered(workshop.tell(), known="failed"), known="unanswered"), 1, known="failed")
    late = row(checked(workshop, story), "late answers")
    assert late == Row(
        "late answers",
        Status.WARNING,
        "attempt 1 of servicenow.incident.update: failed. It counts as done.; "
        "attempt 1 of servicenow.incident.update: failed. It counts as done.",
    )


@pytest.mark.parametrize("kind", sorted(EventType))
def test_nothing_else_follows_the_end(workshop: Any, kind: EventType) -> None:
    """Refuse any other line behind the end, whatever it says besides its type."""
    told = workshop.unzip(workshop.build(answered(workshop.tell())))[layout.EVENTS]
    changed = told.replace(b'"type":"action.late"', f'"type":"{kind}"'.encode())
    lines = changed.splitlines()
    report = verify_lines(ChainHead.of("run:1").after(lines), lines, [len(lines)])
    assert report.ok is (kind is EventType.ACTION_LATE)


def test_a_late_answer_about_nothing_that_was_intended_fails(workshop: Any) -> None:
    story = workshop.tell()
    story.add(EventType.ACTION_LATE, {**LATE, "receipt": "receipt-9"}, Actor("worker", "w9"))
    found = checked(workshop, story)
    assert [each.check for each in found.failed] == ["authority"]


@pytest.mark.parametrize("late", [(), ({**LATE, "known": "failed", "external_id": "x-9"},)])
def test_a_receipt_that_hides_or_changes_its_late_answer_fails(workshop: Any, late: Any) -> None:
    story = answered(workshop.tell(), 1)
    story.receipts[1] = replace(story.receipts[1], late=late)
    assert [each.check for each in checked(workshop, story).failed] == ["receipts"]
