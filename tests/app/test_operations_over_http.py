"""Declarations over HTTP: published, listed, shown and compared as on the command line; fixed inputs are for admins."""

from __future__ import annotations

from typing import Any

from app.access import Role

PARK = """
operations:
  - name: yard.truck.move
    connector: transform
    handler: transform:apply
    params: {value: %s}
    side_effects: none
    risk: low
    summary: Move
    target: yard
    in_doubt: idempotent
    input_schema: {type: object, additionalProperties: false, properties: {}}
    output_schema: {type: object, required: [value], properties: {value: {type: string}}}
"""
V1, ONE = "/v1/operations", "/v1/operations/yard.truck.move"


async def test_declarations_are_published_listed_shown_and_compared(installation: Any) -> None:
    admin, author = await installation.client(Role.ADMIN), await installation.client(Role.AUTHOR)

    async def send(path: str, text: str) -> tuple[int, Any]:
        answer = await admin.post(path, json={"source": text, "file": "yard.yaml"})
        return answer.status_code, answer.json()

    code, told = await send(f"{V1}/diff", PARK % "north")
    assert (code, told["items"][0]["before"], (await admin.get(ONE)).status_code) == (200, None, 404)
    assert [(await send(V1, PARK % where))[0] for where in ("north", "north", "south")] == [201, 200, 201]
    code, told = await send(V1, (PARK % "x").replace("{value:", "{wheels:"))
    assert (code, "wheels" in str(told)) == (422, True)
    listed = {one["name"]: one for one in (await author.get(V1)).json()["items"]}
    assert (listed["yard.truck.move"]["version"], listed["http.request.send"]["version"]) == (2, None)
    shown, hidden = (await admin.get(ONE)).json(), (await author.get(f"{ONE}?version=1")).json()
    assert (shown["version"], shown["versions"], shown["declaration"]["params"]) == (2, [2, 1], {"value": "south"})
    assert (hidden["version"], hidden["declaration"]["params"]) == (1, {"value": "withheld"})
    changed = (await admin.get(f"{ONE}/diff?from=1&to=2")).json()
    assert [line.strip() for line in changed["lines"] if line[0] in "-+"] == ['-  value: "north"', '+  value: "south"']
    assert (await admin.get(f"{V1}/http.request.send/diff?from=1&to=2")).status_code in (404, 422)
