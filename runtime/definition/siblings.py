"""Operations that can do what a more specific one does: a rule about the specific one restrains them as well.

``servicenow.record.update`` of the table incident does what ``servicenow.incident.update`` does. Which operations are
such siblings follows from their declarations alone: the same handler, a target of the same form, fields that the
other writes too. An installation may declare a handler under another name: that opens no way around the rules about the
packaged operations with this handler, whatever target it names.
"""

from __future__ import annotations

import re

from connectors.catalog import Catalog
from connectors.operation import Operation, text_parts


def generics_of(specific: Operation, catalog: Catalog) -> dict[str, str]:
    """The operations that can do what this one does, each with the condition under which a call of it does, in CEL."""
    others = [one for one in catalog.operations.values() if one.handler == specific.handler]
    found = {one.name: " && ".join(_conditions(specific)) or "true" for one in others if _is_more(one, specific)}
    if specific.name in catalog.packaged:
        alone = not any(one.name in catalog.packaged for one in others if one is not specific)
        renamed = [one for one in others if one.name not in catalog.packaged and (alone or one.owner is not None)]
        found |= {one.name: "true" for one in renamed}
    return found


def _is_more(generic: Operation, specific: Operation) -> bool:
    """True if every target of the specific one is one of the generic one's, and it can do more besides."""
    if not _takes(generic, specific):
        return False
    return not _takes(specific, generic) or (isinstance(generic.writes, str) and isinstance(specific.writes, tuple))


def _takes(one: Operation, other: Operation) -> bool:
    """True if the form of one target holds for the other: ``{table}/{sys_id}`` does for ``incident/{sys_id}``."""
    form = "".join(re.escape(part) if isinstance(part, str) else ".+" for part in text_parts(one.target))
    return re.fullmatch(form, other.target) is not None


def _conditions(specific: Operation) -> list[str]:
    """The conditions under which this operation could have done an action."""
    first, *rest = text_parts(specific.target)
    found = []
    if isinstance(first, str):
        found.append(f"action.target.startsWith({first!r})" if rest else f"action.target == {first!r}")
    if isinstance(specific.writes, tuple) and specific.writes:
        found.append("(" + " || ".join(f"{name!r} in action.present" for name in specific.writes) + ")")
    return found
