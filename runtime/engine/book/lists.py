"""Lists of questions: the iterations of a ``foreach`` that ask the same, which people answer on one card. Pure.

Each question of a list stays a question of its own: it has its own digest, and is answered, voided and expired by
itself. What makes them a list is only that they are put by the same step under the same terms.
"""

from __future__ import annotations

from approvals.model import ApprovalKind
from core.canonical import Json, JsonObject, digest
from runtime.engine.model.keys import StepKey

# So many questions stand on one card; those beyond it come with a card of their own.
LIST_MAX = 100


def list_of(step_key: str, kind: str, action: JsonObject | None, terms: JsonObject, card: JsonObject) -> str | None:
    """The name of the list that a question belongs to, unique in its run; None for a question that stands alone.

    The same step asks in every iteration of the innermost loop, for the same operation, because of the same rules,
    and under the same terms: tier, groups, quorum. A call of an agent stands alone, and so does what asks for a login
    anew: that is for one question.
    """
    key = StepKey.of(step_key)
    if kind != ApprovalKind.ACTION or key.is_inner or len(key.scopes) < 2 or action is None:
        return None
    if terms.get("step_up_seconds") is not None:
        return None
    loop = key.scopes[-1].rpartition("[")[0]
    rules = card.get("rules")
    why: list[Json] = [one.get("id") for one in rules if isinstance(one, dict)] if isinstance(rules, list) else []
    return digest(["list", f"{loop}.{key.own}", action.get("operation"), terms, why])[:32]


def cards_of(lists: list[str | None]) -> int:
    """The number of cards that these open questions take: each stands for a question, with the list it belongs to."""
    alone = sum(name is None for name in lists)
    return alone + sum(-(-lists.count(name) // LIST_MAX) for name in {*lists} if name is not None)
