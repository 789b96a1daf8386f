"""The hook of command-line agents: nothing but an explicit yes lets a tool run, however the hook ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from counterseal_agents.contract import Terms
from counterseal_agents.hook import checking
from counterseal_agents.hook.connection import Server
from counterseal_agents.hook.deciding import Setup, decide
from counterseal_agents.hook.events import Event, HookAnswer
from tests.support import agents_commands as commands
from tests.support.agents_gate import NOT_A_YES, TOKEN, Books, serving
from tests.support.agents_stage import FAST, PAY, How, end_of

EVENT = {
    "hook_event_name": "PreToolUse", "session_id": "s-1", "tool_name": "pay", "tool_use_id": "toolu_1",
    "tool_input": PAY,
}  # fmt: skip
LET_OUT = {"claude": '"permissionDecision": "allow"', "codex": "{}"}


@pytest.fixture
def books() -> Iterator[Books]:
    with serving() as found:
        yield found


@pytest.fixture
def how(books: Books, tmp_path: Path) -> How:
    return How(books.url, tmp_path / "effects", terms=replace(FAST, timeout=5.0), state=tmp_path / "state")


def setup(books: Books, folder: Path, **given: Any) -> Callable[[Event], HookAnswer]:
    """The answers of a hook that is set up so."""
    own = {"host": "claude", "folder": folder / "kept", "environment": {}}
    rest = {"terms": FAST, "ungoverned": frozenset(), "harmless": frozenset(), "outputs": False}
    return partial(decide, Setup(**{**own, **rest, **given}), Server(books.url, TOKEN))


def event(name: str = "PreToolUse", use: str = "toolu_1", given: Any = PAY, **more: Any) -> Event:
    rest = {"interrupted": False, "error": "", "response": None}
    return Event(name, "pay", given, "s-1", use, **{**rest, **more})


def lets_run(host: str, said: HookAnswer) -> bool:
    return said.code == 0 and LET_OUT[host] in said.text


def started(how: How, *more: str, host: str = "claude", **variables: str) -> subprocess.Popen[bytes]:
    """The hook as its settings say, with these words and variables besides."""
    with commands.program(host, how) as made:
        ((group,), environment) = made.settings["hooks"]["PreToolUse"], {**made.environment, **variables}
    command = group["hooks"][0]["command"].replace(" || ", f" {' '.join(more)} || ")
    pipe = subprocess.PIPE
    return subprocess.Popen(["/bin/sh", "-c", command], env=environment, stdin=pipe, stdout=pipe, stderr=pipe)


def told(hook: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """The hook, which has got its event."""
    assert hook.stdin is not None
    with hook.stdin:
        hook.stdin.write(json.dumps(EVENT).encode())
    hook.stdin = None
    return hook


# A spoiled answer to the question is no yes yet, so what a permit would lack, it may lack.
AT_THE_QUESTION = ("down", "401", "500", "html", "empty", "other", "other digest", "redirect", "text", "cut", "list")


@pytest.mark.parametrize("stage", ["ask", "permit"])
@pytest.mark.parametrize("host", ["claude", "codex"])
def test_no_answer_but_an_explicit_yes_lets_a_tool_run(books: Books, tmp_path: Path, host: str, stage: str) -> None:
    (tmp_path / "config.toml").write_text('web_search = "disabled"')
    patient, own = Terms(wait=0.0, timeout=5.0, pause=0.0), {"CODEX_HOME": str(tmp_path)}
    made = setup(books, tmp_path, host=host, environment=own, terms=patient)
    assert lets_run(host, made(event(use="first", given={"amount": 1})))
    books.stage = stage
    faults = AT_THE_QUESTION if stage == "ask" else [one for one in NOT_A_YES if one != "hang"]
    for n, books.fault in enumerate(faults):
        asked = event(use=books.fault, given={"amount": n + 2})
        assert not lets_run(host, made(asked)), books.fault


UNREADABLE = {
    "nothing": b"", "no UTF-8": json.dumps(EVENT).encode() + b"\xff", "cut": json.dumps(EVENT).encode()[:-9],
    "a name twice": json.dumps(EVENT).encode()[:-1] + b', "tool_name": "other"}', "a list": b"[1]",
    "another event": json.dumps({**EVENT, "hook_event_name": "Stop"}).encode(),
    "no id": json.dumps({**EVENT, "tool_use_id": None}).encode(), "NaN": b'{"tool_input": {"n": NaN}}',
    "no input": json.dumps({**EVENT, "tool_input": "x"}).encode(), "large": b" " * 5_000_000,
    "deep": json.dumps(EVENT).encode().replace(b'"ana"', b"[" * 5000 + b"]" * 5000),
    "surrogate": json.dumps({**EVENT, "tool_input": {"x": "\ud800"}}).encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_event_that_is_none_ends_with_a_no(books: Books, how: How, name: str) -> None:
    out, err = (hook := started(how)).communicate(UNREADABLE[name])
    assert (hook.returncode, b"no yes from Counterseal" in err) == (2, True) or b'"deny"' in out
    assert books.asked == []


def _ended(books: Books, how: How, number: int) -> tuple[int, bytes]:
    books.decide, how.terms = (lambda tool, given: "pending"), replace(how.terms, wait=30.0)
    hook = told(started(how))
    books.until(lambda: "look" in books.asked)
    (child,) = Path(f"/proc/{hook.pid}/task/{hook.pid}/children").read_text().split()
    os.kill(int(child), number)
    words = hook.communicate()[1]
    return hook.returncode, words


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="It finds the hook's process in /proc.")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_hook_that_is_ended_while_it_waits_says_no(books: Books, how: How, number: int) -> None:
    code, words = _ended(books, how, number)
    assert (code, b"no yes from Counterseal" in words) == (2, True)


def test_a_closed_pipe_a_late_answer_and_unknown_options_say_no(books: Books, how: How) -> None:
    closed = started(how)
    assert closed.stdout is not None
    closed.stdout.close()
    closed.stdout = None
    assert (told(closed).communicate()[1] != b"", closed.returncode) == (True, 2)
    for more in (["--certain"], ["--help"], ["--wait", "nan"], ["--wait", "-1"], ["--token-file", "/none"]):
        hook = started(how, *more)
        out, err = hook.communicate(json.dumps(EVENT).encode())
        assert (hook.returncode, out, err != b"") == (2, b"", True), more


def test_variables_of_the_environment_lead_it_nowhere_else(books: Books, how: How, tmp_path: Path) -> None:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "COUNTERSEAL_AGENT_URL")
    with serving(decide=lambda tool, given: "approved") as evil:
        books.decide = lambda tool, given: "denied"
        hook = started(how, **dict.fromkeys(names, evil.url), COUNTERSEAL_AGENT_TOKEN="other")
        out, _ = hook.communicate(json.dumps(EVENT).encode())
        assert (b'"deny"' in out, evil.asked, len(books.actions)) == (True, [], 1)


def test_an_id_stands_for_one_call_and_a_second_hook_gets_no_permit(books: Books, tmp_path: Path) -> None:
    first = setup(books, tmp_path)
    assert lets_run("claude", first(event()))
    for made, again in (
        (first, event()), (first, event(given={"amount": 6})), (setup(books, tmp_path / "other"), event()),
        (setup(books, tmp_path), event(use="toolu_2")),
    ):  # fmt: skip
        assert not lets_run("claude", made(again))
    (tmp_path / "kept").chmod(0o777)
    assert "not a folder of this user alone" in first(event(use="toolu_3", given={"amount": 7})).text
    assert books.only().status == "executing"


REPORTS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "it ran": ({"name": "PostToolUse"}, {}, "applied", ""),
    "it gave back": ({"name": "PostToolUse", "response": {"a": 1}}, {"outputs": True}, "applied", ""),
    "another input": ({"name": "PostToolUse", "given": {"amount": 9}}, {}, "in_doubt", "with another input"),
    "no form": ({"name": "PostToolUse", "given": {"amount": 2**60}}, {}, "in_doubt", ""),
    "it failed": ({"name": "PostToolUseFailure", "error": "why"}, {}, "in_doubt", ""),
    "no harm": ({"name": "PostToolUseFailure"}, {"harmless": frozenset({"pay"})}, "failed", ""),
    "stopped": ({"name": "PostToolUseFailure", "interrupted": True}, {"harmless": frozenset({"pay"})}, "in_doubt", ""),
    "without a yes": ({"name": "PostToolUse", "use": "other"}, {}, "executing", "ran without a yes"),
}


@pytest.mark.parametrize("name", REPORTS)
def test_what_ran_is_reported(books: Books, tmp_path: Path, name: str) -> None:
    given, how_set_up, status, words = REPORTS[name]
    made = setup(books, tmp_path, **how_set_up)
    assert lets_run("claude", made(event()))
    said = made(event(**given))
    assert (books.only().status, books.only().output) == (status, {"a": 1} if name == "it gave back" else None)
    assert (words in said.text, said.code) == (True, 2 if words else 0)


def test_a_report_that_does_not_arrive_is_told_and_left_to_the_lease(books: Books, tmp_path: Path, how: How) -> None:
    made = setup(books, tmp_path, terms=Terms(wait=0.0, timeout=5.0, pause=0.0))
    assert lets_run("claude", made(event()))
    how.done(PAY)
    books.stage, books.fault, books.carried_out = "outcome", "500", False
    assert "could not be reported" in made(event("PostToolUse")).text
    assert end_of(books, how) == "ran, in doubt"


def _files(tmp_path: Path, host: str, change: Any) -> list[Path]:
    settings = commands.settings_of(host, "--url", "https://counterseal.example")
    change(settings)
    file = tmp_path / ("requirements.toml" if host == "codex" else "managed-settings.json")
    file.write_text(_toml(settings) if host == "codex" else json.dumps(settings), encoding="utf-8")
    return [file]


def _toml(settings: dict[str, Any]) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items() if not isinstance(value, dict)]
    lines += ["[features]", *(f"{name} = {json.dumps(value)}" for name, value in settings["features"].items())]
    for name, groups in settings["hooks"].items():
        (hook,) = groups[0]["hooks"]
        lines += [f"[[hooks.{name}]]", f"matcher = {json.dumps(groups[0]['matcher'])}", f"[[hooks.{name}.hooks]]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in hook.items()]
    return "\n".join(lines)


def _hook(settings: dict[str, Any], name: str = "PreToolUse") -> dict[str, Any]:
    found: dict[str, Any] = settings["hooks"][name][0]["hooks"][0]
    return found


CHANGES: dict[str, tuple[str, Any, str]] = {
    "as printed": ("claude", lambda found: None, ""),
    "as printed for Codex": ("codex", lambda found: None, ""),
    "not closed": ("claude", lambda found: _hook(found).pop("onFailure"), "onFailure"),
    "a command of one's own": ("codex", lambda found: _hook(found).update(command="counterseal-hook codex"), "printed"),
    "one tool": ("claude", lambda found: found["hooks"]["PreToolUse"][0].update(matcher="Bash"), "'Bash' alone"),
    "no report": ("codex", lambda found: found["hooks"].pop("PostToolUse"), "nothing is reported"),
    "off": ("claude", lambda found: found.update(disableAllHooks=True), "switches all hooks off"),
    "none": ("claude", lambda found: found["hooks"].clear(), "No settings run the hook"),
    "a hosted tool": ("codex", lambda found: found.update(allowed_web_search_modes=["live"]), "search of the web"),
    "an open shell": ("codex", lambda found: found["features"].update(unified_exec=True), "unified_exec"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_settings_are_checked_as_they_are_printed(tmp_path: Path, name: str) -> None:
    host, change, words = CHANGES[name]
    said = [one for one in checking.check(host, _files(tmp_path, host, change)) if "can change it" not in one]
    assert said == [] if not words else any(words in one for one in said)


def test_a_hook_starts_without_what_it_does_not_need() -> None:
    look = "import sys, counterseal_agents.hook.deciding, counterseal_agents.hook.command; print(sorted(sys.modules))"
    paths = {"PYTHONPATH": str(commands.ROOT / "packages" / "agents")}
    found = subprocess.run([sys.executable, "-c", look], env=paths, capture_output=True, text=True, check=True).stdout
    assert [name for name in ("httpx", "asyncio", "certifi", "anyio") if f"'{name}'" in found] == []
