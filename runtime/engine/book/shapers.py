"""Those who shaped an action, as its card names them, and why nobody is asked if one of them is unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from approvals.content import PARTS, ShapedBy
from approvals.tally import resolved
from core.identity import Contributor, Directory, Role, is_unknown
from core.terms import Terms, Tier
from runtime.engine.book.contributors import parted, requester_of
from runtime.engine.model.run import Run


def refusal(people: Iterable[Contributor], tier: Tier) -> str | None:
    """The reason why nobody is asked about what these people shaped, with the remedy; None if they are all known."""
    who = " and ".join(f"{one.principal!r} {PARTS[one.role]}" for one in people if one.person is None)
    return who and (
        f"{who}, and the directory knows nobody of that name. At tier {tier} nobody is asked then, because they could "
        "not be kept from deciding on what they shaped. Add them to the directory, or put `unresolved: ask` there."
    )


def shaped_by(run: Run, marks: Iterable[str], terms: Terms, directory: Directory) -> tuple[ShapedBy, ...]:
    """Those who shaped something, for its card; none if that is the requester alone, who is known and may not vote."""
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
