"""The operations as tools: their names, their inputs without what an agent may not give, and pages of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from hashlib import sha256

from msgspec import Struct

from app.access import Principal
from app.faces import Faces
from app.http.dependencies import decode_cursor, encode_cursor
from connectors.disclosure import resolved
from connectors.operation import Operation
from core.canonical import Json, JsonObject, canonical_bytes
from core.db import Connection
from core.errors import InputError
from policy.foresee import Verdict
from policy.sets import PolicySet
from runtime.definition.foresight import foresee_call
from runtime.store import documents, operations
from runtime.store.offload import COMPILING, offload

STATUS, WITHDRAW = "counterseal_status", "counterseal_withdraw"
# Models take names of so many letters, digits, _ and -.
NAME_MAX = 64
_DIGITS = 8
# A page has so many tools and bytes at most, and at least one tool. Looking for them goes through so many operations.
PAGE_TOOLS, PAGE_BYTES, PAGE_LOOKED_AT = 100, 256 * 1024, 400
_READ_AT_ONCE = 50
_DESCRIPTION_MAX = 1_000
_MAPS = frozenset({"$defs", "definitions", "patternProperties", "dependentSchemas"})
_DATA = frozenset({"const", "enum", "default", "examples", "required", "dependentRequired"})

_ID: JsonObject = {"type": "string", "format": "uuid", "description": "The id of one of your actions"}
OWN: tuple[JsonObject, ...] = (
    {
        "name": STATUS,
        "title": "Look again at what you asked for",
        "description": (
            "Tells how an action stands that another tool has begun: if people are asked, if it was done, what came of "
            "it. Without an id: the newest that you have asked for."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "id": _ID,
                "wait": {"type": "number", "minimum": 0, "maximum": 50, "description": "Seconds to wait for its end"},
            },
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": WITHDRAW,
        "title": "Withdraw what you asked for",
        "description": "Withdraws an action that is not settled. What is on its way already is not called back.",
        "inputSchema": {
            "type": "object",
            "properties": {"id": _ID},
            "required": ["id"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
    },
)


class Names(Struct, frozen=True):
    """The operations by the names of their tools; ``clashes`` are those of which several would have one name."""

    tools: Mapping[str, str]
    clashes: Mapping[str, tuple[str, ...]]

    def operation(self, tool: str) -> str | None:
        """The operation behind a tool; None if there is none. ``InputError`` if there are several."""
        if tool in self.clashes:
            words = f"The name {tool} stands for {' and '.join(self.clashes[tool])}, so it stands for none of them."
            raise InputError(words, remedy="Have one of them declared under another name.")
        return self.tools.get(tool)


def tool_name(operation: str) -> str:
    """The name of an operation's tool: ``servicenow_incident_get``. One that is too long ends with a digest of it."""
    name = operation.replace(".", "_")
    if len(name) <= NAME_MAX:
        return name
    return f"{name[: NAME_MAX - _DIGITS - 1]}_{sha256(operation.encode()).hexdigest()[:_DIGITS]}"


def names_of(every: Iterable[str]) -> Names:
    """The tools of these operations. No tool stands for two of them, nor for one of our own tools."""
    found: dict[str, list[str]] = {STATUS: [STATUS], WITHDRAW: [WITHDRAW]}
    for operation in sorted(every):
        found.setdefault(tool_name(operation), []).append(operation)
    clashes = {tool: tuple(several) for tool, several in found.items() if len(several) > 1}
    own = (STATUS, WITHDRAW)
    return Names(
        {tool: one for tool, (one, *more) in found.items() if not more and tool not in own},
        {tool: several for tool, several in clashes.items() if tool not in own},
    )


async def named(connection: Connection, tenant: str, faces: Faces) -> Names:
    """The tools of a tenant."""
    return names_of({*faces.definitions.catalog.packaged, *await operations.names(connection, tenant)})


async def page(faces: Faces, who: Principal, cursor: str) -> tuple[list[JsonObject], str | None]:
    """The tools after a cursor, ours first, and the next cursor; without those that policy could never allow.

    It is read in pieces, so that its cost does not grow with the number of operations.
    """
    (after,) = decode_cursor(cursor, str) or [""]
    tools = [] if after else [*OWN]
    size = sum(len(canonical_bytes(one)) for one in tools)
    async with faces.database.transaction(who.tenant) as connection:
        names = await named(connection, who.tenant, faces)
        every = sorted(names.tools)
        first = bisect_right(every, after)
        last = min(len(every), first + PAGE_LOOKED_AT)
        in_force = await documents.in_force(connection, who.tenant)
        for start in range(first, last, _READ_AT_ONCE):
            wanted = every[start : min(last, start + _READ_AT_ONCE)]
            made = await _described(connection, faces, who, in_force, {one: names.tools[one] for one in wanted})
            for name in wanted:
                if name not in made:
                    after = name
                    continue
                tool = made[name]
                size += len(canonical_bytes(tool))
                if tools and (len(tools) >= PAGE_TOOLS or size > PAGE_BYTES):
                    return tools, encode_cursor([after])
                tools.append(tool)
                after = name
    return tools, encode_cursor([after]) if last < len(every) else None


async def _described(
    connection: Connection, faces: Faces, who: Principal, in_force: tuple[str, ...], names: Mapping[str, str]
) -> dict[str, JsonObject]:
    """The tools of these names that this agent may be let use."""
    definitions = faces.definitions
    catalog = await definitions.published(connection, who.tenant, [*names.values()])
    policies = await definitions.policies(connection, who.tenant, in_force, now=catalog)
    found = {tool: catalog.operations[one] for tool, one in names.items() if one in catalog.operations}

    def made() -> dict[str, JsonObject]:
        listed = {tool: described(tool, one) for tool, one in found.items() if may_be_let(policies, one, who.subject)}
        return {tool: one for tool, one in listed.items() if one is not None}

    return await offload(COMPILING, made, connection)


def may_be_let(policies: PolicySet, operation: Operation, account: str) -> bool:
    """False if policy could never allow this agent such a call, nor ask people about it."""
    return operation.stays_inside or foresee_call(policies, operation, account).verdict is not Verdict.DENIED


def described(tool: str, operation: Operation) -> JsonObject | None:
    """An operation as a tool; None if nobody can call it without a secret, which no agent gives."""
    schema = _Opener(operation.input_schema).opened(operation.input_schema)
    if not isinstance(schema, dict):
        return None
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, dict):
        schema["properties"] = {name: one for name, one in properties.items() if name not in operation.params}
    if isinstance(required, list):
        schema["required"] = [name for name in required if name not in operation.params]
    words = operation.description or operation.title or operation.summary
    return {
        "name": tool,
        "title": operation.name,
        "description": words[:_DESCRIPTION_MAX],
        "inputSchema": schema,
        "annotations": {
            "readOnlyHint": not operation.has_effect,
            "destructiveHint": operation.has_effect,
            "openWorldHint": not operation.stays_inside,
        },
    }


class _Opener:
    """Makes schemas without marks of ours, and without what is secret. Each reference is followed once."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._closed: dict[str, bool] = {}

    def opened(self, schema: Json) -> Json:
        """The schema without secrets; None if nothing fits it but with a secret in it."""
        if not isinstance(schema, dict):
            return schema
        if schema.get("x-secret") is True or self._leads_to_secrets(schema):
            return None
        made: JsonObject = {}
        for key, item in schema.items():
            if key.startswith("x-"):
                continue
            if key == "properties" and isinstance(item, dict):
                every = {name: self.opened(one) for name, one in item.items()}
                made[key] = {name: one for name, one in every.items() if one is not None}
                required = schema.get("required")
                if isinstance(required, list) and any(every.get(str(name), True) is None for name in required):
                    return None
                continue
            shown = self._keyword(key, item)
            if key == "items" and shown is None:
                return None
            made[key] = False if shown is None else shown
        return made

    def _leads_to_secrets(self, schema: JsonObject) -> bool:
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return False
        if reference not in self._closed:
            self._closed[reference] = False  # one that leads back to itself adds no secret of its own
            self._closed[reference] = self.opened(resolved(self._root, schema)) is None
        return self._closed[reference]

    def _keyword(self, key: str, item: Json) -> Json:
        if key in _DATA:
            return item
        if key in _MAPS and isinstance(item, dict):
            every = {name: self.opened(one) for name, one in item.items()}
            return {name: False if one is None else one for name, one in every.items()}
        if isinstance(item, list):
            return [False if (one := self.opened(part)) is None else one for part in item]
        return self.opened(item)
