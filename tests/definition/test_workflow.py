"""Workflows: every fault is named with file, line, column and remedy; what compiles is canonical and frozen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.catalog import load_catalog
from core.errors import DefinitionError, InputError
from runtime.definition.workflow import extended, load_workflow, thaw_operations
from runtime.engine.model.graph import ForeachNode, IfNode
from runtime.engine.model.rows import MutationRow

HEAD = "workflow: w\nversion: 1\n"  # two lines: steps begin in line 3
A = "  - {id: a, do: probe.effect.apply, with: {name: x}}\n"
B = "  - {id: b, do: probe.effect.apply, with: {name: x}}\n"


def with_steps(*steps: str) -> str:
    return HEAD + "steps:\n" + "".join(steps)


FAULTS = {
    "unknown operation": (
        with_steps("  - {id: a, do: probe.effect.aply, with: {name: x}}\n"),
        (4, "there is no operation 'probe.effect.aply'", "Did you mean 'probe.effect.apply'?"),
    ),
    "timeout of a call": (
        with_steps("  - {id: a, do: probe.effect.apply, with: {name: x}, timeout: PT1H}\n"),
        (4, "probe.effect.apply answers within its call", "Take it out"),
    ),
    "the token of nothing": (
        with_steps('  - {id: a, do: probe.effect.apply, with: {name: "${{ wait.token }}"}}\n'),
        (4, "undeclared reference to 'wait.token'", "visible in the `with` of a durable operation only"),
    ),
    "the token afterwards": (
        with_steps("  - {id: a, do: probe.case.open, with: {name: x}, reference: '${{ wait.token }}'}\n"),
        (4, "undeclared reference to 'wait.token'", "visible in the `with` of a durable operation only"),
    ),
    "missing input": (
        with_steps("  - {id: a, do: probe.effect.apply}\n"),
        (4, "needs the input 'name'", "under `with`"),
    ),
    "unknown input": (
        with_steps("  - id: a\n    do: probe.effect.apply\n    with: {name: x, nam: y}\n"),
        (6, "takes no 'nam'", "It takes name, value."),
    ),
    "forward reference": (
        with_steps('  - {id: a, do: probe.effect.apply, with: {name: "${{ steps.b.output.x }}"}}\n', B),
        (4, "steps.b", ""),
    ),
    "reference to a step beside": (
        with_steps(A, '  - {id: b, needs: [], do: probe.effect.apply, with: {name: "${{ steps.a.output.x }}"}}\n'),
        (5, "steps.a", ""),
    ),
    "reference into a loop": (
        with_steps(
            "  - foreach: '${{ [1] }}'\n    steps:\n    " + A,
            '  - {id: b, do: probe.effect.apply, with: {name: "${{ steps.a.output.x }}"}}\n',
        ),
        (7, "steps.a", ""),
    ),
    "circle": (
        with_steps(A.replace("id: a,", "id: a, needs: [b],"), B.replace("id: b,", "id: b, needs: [a],")),
        (4, "circle", "Take one of the needs out."),
    ),
    "need of nobody": (
        with_steps(A, B.replace("id: b,", "id: b, needs: [c],")),
        (5, "no step 'c' beside this one", "There are: a, b."),
    ),
    "duplicate id": (with_steps(A, A), (5, "The id 'a' is taken by the step in line 4.", "unique")),
    "duplicate id in a branch": (
        with_steps(A, "  - if: '${{ true }}'\n    then:\n    " + A),
        (7, "taken by the step in line 4", "unique"),
    ),
    "two kinds": (
        with_steps("  - {id: a, do: probe.effect.apply, with: {name: x}, if: '${{ true }}'}\n"),
        (4, "this one has do and if", ""),
    ),
    "no kind": (with_steps("  - {id: a}\n"), (4, "this one has none of them", "")),
    "no id": (with_steps("  - {do: probe.effect.apply, with: {name: x}}\n"), (4, "has no id", "Give it one")),
    "foreign key": (with_steps(A.replace("with", "as: b, with")), (4, "'as' does not belong", "")),
    "no then": (with_steps("  - {if: '${{ true }}', else: [" + A.strip("- \n") + "]}\n"), (4, "no `then`", "Add")),
    "no steps": (with_steps("  - {foreach: '${{ [1] }}'}\n"), (4, "no `steps`", "Add")),
    "unknown channel": (
        HEAD + "channels: {n: {}}\nsteps:\n" + A.replace("with:", 'set: {m: "${{ 1 }}"}, with:'),
        (5, "no channel 'm'", "Declared: n."),
    ),
    "bad expression": (with_steps(A.replace("x}", '"${{ trigger. }}"}')), (4, "", "")),
    "unknown variable": (with_steps(A.replace("x}", '"${{ triger.a }}"}')), (4, "triger", "")),
    "unclosed expression": (with_steps(A.replace("x}", '"${{ trigger.a"}')), (4, "not closed", "}}")),
    "condition of another type": (with_steps("  - if: '${{ 1 }}'\n    then:\n    " + A), (4, "", "")),
    "condition that is no expression": (with_steps("  - if: 'yes'\n    then:\n    " + A), (4, "", "bool")),
    "loop over a text": (with_steps("  - foreach: '${{ \"abc\" }}'\n    steps:\n    " + A), (4, "", "")),
    "loop name taken": (
        with_steps("  - foreach: '${{ [1] }}'\n    as: trigger\n    steps:\n    " + A),
        (5, "'trigger' is taken", "Choose another."),
    ),
    "name that no expression can use": (with_steps(A.replace("id: a", "id: a-b")), (4, "expressions can use", "")),
    "unknown key": (with_steps(A.replace("with:", "whit:")), (4, "unknown key 'whit'", "'with'")),
    "no steps at all": (HEAD + "steps: []\n", (3, "steps", "")),
    "no version": ("workflow: w\nsteps:\n" + A, (1, "'version' is missing", "")),
    "key twice": (HEAD + "version: 2\nsteps:\n" + A, (3, "version", "")),
    "bad reference": (HEAD + "reference: ${{ steps.a.output }}\nsteps:\n" + A, (3, "steps", "")),
    "bad trigger condition": (
        HEAD + "triggers: {servicenow: {table: incident, when: '${{ 1 }}'}}\nsteps:\n" + A,
        (3, "", ""),
    ),
    "bad reducer": (HEAD + "channels: {n: {reduce: add}}\nsteps:\n" + A, (3, '"add" is not accepted', "append")),
    "not YAML": (HEAD + "steps: [\n", (0, "", "")),
    "an alias bomb": (
        "a: &a [x, x]\n"
        + "".join(f"{c}: &{c} [*{p}, *{p}, *{p}, *{p}]\n" for p, c in zip("abcdefg", "bcdefgh", strict=True)),
        (0, "", ""),
    ),
    "deep": (HEAD + "steps:\n" + A.replace("x}", "[" * 100 + "]" * 100 + "}"), (0, "", "")),
    "huge": (HEAD + "description: " + "x" * 2_000_000 + "\nsteps:\n" + A, (0, "", "")),
}


@pytest.mark.req("X-1")
@pytest.mark.req("X-18")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_its_place_and_what_would_be_right(problems_of: Any, fault: str) -> None:
    text, (line, message, remedy) = FAULTS[fault]
    problems = problems_of(text)
    assert all(problem.file == "w.yaml" and problem.line >= 1 and problem.column >= 1 for problem in problems)
    found = [
        p for p in problems if line in (0, p.line) and message in p.message and remedy in f"{p.message} {p.remedy}"
    ]
    assert found, "\n".join(map(str, problems))
    assert f"w.yaml:{found[0].line}:{found[0].column}: {found[0].message}" in str(DefinitionError(problems))


def test_all_faults_are_reported_at_once_in_the_order_of_the_text(problems_of: Any) -> None:
    problems = problems_of(with_steps("  - {id: a, do: no.such.thing}\n", "  - {id: b, do: no.other}\n", B))
    assert [problem.line for problem in problems] == [4, 5, 6]


def test_the_graph_is_explicit_and_in_an_order_in_which_needs_come_first(compiled: Any) -> None:
    late = B.replace("id: b,", "id: b, needs: [c],")
    early = B.replace("id: b,", "id: c, needs: [],")
    workflow = compiled(with_steps(A, late, early))
    assert [(node.id, node.needs) for node in workflow.graph.root.nodes] == [("a", ()), ("c", ()), ("b", ("c",))]


def test_composites_are_compiled_with_names_of_their_own(compiled: Any) -> None:
    loop = "  - foreach: '${{ trigger.rows }}'\n    as: row\n    max_parallel: 3\n    steps:\n"
    workflow = compiled(with_steps(loop + "    " + A.replace("x}", '"${{ row.name }}"}')))
    (node,) = workflow.graph.root.nodes
    assert isinstance(node, ForeachNode)
    assert (node.id, node.max_parallel, node.item_name) == ("foreach_0", 3, "row")
    assert set(workflow.graph.leaves) == {"a"}


def test_what_a_branch_did_can_be_read_after_it_however_deep(compiled: Any) -> None:
    inner = "      - if: '${{ true }}'\n        then:\n        " + A
    last = '  - {id: z, do: probe.effect.apply, with: {name: x, value: "${{ steps.a.output }}"}}\n'
    workflow = compiled(with_steps("  - if: '${{ true }}'\n    then:\n" + inner + last))
    assert workflow.graph.read == {"a"}
    assert isinstance(workflow.graph.root.nodes[0], IfNode)


# -- canonical and frozen --------------------------------------------------------------------------------------------


@pytest.mark.req("X-1")
@pytest.mark.req("X-3")
def test_equal_texts_give_equal_definitions_and_any_change_another(compiled: Any) -> None:
    text = with_steps(A, B)
    assert compiled(text).definition_digest == compiled(text).definition_digest
    assert compiled(text).digest != compiled(text + "# a comment\n").digest
    assert compiled(text).connectors == ("probe",)


ALL_PARTS = (
    "workflow: whole\nversion: 3\ntitle: The whole\nreference: ${{ trigger.id }}\n"
    "channels: {seen: {reduce: append, initial: []}, next: {}}\nresult: ${{ state.seen }}\nsteps:\n"
    "  - {id: read, do: records.get, with: {collection: cases, key: '${{ trigger.id }}'}}\n"
    + A.replace("name: x}", "name: x}, set: {seen: '${{ steps.read.output.found }}'}")
    + "  - {id: ask, approve: {summary: Go on?, approvers: {group: owners}}}\n"
    "  - {id: look, task: {title: Look, form: {type: object, properties: {ok: {type: boolean}}},"
    " assign: {group: kyc}}}\n"
    "  - {id: rest, wait: {for: PT1H}}\n"
    "  - {id: child, run: other@2, with: {x: 1}, inherit: [seen]}\n"
    "  - {id: then, continue_with: {workflow: further, with: {x: 1}}, set: {next: '${{ output.run }}'}}\n"
)
CHANGES = {
    "another title": ("title: The whole", "title: The half"),
    "another expression": ("state.seen }}", "size(state.seen) }}"),
    "another child": ("other@2", "other@1"),
    "another continuation": ("workflow: further", "workflow: farther"),
    "another group": ("group: kyc", "group: kyb"),
    "another wait": ("PT1H", "PT2H"),
    "other channels": ("inherit: [seen]", "inherit: [next]"),
}


@pytest.mark.req("X-3")
def test_a_definition_holds_all_that_it_needs(compiled: Any) -> None:
    workflow = compiled(ALL_PARTS)
    assert (workflow.name, workflow.version, workflow.title) == ("whole", 3, "The whole")
    assert workflow.connectors == ("probe", "records")
    assert sorted(workflow.operations) == sorted(workflow.frozen_operations) == ["probe.effect.apply", "records.get"]
    leaves = workflow.graph.leaves
    assert {key: type(leaf).__name__ for key, leaf in leaves.items()} == {
        "read": "OperationNode", "a": "OperationNode", "ask": "GateNode", "look": "TaskNode", "rest": "TimerNode",
        "child": "ChildNode", "then": "ContinueNode",
    }  # fmt: skip
    assert (leaves["child"].workflow, leaves["child"].version, leaves["child"].inherit) == ("other", 2, ("seen",))
    assert (leaves["then"].workflow, leaves["then"].version) == ("further", None)
    assert leaves["look"].form["properties"] == {"ok": {"type": "boolean"}}


@pytest.mark.req("X-3")
@pytest.mark.parametrize("change", CHANGES)
def test_a_definition_with_another_part_has_another_digest(compiled: Any, change: str) -> None:
    old, new = CHANGES[change]
    assert ALL_PARTS.count(old) == 1
    first, second = compiled(ALL_PARTS), compiled(ALL_PARTS.replace(old, new))
    assert first.digest != second.digest
    assert first.definition_digest != second.definition_digest
    assert first.graph != second.graph or first.title != second.title


@pytest.mark.req("V-4")
def test_a_version_keeps_the_declarations_that_it_was_published_with(declarations: Any) -> None:
    text = with_steps(A)
    published = load_workflow(text, "w.yaml", declarations())
    stored = json.loads(json.dumps(published.frozen_operations))
    changed = declarations(("in_doubt: probe\n", "in_doubt: idempotent\n"), ('"Set {name}"', '"Change {name}"'))
    now = load_workflow(text, "w.yaml", changed)
    again = load_workflow(text, "w@1", thaw_operations(stored, "w@1"))
    assert again.operations["probe.effect.apply"].summary == "Set {name}"
    assert again.operations == published.operations
    assert again.definition_digest == published.definition_digest != now.definition_digest
    # Even where a later release has no such operation any more.
    with pytest.raises(DefinitionError):
        load_workflow(text, "w.yaml", load_catalog())


@pytest.mark.req("V-4")
def test_a_declaration_that_this_release_cannot_read_is_named_with_its_version(declarations: Any) -> None:
    stored = json.loads(json.dumps(load_workflow(with_steps(A), "w.yaml", declarations()).frozen_operations))
    (name, own), *_ = stored.items()
    for strange, words in (
        ({**own, "colour": "red"}, "colour: Extra inputs are not permitted"),
        ({**own, "retry": {**own.get("retry", {}), "attempts": "many"}}, "retry.attempts: Input should be a valid"),
    ):
        with pytest.raises(InputError) as refused:
            thaw_operations({**stored, name: strange}, "w@7")
        assert refused.value.message.startswith(
            f"was published with a declaration of {name} that this release cannot read: {words}"
        )
        assert (refused.value.where, refused.value.remedy) == ("w@7", "Publish it again, as a new version.")


@pytest.mark.req("X-3")
def test_a_definition_lists_the_functions_that_its_expressions_use(declarations: Any) -> None:
    catalog = declarations()
    text = with_steps(
        "  - {id: a, do: probe.effect.apply, with: {name: \"${{ 'size(trim(' + string(trigger.n) }}\"}}\n",
        "  - foreach: ${{ trigger.items.filter(i, has(i.x) && math.abs(i.x) > 1) }}\n    steps:\n    " + B,
    )
    assert load_workflow(text, "w.yaml", catalog).functions == ("filter", "has", "math.abs", "string")
    assert load_workflow(with_steps(A), "w.yaml", catalog).functions == ()


def test_a_name_that_an_author_has_chosen_hides_what_a_step_sees_of_itself(declarations: Any) -> None:
    macro = '  - {id: c, do: probe.effect.apply, with: {name: "${{ string(trigger.all(step, step.id > 1)) }}"}}\n'
    loop = "  - foreach: ${{ trigger.items }}\n    as: step\n    steps:\n    " + B.replace(
        "name: x", "name: '${{ step.id }}'"
    )
    assert load_workflow(with_steps(A, macro, loop), "w.yaml", declarations()).functions == ("all", "string")


def test_an_added_step_takes_nothing_from_what_the_published_text_reads(compiled: Any) -> None:
    """The result reads it, and the result is rendered at the end of the longer graph, too."""
    base = compiled(HEAD + 'result: "${{ size(steps.a.output.x) }}"\nsteps:\n' + A + B)
    name = "${{ string(steps.b.output.x) }}"
    more: Any = {"steps": [{"id": "c", "do": "probe.effect.apply", "with": {"name": name}}]}
    added = extended(base, [MutationRow(1, "person:ann", more, {})])
    assert (base.functions, added.functions) == (("size",), ("size", "string"))
    assert (base.graph.read, added.graph.read) == ({"a"}, {"a", "b"})


def summaries(workflow: Any) -> dict[str, str]:
    return {name: operation.summary for name, operation in workflow.operations.items()}
