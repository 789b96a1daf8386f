"""The ports that approvals and tasks need: a messenger that shows them, and a source that knows the people.

Outcomes are values, because each means another next step: an in-doubt post is looked for before it is repeated, a
refused one needs a person, a post that certainly did not happen is simply tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

from approvals.model import CardView, TaskView
from core.terms import GroupQuorum


class MessageRef(Struct, frozen=True):
    """The place of a message: Slack's channel id and message timestamp."""

    channel: str
    ts: str


class Posted(Struct, frozen=True):
    """The message is there."""

    ref: MessageRef


class NotPosted(Struct, frozen=True):
    """The message is certainly not there. Try again, after ``retry_after_seconds`` if the messenger named them."""

    message: str
    retry_after_seconds: float | None = None


class PostInDoubt(Struct, frozen=True):
    """The message may be there: find it by ``find_card`` before repeating a post. An update may simply be repeated."""

    message: str


class PostRefused(Struct, frozen=True):
    """The messenger refused, and trying again will not help. ``message`` says what a person has to do."""

    code: str
    message: str


PostOutcome: TypeAlias = Posted | NotPosted | PostInDoubt | PostRefused


class Absent(Struct, frozen=True):
    """No message with this key is in the channel: the whole time since ``since`` was searched."""


FindOutcome: TypeAlias = Posted | Absent | NotPosted | PostRefused


class Messenger(Protocol):
    """Shows cards and tasks. Never raises for anything the messenger or the network does; never retries by itself."""

    async def post_card(self, channel: str, view: CardView, key: str) -> PostOutcome:
        """Post a new card that carries ``key``, by which ``find_card`` finds it."""

    async def update_card(self, ref: MessageRef, view: CardView) -> PostOutcome:
        """Redraw a card. Idempotent."""

    async def find_card(self, channel: str, key: str, *, since: float) -> FindOutcome:
        """Look for our own message with ``key``, a card or a task, posted at or after ``since`` (Unix seconds)."""

    async def post_task(self, channel: str, view: TaskView, key: str) -> PostOutcome:
        """Post a new task that carries ``key``, by which ``find_card`` finds it."""

    async def update_task(self, ref: MessageRef, view: TaskView) -> PostOutcome:
        """Redraw a task. Idempotent."""

    async def post_thread(self, ref: MessageRef, text: str, key: str) -> PostOutcome:
        """Post plain words below a card: reminders, escalations."""

    async def post_ephemeral(self, channel: str, user: str, text: str) -> PostOutcome:
        """Answer one person; nobody else sees it, and it is not kept."""


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
        """The accounts in each of these groups, by its key, without those that Slack does not know or show.

        None while Slack is away. Never raises.
        """
