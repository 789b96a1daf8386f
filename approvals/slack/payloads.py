"""Slack's interaction payloads, parsed into values that we trust the shape of, and nothing else about.

A click says who clicked what. Rights, status and digest come from the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.model import Choice
from approvals.slack.cards import ACTION_IDS, REVIEW
from approvals.slack.modals import CHOICE_FIELD, REASON_CALLBACK, REASON_FIELD, REVIEW_CALLBACK
from approvals.slack.tasks import OPEN_ACTION, TASK_CALLBACK
from core.bounded_json import parse_object
from core.canonical import JsonObject
from core.errors import InputError

_BUTTONS: Mapping[str, Choice | None] = {REVIEW: None, **{name: choice for choice, name in ACTION_IDS.items()}}
_ID_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Clicker:
    """The Slack account that acted. ``team`` is the account's own, which in Grid and Connect is not the channel's.

    ``teams`` and ``enterprises`` are all that the payload names: a home accepts a click if every one is its own.
    """

    team: str
    user: str
    teams: frozenset[str] = frozenset()
    enterprises: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Click:
    """A press of one of our buttons; ``choice`` is None for Review. ``channel``, ``message_ts``: the card's, or ""."""

    choice: Choice | None
    approval_id: UUID
    nonce: str
    clicker: Clicker
    channel: str
    message_ts: str
    trigger_id: str


@dataclass(frozen=True, slots=True)
class Submission:
    """One of our modals, sent. ``choice`` is None when only the next page is wanted; ``page`` counts from 0."""

    approval_id: UUID
    nonce: str
    clicker: Clicker
    choice: Choice | None
    reason: str
    page: int


@dataclass(frozen=True, slots=True)
class TaskClick:
    """One press of *Fill in* on a task's message."""

    task_id: UUID
    clicker: Clicker
    channel: str
    trigger_id: str


@dataclass(frozen=True, slots=True)
class TaskSubmission:
    """The form of a task, sent. ``state`` is ``view.state.values`` as it came: ``forms.values_of`` reads it."""

    task_id: UUID
    clicker: Clicker
    state: Mapping[str, Any]


def parse_click(body: Mapping[str, Any]) -> Click:
    """A ``block_actions`` payload with exactly one of our buttons in it; ``InputError`` says what is wrong."""
    action = _only_action(body)
    name = _text(action, "action_id", "actions[0]")
    if name not in _BUTTONS:
        raise InputError("is none of our buttons", where="actions[0].action_id")
    value = _button_value(action)
    container = _object(body, "container", "") if "container" in body else {}
    return Click(
        choice=_BUTTONS[name],
        approval_id=_uuid(value, "a", "actions[0].value"),
        nonce=_id(value, "n", "actions[0].value"),
        clicker=_clicker(body),
        channel=_optional_id(container, "channel_id", "container"),
        message_ts=_optional_id(container, "message_ts", "container"),
        trigger_id=_text(body, "trigger_id", ""),
    )


def parse_submission(body: Mapping[str, Any]) -> Submission:
    """A ``view_submission`` payload of one of our modals; ``InputError`` says what is wrong."""
    view = _object(body, "view", "")
    callback = _text(view, "callback_id", "view")
    if callback not in (REASON_CALLBACK, REVIEW_CALLBACK):
        raise InputError("is none of our modals", where="view.callback_id")
    where = "view.private_metadata"
    metadata = _metadata(view)
    page = metadata.get("p", 0)
    if not isinstance(page, int) or isinstance(page, bool) or not 0 <= page < 10_000:
        raise InputError("is no page number", where=f"{where}.p")
    values = _state_values(view)
    if callback == REASON_CALLBACK:
        choice: Choice | None = _choice(_text(metadata, "c", where), f"{where}.c")
    else:
        choice = _selected(values) if metadata.get("l") is True else None
    return Submission(
        _uuid(metadata, "a", where), _id(metadata, "n", where), _clicker(body), choice, _reason(values), page
    )


def parse_task_click(body: Mapping[str, Any]) -> TaskClick:
    """A ``block_actions`` payload with exactly *Fill in* in it; ``InputError`` says what is wrong."""
    action = _only_action(body)
    if action.get("action_id") != OPEN_ACTION:
        raise InputError("is not the button of a task", where="actions[0].action_id")
    container = _object(body, "container", "") if "container" in body else {}
    return TaskClick(
        task_id=_uuid(_button_value(action), "t", "actions[0].value"),
        clicker=_clicker(body),
        channel=_optional_id(container, "channel_id", "container"),
        trigger_id=_text(body, "trigger_id", ""),
    )


def parse_task_submission(body: Mapping[str, Any]) -> TaskSubmission:
    """A ``view_submission`` payload of a task's form; ``InputError`` says what is wrong with all but its fields."""
    view = _object(body, "view", "")
    if view.get("callback_id") != TASK_CALLBACK:
        raise InputError("is not the form of a task", where="view.callback_id")
    return TaskSubmission(_uuid(_metadata(view), "t", "view.private_metadata"), _clicker(body), _state_values(view))


def _only_action(body: Mapping[str, Any]) -> Mapping[str, Any]:
    actions = body.get("actions")
    if not isinstance(actions, list) or len(actions) != 1 or not isinstance(actions[0], dict):
        raise InputError("is not a list of exactly one action", where="actions")
    return actions[0]


def _button_value(action: Mapping[str, Any]) -> JsonObject:
    return parse_object(_text(action, "value", "actions[0]").encode(), bytes_max=2000, where="actions[0].value")


def _metadata(view: Mapping[str, Any]) -> JsonObject:
    where = "view.private_metadata"
    return parse_object(_text(view, "private_metadata", "view").encode(), bytes_max=3000, where=where)


def _state_values(view: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(_object(view, "state", "view"), "values", "view.state") if "state" in view else {}


def _clicker(body: Mapping[str, Any]) -> Clicker:
    """Without ``team``, an interaction of an organisation-wide app names its ``enterprise`` and the user's team."""
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


def _selected(values: Mapping[str, Any]) -> Choice:
    where = f"view.state.values.{CHOICE_FIELD}"
    field = _object(_object(values, CHOICE_FIELD, "view.state.values"), CHOICE_FIELD, where)
    return _choice(_text(_object(field, "selected_option", where), "value", where), where)


def _reason(values: Mapping[str, Any]) -> str:
    where = f"view.state.values.{REASON_FIELD}"
    if REASON_FIELD not in values:
        return ""
    field = _object(_object(values, REASON_FIELD, "view.state.values"), REASON_FIELD, where)
    return "" if field.get("value") is None else _text(field, "value", where).strip()


def _choice(value: str, where: str) -> Choice:
    try:
        return Choice(value)
    except ValueError:
        raise InputError("is none of our choices", where=where) from None


def _uuid(value: Mapping[str, Any], name: str, where: str) -> UUID:
    try:
        return UUID(_text(value, name, where))
    except ValueError:
        raise InputError("is not the id of a question or task", where=f"{where}.{name}") from None


def _object(value: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    member = value.get(name)
    if not isinstance(member, dict):
        raise InputError("is not an object", where=f"{where}.{name}".lstrip("."))
    return member


def _text(value: Mapping[str, Any], name: str, where: str) -> str:
    member = value.get(name)
    if not isinstance(member, str):
        raise InputError("is not a text", where=f"{where}.{name}".lstrip("."))
    return member


def _id(value: Mapping[str, Any], name: str, where: str) -> str:
    text = _text(value, name, where)
    if not 0 < len(text) <= _ID_CHARACTERS_MAX or not text.isascii() or not text.isprintable():
        raise InputError("is not an id", where=f"{where}.{name}".lstrip("."))
    return text


def _optional_id(value: Mapping[str, Any], name: str, where: str) -> str:
    return "" if value.get(name) is None else _id(value, name, where)
