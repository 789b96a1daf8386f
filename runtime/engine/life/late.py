"""Late answers: what a worker that has lost its lease still knows about its call (``action.late``). Pure.

A late answer decides nothing: no status changes by it. It is shown wherever its action is, even if the run has closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from connectors.port import Done, InDoubt, NotSent, Outcome, Parked, Refused
from core.canonical import JsonObject
from evidence.chain import Actor, timestamp
from evidence.receipts import LateAnswer, contradiction
from runtime.engine.book.instructions import Unfit
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ActionLate
from runtime.engine.model.rows import ReceiptRow
from runtime.engine.model.run import RunView


def known_of(
    receipt: ReceiptRow, epoch: int, sent: datetime, answered: datetime | None, outcome: Outcome | Unfit | None
) -> ActionLate | None:
    """Make the event about a call under a lost lease; None if nothing was sent. No ``outcome`` means no answer."""
    values: dict[str, Any] = {}
    match outcome:
        case NotSent():
            return None
        case None:
            known = LateAnswer.UNANSWERED
        case InDoubt(message=message) | Refused(message=message, sent=True):
            known, values = LateAnswer.IN_DOUBT, {"detail": {"message": message}}
        case Refused(code=code, message=message):
            known, values = LateAnswer.FAILED, {"code": code, "detail": {"code": code, "message": message}}
        case Done() | Parked():
            known, values = LateAnswer.SUCCEEDED, {"output": outcome.output, "external_id": outcome.external_id}
        case Unfit(done, problem):
            known, values = LateAnswer.SUCCEEDED, {"external_id": done.external_id, "detail": {"message": problem}}
    answer = outcome.done if isinstance(outcome, Unfit) else outcome
    lent = () if answer is None else answer.secrets
    values |= {"secrets": [*lent]} if lent else {}
    at = None if answered is None else timestamp(answered)
    return ActionLate(receipt.receipt_id, receipt.attempt, epoch, known, timestamp(sent), at, **values)


def without_rows(view: RunView) -> RunView:
    """A view of a fully folded run, ready to append to: without the rows that earlier appends have stored."""
    return replace(view, run=replace(view.run, votes=[], checkpoints=[], ledger=[], mutations=[]))


def is_recorded(transition: Transition, event: ActionLate) -> bool:
    """True if the book has this late answer already, because only PostgreSQL's reply to its append was lost."""
    answers = transition.run.receipts[event.receipt].late
    return (event.epoch, event.sent) in [(late["epoch"], late["sent"]) for late in answers]


def tell(transition: Transition, event: ActionLate, actor: Actor) -> None:
    """Record a late answer in a fully folded run, closed or not. Order the action's cards, and a closed run's bundle.

    The bundle that is stored already is a valid beginning of the new one.
    """
    receipt = transition.run.receipts[event.receipt]
    transition.tell(event, step=receipt.step_key, actor=actor)
    asked = [row for row in transition.run.approvals.values() if row.step_key == receipt.step_key]
    cards = {str(row.approval_id) for row in asked if row.action_digest == receipt.action_digest}
    for card in sorted(cards):
        transition.message("card", UUID(card), f"late:{event.epoch}:{event.sent}")
    if transition.run.finished:
        run = str(transition.view.run_id)
        transition.order("bundle", f"late:{event.epoch}:{event.sent}", {}, one_at_a_time=run)


def shown(receipt: ReceiptRow | Mapping[str, Any]) -> list[JsonObject]:
    """The late answers about a receipt as shown, each with what it ``says`` about the receipt's current status."""
    row = receipt if isinstance(receipt, Mapping) else {name: getattr(receipt, name) for name in _OF_RECEIPT}
    return [{**late, "says": _says(late, row)} for late in row["late"]]


_OF_RECEIPT = ("late", "status", "attempt", "external_id")


def _says(late: Mapping[str, Any], receipt: Mapping[str, Any]) -> str:
    attempt, external_id = late["attempt"], late.get("external_id")
    match late["known"]:
        case LateAnswer.SUCCEEDED:
            named = f" ({external_id})" if external_id else ""
            words = f"A late answer: attempt {attempt} happened{named}."
        case LateAnswer.FAILED:
            words = f"A late answer: attempt {attempt} failed ({late['code']})."
        case LateAnswer.IN_DOUBT:
            words = f"A late answer: nobody knows what became of attempt {attempt}."
        case _:
            words = f"The lease of attempt {attempt} was lost: it may have been sent, and no answer is known."
    odds = contradiction(late["known"], attempt, receipt["status"], receipt["attempt"])
    if odds is None or (external_id and external_id == receipt["external_id"]):  # the same effect, told twice
        return words
    return f"{words} {odds}"
