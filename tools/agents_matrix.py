"""The matrix of faults: what becomes of a governed call, for each framework and fault.

It is what `tests/agents/test_matrix.py` demands of the real packages (`make test-agents`), and docs/agents-matrix.md
shows it. A cell that cannot be closed says why, and its test shows that this is so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

NOT_RUN = "did not run"
ONCE = "ran once, as approved"
IN_DOUBT = "ran, in doubt"
OPEN = "cannot be closed"
# The ends that a test may see where a fault cannot be closed.
UNASKED = "ran without a yes"

FRAMEWORKS = {
    "callable": "any callable",
    "langchain": "LangChain, LangGraph",
    "openai": "OpenAI Agents",
    "crewai": "CrewAI",
    "pydantic": "Pydantic AI",
    "strands": "Strands Agents",
    "smolagents": "smolagents",
    "llamaindex": "LlamaIndex",
    "adk": "Google ADK",
    "maf": "Microsoft Agent Framework",
    "claude_sdk": "Claude Agent SDK (your process)",
    "claude_sdk_program": "Claude Agent SDK (its program)",
    "claude_code": "Claude Code",
    "codex": "Codex",
}

FAULTS = {
    "none": "None",
    "server_down": "The server is down",
    "time_out": "It does not answer in time",
    "unauthorized": "401",
    "server_error": "500",
    "html": "HTML with 200",
    "empty": "An empty 200",
    "another_yes": "The yes to another action",
    "killed_before_permit": "The process is killed before the permit",
    "killed_before_body": "… after the permit, before the body",
    "killed_in_body": "… in the body",
    "killed_before_report": "… after the body, before the report",
    "canceled": "The call is canceled while it waits",
    "canceled_in_body": "… in the body",
    "retry_around": "The body fails, and a retry around us repeats the call",
    "retry_inside": "… and a retry between us and the body repeats it",
    "changed_before": "Another hook changes the arguments before us",
    "changed_after": "… changes them after us",
    "two_equal_calls": "Two equal calls in one turn",
    "edited": "The arguments are edited in the stored state",
    "resumed": "Resumed in another process, after the yes",
    "resumed_without_us": "Resumed by a program without us",
    "time_limit": "The framework's own limit of time ends while we wait",
    "hosted": "A tool that runs at the model's provider",
}


@dataclass(frozen=True)
class Cell:
    """The end of a call, and a remark. ``seen`` is what a test sees where the fault cannot be closed."""

    end: str
    remark: str = ""
    seen: str = ""

    @property
    def expected(self) -> str:
        """The end that the test of this cell must see."""
        return self.seen or self.end


_DOUBT = "the server holds it in doubt, and gives no second permit"
_ASKED_AGAIN = "it asks again, and what is in doubt is refused"
_ASKS_ITSELF = "the body asks about what it gets"
_OF_ALL = {
    **{fault: Cell(NOT_RUN) for fault in (
        "server_down", "time_out", "unauthorized", "server_error", "html", "empty", "another_yes", "canceled",
    )},
    "none": Cell(ONCE),
    "killed_before_permit": Cell(NOT_RUN),
    "killed_before_body": Cell(NOT_RUN, _DOUBT),
    "killed_in_body": Cell(IN_DOUBT, _DOUBT),
    "killed_before_report": Cell(IN_DOUBT, _DOUBT),
    "canceled_in_body": Cell(IN_DOUBT, "reported as unknown"),
    "retry_around": Cell(IN_DOUBT, _ASKED_AGAIN),
    "retry_inside": Cell(IN_DOUBT, _ASKED_AGAIN),
    "changed_before": Cell(NOT_RUN, _ASKS_ITSELF),
    "changed_after": Cell(NOT_RUN, _ASKS_ITSELF),
    "two_equal_calls": Cell(ONCE, "the other finds the permit given away"),
    "edited": Cell(NOT_RUN, "another call, about which people are asked"),
    "resumed": Cell(ONCE),
    "resumed_without_us": Cell(
        OPEN, "nothing of ours is in it: have Counterseal perform the operation, and keep the credentials there",
        UNASKED,
    ),
    "time_limit": Cell(NOT_RUN),
    "hosted": Cell(NOT_RUN, "refused before the model is asked"),
}  # fmt: skip

_OWN: dict[str, dict[str, Cell]] = {
    "callable": {
        "retry_inside": Cell(OPEN, "a retry in the function is a part of it: put govern() inside the retry", UNASKED),
        "changed_after": Cell(
            OPEN, "a decorator inside of govern() is a part of the function: put govern() innermost", UNASKED
        ),
        "edited": Cell(NOT_RUN, "another call, about which people are asked"),
        "resumed": Cell(ONCE, "the same call, made again, finds its question"),
        "hosted": Cell(NOT_RUN, "what is no callable is refused"),
    },
    "langchain": {"hosted": Cell(NOT_RUN, "refused before the model is asked, whichever middleware brings it")},
    "openai": {
        "retry_around": Cell(IN_DOUBT, "the SDK repeats no tool; the model does: " + _ASKED_AGAIN),
        "retry_inside": Cell(IN_DOUBT, "the SDK repeats no tool; the model does: " + _ASKED_AGAIN),
        "edited": Cell(NOT_RUN, "the SDK refuses the state; the body would ask again"),
        "hosted": Cell(NOT_RUN, "refused when the agent is made"),
    },
    "crewai": {
        "retry_around": Cell(IN_DOUBT, "the model repeats it: " + _ASKED_AGAIN),
        "retry_inside": Cell(IN_DOUBT, "the model repeats it: " + _ASKED_AGAIN),
        "edited": Cell(NOT_RUN, "nothing is stored; another call is another question"),
        "resumed": Cell(ONCE, "it cannot pause: the same call, made again, finds its question"),
        "hosted": Cell(NOT_RUN, "refused when the crew is governed"),
    },
    "pydantic": {},
    "strands": {
        "time_limit": Cell(NOT_RUN, "it has none of its own: the run is canceled"),
        "hosted": Cell(NOT_RUN, "refused when the agent is governed"),
    },
    "smolagents": {
        "retry_around": Cell(IN_DOUBT, "the model repeats it: " + _ASKED_AGAIN),
        "retry_inside": Cell(IN_DOUBT, "the model repeats it: " + _ASKED_AGAIN),
        "edited": Cell(NOT_RUN, "nothing is stored; another call is another question"),
        "resumed": Cell(ONCE, "it cannot pause: the same call, made again, finds its question"),
        "time_limit": Cell(NOT_RUN, "it has none"),
        "hosted": Cell(NOT_RUN, "refused when the agent is governed; also an executor that runs tools elsewhere"),
    },
    "llamaindex": {
        "retry_around": Cell(IN_DOUBT, "the model repeats it: " + _ASKED_AGAIN),
        "retry_inside": Cell(IN_DOUBT, "the model repeats it: " + _ASKED_AGAIN),
        "hosted": Cell(NOT_RUN, "refused when the agent is governed"),
    },
    "adk": {
        "retry_around": Cell(IN_DOUBT, "a plugin has the model repeat it: " + _ASKED_AGAIN),
        "retry_inside": Cell(IN_DOUBT, "a plugin has the model repeat it: " + _ASKED_AGAIN),
        "hosted": Cell(NOT_RUN, "refused when the agent is governed, or before the model is asked"),
    },
    "maf": {
        "time_limit": Cell(NOT_RUN, "it has none of its own: the run is canceled"),
        "hosted": Cell(NOT_RUN, "refused when the agent is governed, or before the model is asked"),
    },
}

# The hook of command-line agents stands beside the tool, not in it.
_HOOK: dict[str, Cell] = {
    **{fault: Cell(IN_DOUBT, "it repeats no tool; the model does: " + _ASKED_AGAIN)
       for fault in ("retry_around", "retry_inside")},
    **{fault: Cell(
        OPEN, "hooks get the input at the same time, and another one may change it after our yes: the report says "
        "what ran, so it is in doubt and people are told; allow managed hooks only, as the printed settings do, or "
        "have Counterseal perform the operation", UNASKED,
    ) for fault in ("changed_before", "changed_after")},
    "canceled_in_body": Cell(IN_DOUBT, "reported as unknown, or not at all"),
    "edited": Cell(NOT_RUN, "nothing is stored; another call is another question"),
    "resumed": Cell(ONCE, "it cannot pause: the same call, made again, finds its question"),
    "hosted": Cell(NOT_RUN, "its search of the web is a tool that asks"),
    "time_limit": Cell(NOT_RUN, "by `onFailure: block`; the hook ends itself before, with a no"),
}  # fmt: skip
_OWN["claude_code"] = _HOOK
_TOGETHER = Cell(
    ONCE,
    "they run one after the other, and the other is another question; together if the tool says that it only reads: the"
    " other finds the permit given away",
)
_OWN["claude_sdk"] = {
    **{fault: _HOOK[fault] for fault in ("retry_around", "retry_inside", "edited", "resumed", "hosted")},
    "two_equal_calls": _TOGETHER,
    "time_limit": Cell(NOT_RUN, "`MCP_TOOL_TIMEOUT`: a later yes does not let it out"),
}
_OWN["claude_sdk_program"] = _HOOK | {
    "two_equal_calls": _TOGETHER,
    "changed_before": Cell(ONCE, "our yes repeats the input that it is for, so the change is undone"),
    "changed_after": Cell(
        OPEN, "a hook that ends after ours may change the input after our yes: the report says what ran, so it is in "
        "doubt and people are told; serve the tool from your process, where the body asks, or have Counterseal perform "
        "the operation", UNASKED,
    ),
    "time_limit": Cell(NOT_RUN, "by `on_failure=\"block\"`, and a later yes does not let it out"),
}  # fmt: skip
_OWN["codex"] = _HOOK | {
    "hosted": Cell(NOT_RUN, "each tool is refused while the provider's search of the web is on"),
    "time_limit": Cell(
        OPEN, "Codex takes a hook that it ends for no objection. The hook ends itself before, with a no, by the "
        "printed settings; where it may be stopped from outside, have Counterseal perform the operation", UNASKED,
    ),
}  # fmt: skip


def cell(framework: str, fault: str) -> Cell:
    """The cell of the matrix."""
    return _OWN[framework].get(fault) or _OF_ALL[fault]


def rows() -> Iterator[tuple[str, ...]]:
    """The rows of the page."""
    for fault, words in FAULTS.items():
        cells = [cell(framework, fault) for framework in FRAMEWORKS]
        yield (words, *(f"**{one.end}**{': ' if one.remark else ''}{one.remark}" for one in cells))


def left_open() -> Iterator[str]:
    """Lines about what cannot be closed, with what to do instead."""
    for fault, words in FAULTS.items():
        for remark in dict.fromkeys(cell(name, fault).remark for name in FRAMEWORKS if cell(name, fault).end == OPEN):
            whose = [words for name, words in FRAMEWORKS.items() if cell(name, fault).remark == remark]
            yield f"*{words.removeprefix('… ')}* ({', '.join(whose)}): {remark}."
