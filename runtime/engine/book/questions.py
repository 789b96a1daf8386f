"""Parts of a question besides its action: the list with which it shares a card, and its contributors. Pure.

A list holds the iterations of a ``foreach`` that ask the same, which people answer on one card. Each of its questions
stays a question of its own: it has its own digest, and is answered, voided and expired by itself. They are a list only
because the same step asks them under the same terms.
"""

from __future__ import annotations

from collections.abc import Iterable

from approvals.content import PARTS, ShapedBy
from approvals.model import ApprovalKind
from approvals.tally import resolved
from core.canonical import Json, JsonObject, digest
from core.identity import Contributor, Directory, Role, is_unknown
from core.terms import Terms, Tier
from runtime.engine.book.contributors import parted, requester_of
from runtime.engine.model.keys import StepKey
from runtime.engine.model.run import Run

# The most questions on one card. Further ones come on a card of their own.
LIST_MAX = 100


def list_of(step_key: str, kind: str, action: JsonObject | None, terms: JsonObject, card: JsonObject) -> str | None:
    """The name of the list that a question belongs to, unique in its run; None for a question that stands alone.

    The same step asks in every iteration of the innermost loop, for the same operation, because of the same rules, and
    under the same terms: tier, groups, quorum. A call of an agent stands alone. So does a question whose voters must
    log in anew, because a login is for one question.
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
    """The number of cards for these open questions, each given by the list it belongs to, or None."""
    alone = sum(name is None for name in lists)
    return alone + sum(-(-lists.count(name) // LIST_MAX) for name in {*lists} if name is not None)


# -- those who shaped the action, as its card names them -------------------------------------------------------------


def refusal(people: Iterable[Contributor], tier: Tier) -> str | None:
    """The reason, with the remedy, why nobody is asked if a contributor is unknown; None if all are known."""
    who = " and ".join(f"{one.principal!r} {PARTS[one.role]}" for one in people if one.person is None)
    return who and (
        f"{who}, and the directory knows nobody of that name. At tier {tier} nobody is asked then, because they could "
        "not be kept from deciding on what they shaped. Add them to the directory, or put `unresolved: ask` there."
    )


def shaped_by(run: Run, marks: Iterable[str], terms: Terms, directory: Directory) -> tuple[ShapedBy, ...]:
    """The contributors to show on a card; none if that is only the requester, known and without a vote."""
    found = []
    for role, place, name in [(Role.REQUESTER, "", requester_of(run)), *sorted(map(parted, marks), key=_by_part)]:
        did = f"{PARTS[role]} ({place})" if place else PARTS[role]
        for one in resolved([Contributor(role, name, None)], directory):
            entry = directory.entries.get(one.person or "")
            note = "may decide all the same" if role in terms.allow else ""
            note = "nobody whom the directory knows" if one.person is None else note
            shown = "Somebody unknown" if is_unknown(name) else name
            found.append(ShapedBy(entry.name if entry else shown, did, note))
    return tuple(found) if len(found) > 1 or found[0].note else ()


def _by_part(part: tuple[Role, str, str]) -> tuple[int, str, str]:
    role, place, who = part
    return [*Role].index(role), place, who
