"""Payloads of the buttons and windows in which people say something about a question."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct

from approvals.slack.lists import LIST_TALK
from approvals.slack.members import (
    METADATA,
    VALUE,
    VALUES,
    Clicker,
    Members,
    clicker_of,
    digest_of,
    entered,
    id_of,
    object_of,
    pressed,
    reason_of,
    submitted,
    text_of,
    uuid_of,
)
from approvals.talk import Saying
from core.errors import InputError

_TALK: Mapping[str, Saying] = {f"counterseal.talk.{saying}": saying for saying in Saying}
_LIST_TALK: Mapping[str, Saying] = {f"{LIST_TALK}.{saying}": saying for saying in Saying}
TALK_CALLBACK, TO_FIELD, ABOUT_FIELD = "counterseal.talk", "to", "about"
EDIT_CALLBACK, _EDIT = "counterseal.edit", "counterseal.edit"


class TalkClick(Struct, frozen=True):
    """A press of a button that opens a window for something to say about a question."""

    saying: Saying
    approval_id: UUID
    nonce: str
    clicker: Clicker
    trigger_id: str


class TalkSubmission(Struct, frozen=True):
    """A submitted window with what somebody says about a question. ``to`` is who it is handed to, "" for nobody."""

    saying: Saying
    approval_id: UUID
    nonce: str
    digest: str
    clicker: Clicker
    text: str
    to: str = ""


def parse_talk_click(body: Members) -> TalkClick:
    """Parse a ``block_actions`` payload with exactly one button to say something; ``InputError`` names the fault."""
    name, value, _ = pressed(body, _TALK, "is not a button to say something")
    origin = (uuid_of(value, "a", VALUE), id_of(value, "n", VALUE), clicker_of(body), text_of(body, "trigger_id", ""))
    return TalkClick(_TALK[name], *origin)


def parse_talk_submission(body: Members) -> TalkSubmission:
    """Parse a ``view_submission`` payload of the window with what is said; ``InputError`` names the fault."""
    _, metadata, values = submitted(body, (TALK_CALLBACK,), "is not the window of something to say")
    place = (uuid_of(metadata, "a", METADATA), id_of(metadata, "n", METADATA), digest_of(metadata))
    return TalkSubmission(_saying(metadata), *place, clicker_of(body), reason_of(values), _whom(values))


class ListTalkClick(Struct, frozen=True):
    """A press of a button to say something about a question of a list; ``mark`` is of the window's drawing."""

    saying: Saying
    approval_id: UUID
    mark: str
    clicker: Clicker
    trigger_id: str


class ListTalkSubmission(Struct, frozen=True):
    """A submitted window with what somebody says about the question ``about`` of the list with the mark ``mark``.

    ``mark`` is "" unless ``Windows`` knows that the window was opened for this account. ``to`` is as in
    ``TalkSubmission``.
    """

    saying: Saying
    approval_id: UUID
    mark: str
    about: UUID
    clicker: Clicker
    text: str
    to: str = ""


def parse_list_talk_click(body: Members) -> ListTalkClick:
    """Parse a ``block_actions`` payload with exactly one such button of a list; ``InputError`` names the fault."""
    name, value, _ = pressed(body, _LIST_TALK, "is not a button to say something")
    origin = (uuid_of(value, "a", VALUE), id_of(value, "n", VALUE), clicker_of(body), text_of(body, "trigger_id", ""))
    return ListTalkClick(_LIST_TALK[name], *origin)


def parse_list_talk(body: Members) -> ListTalkSubmission:
    """Parse a ``view_submission`` payload of the window with what is said about a list's question."""
    _, metadata, values = submitted(body, (LIST_TALK,), "is not the window of something to say")
    about = uuid_of(_selected(values, ABOUT_FIELD), "value", f"{VALUES}.{ABOUT_FIELD}")
    to = _whom(values)
    subject = (_saying(metadata), uuid_of(metadata, "a", METADATA), digest_of(metadata), about)
    return ListTalkSubmission(*subject, clicker_of(body), reason_of(values), to)


def _saying(metadata: Members) -> Saying:
    kind = text_of(metadata, "s", METADATA)
    if kind not in set(Saying):
        raise InputError("is nothing that is said", where=f"{METADATA}.s")
    return Saying(kind)


def _selected(values: Members, field: str) -> Members:
    return object_of(entered(values, field), "selected_option", f"{VALUES}.{field}")


def _whom(values: Members) -> str:
    """The id or key of the person or group to whom it is handed, "" for nobody."""
    if TO_FIELD not in values:
        return ""
    return text_of(_selected(values, TO_FIELD), "value", f"{VALUES}.{TO_FIELD}")


class EditClick(Struct, frozen=True):
    """A press of a button that opens a window in which the action is edited."""

    approval_id: UUID
    nonce: str
    clicker: Clicker
    trigger_id: str


class EditSubmission(Struct, frozen=True):
    """A submitted window in which the action was edited. ``state`` is what was entered, unchecked."""

    approval_id: UUID
    nonce: str
    digest: str
    clicker: Clicker
    state: Members


def parse_edit_click(body: Members) -> EditClick:
    """Parse a ``block_actions`` payload with exactly the button *Edit…*; ``InputError`` names the fault."""
    _, value, _ = pressed(body, (_EDIT,), "is not a button to edit")
    return EditClick(
        uuid_of(value, "a", VALUE), id_of(value, "n", VALUE), clicker_of(body), text_of(body, "trigger_id", "")
    )


def parse_edit(body: Members) -> EditSubmission:
    """Parse a ``view_submission`` payload of the window in which it was edited; ``InputError`` names the fault."""
    _, metadata, values = submitted(body, (EDIT_CALLBACK,), "is not the window of an edit")
    place = (uuid_of(metadata, "a", METADATA), id_of(metadata, "n", METADATA), digest_of(metadata))
    return EditSubmission(*place, clicker_of(body), values)
