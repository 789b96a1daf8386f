"""Promises of each adapter beside the matrix, against its framework's real package: `make test-agents`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from counterseal_agents import Ungoverned
from tests.support.agents_gate import TOKEN, Books, serving
from tests.support.agents_stage import FAST, LARGE, PAY, How, end_of

pytestmark = pytest.mark.filterwarnings("default")  # frameworks warn about themselves


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> Iterator[Books]:
    with serving() as found:
        monkeypatch.setenv("COUNTERSEAL_AGENT_URL", found.url)
        monkeypatch.setenv("COUNTERSEAL_AGENT_TOKEN", TOKEN)
        yield found


@pytest.fixture
def how(books: Books, tmp_path: Path) -> How:
    return How(books.url, tmp_path / "effects", terms=replace(FAST, timeout=5.0), state=tmp_path / "state")


def stage(framework: str, package: str) -> Any:
    pytest.importorskip(package)
    return import_module(f"tests.support.agents_{framework}")


TWO_OF_PYDANTIC = """from counterseal_agents.pydantic_ai import Governed
agent = Agent(model, tools=[pay], capabilities=[Governed()])"""
# The program before, and with the two lines of each framework.
PROGRAMS = {
    "langchain": (
        "made = create_agent(model, [pay])",
        "from counterseal_agents.langchain import Governed\nmade = create_agent(model, [pay], middleware=[Governed()])",
    ),
    "openai": (
        "agent = made",
        "from counterseal_agents.openai_agents import governed\nagent = governed(made)",
    ),
    "crewai": ("crew = made", "from counterseal_agents.crewai import governed\ncrew = governed(made)"),
    "pydantic": (
        "agent = Agent(model, tools=[pay])",
        TWO_OF_PYDANTIC,
    ),
    "strands": ("agent = made", "from counterseal_agents.strands import governed\nagent = governed(made)"),
    "smolagents": ("agent = made", "from counterseal_agents.smolagents import governed\nagent = governed(made)"),
    "llamaindex": ("agent = made", "from counterseal_agents.llama_index import governed\nagent = governed(made)"),
    "adk": ("agent = made", "from counterseal_agents.google_adk import governed\nagent = governed(made)"),
    "maf": ("agent = made", "from counterseal_agents.agent_framework import governed\nagent = governed(made)"),
    "claude_sdk": ("options = made", "from counterseal_agents.claude_agent import governed\noptions = governed(made)"),
}
# The package of each framework, where it has another name.
PACKAGES = {
    "openai": "agents", "pydantic": "pydantic_ai", "llamaindex": "llama_index.core", "adk": "google.adk",
    "maf": "agent_framework", "claude_sdk": "claude_agent_sdk",
}  # fmt: skip
# Frameworks whose model is told to call again when a run is resumed too early.
TOLD = [("llamaindex", "llama_index.core"), ("adk", "google.adk"), ("maf", "agent_framework")]
# Tools of the agent's own process, and tools that the program of the SDK calls itself.
CLAUDE = ("claude_sdk", "claude_sdk_program")


@pytest.mark.parametrize("framework", PROGRAMS)
def test_two_lines_govern_an_agent(books: Books, how: How, framework: str) -> None:
    room = stage(framework, PACKAGES.get(framework, framework))
    before, after = PROGRAMS[framework]
    assert len(set(after.splitlines()) - set(before.splitlines())) <= 2
    for program, asked in ((before, 0), (after, 1)):
        room.two_lines(program, how)
        assert len(books.actions) == asked
    assert books.only().status == "applied"


def test_langchain_gives_injected_arguments_and_asks_about_none(books: Books, how: How) -> None:
    """A tool as a class, one with a context and a configuration, and one that is async only."""
    room = stage("langchain", "langchain")
    assert room.kinds_of_tools(how) == ["class 5", "injected 5 True True", "async 5"]
    asked = [(one.tool, one.arguments, one.status) for one in books.actions.values()]
    assert asked == [(name, {"amount": 5}, "applied") for name in ("as_class", "injected", "as_coroutine")]


def test_langchain_pauses_again_while_people_have_not_decided(books: Books, how: How) -> None:
    room = stage("langchain", "langchain")
    books.decide = lambda tool, arguments: "pending"
    room.pause(how, PAY)
    assert room.resume(how, PAY) == []
    books.settle("rejected")
    (said,) = room.resume(how, PAY)
    assert "rejected: People said why" in said
    assert (how.ran, len(books.actions)) == ([], 1)


@pytest.mark.parametrize(("framework", "package"), [("pydantic", "pydantic_ai"), ("strands", "strands")])
def test_it_pauses_again_when_it_is_resumed_too_early(books: Books, how: How, framework: str, package: str) -> None:
    """The framework's own answer to the pause is a yes each time, and none to us."""
    room = stage(framework, package)
    books.decide = lambda tool, arguments: "pending"
    room.pause(how, PAY)
    assert room.resume(how, PAY) == []
    books.settle("rejected")
    (said,) = room.resume(how, PAY)
    assert "rejected" in said
    assert (how.ran, len(books.actions)) == ([], 1)


@pytest.mark.parametrize(("framework", "package"), TOLD)
def test_it_tells_the_model_to_call_again_when_it_is_resumed_too_early(
    books: Books, how: How, framework: str, package: str
) -> None:
    """The framework's own answer to the pause is a yes, and none to us. The same call finds the same question."""
    room = stage(framework, package)
    books.decide = lambda tool, arguments: "pending"
    room.pause(how, PAY)
    assert "Call it again later" in room.resume(how, PAY)[0]
    books.settle("approved")
    assert room.turn(how, [PAY]) == ["paid 5"]
    assert (end_of(books, how), len(books.actions)) == ("ran once, as approved", 1)


@pytest.mark.parametrize(
    ("framework", "package"),
    [("pydantic", "pydantic_ai"), ("strands", "strands"), ("smolagents", "smolagents"), *TOLD],
)
def test_a_tool_that_comes_later_asks_as_well(books: Books, how: How, framework: str, package: str) -> None:
    """A tool that a wrapper, a toolset or a provider adds, that is registered later, or that an inner agent calls."""
    room = stage(framework, package)
    books.decide = lambda tool, arguments: "denied"
    assert "was not run" in room.added(how)
    assert [one.tool.removeprefix("set_") for one in books.actions.values()] == ["added"]


def test_tools_of_the_program_that_the_claude_sdk_starts_ask_by_a_hook(books: Books, how: How) -> None:
    room = stage("claude_sdk", "claude_agent_sdk")
    books.decide = lambda tool, arguments: "denied"
    assert "Bash was not run" in room.added(how)
    assert not how.effects.exists()
    books.actions.clear()
    books.decide = lambda tool, arguments: "approved"
    room.added(how)
    assert (how.effects.exists(), books.only().tool, books.only().status) == (True, "Bash", "applied")


@pytest.mark.parametrize("framework", CLAUDE)
def test_equal_calls_that_claude_makes_one_after_the_other_are_two_questions(
    books: Books, how: How, framework: str
) -> None:
    """Its program runs them together only if the tool says that it only reads."""
    room, asked = stage(framework, "claude_agent_sdk"), []
    books.decide = lambda tool, arguments: "pending" if books.actions else "approved"
    how.together, how.body = False, lambda: asked.append(len(books.actions))
    said = room.turn(how, [PAY, PAY])
    assert (said[0], "Call it again later" in said[1]) == ("paid 5", True)
    assert (how.ran, asked) == ([PAY], [1])
    assert [one.status for one in books.actions.values()] == ["applied", "pending"]


@pytest.mark.parametrize("framework", CLAUDE)
def test_a_call_that_claude_has_given_up_is_not_let_out_by_a_later_yes(books: Books, how: How, framework: str) -> None:
    """Its own limit of time ends while people are asked; they say yes when the next call is made."""
    room, how.tool = stage(framework, "claude_agent_sdk"), stage(framework, "claude_agent_sdk").PAYING
    how.limit, how.terms = 6.0, replace(how.terms, wait=30.0, pause=0.05)

    def decide(tool: str, arguments: dict[str, Any]) -> str:
        if arguments == PAY:
            return "pending"
        books.settle("approved")
        return "approved"

    books.decide = decide
    asyncio.run(room.turns(how, [[PAY], [LARGE]]))
    assert [(one.arguments, one.status) for one in books.actions.values()] == [(PAY, "approved"), (LARGE, "applied")]
    assert how.ran == [LARGE]


def test_what_another_hook_of_the_claude_sdk_changes_after_our_yes_is_in_doubt(books: Books, how: How) -> None:
    room = stage("claude_sdk_program", "claude_agent_sdk")
    how.change = ("after", LARGE)
    assert room.turn(how, [PAY]) == ["paid 1000000"]
    assert (how.ran, books.only().arguments, books.only().status) == ([LARGE], PAY, "in_doubt")


def test_openai_goes_on_when_it_is_decided_and_governs_whom_it_hands_over_to(books: Books, how: How) -> None:
    room = stage("openai", "agents")
    books.decide = lambda tool, arguments: "pending"
    room.pause(how, PAY)
    assert asyncio.run(room.waiting(how)) == 1
    books.settle("rejected")
    assert asyncio.run(room.waiting(how)) == 0
    (said,) = room.resume(how, PAY)
    assert "rejected" in said
    assert how.ran == []
    books.decide = lambda tool, arguments: "denied"
    assert "was not run" in room.handed_over(how)[-1]
    assert how.ran == []


@pytest.mark.parametrize(
    ("framework", "package"),
    [
        ("openai", "agents"),
        ("crewai", "crewai"),
        ("pydantic", "pydantic_ai"),
        ("strands", "strands"),
        ("smolagents", "smolagents"),
        *TOLD,
    ],
)
def test_tools_that_nobody_sees_are_refused_unless_named(books: Books, how: How, framework: str, package: str) -> None:
    room = stage(framework, package)
    for case in room.UNSEEN:
        with pytest.raises(Ungoverned, match="ungoverned="):
            case(how.gate(), [])
        case(how.gate(), ["elsewhere", "web_search", "mcps", "allow_code_execution", "builtin_tools"])
    assert books.asked == []


def test_langchain_refuses_a_hosted_tool_unless_it_is_named(books: Books, how: How) -> None:
    room = stage("langchain", "langchain")
    with pytest.raises(Ungoverned, match="web_search"):
        room.hosted(how)
    room.hosted(how, ungoverned=["web_search"])
    assert books.asked == []


def test_crewai_asks_again_for_each_call_and_by_each_kind_of_tool(books: Books, how: How) -> None:
    """Its cache would have answered the second call."""
    room = stage("crewai", "crewai")
    how.retry = "around"
    assert room.turn(how, [PAY]) == ["paid 5", "paid 5"]
    assert [one.status for one in books.actions.values()] == ["applied", "applied"]
    assert end_of(books, how) == "ran again, each as approved"
    assert room.by_decorator(how) == "paid 7"
    assert [one.arguments for one in books.actions.values()][-1] == {"amount": 7}
