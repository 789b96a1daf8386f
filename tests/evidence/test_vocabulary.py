"""The closed vocabulary of the audit, whole: the types of each stream, and what the data of each must hold."""

from __future__ import annotations

from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest

from core.errors import InputError
from evidence import layout
from evidence.chain import ChainHead, Event, EventType, append
from evidence.events import REQUIRED_DATA, RUN_EVENTS, TENANT_EVENTS, Actor
from evidence.judging.judge import KNOWN
from evidence.members import OF_LINES
from evidence.opened import ADDED
from evidence.receipts import LateAnswer, ReceiptStatus, contradiction
from runtime.engine.model.events import EVENTS
from runtime.engine.model.events.private import PRIVATE
from tests.support.evidence_chain import AT, opened
from tests.support.golden import matches_golden


@pytest.mark.golden
@pytest.mark.req("U-7")
def test_the_vocabulary_is_that_of_the_golden_file() -> None:
    found: dict[str, Any] = {
        str(kind): {
            "streams": [name for name, kinds in (("run", RUN_EVENTS), ("tenant", TENANT_EVENTS)) if kind in kinds],
            "needs": sorted(REQUIRED_DATA.get(kind, ())),
        }
        for kind in sorted(EventType)
    }
    found["always"], found["others"] = sorted(layout.ALWAYS[3]), layout.OTHERS[3].pattern
    found["readme"] = {
        algorithm: layout.readme("r1", "acme", "k1", algorithm).splitlines()
        for algorithm in ("ed25519", "ecdsa-p256-sha256")
    }
    matches_golden("events", found)


def test_every_event_of_a_run_is_known_to_the_judges_and_its_lines_hold_what_it_tells_in_public() -> None:
    assert {*map(str, RUN_EVENTS)} == KNOWN == {*OF_LINES}
    for kind, event in EVENTS.items():
        hints = get_type_hints(event, include_extras=True)
        names = zip(event.__struct_fields__, event.__struct_encode_fields__, strict=True)
        public = {line: hints[name] for name, line in names if PRIVATE not in getattr(hints[name], "__metadata__", ())}
        assert OF_LINES[kind].keys() == public.keys() | ADDED, kind
        for line, hint in public.items():
            wanted = {dict if "dict[" in str(each) else get_origin(each) or each for each in get_args(hint) or [hint]}
            wanted = {str if isinstance(each, type) and issubclass(each, str | UUID) else each for each in wanted}
            if get_origin(hint) in (list, dict):
                wanted = {get_origin(hint)}
            found = {*OF_LINES[kind][line]}
            assert found | {type(None)} == wanted | {type(None)}, (kind, line)


@pytest.mark.parametrize("kind", sorted(REQUIRED_DATA))
def test_a_line_without_what_it_needs_is_not_written(kind: EventType) -> None:
    """Each member alone is missed, in the stream that the type belongs to."""
    ours = kind in RUN_EVENTS
    head, first = ChainHead.of("run:r1" if ours else "tenant:t1"), [opened()] if ours else []
    whole = dict.fromkeys(sorted(REQUIRED_DATA[kind]), "x")
    if kind not in (EventType.RUN_OPENED, EventType.RUN_CLOSED):
        append(head, [*first, Event(kind, Actor("a", "b"), AT, whole)])
    for name in whole:
        lacking = {each: item for each, item in whole.items() if each != name}
        event = Event(kind, Actor("a", "b"), AT, lacking)
        if kind is EventType.RUN_CLOSED and name == "count":
            append(head, [*first, event])
            continue
        with pytest.raises(InputError, match=f"lacks {name}"):
            append(head, [event] if kind is EventType.RUN_OPENED else [*first, event])


CONTRADICTS = {
    (LateAnswer.SUCCEEDED, ReceiptStatus.FAILED, "same"): "It counts as failed.",
    (LateAnswer.SUCCEEDED, ReceiptStatus.FAILED, "other"): "It counts as failed.",
    (LateAnswer.SUCCEEDED, ReceiptStatus.SUCCEEDED, "other"): (
        "Attempt 2 counts as done as well: it may have happened twice."
    ),
    (LateAnswer.FAILED, ReceiptStatus.SUCCEEDED, "same"): "It counts as done.",
}


@pytest.mark.parametrize("status", ReceiptStatus)
@pytest.mark.parametrize("known", LateAnswer)
@pytest.mark.parametrize(("attempt", "which"), [(2, "same"), (1, "other")])
def test_a_late_answer_contradicts_its_receipt_or_not(
    known: LateAnswer, status: ReceiptStatus, attempt: int, which: str
) -> None:
    assert contradiction(known, attempt, status, 2) == CONTRADICTS.get((known, status, which))
