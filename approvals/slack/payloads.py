"""Slack's interaction payloads, parsed into values of which we trust only the shape.

A click says who clicked what. Rights, status and digest come from the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct

from approvals.model import Choice
from approvals.ports import MessageRef
from approvals.slack.cards import ACTION_IDS, ASK_AGAIN, REVIEW, TAKE_BACK
from approvals.slack.lists import APPROVE, CHOOSE, ITEMS_FIELD, LIST_CALLBACK, LIST_REASON_CALLBACK, REJECT
from approvals.slack.members import (
    METADATA,
    VALUE,
    VALUES,
    Clicker,
    Members,
    choice_of,
    clicker_of,
    digest_of,
    entered,
    id_of,
    object_of,
    optional_id,
    pressed,
    reason_of,
    submitted,
    text_of,
    time_of,
    uuid_of,
)
from approvals.slack.modals import CHOICE_FIELD, GRANT_FIELD, ONCE, REASON_CALLBACK, REVIEW_CALLBACK
from approvals.slack.notices import HOLD, HOLD_CALLBACK
from approvals.slack.tasks import OPEN_ACTION, TASK_CALLBACK
from core.canonical import JsonObject
from core.errors import InputError

_BUTTONS: Mapping[str, Choice | None] = {
    REVIEW: None,
    ASK_AGAIN: None,
    TAKE_BACK: None,
    **{name: choice for choice, name in ACTION_IDS.items()},
}
_LIST_BUTTONS: Mapping[str, Choice | None] = {APPROVE: Choice.APPROVE, REJECT: Choice.REJECT, CHOOSE: None}


class Click(Struct, frozen=True):
    """A press of one of our buttons. ``choice`` is None for Review; ``channel`` is the message's, "" if unknown.

    ``ts`` is the message's, "" for anything but an ordinary message, which is never a question's own message.
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
    """A press of a button on the card of a list. ``choice`` is None for *Choose…*; ``mark`` is that card's mark."""

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


def parse_click(body: Members) -> Click:
    """Parse a ``block_actions`` payload with exactly one of our buttons; ``InputError`` names the fault."""
    name, value, container = pressed(body, _BUTTONS, "is none of our buttons")
    return Click(
        choice=_BUTTONS[name],
        approval_id=uuid_of(value, "a", VALUE),
        nonce=id_of(value, "n", VALUE),
        clicker=clicker_of(body),
        channel=optional_id(container, "channel_id", "container"),
        trigger_id=text_of(body, "trigger_id", ""),
        ts=time_of(container),
    )


def parse_home_click(body: Members, action: str) -> tuple[UUID, Clicker, str]:
    """Parse a press of this button on the app's Home: the question, the account, and the trigger of a window."""
    _, value, container = pressed(body, (action,), "is not that button of Home")
    if container.get("type") != "view":
        raise InputError("is not the app's Home", where="container.type")
    return uuid_of(value, "a", VALUE), clicker_of(body), text_of(body, "trigger_id", "")


def parse_submission(body: Members) -> Submission:
    """Parse a ``view_submission`` payload of one of our modals; ``InputError`` names the fault."""
    callback, metadata, values = submitted(body, (REASON_CALLBACK, REVIEW_CALLBACK), "is none of our modals")
    page = _page(metadata)
    choice: Choice | None = None
    if callback == REASON_CALLBACK:
        choice = choice_of(metadata, "c", METADATA)
    elif metadata.get("l") is True:
        choice = _selected(values)
    approval_id, nonce = uuid_of(metadata, "a", METADATA), id_of(metadata, "n", METADATA)
    answer = (choice, reason_of(values), page, digest_of(metadata))
    return Submission(approval_id, nonce, clicker_of(body), *answer, _granted(values, choice))


def parse_revocation(body: Members) -> Submission:
    """Parse a ``view_submission`` payload of the window that takes a grant back; ``InputError`` names the fault."""
    _, metadata, values = submitted(body, (TAKE_BACK,), "is not the window that takes a grant back")
    named = (uuid_of(metadata, "a", METADATA), id_of(metadata, "n", METADATA), clicker_of(body))
    return Submission(*named, None, reason_of(values), 0, digest_of(metadata))


def _granted(values: Members, choice: Choice | None) -> tuple[int, int] | None:
    """Read the grant; None if only this once is allowed. Its bounds are checked with the vote."""
    if choice is not Choice.APPROVE or GRANT_FIELD not in values:
        return None
    where = f"{VALUES}.{GRANT_FIELD}"
    option = text_of(object_of(entered(values, GRANT_FIELD), "selected_option", where), "value", where)
    if option == ONCE:
        return None
    uses, _, seconds = option.partition(":")
    if not all(text.isascii() and text.isdigit() and len(text) <= 9 for text in (uses, seconds)):
        raise InputError("is none of our choices", where=where)
    return int(uses), int(seconds)


def _selected(values: Members) -> Choice:
    option = object_of(entered(values, CHOICE_FIELD), "selected_option", f"{VALUES}.{CHOICE_FIELD}")
    return choice_of(option, "value", f"{VALUES}.{CHOICE_FIELD}")


def _page(metadata: JsonObject) -> int:
    page = metadata.get("p", 0)
    if not isinstance(page, int) or isinstance(page, bool) or not 0 <= page < 10_000:
        raise InputError("is no page number", where=f"{METADATA}.p")
    return page


def parse_list_click(body: Members) -> ListClick:
    """Parse a press of a button on the card of a list; ``InputError`` names the fault."""
    name, value, container = pressed(body, _LIST_BUTTONS, "is none of our buttons")
    return ListClick(
        choice=_LIST_BUTTONS[name],
        approval_id=uuid_of(value, "a", VALUE),
        mark=id_of(value, "n", VALUE),
        clicker=clicker_of(body),
        channel=optional_id(container, "channel_id", "container"),
        trigger_id=text_of(body, "trigger_id", ""),
        ts=time_of(container),
    )


def parse_list_submission(body: Members) -> ListSubmission:
    """Parse a submission of a window about a list; ``InputError`` names the fault."""
    callback, metadata, values = submitted(body, (LIST_CALLBACK, LIST_REASON_CALLBACK), "is none of our modals")
    choice, chosen = None, set()
    if callback == LIST_REASON_CALLBACK:
        choice = choice_of(metadata, "c", METADATA)
    elif metadata.get("l") is True:
        choice = _selected(values)
        for name in (name for name in values if name.startswith(f"{ITEMS_FIELD}_")):
            for one in entered(values, name).get("selected_options") or ():
                chosen.add(uuid_of(one if isinstance(one, dict) else {}, "value", f"{VALUES}.{name}"))
    answer = (
        uuid_of(metadata, "a", METADATA),
        id_of(metadata, "n", METADATA),
        clicker_of(body),
        choice,
        reason_of(values),
    )
    return ListSubmission(*answer, _page(metadata), frozenset(chosen), digest_of(metadata))


def parse_hold_click(body: Members) -> HoldClick:
    """Parse a ``block_actions`` payload with exactly one button of a held step; ``InputError`` names the fault."""
    name, value, container = pressed(body, HOLD.values(), "is not a button of a held step")
    choice = next(choice for choice, action in HOLD.items() if action == name)
    channel = optional_id(container, "channel_id", "container")
    origin = (clicker_of(body), channel, text_of(body, "trigger_id", ""), time_of(container))
    return HoldClick(uuid_of(value, "w", VALUE), choice, *origin)


def parse_hold_submission(body: Members) -> HoldSubmission:
    """Parse a ``view_submission`` payload of the window about a held step; ``InputError`` names the fault."""
    _, metadata, values = submitted(body, (HOLD_CALLBACK,), "is not the window of a held step")
    choice = text_of(metadata, "c", METADATA)
    if choice not in HOLD:
        raise InputError("is none of our choices", where=f"{METADATA}.c")
    return HoldSubmission(uuid_of(metadata, "w", METADATA), choice, clicker_of(body), reason_of(values))


def parse_task_click(body: Members) -> TaskClick:
    """Parse a ``block_actions`` payload with exactly the button *Fill in*; ``InputError`` names the fault."""
    _, value, container = pressed(body, (OPEN_ACTION,), "is not the button of a task")
    channel = optional_id(container, "channel_id", "container")
    trigger, ts = text_of(body, "trigger_id", ""), time_of(container)
    return TaskClick(uuid_of(value, "t", VALUE), clicker_of(body), channel, trigger, ts)


def parse_task_submission(body: Members) -> TaskSubmission:
    """Parse a ``view_submission`` payload of a task's form, except its fields; ``InputError`` names the fault."""
    _, metadata, values = submitted(body, (TASK_CALLBACK,), "is not the form of a task")
    return TaskSubmission(uuid_of(metadata, "t", METADATA), clicker_of(body), values, digest_of(metadata))
