"""The people who shaped an action, followed along the flow of its data (promise 12). Pure.

A *mark* says how somebody shaped something: their role, the step at which they had it, and their principal, in one
text. ``State.shaped`` holds the marks of each step's result (``steps.<key>``), of each channel (``state.<name>``), of
the run's reference, of each added step (``added.<id>``), of the run as a whole (``run``), of whoever added the step
that has started this run from another run (``added``), of whoever tried a held step again (``tried.<key>``), and of
those who gave reasons with their votes (``votes.<key>``), except for votes on calls of agents. An expression passes on
the marks of all that it reads, also through conditions and loops; the compiler knows what every expression reads. Where
the flow cannot be followed, everything counts as used: all of a step's result, and everybody who ever wrote a channel.
The run's requester has a part in everything and needs no mark, so a run that nobody else shapes has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from approvals.model import ApprovalKind
from approvals.tally import resolved
from core.action import Action
from core.canonical import Json
from core.identity import UNKNOWN, Contributor, Directory, Kind, Role, principal
from core.terms import GroupSource, Terms
from runtime.engine.model.agent_state import OPERATION
from runtime.engine.model.events import ApprovalRequested
from runtime.engine.model.graph import GateNode, Graph
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import ApprovalRow, ReceiptRow, StepRow, WaitRow
from runtime.engine.model.run import Run, State
from runtime.engine.model.states import StepState, WaitKind

RUN, REFERENCE, VOTES, ADDED = "run", "run.reference", "votes.", "added"
# The prefix of the facts that hold what was read of the target.
BEFORE = "action.before."
# The marks of those who wrote the error message of a failed step (``errors.<key>``): only steps that read it use them.
ERRORS = "errors."
# The marks of those who tried a step again after it was held: they ask for that step, and for nothing else.
TRIED = "tried."
# The marks of those who answered an approver's question about a step: approvers decide by their answers.
TOLD = "told."
# The marks of those who edited what a step would do, by step.
EDITS = "edits."

# The role of a person who ends a wait of this kind. Timers and votes shape nothing.
_ENDS = {
    WaitKind.TASK: Role.FORM_FILLER,
    WaitKind.SIGNAL: Role.SIGNAL_SENDER,
    WaitKind.EXTERNAL: Role.SIGNAL_SENDER,
    WaitKind.HOLD: Role.RETRIER,
}
# Actors that are parts of Counterseal: they only pass on what others said, so they shape nothing.
_OURS = ("engine", "run", "connector")
# An actor of any other kind is looked up in the directory by its name alone.
_KINDS = frozenset(map(str, Kind))


def mark(role: Role, who: str, place: str = "") -> str:
    """The mark of a contributor. ``who`` is a principal, ``place`` the id of the step where they took part, or ""."""
    return f"{role} {place} {who}"


def parted(marked: str) -> tuple[Role, str, str]:
    """The role, the place and the principal of a mark."""
    role, place, who = marked.split(" ", 2)
    return Role(role), place, who


def opened(state: State, marks: Iterable[str], adder: str | None = None) -> None:
    """Add the marks of those who shaped the run's input, besides its requester.

    ``adder`` is the mark of whoever added the step that has started this run, or a run above it.
    """
    _add(state, RUN, marks)
    if adder is not None:
        _add(state, ADDED, [adder])


def added(state: State, steps: Iterable[Json], kind: str, name: str) -> str:
    """Mark the steps added to the graph with the actor who added them, by kind and name. Returns that principal."""
    principal = f"{kind}:{name}" if kind in _KINDS else name
    for step in steps:
        _add(state, f"added.{step}", [mark(Role.STEP_ADDER, principal, str(step))])
    return principal


def reopened(state: State, kind: str, name: str, role: Role = Role.RETRIER) -> str:
    """Mark the run with the actor who has retried it, or as ``EDITOR`` has moved it to another version: everything that
    comes after is theirs, too. Returns them.
    """
    principal = f"{kind}:{name}" if kind in _KINDS else name
    _add(state, RUN, [mark(role, principal)])
    return principal


def tried(state: State, key: str, kind: str, name: str) -> str:
    """Mark a held step with the actor who tries it again, who shapes what it does now. Returns the principal."""
    principal = f"{kind}:{name}" if kind in _KINDS else name
    _add(state, f"{TRIED}{key}", [mark(Role.RETRIER, principal, _node(key))])
    return principal


def tried_by(state: State, key: str) -> list[str]:
    """The marks of those who tried the step with this key again, or its agent if it is a turn or a call."""
    return state.shaped.get(f"{TRIED}{StepKey.of(key).agent}", [])


def edited(state: State, key: str, kind: str, name: str) -> None:
    """Mark a step with the actor who has edited what it would do."""
    principal = f"{kind}:{name}" if kind in _KINDS else name
    _add(state, f"{EDITS}{key}", [mark(Role.EDITOR, principal, _node(key))])


def edited_by(state: State, key: str) -> list[str]:
    """The marks of those who have edited what the step with this key would do."""
    return state.shaped.get(f"{EDITS}{key}", [])


def answered(state: State, key: str, kind: str, name: str) -> None:
    """Mark a step with the actor who has answered an approver's question about it."""
    principal = f"{kind}:{name}" if kind in _KINDS else name
    _add(state, f"{TOLD}{key}", [mark(Role.ANSWERER, principal, _node(key))])


def answered_by(state: State, key: str) -> list[str]:
    """The marks of those who answered approvers' questions about the step with this key."""
    return state.shaped.get(f"{TOLD}{key}", [])


def within(state: State, key: str, marks: Iterable[str]) -> None:
    """Mark a step with those who shaped the result of the run that it started, or the data that it read."""
    _add(state, f"steps.{key}", marks)


def failed(state: State, key: str, marks: Iterable[str]) -> None:
    """Mark the error message of a failed step. A model reads those of its calls, so these count as results."""
    _add(state, f"steps.{key}" if "/" in key else f"{ERRORS}{key}", marks)


def adder_of(state: State, key: str) -> str | None:
    """The mark of whoever added the step with this key, or the step it follows from; None if nobody added either.

    A turn or a call of an agent follows from the agent, and every step of a run from the step that has started it.
    """
    marks = state.shaped.get(f"{ADDED}.{_node(key).partition('/')[0]}") or state.shaped.get(ADDED)
    return marks[0] if marks else None


def kept_by(run: Run, marks: Iterable[str]) -> tuple[str, ...]:
    """The marks to keep with data that leaves this run: those who shaped it, and the run's requester."""
    return tuple(sorted({mark(Role.SOURCE_REQUESTER, requester_of(run)), *shapers(marks)}))


def shapers(marks: Iterable[str]) -> frozenset[str]:
    """The marks without those of the people whom something is only about."""
    return frozenset(one for one in marks if parted(one)[0] is not Role.SUBJECT)


def about(subjects: Iterable[str], key: str = "") -> frozenset[str]:
    """The marks of the people whom an action of this step, or a whole run, is about."""
    return frozenset(mark(Role.SUBJECT, who, _node(key) if key else "") for who in subjects)


def handed_on(run: Run, key: str, marks: Iterable[str]) -> list[str] | None:
    """The marks that a step gets with data from another run or step; None if they name only this run's requester.

    The place of these marks is the step that receives the data.
    """
    own = (Role.SOURCE_REQUESTER, requester_of(run))
    parts = [(role, who) for role, _, who in map(parted, marks) if (role, who) != own]
    return sorted({mark(role, who, _node(key)) for role, who in parts}) or None


def written_by(key: str, writers: Iterable[str]) -> list[str]:
    """The marks of the people who last wrote, in the outside system, the data that a step has read."""
    return sorted({mark(Role.OUTSIDE_WRITER, one, _node(key)) for one in writers})


def namers(terms: Terms, action: Action, key: str) -> frozenset[str]:
    """The marks of those who may have written the target's field that names an approver of these terms.

    Whoever gave a value of the action itself is marked already.
    """
    named = any(one.comes_from.startswith(BEFORE) for one in terms.approvers if one.source is GroupSource.PERSON)
    return frozenset(written_by(key, action.writers)) if named else frozenset()


def shared_with(run: Run | None, receipt: ReceiptRow, wait: WaitRow | None) -> tuple[str, ...]:
    """The marks of everybody who shaped a shared effect, for a step that reuses it. ``wait`` is the wait for its end.

    If the book has no marks for the effect, everybody who has shaped anything in its run counts.
    """
    marks = {*receipt.written, *(() if wait is None else ended_by(wait))}
    if receipt.shaped is not None:
        return tuple(sorted({*marks, *receipt.shaped}))
    if run is None:
        return tuple(sorted({*marks, mark(Role.SOURCE_REQUESTER, UNKNOWN)}))
    return kept_by(run, {*marks, *everybody(run.state)})


def requester_of(run: Run) -> str:
    """The run's requester as a principal: the person identified when the run started, or else the text as sent."""
    if run.requester is None or run.requested_by in (run.requester, principal(Kind.PERSON, run.requester)):
        return run.requested_by
    return principal(Kind.PERSON, run.requester)


def added_by(state: State, key: str) -> str:
    """The principal that added the step with this key, or the step it follows from; "" if nobody added either."""
    adder = adder_of(state, key)
    return "" if adder is None else parted(adder)[2]


def settled(run: Run, state: State, rows: Sequence[StepRow], graph: Graph) -> None:
    """Mark the results and writes of a super-step's finished steps with those who shaped them."""
    of_waits = _of_waits(run) if run.waits else {}
    over = [row for row in rows if row.status in (StepState.SUCCEEDED, StepState.FAILED_TERMINAL)]
    for vote in run.votes:  # the reason of a vote is a part of a gate's result, and of a failure
        key = run.approvals[vote.approval_id].step_key if vote.reason else ""
        if StepKey.of(key).is_inner:
            continue  # an agent asked this: whoever decided on one call may decide on its next call
        row = next((row for row in over if row.key == key), None)
        if row is not None and (isinstance(graph.leaf(key), GateNode) or row.status is StepState.FAILED_TERMINAL):
            _add(state, f"{VOTES}{key}", [mark(Role.FORM_FILLER, f"person:{vote.person_id}", _node(key))])
    if not of_waits and not state.shaped:
        return
    whole = {*state.shaped.get(RUN, ())}
    # All marks are computed before any is added: no step sees what the others of its super-step write.
    made = [(row, _from_outside(state, of_waits, row.key) | _used(state, graph, row) - whole) for row in over]
    for row, marks in made:
        _add(state, f"steps.{row.key}", marks)
        for name in (row.writes or {}) if row.status is StepState.SUCCEEDED else ():
            _add(state, REFERENCE if name.startswith("$") else f"state.{name}", marks)


def _from_outside(state: State, of_waits: Mapping[str, set[str]], key: str) -> set[str]:
    """The marks that a step got from outside its run's flow: from the end of its wait, or with the data it read."""
    return {*of_waits.get(key, ()), *state.shaped.get(f"steps.{key}", ())}


def _of(prefix: str) -> tuple[str, ...]:
    return tuple(f"{head}{prefix}" for head in ("steps.", VOTES, ERRORS, TRIED, TOLD, EDITS))


def forget(state: State, prefix: str) -> None:
    """Drop the marks of an iteration's steps: nothing reads their results any more."""
    for name in [name for name in state.shaped if name.startswith(_of(prefix))]:
        del state.shaped[name]


def marks_of(state: State, graph: Graph, key: str) -> frozenset[str]:
    """The marks of all data that the step with this key uses, and of all data that decided that the step is taken."""
    shaped = state.shaped
    if not shaped:
        return frozenset()
    # Expressions see the steps of the outermost scope and of each iteration around them.
    parsed = StepKey.of(key)
    scopes, node = parsed.scopes, parsed.node
    if parsed.is_inner or node not in graph.flow:
        return everybody(state).union(tried_by(state, key), answered_by(state, key), edited_by(state, key))
    found = {*shaped.get(RUN, ()), *shaped.get(ADDED, ()), *shaped.get(f"added.{node}", ())}
    found.update(tried_by(state, key), answered_by(state, key), edited_by(state, key))
    todo, seen = [*graph.flow[node][0]], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        head, _, node = name.partition(".")
        if f"{head}." in (VOTES, ERRORS):
            found.update(*(shaped.get(f"{head}.{scope}{node}", ()) for scope in scopes))
        if head != "steps":
            found.update(shaped.get(name, ()))
            continue
        found.update(shaped.get(f"added.{node}", ()))
        for scope in scopes:
            found.update(shaped.get(f"steps.{scope}{node}", ()))
        todo += graph.flow[node][1]  # its status and its count tell if, or how often, it was taken
    return frozenset(found)


def _used(state: State, graph: Graph, row: StepRow) -> frozenset[str]:
    # What a model makes of its messages cannot be followed, so everybody counts.
    return everybody(state) if row.operation == OPERATION else marks_of(state, graph, row.key)


def everybody(state: State) -> frozenset[str]:
    """The marks of all who have shaped anything in the run so far: steps after a gate may use any of it.

    Reasons given at other gates do not count, so that the same people may decide at several gates. Error messages do
    not count: each step that has read one is marked itself. Whoever tried another step again has not shaped this one.
    """
    others = (VOTES, ERRORS, TRIED, TOLD, EDITS)
    return frozenset(marked for name, marks in state.shaped.items() if not name.startswith(others) for marked in marks)


def wrote_failures(state: State) -> frozenset[str]:
    """The marks of those who wrote the error messages of failed steps: a failed run may end with one of them."""
    return frozenset(marked for name, marks in state.shaped.items() if name.startswith(ERRORS) for marked in marks)


def contributors_of(run: Run, marks: Iterable[str]) -> tuple[Contributor, ...]:
    """All contributors by role and principal, the requester first. The directory has not been asked about them yet."""
    others = sorted({(role, who) for role, _, who in map(parted, marks)})
    return (
        Contributor(Role.REQUESTER, requester_of(run), None),
        *(Contributor(role, who, None) for role, who in others),
    )


def named(marks: Iterable[str]) -> tuple[str, ...]:
    """All contributors besides the requester, as rules and digests know them: ``<role>:<principal>``, sorted.

    A person who has retried the run, moved it to another version, or answered a question about it, is left out. They
    may not decide either. But if the action is the same, they have changed nothing in it, so its approval lasts.
    """
    every = (part for part in map(parted, marks) if part[:2] != (Role.EDITOR, ""))
    shaped = [part for part in every if part[0] not in (Role.RETRIER, Role.ANSWERER)]
    return tuple(sorted({f"{role}:{who}" for role, _, who in shaped}))


def whole(state: State, graph: Graph, key: str, action: Action, system: str) -> Action:
    """The action, completed with the system that it is sent to and with those who shaped it besides the requester."""
    marks = marks_of(state, graph, key) | about(action.subjects, key)
    return replace(action, system=system, shaped=named(marks)) if marks or system else action


def facts_of(run: Run, directory: Directory, shaped: Iterable[str]) -> tuple[str, ...]:
    """Everybody who shaped an action as rules know them: ``<role>:<id of the person>``, the requester first.

    ``shaped`` are those besides the requester, by principal (``named``). Whoever the directory does not know is
    ``<role>:unresolved:<principal>``, which equals no person.
    """
    others = (each.partition(":")[::2] for each in shaped)
    roles = [f"{role}:{directory.named(name)}" for role, name in others]
    return (f"{Role.REQUESTER}:{requester_in(run, directory)}", *dict.fromkeys(roles))


def requester_in(run: Run, directory: Directory) -> str:
    """The id of the run's requester, as of its start or else by this directory; otherwise ``unresolved:<text>``."""
    return run.requester or directory.named(run.requested_by)


def people_of(run: Run, marks: Iterable[str], directory: Directory) -> tuple[Contributor, ...]:
    """The contributors with these marks, looked up in this directory."""
    return resolved(contributors_of(run, marks), directory)


def stated_contributors(asked: ApprovalRow | ApprovalRequested) -> tuple[Contributor, ...]:
    """Everybody who shaped what was asked, as they were known then."""
    shaped = tuple(Contributor.from_json(one) for one in asked.contributors or ())
    return shaped or (Contributor(Role.REQUESTER, asked.requester, asked.requester),)


def barred_from(run: Run, asked: ApprovalRow) -> tuple[Contributor, ...]:
    """Everybody who shaped what was asked, as they were known then; for a gate, also who shaped the run since.

    Whoever has retried the run or the step since then has asked for it again, so they do not decide it. Whoever has
    answered a question of the approvers about it does not decide it either.
    """
    shaped, again = [*stated_contributors(asked)], tried_by(run.state, asked.step_key)
    again = [*again, *answered_by(run.state, asked.step_key)]
    if asked.kind == ApprovalKind.GATE:
        shaped += contributors_of(run, everybody(run.state).union(again))
    elif run.retried_by or again:
        retriers = [one for one in run.state.shaped.get(RUN, ()) if parted(one)[0] is Role.RETRIER]
        shaped += [one for one in contributors_of(run, [*retriers, *again])[1:] if one not in shaped]
    return tuple(shaped)


def _of_waits(run: Run) -> Mapping[str, set[str]]:
    """The marks of those who ended a step's wait with a value, by step."""
    found: dict[str, set[str]] = {}
    for wait in run.waits.values():
        found.setdefault(wait.step_key, set()).update(ended_by(wait))
    return {key: marks for key, marks in found.items() if marks}


def ended_by(wait: WaitRow) -> set[str]:
    """The marks of those who ended a wait with a value, and of whoever shaped it in another run or outside."""
    if wait.result is None or (wait.kind is WaitKind.HOLD and "error" not in wait.result):
        return set()  # who tried a held step again has changed nothing; who went on without it has
    role, by = _ENDS.get(wait.kind), str(wait.result.get("by") or "")
    within = wait.result.get("shaped")  # those who shaped the result of a child run, or worked in a process outside
    marks = {*map(str, within)} if isinstance(within, list) else set[str]()
    kind, _, name = by.partition(":")
    if role is not None and name and kind not in _OURS:
        marks.add(mark(role, by if kind in _KINDS else name, _node(wait.step_key)))
    return marks


def _add(state: State, name: str, marks: Iterable[str]) -> None:
    known = state.shaped.get(name, [])
    if fresh := {*marks} - {*known}:
        state.shaped[name] = sorted({*known, *fresh})


def _node(key: str) -> str:
    return StepKey.of(key).own
