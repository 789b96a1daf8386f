"""The command of the hook. It ends with a whole decision, or with exit code 2 and a reason: it never ends otherwise.

An agent's program takes every other end for no opinion, or for a failure that it may ignore.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NoReturn

from counterseal_agents.contract import Terms
from counterseal_agents.hook import events
from counterseal_agents.hook.connection import Server
from counterseal_agents.hook.deciding import Setup, decide
from counterseal_agents.hook.events import EVENT_BYTES_MAX, HOSTS, NO, HookAnswer, Unreadable
from counterseal_agents.hook.permits import default_folder

URL, TOKEN = "COUNTERSEAL_AGENT_URL", "COUNTERSEAL_AGENT_TOKEN"
WAIT, TIMEOUT = 45.0, 10.0
_REASON_MAX = 4000
_ENDING = threading.Lock()


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command, and end the process."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in HOSTS:
        _hook(arguments)
    from counterseal_agents.hook.settings import command

    sys.exit(command(arguments))


def options(parser: ArgumentParser) -> None:
    """Add the options that a hook is set up with."""
    parser.add_argument("--url", default="", help=f"the server's address; {URL} of the environment if not given")
    parser.add_argument("--token-file", default="", help=f"a file with the agent's token; else {TOKEN}")
    parser.add_argument("--certificates", help="a file of certificates to trust, instead of the system's")
    parser.add_argument("--wait", type=float, default=WAIT, help="seconds to wait for a yes (45)")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds for any answer besides (10)")
    parser.add_argument("--for", dest="acts_for", help="the person for whom the agent acts, who then does not decide")
    parser.add_argument("--ungoverned", action="append", default=[], help="a tool that runs without asking")
    parser.add_argument("--harmless", action="append", default=[], help="a tool that has no effect if it fails")
    parser.add_argument("--outputs", action="store_true", help="send what tools give back")
    parser.add_argument("--state", default="", help="the folder for permits of tools that run now")


def longest(given: Namespace) -> float:
    """The seconds after which the hook ends itself, before its program's own limit would end it."""
    return float(given.wait + 3 * given.timeout + 10)


def _hook(arguments: list[str]) -> NoReturn:
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _interrupted)
        parser = ArgumentParser(prog="counterseal-hook", add_help=False, allow_abbrev=False)
        parser.add_argument("host", choices=HOSTS)
        options(parser)
        given = parser.parse_args(arguments)
        limit = threading.Timer(longest(given), _too_late)
        limit.daemon = True
        limit.start()
        answer = decide(*_setup(given), events.read(_event()))
    except BaseException as error:
        answer = HookAnswer(NO, f"There is no yes from Counterseal: {_why(error)}.")
    _end(answer)


def _setup(given: Namespace) -> tuple[Setup, Server]:
    if not 0 <= given.wait <= 3600:
        raise ValueError("--wait is 0 to 3600 seconds")
    environment = dict(os.environ)
    token = environment.get(TOKEN, "")
    if given.token_file:
        token = Path(given.token_file).expanduser().read_text(encoding="ascii").strip()
    folder = Path(given.state).expanduser() if given.state else default_folder(environment)
    terms = Terms(acts_for=given.acts_for, wait=given.wait, timeout=given.timeout)
    server = Server((given.url or environment.get(URL, "")).rstrip("/"), token, given.certificates)
    ungoverned, harmless = frozenset(given.ungoverned), frozenset(given.harmless)
    return Setup(given.host, folder, environment, terms, ungoverned, harmless, given.outputs), server


def _event() -> bytes:
    """All of the standard input: a program that cannot write it all may take that for a failed hook."""
    data = bytearray()
    while part := sys.stdin.buffer.read(1024 * 1024):
        data += part[: max(0, EVENT_BYTES_MAX + 1 - len(data))]
    return bytes(data)


def _why(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "the hook is set up with options that it does not know"
    words = str(error) if isinstance(error, Unreadable | ValueError | OSError) else ""
    return f"{type(error).__name__}{': ' if words else ''}{words}".rstrip(".")


def _interrupted(*_: object) -> None:
    if not _ENDING.locked():
        _end(HookAnswer(NO, "There is no yes from Counterseal: its hook was ended before."))


def _too_late() -> None:
    _end(HookAnswer(NO, "There is no yes from Counterseal: it did not answer in time. Try again later."))


def _end(answer: HookAnswer) -> NoReturn:
    """Say it and end at once, so that nothing that Python does at its end changes the exit code."""
    if not _ENDING.acquire(blocking=False):
        threading.Event().wait()
    code = answer.code
    if code == 0:
        try:
            data = answer.text.encode()
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            code = NO
    if code != 0:
        try:
            os.write(2, answer.text[:_REASON_MAX].encode("utf-8", "replace") + b"\n")
        finally:
            os._exit(code)
    os._exit(0)
