"""The ports that approvals and tasks need: a messenger that shows them, and a source of groups and their members.

Outcomes are values, because each one leads to a different next step: after a post in doubt the caller searches for the
message before it retries, a refused post needs a person, a post that certainly failed is simply retried.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

from approvals.lists import ListView
from approvals.model import CardView, TaskView
from approvals.notices import Notice
from core.terms import GroupQuorum


class MessageRef(Struct, frozen=True):
    """The place of a message: Slack's channel id and message timestamp."""

    channel: str
    ts: str


class Posted(Struct, frozen=True):
    """The message exists. ``short``: the messenger took only its short form, which shows nothing of the request."""

    ref: MessageRef
    short: bool = False


class NotPosted(Struct, frozen=True):
    """The message certainly does not exist. Retry, after ``retry_after_seconds`` if the messenger gave a time."""

    message: str
    retry_after_seconds: float | None = None


class PostInDoubt(Struct, frozen=True):
    """The message may exist: call ``find_card`` before repeating a post. An update can be repeated at once."""

    message: str


class PostRefused(Struct, frozen=True):
    """The messenger refused, and a retry will not help. ``message`` says what a person must do."""

    code: str
    message: str


PostOutcome: TypeAlias = Posted | NotPosted | PostInDoubt | PostRefused


class Absent(Struct, frozen=True):
    """No message with this key is in the channel. The whole history since ``since`` was searched."""


FindOutcome: TypeAlias = Posted | Absent | NotPosted | PostRefused


class Messenger(Protocol):
    """Shows cards and tasks. Never raises because of the messenger or the network; never retries by itself."""

    async def post_card(self, channel: str, view: CardView, key: str) -> PostOutcome:
        """Post a new card that carries ``key``, by which ``find_card`` finds it."""

    async def update_card(self, ref: MessageRef, view: CardView) -> PostOutcome:
        """Redraw a card. Idempotent."""

    async def post_list(self, channel: str, view: ListView, key: str) -> PostOutcome:
        """Post one card for a list of questions, like ``post_card``."""

    async def update_list(self, ref: MessageRef, view: ListView) -> PostOutcome:
        """Redraw the card of a list. Idempotent."""

    async def find_card(self, channel: str, key: str, *, since: float) -> FindOutcome:
        """Search for our own message with ``key``, a card or a task, posted at or after ``since`` (Unix seconds)."""

    async def post_task(self, channel: str, view: TaskView, key: str) -> PostOutcome:
        """Post a new task that carries ``key``, by which ``find_card`` finds it."""

    async def update_task(self, ref: MessageRef, view: TaskView) -> PostOutcome:
        """Redraw a task. Idempotent."""

    async def post_thread(self, ref: MessageRef, text: str, key: str) -> PostOutcome:
        """Post plain text in a card's thread: reminders, escalations."""

    async def post_notice(self, to: str, notice: Notice, key: str) -> PostOutcome:
        """Tell one person in private: ``to`` is their account. ``find_notice`` finds it by ``key``."""

    async def update_notice(self, ref: MessageRef, notice: Notice) -> PostOutcome:
        """Redraw a notice. Idempotent."""

    async def find_notice(self, to: str, key: str, *, since: float) -> FindOutcome:
        """Search our private messages to this person, like ``find_card``."""

    async def post_ephemeral(self, channel: str, user: str, text: str) -> PostOutcome:
        """Post an answer that only one person sees and that the messenger does not keep."""


class Person(Struct, frozen=True):
    """A person in the directory. ``id`` is ours and stays the same on every face."""

    id: str
    name: str


class Membership(Struct, frozen=True):
    """The wanted groups (``GroupQuorum.key``) that a person is in now, and those that could not be looked up."""

    groups: frozenset[str]
    unresolvable: frozenset[str]


class SlackGroups(Protocol):
    """Resolves Slack user groups for the directory."""

    async def membership(self, user: str, wanted: Collection[GroupQuorum]) -> Membership:
        """Look up ``wanted`` Slack groups of the directory's ``user``. Never raises: a failed group is unresolvable."""

    async def members(self, wanted: Collection[GroupQuorum]) -> Mapping[str, frozenset[str]] | None:
        """The accounts in each of these groups, by group key, without groups that Slack does not know or show.

        None if Slack is unavailable. Never raises.
        """
