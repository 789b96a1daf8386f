"""A stand-in of a command-line agent: it runs the hook as its printed settings say, and treats its ends as seen.

Seen with the real programs, and a scripted model: Claude Code 2.1.332 and Codex 0.171.0. Hooks of one event get the
same input at the same time; input that another hook has changed runs, and the hook after the tool is given what ran.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from counterseal_agents.hook.command import longest, options
from counterseal_agents.hook.settings import fragment, line
from tests.support.agents_stage import Broken, How, die

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Blocked(Exception):
    """The tool did not run, and the model is told why."""

    words: str


@dataclass
class Program:
    """The program, with the settings of one hook."""

    host: str
    how: How
    settings: dict[str, Any]
    environment: dict[str, str]
    begun: Callable[[int], None] = lambda pid: None

    def called(self, tool: str, given: dict[str, Any]) -> str:
        """Call a tool as the model asks for it, and return the words that the model is told."""
        event = {"session_id": "s-1", "tool_name": tool, "tool_use_id": f"toolu_{uuid4()}", "cwd": "/"}
        try:
            if not self.how.ungoverned:
                self.hook("PreToolUse", {**event, "tool_input": given})
            ran = self.how.change[1] if self.how.change is not None else given
        except Blocked as blocked:
            return blocked.words
        try:
            result = self.how.pay(**ran)
        except (Broken, KeyboardInterrupt) as error:
            stopped = isinstance(error, KeyboardInterrupt)
            end = {"tool_input": ran, "error": str(error), "is_interrupt": stopped}
            said = self.told("PostToolUseFailure", {**event, **end})
            if stopped:
                raise
            return f"it failed: {error}{said}"
        return result + self.told("PostToolUse", {**event, "tool_input": ran, "tool_response": {"stdout": result}})

    def told(self, name: str, event: dict[str, Any]) -> str:
        """Run the hook after a tool, if one is set up for this event; return what it has the model told."""
        if self.how.ungoverned or name not in self.settings["hooks"]:
            return ""
        try:
            self.hook(name, event)
        except Blocked as blocked:
            return f"\n{blocked.words}"
        return ""

    def hook(self, name: str, event: dict[str, Any]) -> None:
        """Run the hook. ``Blocked`` if its end keeps the tool from running."""
        (group,) = self.settings["hooks"][name]
        (hook,) = group["hooks"]
        limit = self.how.limit if self.how.limit is not None and name == "PreToolUse" else hook["timeout"]
        code, out, err = self.run(hook["command"], json.dumps({**event, "hook_event_name": name}), limit)
        if code == 2 and (err or self.host == "claude"):
            raise Blocked(err)
        if code != 0 and self.host == "claude" and hook.get("onFailure") == "block":
            raise Blocked(f"the hook failed: {err}")
        decision = _decision(out) if code == 0 else {}
        if decision.get("permissionDecision") == "deny":
            raise Blocked(decision["permissionDecisionReason"])

    def run(self, command: str, event: str, limit: float) -> tuple[int, str, str]:
        """The end of a command, which is killed when its time is over."""
        begun = subprocess.Popen(
            ["/bin/sh", "-c", command], env=self.environment, start_new_session=True, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.begun(begun.pid)
        try:
            out, err = begun.communicate(event, timeout=limit)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            os.killpg(begun.pid, signal.SIGKILL)
            with begun:  # closes its pipes, and waits for its end
                if isinstance(error, KeyboardInterrupt):
                    raise
            return -9, "", ""
        return begun.returncode, out, err


def _decision(out: str) -> dict[str, Any]:
    try:
        found = json.loads(out)["hookSpecificOutput"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def program(host: str, how: How, *more: str) -> Iterator[Program]:
    """The program with the hook that its settings name. A death of it at a stage is that of its hook as well."""
    home = how.effects.parent
    with _watched(how) as (url, begun):
        token = home / "token"
        token.write_text(how.token, encoding="ascii")
        words = ["--url", url, "--token-file", str(token), "--state", str(home / "kept"), "--harmless", "none"]
        words += ["--wait", str(how.terms.wait), "--timeout", str(how.terms.timeout), *more]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "CODEX_HOME": str(home)}
        (home / "config.toml").write_text('web_search = "disabled"', encoding="utf-8")
        yield Program(host, how, settings_of(host, *words), environment, begun)


def settings_of(host: str, *words: str) -> dict[str, Any]:
    """The settings as they are printed, with the hook of this repository instead of an installed one."""
    from argparse import ArgumentParser

    parser = ArgumentParser()
    parser.add_argument("host")
    options(parser)
    given = parser.parse_args([host, *words])
    paths = f"{ROOT / 'packages' / 'agents'}"
    command = line(given).replace(" -I -m ", " -m ", 1)
    text = fragment(host, f"PYTHONPATH={paths} {command}", longest(given))
    read: Callable[[str], Any] = tomllib.loads if host == "codex" else json.loads
    return read(text)


@contextmanager
def _watched(how: How) -> Iterator[tuple[str, Callable[[int], None]]]:
    """The server's address, behind a relay that kills the program at a stage, if one is to die."""
    if not how.kill:
        yield how.url, lambda pid: None
        return
    groups: list[int] = []

    class Relay(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = _message(self.rfile)
            path = request.split(b" ", 2)[1].decode()
            if path.endswith("/" + how.kill):
                _die(groups)
            answer = _asked(how.url, request)
            if path.endswith("/" + how.kill.rstrip("+")):
                _die(groups)
            self.wfile.write(answer)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Relay) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", groups.append
        server.shutdown()


def _die(groups: list[int]) -> None:
    for group in groups[-1:]:
        os.killpg(group, signal.SIGKILL)
    die()


def _message(stream: Any) -> bytes:
    """A whole message of HTTP."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line_ = stream.readline()
        if not line_:
            break
        head += line_
    length = [int(one.split(b":")[1]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:")]
    return bytes(head + (stream.read(length[0]) if length else b""))


def _asked(url: str, request: bytes) -> bytes:
    import socket

    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as line_:
        line_.sendall(request)
        with line_.makefile("rb") as stream:
            return _message(stream)


def turn_of(host: str, how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told. The program repeats nothing; the model does."""
    with program(host, how) as made, ThreadPoolExecutor(len(calls)) as pool:
        said: list[str] = []
        for _ in range(2 if how.retry else 1):
            told = [pool.submit(made.called, "pay", one) for one in calls] if len(calls) > 1 else None
            said += [one.result() for one in told] if told else [made.called("pay", calls[0])]
        return said


def pause_of(host: str, how: How, call: dict[str, Any]) -> None:
    """Call, and be told that it waits. It cannot pause: what waits is called again later."""
    assert "Call it again later" in turn_of(host, how, [call])[0]
    edit(how, call)


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call that is to be made again."""
    how.state.write_text(json.dumps(arguments), encoding="utf-8")


def resume_of(host: str, how: How, call: dict[str, Any]) -> list[str]:
    """Call again."""
    return turn_of(host, how, [json.loads(how.state.read_text(encoding="utf-8"))])
