"""Write the generated parts of docs/ from the code, or with --check report which ones are outdated.

A generated part is between ``<!-- generated: NAME -->`` and ``<!-- end -->``. The files of docs/schemas/ are generated
as a whole.
Exit codes: 0 all is current (or was written), 1 something is not, 2 a page or a description is missing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import typer
from fastapi.routing import APIRoute
from ruamel.yaml import YAML

from app.access import Role
from app.cli import root as command_line
from app.faces import Faces
from app.http.application import ROUTERS, create_app
from app.http.middleware import OPEN, SIGNED
from app.settings import PREFIX, Settings
from approvals.model import APPROVAL
from connectors.catalog import load_catalog
from core.budgets import LIMITS
from core.db import FACES_ROLE, Database
from core.durations import format_duration
from core.machine import Machine
from evidence import members
from evidence.events import REQUIRED_DATA, RUN_EVENTS, EventType
from evidence.receipts import RECEIPT
from runtime.definition.schemas import SchemaName, schema_text
from runtime.engine.book import notices
from runtime.engine.model.states import COMMAND, EFFECT, RUN, STEP, WAIT
from tools import agents_matrix, rooms

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_PART = re.compile(r"<!-- generated: (?P<name>[a-z-]+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _diagram(machine: Machine[Any, Any]) -> Callable[[], str]:
    lines = ["stateDiagram-v2", *(f"    [*] --> {state}" for state in sorted(machine.initial))]
    lines += [f"    {a} --> {b}: {event}" for (a, event), b in sorted(machine.table.items())]
    lines += [f"    {state} --> [*]" for state in sorted(machine.terminal.intersection(machine.table.values()))]
    return lambda: "\n".join(["```mermaid", *lines, "```\n"])


def _operations() -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        for name, operation in sorted(load_catalog().operations.items()):
            reverse = f"`{operation.reverse.operation}`" if operation.reverse else "-"
            doubt = str(operation.in_doubt) if operation.has_effect else "-"
            seconds = format_duration(operation.timeouts.perform)
            yield f"`{name}`", str(operation.side_effects), str(operation.risk), doubt, reverse, seconds

    return _table(("operation", "side effects", "risk", "in doubt", "reversed by", "time limit"), rows())


def _inputs() -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        for name, operation in sorted(load_catalog().operations.items()):
            required = set(operation.input_schema.get("required", ()))
            names = [f"**{key}**" if key in required else key for key in operation.input_schema.get("properties", {})]
            yield f"`{name}`", ", ".join(names), operation.description

    return _table(("operation", "inputs (required ones bold)", "what it does"), rows())


def _events() -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        for kind in EventType:
            stream = "run" if kind in RUN_EVENTS else "tenant"
            yield f"`{kind}`", stream, ", ".join(f"`{name}`" for name in sorted(REQUIRED_DATA.get(kind, ())))

    return _table(("event", "stream", "always holds"), rows())


def _members() -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        for kind in sorted(RUN_EVENTS):
            needed = REQUIRED_DATA.get(kind, frozenset())
            told = [f"`{one}`" for one in members.members_of(kind)]
            yield (
                f"`{kind}`",
                ", ".join(f"**{one}**" if re.split(r"[:?]", one[1:-1])[0] in needed else one for one in told),
            )

    return _table(("type", "members of its data"), rows())


def _lines() -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        for stream, table in (("run", notices.OF_RUNS), ("tenant", notices.OF_TENANTS)):
            for kind, said in table.items():
                for one in (said, notices.WAITING) if kind is EventType.STEP_RETRY_SCHEDULED else (said,):
                    members = ", ".join(f"`{name}`" for name in one.members)
                    yield one.words, one.level, f"`{kind}`", stream, members

    return _table(("line", "level", "event", "stream", "its own members"), rows())


def _settings() -> str:
    words: Mapping[str, str] = YAML(typ="safe").load((ROOT / "tools" / "settings.yaml").read_text(encoding="utf-8"))
    fields = Settings.model_fields
    if set(words) != set(fields):
        wrong = ", ".join(sorted(set(words) ^ set(fields)))
        raise LookupError(f"tools/settings.yaml and app/settings.py differ: {wrong}")

    def rows() -> Iterator[tuple[str, ...]]:
        for name, field in fields.items():
            yield f"`{PREFIX}{name.upper()}`", _default(field.get_default(call_default_factory=True)), words[name]

    return _table(("variable", "default", "meaning"), rows())


def _limits() -> str:
    def rows() -> Iterator[tuple[str, ...]]:
        for one in LIMITS.values():
            per = f" in {one.seconds:,.0f} s" if one.seconds else ""
            yield f"`{one.name}`", str(one.kind), f"{one.most:,} {one.unit}{per}", one.words

    return _table(("limit", "kind", "at most", "of"), rows())


def _default(value: object) -> str:
    return "-" if value in (None, "", (), {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _routes() -> str:
    settings = Settings.model_construct()
    faces = Faces(settings, Database("postgresql://docs@localhost/docs", FACES_ROLE), AsyncExitStack())
    paths = create_app(faces).openapi()["paths"]

    def rows() -> Iterator[tuple[str, ...]]:
        for router in ROUTERS:
            for route in router.routes:
                if isinstance(route, APIRoute):
                    path = route.path_format if route.path_format in paths else f"/v1{route.path_format}"
                    for method in sorted(route.methods or ()):
                        yield f"`{method} {path}`", _who(route), paths[path][method.lower()]["summary"]

    return _table(("request", "who", "what"), rows())


def _roles() -> str:
    """The table of roles: the summaries of the requests that change something, and the paths that a role may read."""
    may: dict[str, tuple[list[str], set[str]]] = {str(role): ([], set()) for role in Role}
    for router in ROUTERS:
        for route in router.routes:
            if not isinstance(route, APIRoute):
                continue
            path = "/".join(part for part in route.path_format.split("/") if part not in ("", "v1") and "{" not in part)
            for role in _who(route).split(", "):
                if role in may and route.methods == {"GET"}:
                    may[role][1].add(path)
                elif role in may:
                    may[role][0].append(str(route.summary))
    rows = (
        (f"`{role}`", "; ".join(changes) or "-", ", ".join(sorted(looks)) or "-")
        for role, (changes, looks) in may.items()
    )
    return _table(("role", "may", "looks at"), rows)


def _who(route: APIRoute) -> str:
    if route.path in OPEN:
        return "anybody"
    if route.path.startswith(SIGNED):
        return "signed"
    for dependency in route.dependant.dependencies:
        call = dependency.call
        if call is not None and call.__qualname__.startswith("allow.<locals>"):
            (roles,) = [cell.cell_contents for cell in call.__closure__ or ()]
            return ", ".join(roles)
    return "any valid token"


def _commands() -> str:
    found = typer.main.get_command(command_line)
    return "\n".join(_command(command, f"counterseal {name}") for name, command in _leaves(found, ""))


def _leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path.strip(), command
        return
    for name, child in children.items():
        yield from _leaves(child, f"{path} {name}")


def _command(command: Any, name: str) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join([name, *(_argument(p) for p in arguments), *(_required(p) for p in options if p.required)])
    lines = [f"### `{name}`", "", (command.help or "").strip(), "", "```", usage, "```", ""]
    if arguments or options:
        rows = [(f"`{_argument(p)}`", p.help or "") for p in arguments]
        rows += [(f"`{', '.join(p.opts)}`", p.help or "") for p in options]
        lines.append(_table(("", "meaning"), iter(rows)))
    return "\n".join(lines)


def _argument(parameter: Any) -> str:
    text = (parameter.metavar or str(parameter.name)).upper()
    many = "..." if parameter.nargs == -1 else ""
    return f"{text}{many}" if parameter.required else f"[{text}]{many}"


def _required(parameter: Any) -> str:
    return f"{parameter.opts[-1]} {str(parameter.name).upper()}"


def _facts() -> str:
    from policy.facts import BASE_FACTS

    return _table(("fact", "type"), ((f"`{name}`", kind) for name, kind in BASE_FACTS.items()))


PARTS: Mapping[str, Callable[[], str]] = {
    "agents-matrix": lambda: _table(("fault", *agents_matrix.FRAMEWORKS.values()), agents_matrix.rows()),
    "agents-open": lambda: "".join(f"- {line}\n" for line in agents_matrix.left_open()),
    "limits": _limits,
    "run-states": _diagram(RUN),
    "step-states": _diagram(STEP),
    "wait-states": _diagram(WAIT),
    "command-states": _diagram(COMMAND),
    "approval-states": _diagram(APPROVAL),
    "receipt-states": _diagram(RECEIPT),
    "effect-states": _diagram(EFFECT),
    "operations": _operations,
    "inputs": _inputs,
    "events": _events,
    "members": _members,
    "log-lines": _lines,
    "settings": _settings,
    "routes": _routes,
    "roles": _roles,
    "commands": _commands,
    "facts": _facts,
    "imports": rooms.imports,
    "rooms": lambda: _table(("room", "what is in it"), rooms.rooms()),
    "engine": lambda: _table(("module", "what it decides or holds"), rooms.engine()),
}


FILES: Mapping[str, Callable[[], str]] = {
    f"schemas/{name}.schema.json": partial(schema_text, name) for name in SchemaName
}


def renew(text: str) -> str:
    """The page with its generated parts renewed. ``LookupError`` for a part that nothing generates."""

    def part(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in PARTS:
            raise LookupError(f"nothing generates {name!r}; one of {', '.join(PARTS)}")
        return f"<!-- generated: {name} -->\n{PARTS[name]()}<!-- end -->"

    return _PART.sub(part, text)


def main(arguments: list[str]) -> int:
    """Write or check every page and file."""
    check = "--check" in arguments
    stale, used = _files(write=not check), set()
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        used |= {match["name"] for match in _PART.finditer(text)}
        try:
            current = renew(text)
        except LookupError as error:
            sys.stderr.write(f"{page.relative_to(ROOT)}: {error}\n")
            return 2
        if current != text:
            stale.append(page.relative_to(ROOT))
            if not check:
                page.write_text(current, encoding="utf-8")
    if unused := PARTS.keys() - used:
        sys.stderr.write(f"no page has {', '.join(sorted(unused))}\n")
        return 2
    for name in stale:
        sys.stdout.write(f"{name} {'is not current: run make docs' if check else 'written'}\n")
    return 1 if stale and check else 0


def _files(*, write: bool) -> list[Path]:
    """The files of ``FILES`` that are missing or outdated; writes them if ``write``."""
    stale = []
    for name, make in FILES.items():
        file, current = DOCS / name, make()
        if not file.exists() or file.read_text(encoding="utf-8") != current:
            stale.append(file.relative_to(ROOT))
            if write:
                file.parent.mkdir(exist_ok=True)
                file.write_text(current, encoding="utf-8")
    return stale


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
