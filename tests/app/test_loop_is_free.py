"""The loop of serve, work and keep is held by no tenant's text: no turn of it takes 50 ms of processor time.

Counted is processor time of this thread in each callback, never elapsed time: others on the machine change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.access import Role
from app.helpers import ASIDE_BYTES
from tests.support.insides import holding

HELD_SECONDS = 0.05


def workflow(name: str, *steps: str, channels: str = "found: {}") -> str:
    head = f"workflow: {name}\nversion: 1\nreference: ${{{{ trigger.number }}}}\nchannels: {{{channels}}}\n"
    return head + "steps:\n" + "".join(f"  - {one}\n" for one in steps)


def sets(expression: str) -> str:
    return json.dumps({"set": {"found": f"${{{{ {expression} }}}}"}})


def sets_many(one: str, times: int = 100) -> str:
    """The same step many times: a short document that is long to compile, and a chain in one append."""
    return f"&s {{set: {{found: '${{{{ {one} }}}}'}}}}\n" + "  - *s\n" * times


MANY, FEW, LONG = [0] * 9_000, [0] * 1_900, "x" * 200_000
# The costliest steps that the limits admit, as a search by processor time found them: a workflow, and its input.
RUNS: dict[str, tuple[str, Any]] = {
    "copies a list": (workflow("w", sets("trigger.a.map(x, x)")), {"a": MANY}),
    "filters a list": (workflow("w", sets("trigger.a.filter(x, true)")), {"a": MANY}),
    "copies for each": (workflow("w", sets("trigger.a.map(x, {'n': trigger.b})")), {"a": FEW, "b": FEW}),
    "looks for each": (workflow("w", sets("trigger.a.filter(x, x in trigger.b)")), {"a": FEW, "b": [1] * 1_900}),
    "a little, many times": (workflow("w", sets_many("trigger.a.map(x, x)")), {"a": [0] * 300}),
    "many steps": (workflow("w", sets_many("trigger.number")), {}),
    "many small numbers": (workflow("w", sets("trigger.a == trigger.b")), {"a": [0] * 40_000, "b": [0] * 40_000}),
    "long texts": (workflow("w", sets("trigger.a.upperAscii()")), {"a": LONG}),
    "marks of scripts": (workflow("w", sets("trigger.a")), {"a": "\u202e\U0001f600" * 10_000}),
    "a pattern": (workflow("w", sets("trigger.a.matches('^(x?){30}(x*)*y$')")), {"a": LONG}),
    "many members": (workflow("w", sets("trigger.a")), {"a": {f"k{n}": n for n in range(16_000)}}),
    "deep": (workflow("w", sets("trigger.a")), {"a": json.loads("[" * 25 + "[0]," * 3_000 + "0" + "]" * 25)}),
    "united": (workflow("w", sets("trigger.a"), channels="found: {reduce: union}"), {"a": [*range(35_000)]}),
    "appended": (workflow("w", sets("trigger.a"), channels="found: {reduce: append}"), {"a": LONG}),
    "asked about": (workflow("w", json.dumps({"id": "d", "do": "probe.danger.apply", "with": {
        "name": "${{ trigger.a }}"}})), {"a": "<&*\u202e" * 20_000}),
    "answered": (workflow("w", json.dumps({"id": "d", "do": "probe.effect.apply", "with": {
        "name": "${{ trigger.a }}"}})), {"a": LONG}),
}  # fmt: skip
PARTS = ("", "/timeline", "/steps", "/checkpoints", "/checkpoints/1", "/audit", "/mutations", "/ledger", "/graph")


@pytest.mark.parametrize("name", RUNS)
async def test_no_step_and_no_look_at_its_run_holds_the_loop(
    installation: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text, given = RUNS[name]
    await installation.add(text)
    client = await installation.client(*Role)
    client.timeout = 300

    async def lived(number: str) -> None:
        answer = await client.post("/v1/runs", json={"workflow": "w", "input": {**given, "number": number}})
        assert answer.status_code == 201, answer.text
        await installation.work()
        await installation.app.sweeper().sweep()
        for part in PARTS:
            assert (await client.get(f"/v1/runs/{answer.json()['run_id']}{part}")).status_code < 500
        assert (await client.get("/v1/approvals")).status_code == 200

    await lived("N0")  # what is imported and compiled once is no tenant's
    with holding(monkeypatch, HELD_SECONDS) as held:
        await lived("N1")
    assert held == {}


HEAD = "workflow: wNUMBER\nversion: 1\nreference: r\nchannels: {found: {}}\nsteps:\n"
POLICY = "policy: pNUMBER\nversion: 1\nrules:\n"
DEEP = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "string"}}
AGENT = {"model": "m", "instructions": "x", "input": "x", "result": {"$ref": "#/$defs/d0", "$defs": DEEP}}
PATTERN = "'a'.matches('(a{1,99})*%d')"
STARS = json.dumps({"id": "a", "match": {"operation": "*" * 30 + "z"}, "outcome": "deny", "because": "x"})

WHEN = "run.requested_by != 'x%d'"


def rules() -> Iterator[str]:
    for number in range(110):
        rule = {"id": f"r{number}", "match": {"operation": "probe.effect.apply"}, "outcome": "deny", "because": "x"}
        yield f"  - {json.dumps({**rule, 'when': WHEN % number})}\n"


# The costliest short documents: below 16 KiB they are read by this process. NUMBER makes each one another.
DOCUMENTS: dict[str, tuple[str, str]] = {
    "names that are not there": ("workflows/check", HEAD + "".join(f"  - {sets(f'stepz.a{n}')}\n" for n in range(320))),
    "one step many times": ("workflows/check", f"{HEAD}  - {sets_many('trigger.a')}"),
    "patterns": ("workflows/check", HEAD + "".join(f"  - {sets(PATTERN % n)}\n" for n in range(200))),
    "references": ("workflows/check", f"{HEAD}  - {json.dumps({'id': 'a', 'agent': AGENT})}\n"),
    "aliases": (
        "workflows/check",
        f"{HEAD}  - set: {{found: [&a [{','.join('1' * 100)}], {','.join(['*a'] * 190)}]}}\n",
    ),
    "brackets": ("workflows/check", f"{HEAD}x: {'[' * 3_000}{']' * 3_000}"),
    "rules": ("policies?dry_run=true", POLICY + "".join(rules())),
    "stars": ("policies?dry_run=true", f"{POLICY}  - {STARS}\n"),
    "publishing": ("workflows", f"{HEAD}  - {sets_many('trigger.a.map(x, x)')}"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_no_document_holds_the_loop(installation: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path, text = DOCUMENTS[name]
    client = await installation.client(*Role)
    client.timeout = 300
    first = await client.post(f"/v1/{path}", json={"source": text.replace("NUMBER", "1")})
    assert first.status_code in (200, 201, 422), first.text
    assert len(text) <= ASIDE_BYTES
    with holding(monkeypatch, HELD_SECONDS) as held:
        assert (
            await client.post(f"/v1/{path}", json={"source": text.replace("NUMBER", "2")})
        ).status_code == first.status_code
    assert held == {}
