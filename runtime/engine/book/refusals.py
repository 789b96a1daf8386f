"""Binding rejections: people are not asked again about what they refused if the same requester asks. Pure.

A rejection binds a *call*: what it does and where (``connectors.likeness``), whatever the record held and whichever
run, step or operation makes it. At a gate it binds the question with the run's input. It binds in the whole tenant, for
the time that policy names (``rejection: {holds: …}``). During that time, the same groups are asked again only if
another person of the directory requests it. That question lists every refusal, and nobody who has requested it, now or
before, may decide it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.model import ApprovalKind, ApprovalStatus
from connectors.likeness import likeness, plain
from connectors.operation import Operation
from core.action import Action
from core.canonical import JsonObject, digest
from core.identity import Directory, Entry, Kind, Role, Standing
from core.quorum import plans_of
from core.terms import REJECTION_SECONDS, Terms
from runtime.engine.book import contributors
from runtime.engine.model.errors import REJECTED, ErrorClass, StepError
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import AskRow, RefusalRow
from runtime.engine.model.run import Run, RunView


class Refusal(Struct, frozen=True):
    """A rejection as the tenant's table has it: the call, who asked, who refused, when, why, and how long it binds."""

    approval_id: UUID
    run_id: UUID
    groups: tuple[str, ...]
    askers: tuple[str, ...]
    by: str
    reason: str
    at: datetime
    until: datetime

    def to_json(self) -> JsonObject:
        """The refusal as it stands in events."""
        who: JsonObject = {"approval": str(self.approval_id), "run": str(self.run_id), "by": self.by}
        times: JsonObject = {"at": self.at.isoformat(), "until": self.until.isoformat()}
        return {**who, "reason": self.reason, "askers": [*self.askers], **times}


def key_of_call(operation: Operation, action: Action) -> str:
    """The key of the call that a rejection binds: what would be done where, by whichever operation.

    The key does not depend on what the record held, or on who shaped the action.
    """
    return digest(["call", operation.handler, likeness(operation.handler, action.input), action.system])


def key_of_gate(workflow: str, step: str, title: str, trigger: JsonObject) -> str:
    """The key of a gate's question: the same words at the same step about the same input."""
    return digest(["gate", workflow, step, plain(title), plain(trigger)])


def groups_of(terms: Terms) -> frozenset[str]:
    """The keys of all groups that these terms may ask."""
    return frozenset(group.key for plan in plans_of(terms, escalated=True) for group in plan)


def binding(known: Iterable[Refusal], terms: Terms, now: datetime) -> list[Refusal]:
    """The refusals by one of the groups of these terms, which therefore bind now. The oldest first."""
    wanted = groups_of(terms)
    found = [one for one in known if one.until > now and wanted & {*one.groups}]
    return sorted(found, key=lambda one: (one.at, one.approval_id))


def barred(found: list[Refusal], run: Run, key: str, people: Directory) -> StepError | None:
    """The error with which a step fails at once; None if a person asks now who was not refused before."""
    refused = {who for one in found for who in one.askers}
    now = [person_of(people, who) for who in latest(run, key)]
    if not found or any(one is not None and one.id not in refused for one in now):
        return None
    names = " and ".join(sorted(refused)) or "nobody known"
    remedy = f"Until {found[-1].until:%Y-%m-%d %H:%M} UTC only somebody else than {names} may ask for it again."
    return StepError(ErrorClass.AUTHORIZATION, REJECTED, f"Nobody was asked. {words(found, people)} {remedy}")


def words(found: Iterable[Refusal], people: Directory) -> str:
    """Every refusal in words: who, when, why, and at whose request."""
    sentences = []
    for one in found:
        names = [people.entries[who].name if who in people.entries else who for who in (one.by, *one.askers)]
        why = (one.reason or "no reason was given").rstrip(".")
        asked = f" (asked by {', '.join(names[1:])})" if names[1:] else ""
        sentences.append(f"It was rejected before, on {one.at:%Y-%m-%d %H:%M} UTC by {names[0]}{asked}: {why}.")
    return " ".join(sentences)


# Whoever asks for a refused action never decides it, whatever policy allows.
_ASKING = (Role.REQUESTER, Role.RETRIER, Role.BEARER, Role.STEP_ADDER)


def strict(terms: Terms) -> Terms:
    """The terms of a question that was refused before."""
    return replace(terms, allow=tuple(role for role in terms.allow if role not in _ASKING))


def fits(asked: Terms, terms: Terms) -> bool:
    """True if a question with these terms follows from policy's ``terms``, maybe made stricter after a refusal."""
    return asked in (terms, strict(terms))


def ask_of(key: str, asker: str, most: int, found: Iterable[Refusal]) -> AskRow:
    """The guard of the append of a question: no other refusal binds, and the asker has room for an open question."""
    return AskRow(key, asker, most, [str(one.approval_id) for one in found])


def rejections(before: Run, run: Run) -> list[RefusalRow]:
    """The rejections in an append, as rows for other runs to find."""
    rows = []
    for approval, answer in run.answers.items():
        asked, was = run.approvals.get(approval), before.answers.get(approval)
        if asked is None or not asked.key or answer.status != ApprovalStatus.REJECTED or was == answer:
            continue
        if asked.kind == ApprovalKind.IN_DOUBT:
            continue
        terms = Terms.from_json(asked.terms)
        seconds = REJECTION_SECONDS if terms.rejection_seconds is None else terms.rejection_seconds
        by = next((vote.person_id for vote in reversed(run.votes) if vote.approval_id == approval), "")
        keys: Any = sorted(groups_of(terms))
        who = [*(asked.askers or [])]
        rows.append(RefusalRow(approval, asked.key, keys, who, by, answer.reason or "", timedelta(seconds=seconds)))
    return rows


# The usual role, in words, of a principal that a step acts for.
ASKED = "asked for it"
# The rule of a decision that denies an action of an inactive account, and the code with which its step fails.
BY_ACCOUNT, INACTIVE = "contributors:inactive", "requester_inactive"


def latest(run: Run, key: str) -> list[str]:
    """The principals that ask now: who tried the step again, added it, or last retried the run, or else its requester.

    In a child run, those who retried the run above or added its steps come before the requester.
    """
    node, tried = StepKey.of(key).node, run.tried_by.get(StepKey.of(key).agent)
    if tried is not None:
        return [tried]
    if node in run.adders:
        return [run.adders[node]]
    if run.retried_by:
        return [run.retried_by]
    above = [who for role, _, who in marks_of_run(run) if role in (Role.RETRIER, Role.STEP_ADDER)]
    return above or [run.requested_by]


def marks_of_run(run: Run) -> Iterator[tuple[Role, str, str]]:
    """The role, place and principal of each contributor to the run as a whole."""
    return map(contributors.parted, run.state.shaped.get(contributors.RUN, ()))


def everybody(run: Run, key: str) -> list[str]:
    """All principals that have asked so far, the latest first."""
    others = [who for role, _, who in marks_of_run(run) if role in (Role.RETRIER, Role.STEP_ADDER)]
    again = [contributors.parted(one)[2] for one in contributors.tried_by(run.state, key)]
    return [*dict.fromkeys([*latest(run, key), *again, *others, run.requested_by])]


def name_of(people: Directory, who: str) -> str:
    """The id of the person for whom a principal stands; the principal itself if the directory knows none."""
    return people.resolve(who) or who


def person_of(people: Directory, who: str) -> Entry | None:
    """The active person who is this principal; None for a machine's account, a leaver or a stranger."""
    entry = people.entry(who)
    return entry if entry is not None and entry.standing is Standing.PERSON else None


def acting(run: Run, key: str) -> list[tuple[str, str]]:
    """The principals for which a step acts, each with its role in words."""
    if not (run.tried_by or run.adders or run.retried_by or run.state.shaped):
        return [(run.requested_by, ASKED)]  # so it is in most runs
    responsible = run.tried_by.get(StepKey.of(key).agent) or run.retried_by
    found = [(who, ASKED) for who in [*latest(run, key), responsible or run.requested_by]]
    if not responsible:
        found += [(who, "had the token that was used") for role, _, who in marks_of_run(run) if role is Role.BEARER]
    return [*dict.fromkeys(found)]


def inactive_for(view: RunView, run: Run, key: str) -> str | None:
    """The reason why nothing may go out for a step any more; None if everybody it acts for is active.

    A principal that the directory does not know counts as active, unless it had a token.
    """
    people = view.directory
    for who, part in acting(run, key):
        entry = people.entry(who)
        # Only accounts of the directory have tokens, so a missing account was taken out of the directory.
        by_token = who.startswith(f"{Kind.BEARER}:") or (run.started_by is not None and who == run.requested_by)
        taken_out = entry is None and by_token and people.digest
        why = "is not in the directory any more" if taken_out else None if entry is None else off(people, entry)
        if view.off and who == run.requested_by:
            why = why or "has no token any more that is good"
        if why is not None:
            remedy = "Whoever is responsible now may retry the run, which then acts for them."
            return f"{who!r}, who {part}, {why}: nothing goes out for them any more. {remedy}"
    return None


def off(people: Directory, entry: Entry) -> str | None:
    """The reason why an entry of the directory may ask for nothing; None if it and its owner are active."""
    if not entry.active:
        return "is not active any more"
    owner = people.entries.get(entry.owner) if entry.owner is not None else None
    if entry.owner is not None and (owner is None or not owner.active):
        return f"belongs to {entry.owner!r}, who is not active any more"
    return None
