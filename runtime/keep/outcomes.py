"""Outcomes of runs, in words for their requesters. They are derived from the run's book alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from approvals.model import ApprovalKind, ApprovalStatus, Choice
from approvals.notices import Line, Notice, Rule, Word
from core.identity import Directory
from evidence.receipts import ALTERED, ReceiptStatus
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model.errors import DENIED, REJECTED
from runtime.engine.model.events import DecisionMade, RunCanceled, RunClosed
from runtime.engine.model.rows import ApprovalRow, StepRow
from runtime.engine.model.states import RunState, StepState
from runtime.engine.replay.past import Past

LISTED_MAX = 5
_DENY = "deny"
WORDS = {
    DENIED: Word.NOT_DONE,
    REJECTED: Word.REJECTED,
    str(ApprovalStatus.EXPIRED): Word.EXPIRED,
    ALTERED: Word.ALTERED,
}
_IN_DOUBT = "It was sent, and nobody knows yet whether it was done. People are asked to look; you will hear of it."


class Outcome:
    """The story of one run for its requester: a notice for its end, and one for each doubt."""

    def __init__(self, past: Past, recorded: Sequence[RecordedEvent], people: Directory, workflow: str) -> None:
        self._past = past
        self._run = past.run
        self._recorded = recorded
        self._people = people
        self._workflow = workflow

    @property
    def is_over(self) -> bool:
        """True if the run has ended."""
        return self._run.finished

    def asks(self, approval: UUID) -> bool:
        """True if this question is still open."""
        answer = self._run.answers.get(approval)
        return answer is not None and answer.status == ApprovalStatus.REQUESTED

    @property
    def requested_by(self) -> str:
        """The principal who requested the run."""
        return self._run.requested_by

    def notice(self, whole: Line) -> Notice:
        """A notice about another event of the run, with this line."""
        return self._notice(whole, self._recorded[-1])

    def ended(self) -> Notice:
        """The notice of the run's end, with the outcome of each of its actions."""
        run, lines = self._run, self._lines()
        closed = next((one for one in reversed(self._recorded) if isinstance(one.event, RunClosed)), self._recorded[-1])
        whole = self._whole(lines)
        others = [line for line in lines if line.subject != whole.subject or line.word is not whole.word]
        rule = self._rule((run.error or {}).get("step")) if whole.word is Word.NOT_DONE else None
        return self._notice(whole, closed, tuple(others[:LISTED_MAX]), len(others[LISTED_MAX:]), rule)

    def held_step(self, step: str, at: str) -> Notice:
        """The notice of a step that has failed and is held, since ``at`` (ISO 8601)."""
        run = self._run
        known = run.steps.get(step) or run.past.get(step)
        error: Mapping[str, Any] = (known.last_error if known is not None else None) or {}
        line = Line(Word.HELD, self._subject(step), quote=str(error.get("message") or ""))
        return Notice(line, run.run_id, self._workflow, run.reference, at)

    def doubted(self, approval: UUID) -> Notice:
        """The notice of a doubt about one action: people are asked what became of it."""
        asked = self._run.approvals.get(approval)
        at = next((one for one in reversed(self._recorded) if getattr(one.event, "approval", None) == approval), None)
        subject = self._title(asked) if asked is not None else self._about()
        return self._notice(Line(Word.IN_DOUBT, subject, _IN_DOUBT), at or self._recorded[-1])

    def _notice(
        self, whole: Line, at: RecordedEvent, lines: tuple[Line, ...] = (), more: int = 0, rule: Rule | None = None
    ) -> Notice:
        run, when = self._run, at.at.isoformat(timespec="seconds")
        place = (run.run_id, self._workflow, run.reference, when)
        return Notice(whole, *place, asked=True, lines=lines, more=more, rule=rule)

    def _whole(self, lines: Sequence[Line]) -> Line:
        run, error = self._run, self._run.error or {}
        if run.status is RunState.CANCELED:
            event = next((one for one in self._recorded if isinstance(one.event, RunCanceled)), None)
            by = self._name(event.actor.id) if event is not None else ""
            reason = event.event.reason if event is not None and isinstance(event.event, RunCanceled) else ""
            return Line(Word.CANCELED, self._about(), "" if reason else f"{by} canceled it.".strip(), by, reason)
        if run.status is RunState.SUCCEEDED:
            return lines[0] if len(lines) == 1 and lines[0].word is Word.DONE else Line(Word.DONE, self._about())
        step = error.get("step")
        known = self._past.run.steps.get(str(step)) or self._past.run.past.get(str(step))
        if known is not None and known.status is StepState.FAILED_TERMINAL:
            return self._failed(known)
        word = WORDS.get(str(error.get("code")), Word.FAILED)
        return Line(word, self._about(), quote=str(error.get("message") or ""))

    def _lines(self) -> list[Line]:
        """The outcome of each step that had an action, done or not."""
        found = []
        done = {row.step_key for row in self._past.receipts() if row.status == ReceiptStatus.SUCCEEDED}
        for step in self._past.steps():
            if step.status is StepState.FAILED_TERMINAL:
                found.append(self._failed(step))
            elif step.status is StepState.SUCCEEDED and step.key in done:
                found.append(Line(Word.DONE, self._subject(step.key)))
        return found

    def _failed(self, step: StepRow) -> Line:
        error: Mapping[str, Any] = step.last_error or {}
        word, message = WORDS.get(str(error.get("code")), Word.FAILED), str(error.get("message") or "")
        subject = self._subject(step.key)
        if word is Word.NOT_DONE:
            fired = self._denial(step.key)
            because = " ".join(str(rule.get("because") or "") for rule in fired).strip()
            return Line(word, subject, because or message)
        if word is Word.REJECTED:
            return self._rejection(step.key, subject)
        if word is Word.EXPIRED:
            return Line(word, subject, message)
        return Line(word, subject, quote=message)

    def _rejection(self, key: str, subject: str) -> Line:
        for approval, answer in reversed(self._run.answers.items()):
            if self._of(approval, key) and answer.status == ApprovalStatus.REJECTED:
                rejecting = (Choice.REJECT, Choice.FAIL)
                votes = [one for one in self._run.votes if one.approval_id == approval and one.choice in rejecting]
                if votes:
                    return Line(Word.REJECTED, subject, "", self._name(votes[-1].person_id), votes[-1].reason)
        return Line(Word.REJECTED, subject)

    def _of(self, approval: UUID, key: str) -> bool:
        row = self._run.approvals.get(approval)
        return row is not None and row.step_key == key

    def _subject(self, key: str) -> str:
        """The action of a step, in the words of its operation or of its question."""
        receipts = [row for row in self._past.receipts() if row.step_key == key]
        if receipts and receipts[-1].action.get("summary"):
            return str(receipts[-1].action["summary"])
        asked = [row for row in self._run.approvals.values() if row.step_key == key]
        if asked:
            return self._title(asked[-1])
        for one in reversed(self._recorded):
            if isinstance(one.event, DecisionMade) and one.step == key and one.event.summary:
                return one.event.summary
        return f"{key} of {self._about()}"

    def _title(self, asked: ApprovalRow) -> str:
        title = str((asked.card or {}).get("title") or "")
        return title or (self._about() if asked.kind == ApprovalKind.GATE else asked.step_key)

    def _about(self) -> str:
        return f"{self._workflow} for {self._run.reference}" if self._run.reference else self._workflow

    def _denial(self, key: str) -> list[Mapping[str, Any]]:
        made = self._denied(key)
        return [rule for rule in (made.fired or []) if rule.get("outcome") == _DENY] if made is not None else []

    def _denied(self, key: str) -> DecisionMade | None:
        made = [one.event for one in self._recorded if isinstance(one.event, DecisionMade) and one.step == key]
        return next((one for one in reversed(made) if one.outcome == _DENY), None)

    def _rule(self, key: object) -> Rule | None:
        made, fired = self._denied(str(key)), self._denial(str(key))
        if made is None or not fired:
            return None
        policy, _, rule = str(fired[0]["id"]).rpartition("/")
        named = [one for one in made.policies if not policy or one.get("name") == policy]
        if len(named) != 1 and not policy:
            return Rule(rule, "", 0)
        return Rule(rule, str(named[0]["name"]) if named else policy, int(str(named[0]["version"])) if named else 0)

    def _name(self, person: str) -> str:
        entry = self._people.entry(person)
        return entry.name if entry is not None else person
