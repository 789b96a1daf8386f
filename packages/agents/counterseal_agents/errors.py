"""Ends of a governed call other than its result. Their texts are written for the model that called the tool."""

from __future__ import annotations


class NotRun(Exception):
    """The tool's body did not run. The text says why, and what to do now."""

    def __init__(self, words: str, *, action: str = "", status: str = "") -> None:
        super().__init__(words)
        self.action = action
        self.status = status


class Pending(NotRun):
    """A call that is not decided. The same call later is attached to the same question."""


class Refused(NotRun):
    """Policy or people said no, or the permit of this call is spent."""


class Closed(NotRun):
    """There was no explicit yes: no answer, or one that cannot be used."""


class Unreported(Exception):
    """The tool's body ran, and its report did not arrive. ``result`` is what it returned; people find out the rest."""

    def __init__(self, words: str, *, action: str, result: object) -> None:
        super().__init__(words)
        self.action = action
        self.result = result


class Ungoverned(TypeError):
    """A tool that cannot be governed, found before anything runs."""
