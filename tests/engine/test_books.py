"""Books of runs: each replays to the checkpoints of its run, and ten are compared with golden files."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from runtime.engine.life.transition import writes_of
from runtime.engine.model.rows import Commit
from runtime.engine.replay.agent_story import stories
from runtime.engine.replay.past import emptied, past_of, questions, receipt_rows, step_rows
from runtime.engine.replay.replay import Replay, replay, unopened
from tests.engine.governing import (
    Governed,
)  # fmt: skip
from tests.support.engine_scenes import (
    SCENES,
    book_of,
    said,
)
from tests.support.engine_stage import KEY, RUN_ID
from tests.support.golden import lines_match_golden

pytestmark = pytest.mark.req("X-15")

RECORDED = (
    "agent-both", "case-comes", "child-done", "failure-handled", "loop-of-few", "lost-and-found", "shared-reused",
    "task-filled", "write-approved", "write-rejected",
)  # fmt: skip


# What is the same in each append, or stands in its lines; and what is left out where it is empty.
OF_ALL = frozenset({"run_id", "tenant_id", "workspace_id", "lines", "ledger"})
OF_NONE: tuple[Any, ...] = (None, False, [], {})
# A digest, the beginning of one, or an id.
NAME = re.compile(r"[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{12}\b")


def everything(run: Governed) -> list[Any]:
    """All that the book tells, and all that follows from it, piece by piece."""
    graph, book = run.workflow.graph, book_of(run)
    past = past_of(unopened(RUN_ID, KEY, graph), book, [*run.before, graph], {*range(9)})
    found: list[Any] = [
        [each.event.TYPE, each.step or "", f"{each.actor.kind}:{each.actor.id}", to_builtins(each.event)]
        for each in book
    ]
    folded = to_builtins(past.run, str_keys=True)
    found += [["run", name, value] for name, value in sorted(folded.items()) if value and name != "checkpoints"]
    shown = {"steps": step_rows(past), "receipts": receipt_rows(past), "questions": questions(past)}
    shown |= {"checkpoints": past.checkpoints, "emptied": [*emptied(past)], "stories": [*stories(past, book)]}
    shown |= {"commands": [*run.commands.values()], "line": [*run.line.values()], "waits": [*run.waits.values()]}
    listed = {name: rows if isinstance(rows, list) else [rows] for name, rows in shown.items()}
    found += [["append", number, *stored(commit)] for number, commit in enumerate(run.commits)]
    return found + [["shown", name, each] for name, rows in listed.items() for each in rows]


def stored(commit: Commit) -> list[Any]:
    """Everything that an append stores besides its lines and their values."""
    told = to_builtins(replace(commit, values=None, state=None), str_keys=True)
    return [len(commit.lines), {name: told[name] for name in told if name not in OF_ALL and told[name] not in OF_NONE}]


def text_of(run: Governed) -> str:
    """The book with a number in the place of each digest and id, so that it says which of them are the same."""
    pieces = [said(to_builtins(each, str_keys=True)) for each in everything(run)]
    text = "".join(f"{orjson.dumps(each, option=orjson.OPT_SORT_KEYS).decode()}\n" for each in pieces)
    numbers: dict[str, str] = {}
    return NAME.sub(lambda name: numbers.setdefault(name[0], f"#{len(numbers) + 1}"), text)


def same(run: Governed) -> None:
    graph, book = run.workflow.graph, book_of(run)
    found = replay(Replay(unopened(RUN_ID, KEY, graph), book, [*run.before, graph], run.view().constants, writes_of))
    assert {each.number: each.digest for each in found} == {n: digest for n, (_, digest) in run.checkpoints.items()}
    assert run.verified()


@pytest.mark.parametrize("scene", SCENES)
def test_a_book_replays_to_the_checkpoints_of_its_run(scene: str) -> None:
    same(SCENES[scene]())


@pytest.mark.golden
@pytest.mark.parametrize("scene", RECORDED)
def test_a_run_leaves_the_book_of_its_golden_file(scene: str) -> None:
    lines_match_golden(f"books/{scene}.jsonl", text_of(SCENES[scene]()))
