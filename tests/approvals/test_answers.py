"""Answers to Slack by themselves: bodies at their limit, pages that follow, homes and their claims, who shaped it."""

from __future__ import annotations

import hashlib
import hmac
import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.content import CardContent, InputField, ShapedBy
from approvals.model import CardView, TaskState, TaskView
from approvals.slack import handlers, tasks
from approvals.slack.cards import people_lines
from approvals.slack.guard import BODY_BYTES_MAX, check
from approvals.slack.payloads import Clicker, Submission
from approvals.slack.workspace import Home


@pytest.mark.parametrize(("extra", "code"), [(-1, None), (0, None), (1, "too_large")])
def test_a_body_has_its_longest_length_and_no_more(extra: int, code: str | None) -> None:
    frame = json.dumps({"type": "x", "pad": ""}).encode()
    body = frame.replace(b'"pad": ""', b'"pad": "' + b"x" * (BODY_BYTES_MAX + extra - len(frame)) + b'"')
    digest = hmac.new(b"s", b"v0:100:" + body, hashlib.sha256).hexdigest()
    headers = {"X-Slack-Request-Timestamp": "100", "X-Slack-Signature": f"v0={digest}"}
    refusal = check({**headers, "Content-Type": "application/json"}, body, secret="s", now=100)
    assert (refusal and refusal.code) == code


@pytest.mark.parametrize(
    ("now", "code"), [(99, None), (400, None), (401, "timestamp"), (-200, None), (-201, "timestamp")]
)
def test_a_signature_is_good_for_five_minutes_on_both_sides(now: int, code: str | None) -> None:
    body = b'{"type": "x"}'
    digest = hmac.new(b"s", b"v0:100:" + body, hashlib.sha256).hexdigest()
    headers = {"x-slack-request-timestamp": "100", "X-SLACK-SIGNATURE": f"v0={digest}"}
    refusal = check({**headers, "content-type": "Application/JSON; charset=x"}, body, secret="s", now=now)
    assert (refusal and refusal.code) == code


@pytest.mark.parametrize(("sent", "shown"), [(0, 2), (1, 3), (2, 3), (9, 3)])
async def test_the_page_after_the_one_that_was_sent_is_shown(view: CardView, sent: int, shown: int) -> None:
    many = tuple(InputField(f"f{number}", "v" * 200) for number in range(400))
    long = replace(view, content=replace(view.content, inputs=many))

    async def review(asked: Any) -> CardView:
        return long

    service: Any = SimpleNamespace(review=review)
    asked = Submission(UUID(int=1), "n", Clicker("T1", "U1"), None, "", sent)
    answer = await handlers._submission(service, asked)
    assert answer["response_action"] == "update"
    assert answer["view"]["blocks"][1]["text"]["text"] == f"Page {shown} of 3"
    assert json.loads(answer["view"]["private_metadata"])["p"] == shown - 1


TEAM, GRID, ORG = Home("T1", "", org_wide=False), Home("T1", "E1", org_wide=False), Home("T1", "E1", org_wide=True)
CLAIMS: list[tuple[Home, set[str], set[str], bool]] = [
    (TEAM, {"T1"}, set(), True),
    (TEAM, {"T2"}, set(), False),
    (TEAM, {"T1", "T2"}, set(), False),
    (TEAM, set(), set(), False),
    (TEAM, {"T1"}, {"E1"}, False),
    (GRID, {"T1"}, set(), True),
    (GRID, {"T1"}, {"E1"}, True),
    (GRID, {"T1"}, {"E2"}, False),
    (GRID, {"T1"}, {"E1", "E2"}, False),
    (GRID, {"T2"}, {"E1"}, False),
    (ORG, set(), {"E1"}, True),
    (ORG, {"T2"}, {"E1"}, True),
    (ORG, {"T1"}, set(), False),
    (ORG, set(), set(), False),
    (ORG, {"T1"}, {"E2"}, False),
    (ORG, {"T1"}, {"E1", "E2"}, False),
]


@pytest.mark.parametrize(("home", "teams", "enterprises", "ours"), CLAIMS)
def test_a_home_claims_who_names_nothing_else(home: Home, teams: set[str], enterprises: set[str], ours: bool) -> None:
    assert home.claims(Clicker("T1", "U1", frozenset(teams), frozenset(enterprises))) is ours


@pytest.mark.parametrize(
    ("shaped", "lines"),
    [
        ((), ["*Requested by* `raj`"]),
        ((ShapedBy("Ann", "edited this"),), ["*Shaped by*", "• `Ann` edited this"]),
        (
            (ShapedBy("Ann", "edited this", "may decide"), ShapedBy("Bob", "requested this")),
            ["*Shaped by*", "• `Ann` edited this, may decide", "• `Bob` requested this"],
        ),
    ],
)
def test_everybody_who_shaped_it_is_named(content: CardContent, shaped: Any, lines: list[str]) -> None:
    assert people_lines(replace(content, requester="raj", shaped_by=shaped)) == lines


@pytest.mark.parametrize(
    ("state", "by", "due", "lines"),
    [
        (TaskState.COMPLETED, "Ann", "", ["*Completed by* `Ann`"]),
        (TaskState.COMPLETED, "", "", []),
        (TaskState.OPEN, "", "", ["*Due* whenever somebody does it"]),
        (TaskState.CANCELED, "", "", ["*Due* whenever somebody does it"]),
        (TaskState.EXPIRED, "", "?", ["*Due* at an unreadable time"]),
    ],
)
def test_a_task_says_how_it_stands(task: TaskView, state: TaskState, by: str, due: str, lines: list[str]) -> None:
    assert tasks._state_lines(replace(task, state=state, completed_by=by, due_at=due)) == lines
    sentence = tasks.closed_sentence(replace(task, state=TaskState.COMPLETED, completed_by=by))
    assert sentence == f"This task was completed by {by or 'somebody else'}. Nothing is left to do."
