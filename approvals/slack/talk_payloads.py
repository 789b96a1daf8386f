"""Payloads of the buttons and windows in which people say something about a question."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct

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
    sent,
    text_of,
    uuid_of,
)
from approvals.talk import Saying
from core.errors import InputError

_TALK: Mapping[str, Saying] = {f"counterseal.talk.{saying}": saying for saying in Saying}
TALK_CALLBACK, TO_FIELD = "counterseal.talk", "to"
EDIT_CALLBACK, _EDIT = "counterseal.edit", "counterseal.edit"


class TalkClick(Struct, frozen=True):
    """A press of a button that opens a window for something to say about a question."""

    saying: Saying
    approval_id: UUID
    nonce: str
    clicker: Clicker
    trigger_id: str


class TalkSubmission(Struct, frozen=True):
    """A submitted window with what somebody says about a question. ``to`` is whom it is handed to, "" for nobody."""

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
    told = (uuid_of(value, "a", VALUE), id_of(value, "n", VALUE), clicker_of(body), text_of(body, "trigger_id", ""))
    return TalkClick(_TALK[name], *told)


def parse_talk_submission(body: Members) -> TalkSubmission:
    """Parse a ``view_submission`` payload of the window with what is said; ``InputError`` names the fault."""
    _, metadata, values = sent(body, (TALK_CALLBACK,), "is not the window of something to say")
    saying = text_of(metadata, "s", METADATA)
    if saying not in set(Saying):
        raise InputError("is nothing that is said", where=f"{METADATA}.s")
    to = ""
    if TO_FIELD in values:
        option = object_of(entered(values, TO_FIELD), "selected_option", f"{VALUES}.{TO_FIELD}")
        to = text_of(option, "value", f"{VALUES}.{TO_FIELD}")
    place = (uuid_of(metadata, "a", METADATA), id_of(metadata, "n", METADATA), digest_of(metadata))
    return TalkSubmission(Saying(saying), *place, clicker_of(body), reason_of(values), to)


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
    _, metadata, values = sent(body, (EDIT_CALLBACK,), "is not the window of an edit")
    place = (uuid_of(metadata, "a", METADATA), id_of(metadata, "n", METADATA), digest_of(metadata))
    return EditSubmission(*place, clicker_of(body), values)
