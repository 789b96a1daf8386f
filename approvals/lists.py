"""Lists of questions on one card: what is alike in them, and what is odd. Pure.

Each question stays one of its own, with its own digest, votes and end. A question is odd if its changes differ from
those of most questions in the list, or if it comes with a warning: it was refused or failed before, or one of its
values cannot be read. It is also compared which values are hidden, and which nobody of ours chose; hidden values
themselves are not compared. If several changes are equally common, the first counts as the most common.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.content import CardContent, CardState
from approvals.model import Call, CardView
from core.canonical import Json, digest

_QUESTION_MAX = 140
_WORDS = re.compile(r"“[^”]*”|\S+")  # a value in quotation marks is one
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ListView(Struct, frozen=True, dict=True):
    """The questions on one message, in the order in which they were asked, with those that have ended.

    Only a messenger gets ``call``; ``link`` is the address of the list's page, "" for none. ``offers`` is what
    the viewer may say about each question now.
    """

    items: tuple[CardView, ...]
    call: Call | None = None
    link: str = ""
    offers: Mapping[UUID, tuple[str, ...]] = {}

    @property
    def first(self) -> CardView:
        """The question by whose id the list is found."""
        return self.items[0]

    @cached_property
    def names(self) -> Mapping[UUID, str]:
        """The words by which people tell the questions apart, by the question's id."""
        return names_of([(one.approval_id, one.content) for one in self.items])

    @property
    def open(self) -> tuple[CardView, ...]:
        """The questions that still wait for an answer."""
        return tuple(one for one in self.items if one.state is CardState.PENDING)

    @property
    def mark(self) -> str:
        """The mark of a drawing: it differs as soon as another question stands on the message."""
        return mark_of([(str(one.approval_id), one.digest, one.nonce) for one in self.items])


class Kind(Struct, frozen=True):
    """The questions of a list that are alike. ``warned``: each of them comes with a warning."""

    items: tuple[CardView, ...]
    warned: bool


def mark_of(questions: Sequence[tuple[str, str, str]]) -> str:
    """The mark of a list (``ListView.mark``): a digest over the id, the digest and the nonce of each question."""
    triples: list[Json] = [[*one] for one in sorted(questions)]
    return digest(["list", *triples])


def warned(content: CardContent) -> bool:
    """True if people should look at this question by itself, for a reason that no compared value shows."""
    return bool(content.evidence) or any(one.unreadable for one in content.changes)


def kinds(items: Sequence[CardView]) -> tuple[Kind | None, list[Kind]]:
    """The kind that most questions have in common, None if each is odd; and the odd kinds, in order."""
    found: dict[tuple[str, bool], list[CardView]] = {}
    for one in items:
        found.setdefault((_shape(one.content), warned(one.content)), []).append(one)
    plain = [group for (_, odd), group in found.items() if not odd]
    common = max(plain, key=len, default=None)
    if common is not None and len(common) == 1 and len(items) > 1:
        common = None
    odd = [Kind(tuple(group), flag) for (_, flag), group in found.items() if group is not common]
    return (None if common is None else Kind(tuple(common), warned=False)), odd


def _shape(content: CardContent) -> str:
    """A text that is the same for all questions of one kind: the change, its inputs, and its weight."""
    content = bare(content.masked())
    changes = [[one.field, one.before, one.after, one.unreadable] for one in content.changes]
    inputs = [[one.field, one.value] for one in content.inputs]
    strange = sorted(one.field for one in content.sources if not one.ours)
    weighs = [*strange, list(content.sensitive), content.reversible, str(content.risk), content.tier, content.asker]
    return json.dumps([changes, inputs, weighs], sort_keys=True)


def _common_ends(texts: Sequence[str]) -> tuple[int, int, list[list[str]]]:
    """The number of words with which all texts begin, the number with which all end, and the words of each text."""
    split = [_WORDS.findall(one.rstrip("?")) for one in texts]
    shortest = min(map(len, split))
    head = next((at for at in range(shortest) if len({one[at] for one in split}) > 1), shortest)
    room = shortest - head
    return head, next((at for at in range(room) if len({one[-at - 1] for one in split}) > 1), room), split


def question_of(items: Sequence[CardView], many: int) -> str:
    """The question of a list: the words with which all its questions begin and end, with their number in between."""
    general = f"Shall these {many} be done?"
    if not all(one.content.question for one in items):
        return general
    head, tail, split = _common_ends([one.content.question for one in items])
    end = split[0][len(split[0]) - tail :]
    counted = f"{many} records" if any(len(one) > head + tail for one in split) else f"({many} times)"
    joined = " ".join([*split[0][:head], counted, *end])
    whole = joined.count("“") == joined.count("”") and joined.count('"') % 2 == 0
    return f"{joined}?" if head and whole and len(joined) <= _QUESTION_MAX else general


def names_of(items: Sequence[tuple[UUID, CardContent]]) -> dict[UUID, str]:
    """A name for each question: the words in which the questions or their titles differ, else their targets."""
    for texts in ([one.question for _, one in items], [one.title for _, one in items]):
        if len(items) > 1 and all(texts):
            head, tail, split = _common_ends(texts)
            names = [" ".join(one[head : len(one) - tail]).strip("“”") for one in split]
            if all(names) and len({*names}) == len(names) and all(name.count("“") == name.count("”") for name in names):
                return {key: name for (key, _), name in zip(items, names, strict=True)}
    return {key: one.target or one.title for key, one in items}


def bare(content: CardContent) -> CardContent:
    """The card without values that only identify the record: these differ in every question of a list."""
    changes = (one for one in content.changes if one.before is not None or not _names(content, one.after))
    inputs = (one for one in content.inputs if not _names(content, one.value))
    return replace(content, changes=tuple(changes), inputs=tuple(inputs))


def _names(content: CardContent, value: Json) -> bool:
    """True if a value only identifies the record."""
    parts = (content.target, content.reference, *re.split(r"[/ ,:]", content.target))
    return isinstance(value, str) and bool(value) and (value in parts or _ID.fullmatch(value) is not None)
