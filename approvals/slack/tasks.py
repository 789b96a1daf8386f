"""A human task in Slack: its message in the channel, and the modal with its form. Pure.

Texts of the workflow are in monospace, as on cards: a title or a description may contain text from a request.
"""

from __future__ import annotations

import json

from approvals.model import TaskState, TaskView
from approvals.slack.blocks import (
    ECHO_BYTES_MAX,
    MODAL_BLOCKS_MAX,
    Block,
    code,
    echo_bytes,
    entry,
    escaped,
    fits_message,
    header,
    link_line,
    plain,
    sections,
    small_print,
)
from approvals.slack.cards import Rendered, button
from approvals.slack.details import moment, origin_lines
from approvals.slack.forms import cut, input_blocks
from approvals.slack.modals import modal

OPEN_ACTION = "counterseal.task_open"
TASK_CALLBACK = "counterseal.task"
MODAL_TITLE_CHARACTERS_MAX = 24  # Slack
HEADINGS = {
    TaskState.OPEN: "Task",
    TaskState.COMPLETED: "Task completed",
    TaskState.EXPIRED: "Task expired",
    TaskState.CANCELED: "Task canceled",
}
_SHORT = 300


def render(view: TaskView) -> Rendered:
    """The message in the channel, in the task's current state. If it is incomplete, it says where to see the rest."""
    body = [*sections(_ask_lines(view)), *small_print(origin_lines(view))]
    complete = fits_message(body)
    if not complete:
        body = sections(_short_lines(view))
    blocks = [header(HEADINGS[view.state]), *body, *_button(view), *link_line(view.link)]
    return Rendered(notification(HEADINGS[view.state], view.title), blocks, complete)


def form_modal(view: TaskView) -> Block:
    """The form of an open task, below the task's full text, or below a note that the text does not fit."""
    form = input_blocks(view.form)
    head = [*sections(_ask_lines(view)), *small_print(origin_lines(view))]
    if len(head) + len(form) > MODAL_BLOCKS_MAX or echo_bytes(head) + echo_bytes(form) > ECHO_BYTES_MAX:
        head = [*sections(_short_lines(view)), *link_line(view.link)]
    title = cut(view.title.strip(), MODAL_TITLE_CHARACTERS_MAX) or "Task"
    return modal(title, [*head, *form], close="Cancel") | {
        "callback_id": TASK_CALLBACK,
        "private_metadata": json.dumps({"t": str(view.task_id), "d": view.digest}),
        "submit": plain("Send"),
    }


def button_value(view: TaskView) -> str:
    """The value of the button: the task's id. Opaque; grants nothing."""
    return json.dumps({"t": str(view.task_id)}, separators=(",", ":"))


def closed_sentence(view: TaskView) -> str:
    """The reason why a closed task cannot be filled in; it may name a person."""
    who = view.completed_by or "somebody else"
    return {
        TaskState.COMPLETED: f"This task was completed by {who}. Nothing is left to do.",
        TaskState.EXPIRED: "This task has expired. Nothing was recorded.",
        TaskState.CANCELED: "This task was canceled. Nothing was recorded.",
        TaskState.OPEN: "This task is open.",
    }[view.state]


def _ask_lines(view: TaskView) -> list[str]:
    return [
        *entry("*Task*", view.title),
        *(entry("*Description*", view.description) if view.description else []),
        *entry("*Who may do it* members of", view.group),
        *_state_lines(view),
    ]


def notification(words: str, title: str) -> str:
    """The line in a notification. It shows the title in full or, if that is long, not at all."""
    return f"{words}: {code(title)}" if len(escaped(title)) <= _SHORT else words


def _state_lines(view: TaskView) -> list[str]:
    if view.state is TaskState.COMPLETED:
        return entry("*Completed by*", view.completed_by) if view.completed_by else []
    return [f"*Due* {moment(view.due_at)}" if view.due_at else "*Due* whenever somebody does it"]


def _short_lines(view: TaskView) -> list[str]:
    """The lines of a task that is too long to be shown in full: its size and the short facts."""
    size = sum(len(line) for line in (*_ask_lines(view), *origin_lines(view)))
    return [
        f"*This task is too long to be shown here* ({size} characters). Nothing of what is long is shown in part.",
        *_if_short("*Task*", view.title),
        *_if_short("*Who may do it* members of", view.group),
        *(_if_short("*Completed by*", view.completed_by) if view.state is TaskState.COMPLETED else _state_lines(view)),
        *_if_short("Reference", view.reference),
        *_if_short("Run", view.run_id),
        f"By its id, `{view.task_id}`, HTTP and the command line show all of it.",
    ]


def _if_short(label: str, text: str) -> list[str]:
    return entry(label, text) if text and len(escaped(text)) <= _SHORT else []


def _button(view: TaskView) -> list[Block]:
    if view.state is not TaskState.OPEN:
        return []
    fill_in = button("Fill in", OPEN_ACTION, button_value(view), style="primary")
    return [{"type": "actions", "elements": [fill_in]}]
