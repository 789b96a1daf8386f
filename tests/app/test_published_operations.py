"""Declarations are documents of the database: they have versions, and what is published is compiled against them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PARK = """
operations:
  - name: yard.truck.%s
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
FLOW = "workflow: yard\nversion: %s\nsteps: [{id: go, do: yard.truck.move, with: {}}]\n"
POLICY = (
    "policy: yard\nversion: 1\nrules: [{id: all, match: {operation: yard.truck.*}, outcome: allow, because: Ours.}]\n"
)


def file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def named(command: Any) -> dict[str, Any]:
    return {one["name"]: one for one in command.json("operation", "list")}


@pytest.mark.req("V-4")
def test_a_declaration_is_published_listed_shown_compared_and_frozen(command: Any, tmp_path: Path) -> None:
    first, second = (
        file(tmp_path, "a.yaml", PARK % ("move", "north")),
        file(tmp_path, "b.yaml", PARK % ("move", "south")),
    )
    assert "not published yet" in command("operation", "diff", first)
    assert [(one["version"], one["changed"]) for one in command.json("operation", "publish", first)] == [(1, True)]
    command("workflow", "publish", file(tmp_path, "f.yaml", FLOW % 1))
    assert "  the same" in command("operation", "diff", first)
    moved = [line.strip() for line in command("operation", "diff", second).splitlines() if line.lstrip()[0] in "-+"]
    assert moved == ['-  value: "north"', '+  value: "south"']
    assert [(one["version"], one["changed"]) for one in command.json("operation", "publish", second)] == [(2, True)]
    assert 'value: "south"' in command("operation", "diff", "yard.truck.move@1", "yard.truck.move@2")
    frozen = command("workflow", "show", "yard", "--operations")
    assert ("north" in frozen, "south" in frozen) == (True, False), (
        "a published workflow keeps what it was compiled with"
    )
    shown = command.json("operation", "show", "yard.truck.move")
    assert (shown["version"], shown["versions"], shown["published_by"]) == (2, [2, 1], "tess")
    assert (named(command)["yard.truck.move"]["digest"], named(command)["http.request.send"]["version"]) == (
        shown["digest"],
        None,
    )
    # What is shown is a document: publishing it changes nothing, and an older one can come back as the next version.
    again = file(tmp_path, "c.yaml", command("operation", "show", "yard.truck.move").partition("\noperations:")[2])
    Path(again).write_text("operations:" + Path(again).read_text())
    assert [one["changed"] for one in command.json("operation", "publish", again)] == [False]
    assert [(one["version"], one["changed"]) for one in command.json("operation", "publish", first)] == [(3, True)]
    told = command("audit", "tenant", "--type", "operation.published")
    assert told.count("yard.truck.move") == 3


def test_what_is_wrong_publishes_nothing_and_says_where(command: Any, tmp_path: Path) -> None:
    good = file(tmp_path, "good.yaml", PARK % ("move", "north"))
    for name, text, words in (
        ("mine", (PARK % ("move", "x")).replace("yard.truck.move", "http.request.send"), "declared in connectors/http"),
        ("unsent", (PARK % ("stop", "x")).replace("{value:", "{wheels:"), "does not send 'wheels'"),
        (
            "back",
            (PARK % ("turn", "x")) + "    reverse: {operation: yard.truck.gone, input: {}}\n",
            "which does not exist",
        ),
    ):
        command("operation", "publish", good, file(tmp_path, f"{name}.yaml", text), exit_code=2)
        assert words in command.said
    assert "yard.truck.move" not in named(command)
    for wanted, code in ((("show", "yard.truck.move"), 4), (("show", "Yard!"), 2), (("diff", "a.b@1", "a.b@2"), 4)):
        command("operation", *wanted, exit_code=code)


@pytest.mark.req("X-1")
def test_the_folder_is_a_way_to_publish_and_nothing_else(command: Any, tmp_path: Path, definitions_dir: Path) -> None:
    """Publishing a workflow or a policy publishes what is new in the folder on the way, and takes nothing back."""
    own = definitions_dir / "operations" / "own.yaml"
    own.write_text(PARK % ("move", "north"))
    command("workflow", "publish", file(tmp_path, "f.yaml", FLOW % 1))
    own.write_text(PARK % ("move", "south"))
    command("policy", "publish", file(tmp_path, "p.yaml", POLICY))
    own.write_text(PARK % ("move", "north"))
    command("workflow", "publish", file(tmp_path, "g.yaml", FLOW % 2))
    assert "version 2 is in use" in command.said
    assert "south" in command("workflow", "show", "yard@2", "--operations"), (
        "what is published is what is compiled against"
    )
    own.unlink()
    command("workflow", "publish", file(tmp_path, "h.yaml", FLOW % 3))
    assert named(command)["yard.truck.move"]["version"] == 2
