"""Works out the consequences of a change of the policies in force before the change is made. Writes nothing.

They are: rules that are added and removed, steps of published workflows whose verdict changes, open questions that
would not be asked any more in the same way, and a return to a lower version. The person who changes a policy is shown
them, and the audit records them.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.model import ApprovalStatus
from core.canonical import Json, JsonObject
from core.db import Connection
from core.errors import CountersealError
from policy.foresee import changed
from policy.sets import Member, PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.foresight import foresee_steps
from runtime.engine.life import readers
from runtime.engine.life.transition import Transition
from runtime.store import approvals, documents, pauses
from runtime.store.views import load

# Limits: the most consequences of each kind that are named (the rest is counted), the most open questions that are
# judged before the change, and the most lines of their books: a change that denies must not wait for long books.
# Keepers judge all questions after the change.
NAMED_MAX = 50
QUESTIONS_MAX = 200
LINES_MAX = 4_000


class Consequences(Struct, frozen=True):
    """The consequences of a change. The lists are complete; ``to_json`` bounds them.

    ``rules`` are (rule, change), ``steps`` are (workflow, step, operation, verdict before, verdict after),
    ``questions`` are (approval, run, step, new outcome). ``unread`` counts open questions that were not judged.
    ``rollback`` is the higher version that a lower one replaces.
    """

    rules: tuple[tuple[str, str], ...] = ()
    steps: tuple[tuple[str, str, str, str, str], ...] = ()
    questions: tuple[tuple[str, str, str, str], ...] = ()
    unread: int = 0
    rollback: int | None = None

    def to_json(self) -> JsonObject:
        """The consequences as plain JSON, for people, programs and the audit: names and ids, never a value."""
        facts: JsonObject = {
            "rules": _named(self.rules, ("rule", "what")),
            "steps": _named(self.steps, ("workflow", "step", "operation", "before", "after")),
            "questions": _named(self.questions, ("approval", "run", "step", "outcome")),
            "more": {
                name: max(0, len(found) - NAMED_MAX)
                for name, found in (("rules", self.rules), ("steps", self.steps), ("questions", self.questions))
            },
        }
        facts["unread"] = self.unread
        facts["rollback_from"] = self.rollback
        return facts


def _named(found: tuple[tuple[str, ...], ...], names: tuple[str, ...]) -> list[Json]:
    return [dict[str, Json](zip(names, one, strict=True)) for one in found[:NAMED_MAX]]


class Change(Struct, frozen=True):
    """A policy that replaces the policy of its name, or a policy that is removed: the sets before and after.

    ``digests`` are those after the change, in the order of the policies' names: so the same policies always make the
    same set.
    """

    before: PolicySet
    after: PolicySet
    digests: tuple[str, ...]


async def change_of(
    connection: Connection, definitions: Definitions, tenant: str, name: str, policy: Member | None
) -> Change:
    """The change that puts this policy in force under its name; without a policy, it takes that name out of force.

    A policy in force that is missing in the database stays in the set: it denies, and dropping it silently would allow
    again. The caller holds the tenant's lock.
    """
    names = {one.digest: one.name for one in (await documents.past_policies(connection, tenant)).editions}
    digests = await documents.in_force(connection, tenant)
    before = await definitions.policies(connection, tenant, digests)
    after = [(digest, one) for digest, one in zip(digests, before.members, strict=True) if names.get(digest) != name]
    if policy is not None:
        names[policy.digest] = name
        after.append((policy.digest, policy))
    after.sort(key=lambda pair: (pair[0] not in names, names.get(pair[0], ""), pair[0]))
    return Change(before, PolicySet(one for _, one in after), tuple(digest for digest, _ in after))


async def foretell(
    connection: Connection, definitions: Definitions, tenant: str, change: Change, rollback: int | None = None
) -> Consequences:
    """Work out the consequences of a change. The caller holds the tenant's lock."""
    questions, unread = await _questions(connection, definitions, tenant, change.after)
    steps = await _steps(connection, definitions, tenant, change.before, change.after)
    return Consequences(tuple(changed(change.before, change.after)), tuple(steps), tuple(questions), unread, rollback)


async def _steps(
    connection: Connection, definitions: Definitions, tenant: str, before: PolicySet, after: PolicySet
) -> list[tuple[str, str, str, str, str]]:
    """The steps whose verdict changes, in the newest version of every workflow."""
    found = []
    for stored in await documents.newest_workflows(connection, tenant):
        try:
            workflow = definitions.compiled(stored)
        except CountersealError:
            continue  # a workflow that cannot be read starts no run, and is reported elsewhere
        steps = zip(foresee_steps(workflow, before), foresee_steps(workflow, after), strict=True)
        found += [
            (f"{workflow.name}@{workflow.version}", one.step, one.operation, one.foreseen.words, other.foreseen.words)
            for one, other in steps
            if one.foreseen.words != other.foreseen.words
        ]
    return found


async def _questions(
    connection: Connection, definitions: Definitions, tenant: str, after: PolicySet
) -> tuple[list[tuple[str, str, str, str]], int]:
    """The open questions that would not be asked in this way any more, and the number of questions not looked at."""
    looked_at = await pauses.previewed(connection, tenant, QUESTIONS_MAX, LINES_MAX)
    found, unread = [], max(0, await pauses.open_questions(connection, tenant) - len(looked_at))
    for approval_id in looked_at:
        try:
            facts = await _question(connection, definitions, tenant, after, approval_id)
        except CountersealError:
            unread += 1  # its run cannot be read; the keepers say so when they judge it
            continue
        if facts is not None:
            found.append(facts)
    return found, unread


async def _question(
    connection: Connection, definitions: Definitions, tenant: str, after: PolicySet, approval_id: UUID
) -> tuple[str, str, str, str] | None:
    run_id = await approvals.run_of(connection, approval_id)
    view = await load(connection, run_id, definitions.graphs, whole=True, tenant=tenant)
    asked, last = view.run.approvals.get(approval_id), view.run.answers.get(approval_id)
    if asked is None or last is None or last.status != ApprovalStatus.REQUESTED:
        return None  # it was answered after it was listed: its step may have gone on
    workflow = await definitions.of_run(connection, view.definition)
    people = await definitions.directory(connection, tenant, view.directory_digest)
    transition = Transition(replace(view, directory=people), workflow.graph)
    outcome = readers.otherwise(transition, view.run.steps[asked.step_key], workflow, after, asked)
    return None if outcome is None else (str(approval_id), str(run_id), asked.step_key, str(outcome))
