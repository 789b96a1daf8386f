"""Reads the members of Slack's payloads, one by one. Only their shape is trusted."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from msgspec import Struct

from approvals.model import Choice
from approvals.slack.modals import REASON_FIELD
from core.bounded_json import parse_object
from core.canonical import JsonObject
from core.errors import InputError

METADATA_BYTES_MAX = 3000
VALUE, METADATA, VALUES = "actions[0].value", "view.private_metadata", "view.state.values"
_ID_CHARACTERS_MAX = 64
Members: TypeAlias = Mapping[str, Any]


class Clicker(Struct, frozen=True):
    """The Slack account that acted. ``team`` is the account's team, which in Grid and Connect may not be the channel's.

    ``teams`` and ``enterprises`` are all those that the payload names: a home accepts a click only if all of them are
    its own.
    """

    team: str
    user: str
    teams: frozenset[str] = frozenset()
    enterprises: frozenset[str] = frozenset()


def pressed(body: Members, ours: Container[str], otherwise: str) -> tuple[str, JsonObject, Members]:
    """The id of the one pressed button, its value, and its message."""
    actions = body.get("actions")
    if not isinstance(actions, list) or len(actions) != 1 or not isinstance(actions[0], dict):
        raise InputError("is not a list of exactly one action", where="actions")
    name = text_of(actions[0], "action_id", "actions[0]")
    if name not in ours:
        raise InputError(otherwise, where="actions[0].action_id")
    value = parse_object(text_of(actions[0], "value", "actions[0]").encode(), bytes_max=2000, where=VALUE)
    return name, value, object_of(body, "container", "") if "container" in body else {}


def submitted(body: Members, ours: Container[str], otherwise: str) -> tuple[str, JsonObject, Members]:
    """The callback id of the submitted modal, its metadata, and the entered values."""
    view = object_of(body, "view", "")
    callback = text_of(view, "callback_id", "view")
    if callback not in ours:
        raise InputError(otherwise, where="view.callback_id")
    metadata = parse_object(
        text_of(view, "private_metadata", "view").encode(), bytes_max=METADATA_BYTES_MAX, where=METADATA
    )
    state = object_of(view, "state", "view") if "state" in view else {"values": {}}
    return callback, metadata, object_of(state, "values", "view.state")


def time_of(container: Members) -> str:
    """The time of the message that a button is on; "" if that is no ordinary message in a channel."""
    if container.get("type") != "message" or container.get("is_ephemeral") not in (None, False):
        return ""
    return optional_id(container, "message_ts", "container")


def digest_of(metadata: JsonObject) -> str:
    """The digest in the metadata of a window of ours; "" if there is none."""
    return "" if metadata.get("d") is None else text_of(metadata, "d", METADATA)


def clicker_of(body: Members) -> Clicker:
    """The account that acted. An organisation-wide app gets no ``team``, but ``enterprise`` and the user's team."""
    user = object_of(body, "user", "")
    own = optional_id(user, "team_id", "user")
    team = object_of(body, "team", "") if body.get("team") is not None else {}
    enterprise = object_of(body, "enterprise", "") if body.get("enterprise") is not None else {}
    at = id_of(team, "id", "team") if team or not own else ""
    enterprises = (optional_id(enterprise, "id", "enterprise"), optional_id(team, "enterprise_id", "team"))
    return Clicker(
        own or at,
        id_of(user, "id", "user"),
        frozenset(name for name in (own, at) if name),
        frozenset(name for name in enterprises if name),
    )


def visitor_of(body: Members) -> Clicker:
    """The account that opened the app's Home, from that event; ``InputError`` names the fault."""
    event = object_of(body, "event", "")
    team, enterprise = optional_id(body, "team_id", ""), optional_id(body, "enterprise_id", "")
    named = (frozenset(name for name in one if name) for one in ((team,), (enterprise,)))
    return Clicker(team or enterprise, id_of(event, "user", "event"), *named)


def entered(values: Members, name: str) -> Members:
    """The element of a field, with what was entered."""
    return object_of(object_of(values, name, VALUES), name, f"{VALUES}.{name}")


def choice_of(value: Members, name: str, where: str) -> Choice:
    """A member as one of the answers."""
    try:
        return Choice(text_of(value, name, where))
    except ValueError:
        raise InputError("is none of our choices", where=f"{where}.{name}") from None


def uuid_of(value: Members, name: str, where: str) -> UUID:
    """A member as the id of a question or task."""
    try:
        return UUID(text_of(value, name, where))
    except ValueError:
        raise InputError("is not the id of a question or task", where=f"{where}.{name}") from None


def object_of(value: Members, name: str, where: str) -> Members:
    """A member as an object."""
    member = value.get(name)
    if not isinstance(member, dict):
        raise InputError("is not an object", where=f"{where}.{name}".lstrip("."))
    return member


def text_of(value: Members, name: str, where: str) -> str:
    """A member as a text."""
    member = value.get(name)
    if not isinstance(member, str):
        raise InputError("is not a text", where=f"{where}.{name}".lstrip("."))
    return member


def id_of(value: Members, name: str, where: str) -> str:
    """A member as an id."""
    text = text_of(value, name, where)
    if not 0 < len(text) <= _ID_CHARACTERS_MAX or not text.isascii() or not text.isprintable():
        raise InputError("is not an id", where=f"{where}.{name}".lstrip("."))
    return text


def optional_id(value: Members, name: str, where: str) -> str:
    """A member as an id; "" if there is none."""
    return "" if value.get(name) is None else id_of(value, name, where)


def reason_of(values: Members) -> str:
    """The text that was entered as a reason; "" for none."""
    member = entered(values, REASON_FIELD) if REASON_FIELD in values else {}
    return "" if member.get("value") is None else text_of(member, "value", f"{VALUES}.{REASON_FIELD}").strip()
