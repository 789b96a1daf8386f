"""Each fact of a task by itself, in a message that shows all of it and in one that does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from approvals.model import TaskState, TaskView
from approvals.slack import tasks

pytestmark = pytest.mark.req("Q-20")


def texts(blocks: list[Any]) -> list[str]:
    return [line for block in blocks if block["type"] == "section" for line in block["text"]["text"].split("\n")]


@pytest.mark.parametrize("state", TaskState)
def test_a_task_has_the_heading_of_its_state(task: TaskView, state: TaskState) -> None:
    drawn = tasks.render(replace(task, state=state))
    first = drawn.blocks[0]["text"]["text"]
    assert first == tasks.HEADINGS[state]
    assert drawn.text == f"{first}: `Confirm the beneficial owner`"
    assert drawn.complete


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({}, ["*Due* <!date^1785603600^{date_short_pretty} {time}|2026-08-01 17:00 UTC>"]),
        ({"due_at": ""}, ["*Due* whenever somebody does it"]),
        ({"state": TaskState.COMPLETED}, []),
        ({"state": TaskState.COMPLETED, "completed_by": "kyc"}, ["*Completed by* `kyc`"]),
        ({"completed_by": "Ann", "due_at": ""}, ["*Due* whenever somebody does it"]),
        ({"state": TaskState.EXPIRED, "completed_by": "Ann", "due_at": ""}, ["*Due* whenever somebody does it"]),
        ({"state": TaskState.COMPLETED, "completed_by": "&" * 60}, [f"*Completed by* `{'&amp;' * 60}`"]),
    ],
)
@pytest.mark.parametrize("fits", [True, False])
def test_a_task_says_its_state_whether_it_is_long_or_not(
    monkeypatch: pytest.MonkeyPatch, task: TaskView, fits: bool, more: dict[str, Any], lines: list[str]
) -> None:
    monkeypatch.setattr(tasks, "fits_message", lambda blocks: fits)
    drawn = tasks.render(replace(task, **more))
    assert drawn.complete is fits
    told = texts(drawn.blocks)
    assert [line for line in told if line.startswith(("*Due*", "*Completed by*"))] == lines


def test_a_long_task_says_what_is_short(monkeypatch: pytest.MonkeyPatch, task: TaskView) -> None:
    monkeypatch.setattr(tasks, "fits_message", lambda blocks: False)
    monkeypatch.setattr(tasks, "MODAL_BLOCKS_MAX", 7)
    long = replace(task, description="d" * 99)
    size = sum(
        map(
            len,
            (
                "*Task* `Confirm the beneficial owner`", f"*Description* `{'d' * 99}`",
                "*Who may do it* members of `kyc`",
                "*Due* <!date^1785603600^{date_short_pretty} {time}|2026-08-01 17:00 UTC>",
                "Reference `C-1009`", "Workflow `client-onboarding` version 2", "Step `sign`", f"Run `{task.run_id}`",
            ),
        )
    )  # fmt: skip
    assert texts(tasks.render(long).blocks) == [
        f"*This task is too long to be shown here* ({size} characters). Nothing of what is long is shown in part.",
        "*Task* `Confirm the beneficial owner`",
        "*Who may do it* members of `kyc`",
        "*Due* <!date^1785603600^{date_short_pretty} {time}|2026-08-01 17:00 UTC>",
        "Reference `C-1009`",
        f"Run `{task.run_id}`",
        f"By its id, `{task.task_id}`, HTTP and the command line show all of it.",
    ]
    for title, line in (("&" * 60, [f"*Task* `{'&amp;' * 60}`"]), ("&" * 61, [])):
        told = texts(tasks.render(replace(long, title=title)).blocks)
        assert [each for each in told if each.startswith("*Task*")] == line
    modal = tasks.form_modal(long)
    assert [block["elements"][0]["text"] for block in modal["blocks"] if block["type"] == "context"] == [
        "<https://counterseal.example/t/1|Open in Counterseal>"
    ]


@pytest.mark.parametrize(
    ("title", "shown"), [("", "Task"), ("  ", "Task"), (" a ", "a"), ("x" * 24, "x" * 24), ("x" * 25, "x" * 23 + "…")]
)
def test_the_title_of_a_form_is_short_and_never_empty(task: TaskView, title: str, shown: str) -> None:
    assert tasks.form_modal(replace(task, title=title))["title"]["text"] == shown


def test_a_description_is_shown_even_if_it_repeats_the_title(task: TaskView) -> None:
    told = texts(tasks.render(replace(task, title="Sign", description="Sign")).blocks)
    assert told[:2] == ["*Task* `Sign`", "*Description* `Sign`"]
    assert texts(tasks.render(replace(task, title="Sign", description="")).blocks)[:2] == [
        "*Task* `Sign`",
        "*Who may do it* members of `kyc`",
    ]
