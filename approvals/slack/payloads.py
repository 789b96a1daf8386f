"""Slack's interaction payloads, parsed into values of which we trust only the shape.

A click says who clicked what. Rights, status and digest come from the database.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from msgspec import Struct

from approvals.model import Choice
from approvals.ports import MessageRef
from approvals.slack.cards import ACTION_IDS, ASK_AGAIN, REVIEW
from approvals.slack.lists import APPROVE, CHOOSE, ITEMS_FIELD, LIST_CALLBACK, LIST_REASON_CALLBACK, REJECT
from approvals.slack.modals import CHOICE_FIELD, GRANT_FIELD, ONCE, REASON_CALLBACK, REASON_FIELD, REVIEW_CALLBACK
from approvals.slack.notices import HOLD, HOLD_CALLBACK
from approvals.slack.tasks import OPEN_ACTION, TASK_CALLBACK
from core.bounded_json import parse_object
from core.canonical import JsonObject
from core.errors import InputError

_BUTTONS: Mapping[str, Choice | None] = {
    REVIEW: None,
    ASK_AGAIN: None,
    **{name: choice for choice, name in ACTION_IDS.items()},
}
_LIST_BUTTONS: Mapping[str, Choice | None] = {APPROVE: Choice.APPROVE, REJECT: Choice.REJECT, CHOOSE: None}
_ID_CHARACTERS_MAX = 64
METADATA_BYTES_MAX = 3000
_VALUE, _METADATA, _VALUES = "actions[0].value", "view.private_metadata", "view.state.values"
_Members: TypeAlias = Mapping[str, Any]


class Clicker(Struct, frozen=True):
    """The Slack account that acted. ``team`` is the account's team, which in Grid and Connect may not be the channel's.

    ``teams`` and ``enterprises`` are all those that the payload names: a home accepts a click only if all are its own.
    """

    team: str
    user: str
    teams: frozenset[str] = frozenset()
    enterprises: frozenset[str] = frozenset()


class Click(Struct, frozen=True):
    """A press of one of our buttons. ``choice`` is None for Review; ``channel`` is the message's, "" if unknown.

    ``ts`` is the message's, "" for anything but an ordinary message: such a place is never a question's own.
    """

    choice: Choice | None
    approval_id: UUID
    nonce: str
    clicker: Clicker
    channel: str
    trigger_id: str
    ts: str = ""

    @property
    def place(self) -> MessageRef:
        """The message whose button was pressed."""
        return MessageRef(self.channel, self.ts)


class Submission(Struct, frozen=True):
    """A submission of one of our modals. ``choice`` is None if it asks for the next page; ``page`` counts from 0.

    ``digest`` is of the action that the modal showed, "" unless ``Windows`` knows that it was opened for this account.
    ``grant`` is what they allow in advance: how often, for how many seconds.
    """

    approval_id: UUID
    nonce: str
    clicker: Clicker
    choice: Choice | None
    reason: str
    page: int
    digest: str = ""
    grant: tuple[int, int] | None = None


class ListClick(Struct, frozen=True):
    """A press of a button on the card of a list. ``choice`` is None for *Choose…*; ``mark`` is of that drawing."""

    choice: Choice | None
    approval_id: UUID
    mark: str
    clicker: Clicker
    channel: str
    trigger_id: str
    ts: str = ""

    @property
    def place(self) -> MessageRef:
        """The message whose button was pressed."""
        return MessageRef(self.channel, self.ts)


class ListSubmission(Struct, frozen=True):
    """A submission of a window about a list. ``chosen`` are the boxes that are ticked; ``digest`` is the whole mark.

    ``digest`` is "" unless ``Windows`` knows that the window was opened for this account.
    """

    approval_id: UUID
    mark: str
    clicker: Clicker
    choice: Choice | None
    reason: str
    page: int
    chosen: frozenset[UUID] = frozenset()
    digest: str = ""


class HoldClick(Struct, frozen=True):
    """A press of a button on the message about a held step; ``ts`` as of ``Click``."""

    wait_id: UUID
    choice: str
    clicker: Clicker
    channel: str
    trigger_id: str
    ts: str = ""

    @property
    def place(self) -> MessageRef:
        """The message whose button was pressed."""
        return MessageRef(self.channel, self.ts)


class HoldSubmission(Struct, frozen=True):
    """A submission of the window that asks for the reason of an answer to a hold."""

    wait_id: UUID
    choice: str
    clicker: Clicker
    reason: str


class TaskClick(Struct, frozen=True):
    """One press of *Fill in* on a task's message; ``ts`` as of ``Click``."""

    task_id: UUID
    clicker: Clicker
    channel: str
    trigger_id: str
    ts: str = ""

    @property
    def place(self) -> MessageRef:
        """The message whose button was pressed."""
        return MessageRef(self.channel, self.ts)


class TaskSubmission(Struct, frozen=True):
    """A submission of a task's form. ``state`` is the raw ``view.state.values``, for ``forms.values_of``.

    ``digest`` is of the task that the form belongs to; "" as of ``Submission``.
    """

    task_id: UUID
    clicker: Clicker
    state: Mapping[str, Any]
    digest: str = ""


def parse_click(body: _Members) -> Click:
    """Parse a ``block_actions`` payload with exactly one of our buttons; ``InputError`` names the fault."""
    name, value, container = _pressed(body, _BUTTONS, "is none of our buttons")
    return Click(
        choice=_BUTTONS[name],
        approval_id=_uuid(value, "a", _VALUE),
        nonce=_id(value, "n", _VALUE),
        clicker=_clicker(body),
        channel=_optional_id(container, "channel_id", "container"),
        trigger_id=_text(body, "trigger_id", ""),
        ts=_time_of(container),
    )


def parse_submission(body: _Members) -> Submission:
    """Parse a ``view_submission`` payload of one of our modals; ``InputError`` names the fault."""
    callback, metadata, values = _sent(body, (REASON_CALLBACK, REVIEW_CALLBACK), "is none of our modals")
    page = _page(metadata)
    choice: Choice | None = None
    if callback == REASON_CALLBACK:
        choice = _choice(metadata, "c", _METADATA)
    elif metadata.get("l") is True:
        choice = _selected(values)
    approval_id, nonce = _uuid(metadata, "a", _METADATA), _id(metadata, "n", _METADATA)
    said = (choice, _reason(values), page, _digest(metadata))
    return Submission(approval_id, nonce, _clicker(body), *said, _granted(values, choice))


def _granted(values: _Members, choice: Choice | None) -> tuple[int, int] | None:
    """Read what is allowed in advance; None for only this once. Its bounds are checked with the vote."""
    if choice is not Choice.APPROVE or GRANT_FIELD not in values:
        return None
    where = f"{_VALUES}.{GRANT_FIELD}"
    said = _text(_object(_entered(values, GRANT_FIELD), "selected_option", where), "value", where)
    if said == ONCE:
        return None
    uses, _, seconds = said.partition(":")
    if not all(text.isascii() and text.isdigit() and len(text) <= 9 for text in (uses, seconds)):
        raise InputError("is none of our choices", where=where)
    return int(uses), int(seconds)


def _selected(values: _Members) -> Choice:
    option = _object(_entered(values, CHOICE_FIELD), "selected_option", f"{_VALUES}.{CHOICE_FIELD}")
    return _choice(option, "value", f"{_VALUES}.{CHOICE_FIELD}")


def _page(metadata: JsonObject) -> int:
    page = metadata.get("p", 0)
    if not isinstance(page, int) or isinstance(page, bool) or not 0 <= page < 10_000:
        raise InputError("is no page number", where=f"{_METADATA}.p")
    return page


def _reason(values: _Members) -> str:
    told = _entered(values, REASON_FIELD) if REASON_FIELD in values else {}
    return "" if told.get("value") is None else _text(told, "value", f"{_VALUES}.{REASON_FIELD}").strip()


def parse_list_click(body: _Members) -> ListClick:
    """Parse a press of a button on the card of a list; ``InputError`` names the fault."""
    name, value, container = _pressed(body, _LIST_BUTTONS, "is none of our buttons")
    return ListClick(
        choice=_LIST_BUTTONS[name],
        approval_id=_uuid(value, "a", _VALUE),
        mark=_id(value, "n", _VALUE),
        clicker=_clicker(body),
        channel=_optional_id(container, "channel_id", "container"),
        trigger_id=_text(body, "trigger_id", ""),
        ts=_time_of(container),
    )


def parse_list_submission(body: _Members) -> ListSubmission:
    """Parse a submission of a window about a list; ``InputError`` names the fault."""
    callback, metadata, values = _sent(body, (LIST_CALLBACK, LIST_REASON_CALLBACK), "is none of our modals")
    choice, chosen = None, set()
    if callback == LIST_REASON_CALLBACK:
        choice = _choice(metadata, "c", _METADATA)
    elif metadata.get("l") is True:
        choice = _selected(values)
        for name in (name for name in values if name.startswith(f"{ITEMS_FIELD}_")):
            for one in _entered(values, name).get("selected_options") or ():
                chosen.add(_uuid(one if isinstance(one, dict) else {}, "value", f"{_VALUES}.{name}"))
    told = (_uuid(metadata, "a", _METADATA), _id(metadata, "n", _METADATA), _clicker(body), choice, _reason(values))
    return ListSubmission(*told, _page(metadata), frozenset(chosen), _digest(metadata))


def parse_hold_click(body: _Members) -> HoldClick:
    """Parse a ``block_actions`` payload with exactly one button of a held step; ``InputError`` names the fault."""
    name, value, container = _pressed(body, HOLD.values(), "is not a button of a held step")
    choice = next(choice for choice, action in HOLD.items() if action == name)
    channel = _optional_id(container, "channel_id", "container")
    told = (_clicker(body), channel, _text(body, "trigger_id", ""), _time_of(container))
    return HoldClick(_uuid(value, "w", _VALUE), choice, *told)


def parse_hold_submission(body: _Members) -> HoldSubmission:
    """Parse a ``view_submission`` payload of the window about a held step; ``InputError`` names the fault."""
    _, metadata, values = _sent(body, (HOLD_CALLBACK,), "is not the window of a held step")
    choice = _text(metadata, "c", _METADATA)
    if choice not in HOLD:
        raise InputError("is none of our choices", where=f"{_METADATA}.c")
    return HoldSubmission(_uuid(metadata, "w", _METADATA), choice, _clicker(body), _reason(values))


def parse_task_click(body: _Members) -> TaskClick:
    """Parse a ``block_actions`` payload with exactly the button *Fill in*; ``InputError`` names the fault."""
    _, value, container = _pressed(body, (OPEN_ACTION,), "is not the button of a task")
    channel = _optional_id(container, "channel_id", "container")
    trigger, ts = _text(body, "trigger_id", ""), _time_of(container)
    return TaskClick(_uuid(value, "t", _VALUE), _clicker(body), channel, trigger, ts)


def parse_task_submission(body: _Members) -> TaskSubmission:
    """Parse a ``view_submission`` payload of a task's form, except its fields; ``InputError`` names the fault."""
    _, metadata, values = _sent(body, (TASK_CALLBACK,), "is not the form of a task")
    return TaskSubmission(_uuid(metadata, "t", _METADATA), _clicker(body), values, _digest(metadata))


def _pressed(body: _Members, ours: Container[str], otherwise: str) -> tuple[str, JsonObject, _Members]:
    """The id of the one pressed button, its value, and its message."""
    actions = body.get("actions")
    if not isinstance(actions, list) or len(actions) != 1 or not isinstance(actions[0], dict):
        raise InputError("is not a list of exactly one action", where="actions")
    name = _text(actions[0], "action_id", "actions[0]")
    if name not in ours:
        raise InputError(otherwise, where="actions[0].action_id")
    value = parse_object(_text(actions[0], "value", "actions[0]").encode(), bytes_max=2000, where=_VALUE)
    return name, value, _object(body, "container", "") if "container" in body else {}


def _sent(body: _Members, ours: Container[str], otherwise: str) -> tuple[str, JsonObject, _Members]:
    """The callback id of the submitted modal, its metadata, and the entered values."""
    view = _object(body, "view", "")
    callback = _text(view, "callback_id", "view")
    if callback not in ours:
        raise InputError(otherwise, where="view.callback_id")
    metadata = parse_object(
        _text(view, "private_metadata", "view").encode(), bytes_max=METADATA_BYTES_MAX, where=_METADATA
    )
    state = _object(view, "state", "view") if "state" in view else {"values": {}}
    return callback, metadata, _object(state, "values", "view.state")


def _time_of(container: _Members) -> str:
    """The time of the message that a button is on; "" if it is on no message that stands in a channel for all."""
    if container.get("type") != "message" or container.get("is_ephemeral") not in (None, False):
        return ""
    return _optional_id(container, "message_ts", "container")


def _digest(metadata: JsonObject) -> str:
    return "" if metadata.get("d") is None else _text(metadata, "d", _METADATA)


def _clicker(body: _Members) -> Clicker:
    """The account that acted. An organisation-wide app gets no ``team``, but ``enterprise`` and the user's team."""
    user = _object(body, "user", "")
    own = _optional_id(user, "team_id", "user")
    team = _object(body, "team", "") if body.get("team") is not None else {}
    enterprise = _object(body, "enterprise", "") if body.get("enterprise") is not None else {}
    at = _id(team, "id", "team") if team or not own else ""
    enterprises = (_optional_id(enterprise, "id", "enterprise"), _optional_id(team, "enterprise_id", "team"))
    return Clicker(
        own or at,
        _id(user, "id", "user"),
        frozenset(name for name in (own, at) if name),
        frozenset(name for name in enterprises if name),
    )


def clicker_of(body: _Members) -> Clicker:
    """The account that a payload is of; ``InputError`` names the fault."""
    return _clicker(body)


def visitor_of(body: _Members) -> Clicker:
    """The account that has opened the app's Home, by the event that says so; ``InputError`` names the fault."""
    event = _object(body, "event", "")
    team, enterprise = _optional_id(body, "team_id", ""), _optional_id(body, "enterprise_id", "")
    named = (frozenset(name for name in one if name) for one in ((team,), (enterprise,)))
    return Clicker(team or enterprise, _id(event, "user", "event"), *named)


def _entered(values: _Members, name: str) -> _Members:
    return _object(_object(values, name, _VALUES), name, f"{_VALUES}.{name}")


def _choice(value: _Members, name: str, where: str) -> Choice:
    try:
        return Choice(_text(value, name, where))
    except ValueError:
        raise InputError("is none of our choices", where=f"{where}.{name}") from None


def _uuid(value: _Members, name: str, where: str) -> UUID:
    try:
        return UUID(_text(value, name, where))
    except ValueError:
        raise InputError("is not the id of a question or task", where=f"{where}.{name}") from None


def _object(value: _Members, name: str, where: str) -> _Members:
    member = value.get(name)
    if not isinstance(member, dict):
        raise InputError("is not an object", where=f"{where}.{name}".lstrip("."))
    return member


def _text(value: _Members, name: str, where: str) -> str:
    member = value.get(name)
    if not isinstance(member, str):
        raise InputError("is not a text", where=f"{where}.{name}".lstrip("."))
    return member


def _id(value: _Members, name: str, where: str) -> str:
    text = _text(value, name, where)
    if not 0 < len(text) <= _ID_CHARACTERS_MAX or not text.isascii() or not text.isprintable():
        raise InputError("is not an id", where=f"{where}.{name}".lstrip("."))
    return text


def _optional_id(value: _Members, name: str, where: str) -> str:
    return "" if value.get(name) is None else _id(value, name, where)
