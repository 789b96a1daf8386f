"""The form in which people edit an action, made from the operation's own schema. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from approvals.fields import FieldKind, kind_of
from approvals.forms import FIELDS_MAX, KEYS_OF, check_form
from approvals.model import Approval, ApprovalKind, Voter
from approvals.quorum import NotCounted, RefusalCode, closed, ineligible
from core.canonical import Json, JsonObject
from core.identity import Role, Standing

# The roles of people who may correct an action although they may not decide it.
GAVE = (Role.REQUESTER, Role.FORM_FILLER)
_LONG = 60
_NO_ACTION = "This asks about no action, so there is nothing to edit."
NOTHING = "Nothing of this can be edited here. Reject it, and say what it should be."


def refused(
    approval: Approval, voter: Voter, at: datetime, nonce: str | None = None, digest: str | None = None
) -> NotCounted | None:
    """The reason why this person may not edit this now; None if they may.

    Whoever may decide it may edit it, and so may whoever asked for it or filled in a form that it comes from.
    """
    if (over := closed(approval, at, nonce, digest)) is not None:
        return over
    if approval.kind is not ApprovalKind.ACTION:
        return NotCounted(RefusalCode.UNEDITABLE, _NO_ACTION)
    may = ineligible(approval, voter, at)
    gave = any(one.person == voter.person_id and one.role in GAVE for one in approval.contributors)
    return None if may is None or (gave and voter.standing is Standing.PERSON) else may


def form_of(values: Mapping[str, Json], schemas: Mapping[str, Json], secret: Iterable[str]) -> JsonObject | None:
    """The form with a field for each value that a face can show and that is not secret; None if there is none."""
    hidden, properties = {*secret}, dict[str, Json]()
    for name, value in values.items():
        schema = schemas.get(name)
        if name in hidden or not isinstance(schema, dict) or len(properties) == FIELDS_MAX:
            continue
        field = _field(name, schema, value)
        if field is not None and not check_form(_form({name: field})):
            properties[name] = field
    form = _form(properties)
    return form if properties and not check_form(form) else None


def _form(properties: Mapping[str, Json]) -> JsonObject:
    return {"type": "object", "properties": {**properties}, "required": [*properties]}


def _field(name: str, schema: Mapping[str, Any], value: Json) -> JsonObject | None:
    kind = kind_of(schema)
    if kind is None or kind is FieldKind.CHOICES:
        return None
    shown: JsonObject = {key: schema[key] for key in schema if key in KEYS_OF[kind]}
    title = schema.get("title")
    label = title if isinstance(title, str) and title else name.replace("_", " ").capitalize()
    shown |= {"type": schema["type"], "title": label, "default": value}
    if kind is FieldKind.TEXT and isinstance(value, str) and (len(value) > _LONG or "\n" in value):
        shown["x-multiline"] = True
    return shown
