"""Origins of the first messages of an agent: told when it begins, because channels change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from core.canonical import Json, JsonObject
from core.origins.expressions import Origins
from core.origins.matching import MODEL, PERSON, REQUESTER, UNKNOWN, WORKFLOW
from core.templates import Template
from runtime.engine.agent_node import AgentNode
from runtime.engine.commit import StepRow
from runtime.engine.draft import Draft
from runtime.engine.events import AgentBegan
from runtime.engine.following import following
from runtime.engine.origins import TOOL, Follower
from runtime.engine.tracing import value_at

# From least to most trustworthy: if a value has several ingredients, the least trustworthy one counts.
_TRUST = (UNKNOWN, MODEL, "trigger:", "signal:", TOOL, PERSON, WORKFLOW, REQUESTER)


def with_sources(draft: Draft, step: StepRow, node: AgentNode, began: AgentBegan) -> AgentBegan:
    """The event by which an agent begins, with the origins of its messages."""
    return replace(began, sources=given_of(following(draft, step, draft.workflow), node, began.messages or []) or None)


def given_of(follower: Follower, node: AgentNode, messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The sources of an agent's first messages, each with its least trustworthy origin."""
    said = [one.get("content") for one in messages]
    found: dict[str, JsonObject] = {}
    for template in (node.instructions, node.input):
        for origin, value in _sources(follower, template, node.id):
            place: JsonObject = {"message": said.index(value)} if value in said else {"value": value}
            found[repr((origin, place))] = {"origin": origin, **place}
    return [*found.values()]


def _sources(follower: Follower, template: object, node: str) -> Iterator[tuple[str, Json]]:
    if not isinstance(template, Template):
        return
    ((author,),) = follower.authored([[WORKFLOW]], node)
    yield from ((author, words) for words in template.authored())
    for path in sorted(template.references):
        plain = sorted({one for _, read in template.ingredients() for one in read if one and one.startswith(path)})
        for one in plain or [path]:
            found = value_at(follower.values, one)
            if found is not None:
                yield weakest(follower.path(one, node)), found[1]


def weakest(origins: Origins) -> str:
    """The origin of what has several ingredients: that of the least trustworthy one."""
    return min(map(_best, origins), key=_rank, default=UNKNOWN)


def _best(alternatives: Iterable[str]) -> str:
    """The most trustworthy alternative of an ingredient. A field counts as its tool: it may not be here as a whole."""
    several = [one for one in alternatives if one.startswith(_TRUST)]
    return UNKNOWN if UNKNOWN in several else max(several, key=_rank, default=UNKNOWN)


def _rank(origin: str) -> int:
    return next(at for at, begins in enumerate(_TRUST) if origin.startswith(begins))
