"""Every route of the OpenAPI document, by every role that may, with inputs at the edges of its schemas: no 5xx, no
status that the document does not name, and no error that is not a problem. COUNTERSEAL_DEEP=1 tries 20 times as many.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from app.access import Role
from app.http.problems import MEDIA_TYPE
from tests.support.app_stage import PEOPLE, WEBHOOK_SECRET

DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
CASES = 600 if DEEP else 30
UNKNOWN = "01890000-0000-7000-8000-000000000002"
SLACK_SECRET = "a-slack-signing-secret"


class Raw(str):
    """JSON that stands in a body as it is."""


DEEPLY = [Raw("[" * depth + "]" * depth) for depth in (50, 300, 100_000)] + [Raw('{"a":' * 300 + "1" + "}" * 300)]
NUMBERS = [0, -1, 1, 2**31 - 1, 2**31, 2**53, 2**53 + 1, -(2**63), 2**64, 10**400, 0.5, -0.0, Raw("1e400"), Raw("NaN")]
TEXTS = [
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\udfff\ud800",
    "\U0010ffff",
    "é\u0301",
    "\u202e",
    "\n",
    "x" * 201,
    "y" * 70_000,
]
NAMES = [
    "../..",
    "%",
    "'",
    '"',
    "${{ 1/0 }}",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+14:00",
    "2026-02-30",
    UNKNOWN,
]
FREE = {"input", "values", "value", "output", "error"}
CURSORS = ["x", "W10", "e30", "WzFd", "WyIiXQ", "WyJcdTAwMDAiXQ", "WzFlNDAwXQ", "WyJcdWQ4MDAiLCJcdWQ4MDAiXQ", "=" * 400]
EDGES: list[Any] = [None, True, [], {}, [None], {"": None}, *NUMBERS, *TEXTS, *NAMES, *DEEPLY[:2]]
BODIES = [
    b"",
    b"\0",
    b"{",
    b'"\xff"',
    b"\xef\xbb\xbf{}",
    b'{"a":1,"a":2}',
    b'{"a":"\\ud800"}',
    b"[]",
    b"null",
    b"1" * 5000,
]
BODIES += [b" " * 300_000, *(each.encode() for each in DEEPLY)]
TYPES = ["application/json", "text/plain", "application/json; charset=utf-16", "application/x-www-form-urlencoded", ""]
QUERIES = ["nowhere=1", "%00=1", "%ED%A0%80", "limit=1&limit=2", "limit=", "&&=&", "cursor=%FF", "a[b]=c", "x" * 5000]
DOCUMENTS = [
    "x",
    "[",
    "workflow: simple\nversion: 2\nreference: r\nsteps: []\n",
    "&a [*a]",
    "a: !!python/none",
    "\t",
    "- " * 900,
]
SET = "workflow: {}\nversion: {}\nreference: r\nchannels: {{a: {{initial: ''}}}}\nsteps: [{{set: {{a: b}}}}]\n"
DOCUMENTS += [SET.format(*each) for each in (("fresh", 1), ("fresh", 2), ("simple", 2))]
DOCUMENTS += ["policy: p\nversion: 1\nrules: []\n", "operations: []\n", "operations: [{name: a.b.c}]\n", "a: 1\na: 2\n"]


@dataclass
class Inputs:
    """Draws inputs from schemas; ``real`` are ids of what there is."""

    draw: random.Random
    schemas: Mapping[str, Any]
    real: list[str]
    wild: float = 0.15

    def value(self, schema: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
        """A value of the schema, or, now and then, one from beyond its edges."""
        if "$ref" in schema:
            return self.value(self.schemas[schema["$ref"].rpartition("/")[2]], name, depth)
        if self.draw.random() < self.wild:
            return self.draw.choice(EDGES)
        for several in ("anyOf", "oneOf", "allOf"):
            if several in schema:
                return self.value(self.draw.choice(schema[several]), name, depth)
        if "enum" in schema or "const" in schema:
            return self.draw.choice(schema.get("enum") or [schema["const"]])
        kind = schema.get("type")
        if name in ("input", "values") and self.draw.random() < 0.7:
            return {"number": self.draw.choice(("INC7", *EDGES))}
        if kind == "object" and depth < 6:
            return self._object(schema, depth)
        if kind == "array" and depth < 6:
            size = self.draw.choice((0, 1, 1, 2, 40))
            return [self.value(schema.get("items", {}), name, depth + 1) for _ in range(size)]
        if kind in ("integer", "number"):
            edges = [schema[each] for each in ("minimum", "maximum", "exclusiveMaximum") if each in schema]
            return self.draw.choice([*edges, *(each - 1 for each in edges), *(each + 1 for each in edges), 1, 2])
        if kind == "boolean":
            return self.draw.choice((True, False))
        return None if kind == "null" else self._text(schema, name) if kind == "string" else self.draw.choice(EDGES)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        needed = schema.get("required", ())
        found: dict[str, Any] = {}
        for name, member in schema.get("properties", {}).items():
            if self.draw.random() < (0.95 if name in needed else 0.4):
                found[name] = self.value(member, name, depth + 1)
        if self.draw.random() < 0.05:
            found[self.draw.choice(("nowhere", "", "__proto__", "\ud800", "a\0"))] = self.draw.choice(EDGES)
        return found

    def _text(self, schema: Mapping[str, Any], name: str) -> Any:
        least, most = schema.get("minLength", 0), min(schema.get("maxLength", 300), 300_000)
        known = {
            "uuid": [*self.real, UNKNOWN, "0" * 32],
            "date-time": ["2026-11-29T00:00:00Z", "1970-01-01T00:00:00+23:59"],
        }
        known |= {"date": ["2026-11-29", "9999-12-31"], "duration": ["PT1H", "P400Y"]}
        if (chosen := known.get(schema.get("format", ""))) is not None:
            return self.draw.choice(chosen)
        own = {
            "cursor": ["", "", *CURSORS],
            "source": DOCUMENTS,
            "workflow": ["simple", "asking"],
            "step": ["first", "danger"],
        }
        own |= {
            "operation": ["probe.effect.apply", "probe.*"],
            "name": ["simple", "tests", "probe.effect.apply", "workflow"],
        }
        own |= {"person": ["ann", "tess", "nobody"], "endpoint": ["incidents", "others"]}
        return self.draw.choice(own.get(name, ["a", "ann", "x" * least, "x" * most, "x" * (most + 1), *NAMES]))


def dumped(value: Any) -> bytes:
    """JSON with the raw parts as they are."""
    parts: list[str] = []

    def plain(one: Any) -> Any:
        if isinstance(one, Raw):
            parts.append(one)
            return f"\x01{len(parts) - 1}\x01"
        if isinstance(one, dict):
            return {name: plain(each) for name, each in one.items()}
        return [plain(each) for each in one] if isinstance(one, list) else one

    text = json.dumps(plain(value))
    return re.sub(r'"\\u0001(\d+)\\u0001"', lambda found: parts[int(found[1])], text).encode()


def escaped(value: Any) -> str:
    text = value if isinstance(value, str) else dumped(value).decode()
    return quote(text[:3000].encode("utf-8", "surrogatepass"), safe="")


@dataclass
class Case:
    """One request, as it goes over the wire."""

    method: str
    url: str
    headers: dict[str, Any] = field(default_factory=dict)
    body: bytes | None = None


def case_of(inputs: Inputs, method: str, path: str, told: Mapping[str, Any]) -> Case:
    """A request of an operation. Most are wrong in one place or two."""
    draw, filled, query = inputs.draw, path, []
    case = Case(method.upper(), "")
    for each in told.get("parameters", ()):
        if each["in"] != "path" and draw.random() < (0.1 if each["required"] else 0.6):
            continue
        value = inputs.value(each["schema"], each["name"])
        if each["in"] == "path":
            filled = filled.replace(f"{{{each['name']}}}", escaped(value) or "%20")
        elif each["in"] == "query":
            if each["name"] != "wait" or not isinstance(value, int | float) or not 0 < value <= 60:  # nothing settles
                query.append(f"{each['name']}={escaped(value)}")
        elif value is not None:
            text = re.sub(r"[\x00-\x1f\x7f]", "", str(value))[:3000].strip()  # a client may send no others
            case.headers[each["name"]] = text.encode("latin-1", "replace")
    if draw.random() < 0.08:
        query.append(draw.choice(QUERIES))
    case.url = filled + ("?" + "&".join(query) if query else "")
    content = told.get("requestBody", {}).get("content", {}).get("application/json")
    if content is not None or draw.random() < 0.05:
        body = inputs.value((content or {}).get("schema", {}))
        if isinstance(body, dict) and isinstance(body.get("wait"), int | float):
            body["wait"] = 0
        case.body = draw.choice(BODIES) if draw.random() < 0.12 else dumped(body)
        case.headers["Content-Type"] = draw.choice(TYPES) if draw.random() < 0.06 else TYPES[0]
    return case


def free_edges(inputs: Inputs, told: Mapping[str, Any]) -> list[Any]:
    """A body for each edge in each member that takes any JSON: no schema refuses it, and whoever stores it must."""
    content = told.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = inputs.schemas.get(content.get("schema", {}).get("$ref", "").rpartition("/")[2], {})
    tame = replace(inputs, wild=0)
    found = []
    for name in sorted(FREE & schema.get("properties", {}).keys()):
        for edge in EDGES:
            whole = {each: tame.value(schema["properties"][each], each, 1) for each in schema.get("required", ())}
            found.append(whole | {name: {"number": edge}})
    return found


def signed(inputs: Inputs, case: Case, path: str) -> None:
    """Give a request of another system a body and its signature."""
    event = {"table": "incident", "event": "insert", "sys_id": "a" * 32, "sys_mod_count": 1, "number": "INC1"}
    if path.startswith("/slack"):  # whole as Slack's, but for one member
        event = {
            "type": inputs.draw.choice(("block_actions", "view_submission", "shortcut", "x")),
            "user": {"id": "U0ANN"},
        }
        event |= {
            "team": {"id": "T1"},
            "actions": [{"type": "button", "action_id": "x", "block_id": "b", "value": "v"}],
        }
        event |= {
            "view": {"id": "V1", "type": "modal", "callback_id": "x", "state": {"values": {}}},
            "trigger_id": "1.2",
        }
    event |= {inputs.draw.choice([*event, "record", "x"]): inputs.draw.choice(EDGES)}
    body = inputs.draw.choice(BODIES) if inputs.draw.random() < 0.3 else dumped(event)
    now = str(int(time.time()))
    if path.startswith("/slack"):
        body = body if inputs.draw.random() < 0.2 else b"payload=" + quote(body).encode()
        made = hmac.new(SLACK_SECRET.encode(), b"v0:" + now.encode() + b":" + body, hashlib.sha256).hexdigest()
        case.headers = {"X-Slack-Request-Timestamp": now, "X-Slack-Signature": f"v0={made}"}
        case.headers["Content-Type"] = inputs.draw.choice([TYPES[3], *TYPES])
    else:
        made = hmac.new(WEBHOOK_SECRET.encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
        case.headers = {"X-Counterseal-Timestamp": now, "X-Counterseal-Signature": f"sha256={made}"}
        case.headers["Content-Type"] = TYPES[0]
    case.body = body


def wrong_with(told: Mapping[str, Any], answer: httpx.Response) -> str:
    """The fault of an answer by the document, or "" if it has none."""
    status, kind = answer.status_code, answer.headers.get("content-type", "").partition(";")[0]
    if status >= 500:
        return "failed here"
    if str(status) not in told["responses"]:
        return "is not in the document"
    there = told["responses"][str(status)].get("content", {})
    if status >= 400:
        if kind in there and kind != MEDIA_TYPE:
            return ""
        if kind != MEDIA_TYPE:
            return f"is no problem but {kind}"
        found = answer.json()
        whole = found.get("status") == status and found.get("code") and found.get("title") and found.get("type")
        return "" if whole else "is a problem that lacks something"
    return "" if not answer.content or not there or kind in there else f"has the content type {kind}"


@pytest.mark.timeout(0 if DEEP else 300)
@pytest.mark.req("U-8")
async def test_no_input_of_any_role_gets_an_answer_that_the_document_does_not_tell_of(installation: Any) -> None:
    await installation.people(PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}]\ngroups:"))
    run_id, approval_id, _ = await installation.asked()
    done = await installation.parked("simple", "INC2")
    clients = {role: await installation.client(role, subject="bot" if role is Role.AGENT else "ann") for role in Role}
    document = (await clients[Role.ADMIN].get("/openapi.json")).json()
    (receipt, *_) = (await clients[Role.ADMIN].get(f"/v1/runs/{done}/receipts")).json()["items"]
    inputs = Inputs(random.Random(43), document["components"]["schemas"], [*map(str, (run_id, approval_id, done))])
    inputs.real.append(receipt["receipt_id"])
    routes = [(path, method, told) for path, each in document["paths"].items() for method, told in each.items()]
    inputs.draw.shuffle(routes)
    faults: dict[tuple[str, ...], str] = {}
    tried = taken = 0
    for path, method, told in routes:
        may = list(Role)
        for number, edge in enumerate([None] * CASES + free_edges(inputs, told)):
            case, role = case_of(inputs, method, path, told), may[number % len(may)]
            if number >= CASES:  # everything else is right
                case.body, case.headers["Content-Type"] = dumped(edge), TYPES[0]
            if path.startswith(("/slack", "/webhooks")):
                signed(inputs, case, path)
            request = (case.method, case.url)
            answer = await clients[role].request(*request, headers=case.headers, content=case.body, timeout=60)
            if answer.is_success and method != "get":  # the same again is often answered with another status
                answer = await clients[role].request(*request, headers=case.headers, content=case.body, timeout=60)
            tried, taken = tried + 1, taken + answer.is_success
            if answer.status_code == 403 and "needs the role" in answer.text and len(may) > 1:
                may.remove(role)
            if wrong := wrong_with(told, answer):
                shown = f"{role} {case.url[:200]} {(case.body or b'')[:300]!r}: {answer.text[:300]}"
                faults.setdefault((method, path, str(answer.status_code), wrong), shown)
        odd = await clients[may[0]].request("PATCH", re.sub(r"{\w+}", UNKNOWN, path))
        if odd.status_code != 405 or odd.headers["content-type"] != MEDIA_TYPE:
            faults["PATCH", path, str(odd.status_code), "is no 405"] = odd.text[:300]
    assert not faults, "\n".join(f"{' '.join(place)}: {shown}" for place, shown in sorted(faults.items()))
    assert taken > tried / 10, (taken, tried, "most inputs must be wrong in one place only")
