"""Serves AgentDojo over a protocol of one JSON document per line, in the environment where it is installed.

A request's ``ask`` is ``suites`` (tools and tasks), ``open`` (a fresh environment for a user task), ``call`` (one tool
call there), ``succeeded`` (AgentDojo's own judgment of the user's task) or ``close``. An answer is ``{"answer": …}`` or
``{"error": "…"}``.
"""

# These imports exist only in this script's own environment, which mypy does not see.
# mypy: disable-error-code="import-not-found, import-untyped, misc"

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import missing
import yaml
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites
from agentdojo.task_suite.task_suite import read_suite_file

VERSION = "v1.2.2"
SUITES = get_suites(VERSION)


class World:
    """One environment, in which calls are made."""

    def __init__(self, suite: str, task: str, injected: str | None) -> None:
        self.suite, self.task = SUITES[suite], SUITES[suite].user_tasks[task]
        environment = _environment(suite, injected).model_copy(deep=True)
        self.environment = self.task.init_environment(environment)
        self.before = self.environment.model_copy(deep=True)
        self.runtime = FunctionsRuntime(self.suite.tools)
        self.trace: list[Any] = []

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make one call. Returns the tool's result, or its error."""
        result, error = self.runtime.run_function(self.environment, tool, arguments)
        if error is not None:
            return {"error": error}
        self.trace.append(FunctionCall(function=tool, args=arguments))
        return {"result": _plain(result)}

    def succeeded(self) -> bool:
        """Ask AgentDojo if the user's task succeeded. The model's final answer is the expected one."""
        said = f"{self.task.GROUND_TRUTH_OUTPUT}"
        traced = self.task.utility_from_traces(said, self.before, self.environment, self.trace)
        return bool(self.task.utility(said, self.before, self.environment) if traced is None else traced)


WORLDS: dict[int, World] = {}


@cache
def _environment(suite: str, injected: str | None) -> Any:
    """The suite's environment, with the text ``injected`` in every place that an attacker can write."""
    found, vectors = SUITES[suite], SUITES[suite].get_injection_vector_defaults()
    marks = {name: f"~~{at}~~" for at, name in enumerate(vectors)}
    texts = {marks[name]: default if injected is None else injected for name, default in vectors.items()}
    data = yaml.safe_load(read_suite_file(suite, "environment.yaml", found.data_path).format(**marks))
    return found.environment_type.model_validate(_filled(data, texts))


def _filled(value: Any, texts: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {_filled(key, texts): _filled(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, texts) for item in value]
    if isinstance(value, str) and "~~" in value:
        for mark, text in texts.items():
            value = value.replace(mark, text)
    return value


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _calls(task: Any, environment: Any) -> list[dict[str, Any]]:
    return [{"tool": one.function, "arguments": _plain(dict(one.args))} for one in task.ground_truth(environment)]


def suites(injections: bool) -> dict[str, Any]:
    """The tools and tasks of all suites, with the attacks if ``injections``."""
    told = {}
    for name, suite in SUITES.items():
        users = []
        for key, task in suite.user_tasks.items():
            environment = task.init_environment(_environment(name, None).model_copy(deep=True))
            users.append({"id": key, "text": task.PROMPT, "calls": _calls(task, environment)})
        attacks = []
        for key, task in suite.injection_tasks.items() if injections else ():
            environment = _environment(name, None).model_copy(deep=True)
            calls = _calls(task, environment) or (missing.calls(task, environment) if name == "workspace" else [])
            attacks.append({"id": key, "text": task.GOAL, "calls": calls})
        tools = [
            {"name": one.name, "description": one.description, "schema": one.parameters.model_json_schema()}
            for one in suite.tools
        ]
        told[name] = {"tools": tools, "user_tasks": users, "injection_tasks": attacks}
    return told


def answer(request: dict[str, Any]) -> Any:
    """Answer one request."""
    match request["ask"]:
        case "suites":
            return suites(request["injections"])
        case "open":
            number = max(WORLDS, default=0) + 1
            WORLDS[number] = World(request["suite"], request["task"], request["injected"])
            return number
        case "call":
            return WORLDS[request["world"]].call(request["tool"], request["arguments"])
        case "succeeded":
            return WORLDS[request["world"]].succeeded()
        case "close":
            return WORLDS.pop(request["world"], None) is not None
        case other:
            raise ValueError(f"there is no request {other!r}")


def serve(lines: Sequence[str] | Any, write: Callable[[str], Any]) -> None:
    """Answer each line until there are no more."""
    for line in lines:
        try:
            told = {"answer": answer(json.loads(line))}
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}"}
        write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout.write)
