"""Folds a run's lines into what a report tells: judged actions, questions to people, effects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from evidence.events import EventType as E
from evidence.receipts import ReceiptStatus, Resolution


class Outcome(StrEnum):
    """The outcome of a question, as its lines tell it."""

    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    OPEN = ""


class End(StrEnum):
    """The status with which a run closed."""

    SUCCEEDED = "succeeded"
    FAILED = "failed_terminal"
    CANCELED = "canceled"
    OPEN = "open"


ALLOW, ASK, DENY = "allow", "needs_approval", "deny"
_ENDS = {E.APPROVAL_SUPERSEDED: Outcome.SUPERSEDED, E.APPROVAL_EXPIRED: Outcome.EXPIRED}
_SETTLES = {
    E.ACTION_SUCCEEDED: ReceiptStatus.SUCCEEDED,
    E.ACTION_FAILED: ReceiptStatus.FAILED,
    E.ACTION_IN_DOUBT: ReceiptStatus.IN_DOUBT,
}


class Judged(Struct):
    """One decision of the policies about one action."""

    seq: int
    ts: str
    step: str
    operation: str
    outcome: str
    rules: tuple[str, ...]
    policies: tuple[str, ...]


class Vote(Struct):
    """One click. ``refused`` is the code of why it did not count, "" for a vote that counts."""

    seq: int
    ts: str
    who: str
    choice: str
    groups: tuple[str, ...] = ()
    channel: str = ""
    account: str = ""
    refused: str = ""


class Question(Struct):
    """One question to people. ``outcome`` is "" while it is open."""

    approval: str
    seq: int
    ts: str
    step: str
    kind: str
    action: str
    tier: str
    outcome: str = ""
    ended_seq: int = 0
    ended: str = ""
    escalated: tuple[int, str] | None = None
    reminded: list[tuple[int, str]] = field(default_factory=list)
    votes: list[Vote] = field(default_factory=list)


class Effect(Struct):
    """One effect outside: its last attempt, and the events of all of them.

    ``altered`` names the fields that the target holds otherwise than asked; ``grant`` is what allowed it, if one did.
    """

    receipt: str
    operation: str
    step: str
    action: str
    decision: str
    approval: str
    status: str
    attempt: int
    ts: str
    seqs: list[int]
    late: list[int] = field(default_factory=list)
    grant: str = ""
    altered: tuple[str, ...] = ()


class Plot(Struct):
    """The story of a run. ``error`` is the code that ended it, ``ended`` the time; both "" if there is none."""

    opened: Mapping[str, Any]
    status: str = "open"
    error: str = ""
    ended: str = ""
    closed_seq: int = 0
    canceled: Mapping[str, Any] | None = None
    judged: dict[str, Judged] = field(default_factory=dict)
    asked: dict[str, Question] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict)
    unneeded: list[int] = field(default_factory=list)
    grants: dict[str, tuple[int, str]] = field(default_factory=dict)
    others: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def wrote(self) -> list[Effect]:
        """The effects that happened, or may have happened."""
        return [one for one in self.effects.values() if one.status != ReceiptStatus.FAILED]

    def seal(self, effect: Effect) -> bool:
        """True if the action that was done has the digest that people approved, and its result was not altered."""
        asked = self.asked.get(effect.approval)
        return asked is not None and asked.action == effect.action and not effect.altered


def fold(events: Iterable[Mapping[str, Any]]) -> Plot:
    """Read the lines in order."""
    listed = [*events]
    plot = Plot(listed[0])
    for event in listed:
        _observe(plot, event)
    return plot


def _observe(plot: Plot, event: Mapping[str, Any]) -> None:
    kind, data, seq, ts = event["type"], event["data"], event["seq"], event["ts"]
    if kind == E.DECISION_MADE:
        plot.judged[data["decision"]] = Judged(
            seq, ts, event["step"] or "", data["operation"], data["outcome"],
            tuple(data["rules"]), tuple(one["digest"] for one in data["policies"]),
        )  # fmt: skip
    elif kind.startswith("approval."):
        _ask(plot, event)
    elif kind.startswith("action."):
        _act(plot, event)
    elif kind == E.GRANT_GIVEN:
        plot.grants[data["grant"]] = seq, data["approval"]
    elif kind == E.RUN_CLOSED:
        plot.status, plot.ended, plot.closed_seq = data["status"], ts, seq
        plot.error = (data.get("error") or {}).get("code", "")
    elif kind == E.RUN_REOPENED:
        plot.status, plot.ended, plot.error = "open", "", ""
        plot.others.append((seq, ts, "run again after its end"))
    elif kind == E.RUN_CANCELED:
        plot.canceled = plot.canceled or event
    elif kind in (E.RUN_PAUSED, E.RUN_RESUMED, E.RUN_EXTENDED, E.RUN_MIGRATED, E.RUN_FORKED):
        plot.others.append((seq, ts, kind.removeprefix("run.")))


def _ask(plot: Plot, event: Mapping[str, Any]) -> None:
    kind, data, seq, ts = event["type"], event["data"], event["seq"], event["ts"]
    if kind == E.APPROVAL_REQUESTED:
        plot.asked[data["approval"]] = Question(
            data["approval"], seq, ts, event["step"] or "",
            data.get("kind") or ("action" if data["action"] else "gate"), data["action"] or "",
            data.get("tier") or "",
        )  # fmt: skip
        return
    asked = plot.asked.get(data["approval"])
    if asked is None:
        return
    if kind == E.APPROVAL_VOTED:
        asked.votes.append(_vote(event))
    elif kind == E.APPROVAL_VOTE_REFUSED:
        asked.votes.append(Vote(seq, ts, event["actor"]["id"], "", refused=str(data["code"])))
    elif kind == E.APPROVAL_DECIDED:
        asked.outcome, asked.ended_seq, asked.ended = data["outcome"], seq, ts
    elif kind in _ENDS:
        asked.outcome, asked.ended_seq, asked.ended = _ENDS[E(kind)], seq, ts
    elif kind == E.APPROVAL_ESCALATED:
        asked.escalated = seq, ts
    elif kind == E.APPROVAL_REMINDED:
        asked.reminded.append((seq, ts))


def _vote(event: Mapping[str, Any]) -> Vote:
    data = event["data"]
    slack = (data.get("identity") or {}).get("slack") or {}
    return Vote(
        event["seq"], event["ts"], event["actor"]["id"], str(data["choice"]),
        tuple(str(group).partition(":")[2] for group in data.get("groups") or ()),
        str(data.get("channel") or ""), str(slack.get("user") or ""),
    )  # fmt: skip


def _act(plot: Plot, event: Mapping[str, Any]) -> None:
    kind, data, seq, receipt = event["type"], event["data"], event["seq"], event["data"].get("receipt")
    if kind == E.ACTION_UNNEEDED:
        plot.unneeded.append(seq)
    elif kind == E.ACTION_INTENDED:
        before = plot.effects.get(receipt)
        plot.effects[receipt] = Effect(
            receipt, data["operation"], event["step"] or "", data["action"], data["decision"] or "",
            data["approval"] or "", ReceiptStatus.INTENDED, data["attempt"], event["ts"],
            [*(before.seqs if before else ()), seq], grant=data.get("grant") or "",
        )  # fmt: skip
    elif receipt in plot.effects:
        effect = plot.effects[receipt]
        effect.seqs.append(seq)
        if kind in _SETTLES:
            effect.status = _SETTLES[E(kind)]
            effect.altered = tuple(map(str, data.get("altered") or effect.altered))
        elif kind == E.ACTION_DOUBT_RESOLVED:
            ends = {Resolution.APPLIED: ReceiptStatus.SUCCEEDED, Resolution.FAILED: ReceiptStatus.FAILED}
            effect.status = ends.get(data["resolution"], effect.status)
        elif kind == E.ACTION_LATE:
            effect.late.append(seq)
