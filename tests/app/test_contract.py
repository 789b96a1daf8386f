"""The contracts of HTTP and of the command line: each parameter, member and option, its kind, limits and default."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from app.cli import root
from app.cli.context import INT4_MAX
from app.http import problems
from app.http.application import create_app
from app.settings import load_settings
from tests.support.golden import matches_golden

_WORDS = frozenset({"title", "description", "summary", "operationId", "tags"})

_PROBLEM, _PLACE = "application/problem+json Problem", "#/components/responses/"
_USUAL: tuple[tuple[str, Any], ...] = (("safe", [{"HTTPBearer": []}]), ("asked", {}), ("body", ""))


def _line(schema: Any) -> str:
    """A schema in one line: its kind or the name of its model, then its limits and its default."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    rest = {name: item for name, item in schema.items() if name not in _WORDS}
    kinds = [_line(item) for item in rest.pop("anyOf", ())] or [str(rest.pop("type", "anything"))]
    for name in ("items", "additionalProperties"):
        if isinstance(rest.get(name), dict):
            kinds[-1] += f" of {_line(rest.pop(name))}"
    limits = [f"{name}={json.dumps(item, ensure_ascii=False)}" for name, item in sorted(rest.items())]
    return ", ".join([" or ".join(kinds), *limits])


def _content(told: dict[str, Any]) -> str:
    return ", ".join(f"{kind} {_line(item.get('schema', {}))}" for kind, item in told.get("content", {}).items())


def _option(told: Any) -> str:
    """An option in one line: its kind, its limits and its default."""
    kind = getattr(told.type_descriptor.annotation, "__name__", str(told.type_descriptor.annotation))
    limits = [f"{name}={getattr(told, name)}" for name in ("min", "max") if getattr(told, name, None) is not None]
    marks = [mark for mark in ("required", "multiple", "hidden") if getattr(told, mark, False)]
    return ", ".join([kind, *limits, *marks, *([f"default={told.default}"] if told.default not in (None, ()) else [])])


@pytest.mark.golden
@pytest.mark.req("U-8")
def test_the_contract_over_http_is_the_published_one(clean_environment: pytest.MonkeyPatch) -> None:
    faces: Any = SimpleNamespace(settings=load_settings(), slack=None, database=None, metrics=None)
    schema = create_app(faces).openapi()
    shared = schema["components"]["responses"]
    assert {_content(one) for one in shared.values()} == {_PROBLEM}
    assert {*problems.STATUS.values(), 500} <= {*map(int, shared)}, "each error of ours has a status in the description"
    found: dict[str, Any] = {"refusals": ", ".join(shared)}
    for path, methods in schema["paths"].items():
        for method, told in methods.items():
            asked = {
                f"{each['in']} {each['name']}{' (needed)' if each['required'] else ''}": _line(each["schema"])
                for each in told.get("parameters", ())
            }
            # Refusals that routes share stand once in the file: each route has all, but for two that no look gets.
            here = told["responses"]
            never = set() if method != "get" else {"409"} if asked else {"404", "409"}
            assert shared.keys() - here.keys() <= never, (method, path)
            assert all(one.get("$ref", f"{_PLACE}{status}") == f"{_PLACE}{status}" for status, one in here.items())
            answers = {status: _content(one) for status, one in here.items() if "$ref" not in one}
            assert all(_PROBLEM in text for status, text in answers.items() if status[0] in "45"), (method, path)
            answers = {status: text for status, text in answers.items() if status not in shared}
            said = {"safe": told.get("security"), "asked": asked, "body": _content(told.get("requestBody", {}))}
            # Almost every route is safe by a token, and half of them take no body: the file tells of the others.
            said = {name: each for name, each in said.items() if (name, each) not in _USUAL}
            found[f"{method.upper()} {path}"] = {**said, "answers": answers}
    for name, model in schema["components"]["schemas"].items():
        needed = model.get("required", ())
        members = {
            f"{each}{' (needed)' if each in needed else ''}": _line(item)
            for each, item in model.get("properties", {}).items()
        }
        assert {*needed} <= model.get("properties", {}).keys(), name
        rest = _line({each: item for each, item in model.items() if each not in ("properties", "required")})
        found[name] = members | ({} if rest == "object" else {"": rest})
    matches_golden("http", found)


@pytest.mark.golden
@pytest.mark.req("U-8")
def test_the_contract_of_the_command_line_is_the_published_one() -> None:
    found: dict[str, Any] = {}

    def walk(command: Any, place: str) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{place} {name}".strip())
        if hasattr(command, "commands"):
            return
        found[place] = {" ".join(each.opts): _option(each) for each in command.params}

    walk(typer.main.get_command(root), "")
    matches_golden("command_line", found)

    numbers = [line for options in found.values() for line in options.values() if line.startswith("int")]
    assert all(int(re.findall(r"max=(\d+)", line)[0]) <= INT4_MAX for line in numbers), "more than the database holds"
