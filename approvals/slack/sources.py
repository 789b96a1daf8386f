"""The lines of a card about the sources of its values, and about the agent that proposes the action. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from approvals.content import CardContent, Source
from approvals.slack.blocks import code, entry

_LINE_MAX = 400


def agent_lines(content: CardContent) -> list[str]:
    """The agent that proposes the action, what its model has read, and the model's own words, marked as such."""
    asker = content.agent
    if asker is None:
        return []
    lines = entry("*Proposed by the agent of step*", asker.step, note=f"(a model), turn {asker.turn}")
    lines += [*entry("Model", asker.model), *entry("For", asker.requester)]
    lines += ["*It has read*" if asker.read else "It has read nothing."]
    lines += [line for name in asker.read for line in entry("•", name)]
    return [*lines, *(entry("The model's own words, which nobody has checked:", asker.says) if asker.says else [])]


def source_lines(content: CardContent) -> Iterator[list[str]]:
    """Each value with its source. Values from outside come first, quoted and marked as such."""
    for source in sorted(content.sources, key=attrgetter("ours")):
        line = " ".join([f"• {code(source.field)} {source.words}", *([code(source.of)] if source.of else [])])
        lines = [line] if len(line) <= _LINE_MAX else entry(f"• {source.words}", source.field, source.of)
        yield lines if source.ours else [*_stranger(source), *lines]


def _stranger(source: Source) -> list[str]:
    if not source.value:
        return ["• *Nobody of yours chose this value.*"]
    return entry("• *Nobody of yours chose this value:*", source.value)
