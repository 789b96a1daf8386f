"""Grants: an approver allows the same action again in advance, within the bounds that policy names. Pure.

A grant covers the same operation on the same target, with the same fields written and every other input the same, asked
for by the same rules on the same terms, for the run or one of its agents. Every use is judged anew, so a denial wins,
and after a changed decision people are asked. A grant lets an action out only while its voters could still approve that
action: their votes are counted again by today's directory, without those of people who shaped the action. Several
voters give a grant only if those of them who give one are a quorum themselves, within the smallest bounds that any of
them has named. An effect that other steps or runs may share is never covered: it is not this run's alone.

A use of a grant is an intent that names it. The run's version, the directory and the tenant's refusals guard the append
of that intent. So uses are counted exactly, and nothing goes out after a grant was taken back (promises 1, 11, 12).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from approvals.model import ApprovalKind, Choice, Vote, VoteChannel
from approvals.quorum import counted_again
from approvals.tally import carried, current_votes, resolved
from core.action import Action
from core.canonical import Json, JsonObject, derived_id, digest
from core.identity import Contributor, Directory
from core.terms import Grant, Terms
from evidence.chain import timestamp
from evidence.commitments import blind
from policy.evaluate import Decision
from runtime.engine.book import contributors, refusals
from runtime.engine.book.instructions import GivenApproval
from runtime.engine.life import ask
from runtime.engine.life.approved import asked_by
from runtime.engine.life.proposal import Proposal
from runtime.engine.model.events import GrantEnded, GrantGiven
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import AskRow
from runtime.engine.model.run import GrantRow

EXPIRED, USED_UP, LOST = "expired", "used_up", "votes_lost"
# A use asks no question, so the requester's number of open questions does not limit it.
_NO_QUESTION = 1_000_000


class Allowed(Struct, frozen=True):
    """A grant that a quorum gives in advance, and the votes of which it consists."""

    grant: Grant
    votes: tuple[Vote, ...]


def allowed(given: GivenApproval, people: Directory) -> Allowed | None:
    """Find the grant that voters of an approval give; None if those who give one are no quorum by themselves."""
    bounds, shaped = given.terms.grants, resolved(given.contributors, people)
    votes = [vote for vote in current_votes(given.votes) if vote.grant is not None and vote.choice is Choice.APPROVE]
    if bounds is None or not votes or not _carried(given.terms, shaped, votes, people, escalated=given.escalated):
        return None
    grants = [vote.grant for vote in votes if vote.grant is not None]
    uses, seconds = (
        min(bounds["uses"], *(one.uses for one in grants)),
        min(bounds["seconds"], *(s.seconds for s in grants)),
    )
    found = Grant(uses, seconds, any(one.agent for one in grants))
    return Allowed(found, tuple(votes)) if uses > 0 and seconds > 0 else None


def _carried(
    terms: Terms, shaped: Iterable[Contributor], votes: Iterable[Vote], people: Directory, *, escalated: bool
) -> bool:
    """True if these votes, without those of contributors, meet the terms by this directory, whatever policy allows."""
    every = [*shaped]
    out = {one.person for one in every}
    counted = counted_again([vote for vote in votes if vote.voter not in out], people)
    return carried(terms, every, counted, Choice.APPROVE, escalated=escalated)


def covered(action: Action, decision: Decision) -> str:
    """The digest of what a grant for this action covers: everything except the values of the written fields."""
    rest: JsonObject = {
        name: value for name, value in action.input.items() if name not in action.fields and value != action.fields
    }
    fields: list[Json] = [*sorted(action.fields)]
    what: list[Json] = [action.operation, action.system, action.target, fields, rest]
    return digest(["grant", *what, asked_by(decision)])


def give(p: Proposal, action: Action, decision: Decision) -> None:
    """Record the grant that the voters of the action's approval give, if any, in the append of the intent."""
    given, transition = p.known.given, p.transition
    if given is None or given.kind is not ApprovalKind.ACTION or decision.approval is None:
        return
    grant_id = derived_id(transition.view.run_id, f"grant:{given.approval_id}")
    found = None if p.may_be_shared else allowed(given, transition.view.directory)
    if found is None or decision.approval.grants is None or grant_id in transition.run.grants:
        return
    key, until = StepKey.of(p.step.key), given.at + timedelta(seconds=found.grant.seconds)
    if found.grant.agent and not key.is_inner:
        return
    what = covered(action, decision)
    shown: JsonObject = {"operation": action.operation, "target": action.target, "system": action.system}
    fields: list[Json] = [*sorted(action.fields)]
    rules: list[Json] = [rule.id for rule in decision.rules if rule.outcome is decision.outcome]
    shown |= {"fields": fields, "rules": rules, "tier": str(decision.approval.tier), "shaped": [*action.shaped]}
    event = GrantGiven(
        grant=grant_id,
        approval=given.approval_id,
        covers=blind(transition.view.run.run_key, what),
        uses=found.grant.uses,
        until=timestamp(until),
        digest=what,
        agent=key.agent if found.grant.agent else "",
        of=shown,
        terms=given.terms.to_json(),
        contributors=[one.to_json() for one in given.contributors],
        votes=[[vote.voter, [*sorted(vote.groups)]] for vote in found.votes],
        escalated=given.escalated,
    )
    transition.tell(event, step=p.step.key)


def covering(p: Proposal, action: Action, decision: Decision) -> GrantRow | None:
    """Find the grant that lets this action out now; None if people are to be asked. Ends grants that are over."""
    transition, terms = p.transition, decision.approval
    if terms is None or terms.grants is None or not transition.run.grants or p.may_be_shared:
        return None
    wanted, agent = covered(action, decision), StepKey.of(p.step.key)
    for grant in sorted(transition.run.grants.values(), key=lambda one: (one.at, one.grant_id)):
        same = grant.digest == wanted and grant.agent in ("", agent.agent if agent.is_inner else "")
        # If this action has a contributor whom the grant's voters did not see, people are asked.
        if grant.ended or not same or not {*action.shaped} <= {*map(str, _listed(grant.of.get("shaped")))}:
            continue
        if (why := _end_reason(p, grant)) is not None:
            transition.tell(GrantEnded(grant.grant_id, why, transition.view.directory.digest), step=p.step.key)
        elif _may_cover(p, action, terms, grant):
            return grant
    return None


def _end_reason(p: Proposal, grant: GrantRow) -> str | None:
    """The reason why the grant no longer lets any action out; None if it still does."""
    transition, people = p.transition, p.transition.view.directory
    if grant.used >= grant.uses:
        return USED_UP
    if transition.not_before(transition.view.at, p.step.key) > datetime.fromisoformat(grant.until):
        return EXPIRED
    return None if _still_carried(grant, (), people) else LOST


def _may_cover(p: Proposal, action: Action, terms: Terms, grant: GrantRow) -> bool:
    """True if its voters could approve this very action, and nobody has refused it. Sets guards of the append."""
    transition, people = p.transition, p.transition.view.directory
    shaped = contributors.people_of(transition.run, ask.marks_of(transition, p.step, action, terms), people)
    key = refusals.key_of_call(p.operation, action)
    if not _still_carried(grant, shaped, people) or refusals.binding(
        transition.view.refusals.get(key, ()), terms, transition.view.now
    ):
        return False
    # The append fails if somebody else used or revoked the grant meanwhile, a voter left, or this action was refused.
    transition.rows.recounted, transition.rows.people = True, people.digest or None
    transition.rows.asks.append(AskRow(key, "", _NO_QUESTION, []))
    return True


def _still_carried(grant: GrantRow, shaped: Iterable[Contributor], people: Directory) -> bool:
    """True if its voters are a quorum now, without those who shaped the approved action or (``shaped``) this one."""
    then = resolved(map(Contributor.from_json, grant.contributors), people)
    votes = [
        Vote(str(voter), str(voter), Choice.APPROVE, "", frozenset(map(str, groups)), VoteChannel.HTTP, "", "")
        for voter, groups in grant.votes
    ]
    return _carried(Terms.from_json(grant.terms), (*then, *shaped), votes, people, escalated=grant.escalated)


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
