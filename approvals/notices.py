"""Notices: what one person is told in private about a run, as values. Each messenger draws them its own way."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class Word(StrEnum):
    """The word for an outcome, the same on every face."""

    DONE = "Done"
    ALTERED = "Done, but altered"
    NOT_DONE = "Not done"
    REJECTED = "Rejected"
    EXPIRED = "Expired"
    CANCELED = "Canceled"
    IN_DOUBT = "In doubt"
    FAILED = "Failed"
    UNDELIVERED = "Not delivered"
    HELD = "Failed, and held"
    AGAIN = "Tried again"
    WITHOUT = "Gone on without it"
    ASKED = "Asked for more"
    HANDED = "Handed to you"
    GLASS = "Glass broken"


class Line(Struct, frozen=True):
    """The outcome of one thing. ``subject`` may hold text from outside; so may ``quote``, with the name of its author.

    ``because`` is in our own words, or in those of a policy.
    """

    word: Word
    subject: str
    because: str = ""
    by: str = ""
    quote: str = ""


class Rule(Struct, frozen=True):
    """The rule that decided, and the policy that it is of, with its version; 0 if that is not known."""

    rule: str
    policy: str
    version: int


class Hold(Struct, frozen=True):
    """The buttons of a held step, whose hold has this id. ``doubtful``: nobody knows whether its action happened.

    ``accounts`` are the accounts of the people who decide about it; if these are too many, only ``group`` is named.
    """

    wait_id: UUID
    group: str
    accounts: tuple[str, ...] = ()
    doubtful: bool = False


class Notice(Struct, frozen=True):
    """One notice. ``whole`` is the outcome of the whole, ``lines`` are the outcomes of its parts, if there are several.

    ``asked`` says that it goes to the person who asked for it. ``more`` counts parts that are not listed.
    ``count`` is how many of the same kind it stands for, since ``since`` (ISO 8601). ``at`` is when it happened, and
    ``link`` leads to the run, "" for none. With ``retry``, its reader may go on with the failed run. ``hold``
    asks people to decide about a held step. ``answer`` names the question that its reader may answer, and its nonce.
    """

    whole: Line
    run_id: UUID
    workflow: str
    reference: str
    at: str
    asked: bool = False
    lines: tuple[Line, ...] = ()
    more: int = 0
    rule: Rule | None = None
    count: int = 1
    since: str = ""
    retry: bool = False
    link: str = ""
    hold: Hold | None = None
    answer: tuple[UUID, str] | None = None
