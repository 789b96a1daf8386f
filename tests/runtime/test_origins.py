"""Origins of the values that steps use, as policy reads them: nothing is laundered on its way."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from runtime.requests.views import RunReader
from tests.support.people import add_person
from tests.support.runtime_origins import ACT, HEAD, READS, SENT, started, world

REST = "  - {id: rest, match: {connector: probe}, outcome: allow}\n"
# The same facts are read, and nothing is held up.
SEEN = READS.replace("\n    otherwise: deny", "")
READ = ["field:probe.value.read#/value", "tool:probe.value.read"]


async def origin(runtime: Any, name: str = "name", step: str = "act") -> Any:
    """The origins of an argument that policy has read."""
    (decision,) = [one for one in await runtime.books.decisions() if one.step.rpartition(".")[2] == step]
    trusted = all({"requester", "workflow"} & {*one} for one in decision.facts["origin.name"])
    assert ("own" in {rule["id"] for rule in decision.rules}) is (trusted or decision.outcome == "deny")
    return decision.facts[f"origin.{name}"]


async def replayed(runtime: Any, run: UUID) -> Any:
    return await RunReader(runtime.faces, runtime.definitions).replay("acme", run)


STEPS = {
    "given at the start": ("", "${{ trigger.name }}", [["requester"]]),
    "written by the author": ("", "ada", [["workflow"]]),
    "a concatenation": ("", "Dear ${{ trigger.name }}${{ steps.r.output.value }}", [["workflow"], ["requester"], READ]),
    "a result's field": ("", "${{ steps.r.output.value }}", [READ]),
    "made of a result": ("", "${{ steps.r.output.value.upperAscii() }}", [["tool:probe.value.read"]]),
    "a condition": ("", "${{ steps.r.output.value == 'x' ? 'a' : trigger.name }}",
                    [["tool:probe.value.read"], ["requester"]]),
    "a channel": ('  - set: {c: "${{ steps.r.output.value }}"}\n', "${{ state.c }}", [READ]),
    "a channel twice": (
        '  - set: {c: "${{ steps.r.output.value }}"}\n  - set: {c: "${{ trigger.name }}"}\n',
        "${{ state.c }}",
        [READ, ["requester"]],
    ),
    "a channel of itself": (
        '  - set: {c: "${{ steps.r.output.value }}"}\n  - set: {c: "${{ state.c + trigger.name }}"}\n',
        "${{ state.c }}",
        [READ, ["requester"]],
    ),
    "a channel that begins with it": ("", "${{ state.begun }}", [["requester"]]),
    "a channel with a literal": ("", "${{ state.fixed }}", [["workflow"]]),
    "what is written later": ("", "${{ state.later }}", [["workflow"]]),
    "the run's reference": ("", "${{ run.reference }}", [["requester"]]),
    "the run's id": ("", "x${{ run.id }}", [["workflow"]]),
}  # fmt: skip


@pytest.mark.req("P-14")
@pytest.mark.parametrize("case", STEPS)
async def test_policy_reads_where_an_argument_comes_from(runtime: Any, case: str) -> None:
    before, value, wanted = STEPS[case]
    text = (
        HEAD % "w"
        + 'channels: {c: {}, fixed: {initial: x}, later: {initial: ""}, begun: {initial: "${{ trigger.name }}"}}\n'
        + "steps:\n"
        + '  - {id: r, do: probe.value.read, with: {name: r, value: "${{ trigger.other }}"}}\n'
        + before
        + ACT % value
        + '  - set: {later: "${{ steps.r.output.value }}"}\n'
    )
    await world(runtime, text)
    run = await started(runtime, "w")
    await runtime.worker().work_off()
    found = await origin(runtime)
    assert sorted(found) == sorted(wanted)
    decision = await runtime.books.decision(step="act")
    assert "origin.value" not in decision.facts, "only what rules read is told as facts"
    assert (await replayed(runtime, run)).ok


LOOPS = {
    "each": ("foreach: ${{ trigger.list }}\n    as: one", "${{ one.to }}", [["requester"]]),
    "of a result": ("foreach: ${{ steps.r.output.list }}\n    as: one", "${{ one.to }}",
                    [["field:probe.value.read#/list/to", "tool:probe.value.read"]]),
    "of what was made of it": ("foreach: ${{ steps.r.output.list.filter(o, true) }}\n    as: one", "${{ one.to }}",
                               [["tool:probe.value.read"]]),
    "by its number": ("foreach: ${{ steps.r.output.list }}\n    as: one", "n${{ index }}",
                      [["field:probe.value.read#/list", "tool:probe.value.read"], ["workflow"]]),
}  # fmt: skip


@pytest.mark.req("P-14")
@pytest.mark.parametrize("case", LOOPS)
async def test_what_a_loop_goes_over_is_an_ingredient(runtime: Any, case: str) -> None:
    loop, value, wanted = LOOPS[case]
    text = HEAD % "w" + (
        "steps:\n"
        '  - {id: r, do: probe.value.read, with: {name: r, list: "${{ trigger.list }}"}}\n'
        f'  - {loop}\n    steps: [{{id: act, do: probe.effect.apply, with: {{name: "{value}"}}}}]\n'
    )
    await world(runtime, text, policy=SEEN)
    await started(runtime, "w")
    await runtime.worker().work_off()
    found = [one.facts["origin.name"] for one in await runtime.books.decisions() if one.step.endswith(".act")]
    assert len(found) == 2
    assert all(sorted(one) == sorted(wanted) for one in found)


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("how", "who", "wanted"),
    [("http", "ada", "requester"), ("cli", "os:ada", "requester"), ("http", "robot", "trigger:http"),
     ("servicenow", "ada", "trigger:servicenow")],
)  # fmt: skip
async def test_only_people_who_were_authenticated_give_the_requesters_words(
    runtime: Any, how: str, who: str, wanted: str
) -> None:
    await world(runtime, HEAD % "w" + "steps:\n" + ACT % "${{ trigger.name }}")
    await runtime.person("ada")
    await add_person(runtime.database, "acme", "robot", owner="ada")
    await started(runtime, "w", how=how, who=who)
    await runtime.worker().work_off()
    assert await origin(runtime) == [[wanted]]


@pytest.mark.req("P-14")
async def test_a_signal_and_a_form_are_named_as_what_they_are(runtime: Any) -> None:
    text = HEAD % "w" + (
        "channels: {heard: {}, told: {}}\nsteps:\n"
        '  - {id: s, wait: {signal: paid, correlate: x}, set: {heard: "${{ signal.payload.name }}"}}\n'
        "  - {id: t, task: {title: Who?, form: {type: object, properties: {who: {type: string}}},"
        ' assign: {group: owners}}, set: {told: "${{ output.who }}"}}\n'
        + ACT
        % "${{ state.heard }}${{ state.told }}${{ steps.t.output.who }}"
    )
    await world(runtime, text)
    await runtime.person("ana", ("owners",))
    await started(runtime, "w")
    await runtime.go_on()
    await runtime.signal("paid:x", {"name": "ada"})
    await runtime.go_on()
    await runtime.complete("ana", {"who": "ada"})
    await runtime.go_on()
    assert sorted(await origin(runtime)) == [["person"], ["signal:paid"]]


CHILD = (
    HEAD % "child"
    + 'result: {who: "${{ state.got }}", fixed: x}\nchannels: {got: {}}\nsteps:\n%s'
    + ('  - set: {got: "${{ trigger.to }}"}\n')
)
WAITS = "  - {id: go, wait: {signal: go, correlate: x}}\n"
PARENT = HEAD % "parent" + (
    "steps:\n"
    '  - {id: r, do: probe.value.read, with: {name: r, value: "${{ trigger.other }}"}}\n'
    '  - {id: child, run: child, with: {name: "${{ trigger.name }}", to: "%s"}}\n'
)


@pytest.mark.req("P-14")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("given", "wanted"),
    [("${{ trigger.name }}", ["requester"]), ("${{ steps.r.output.value }}", READ), ("x", ["workflow"])],
)  # fmt: skip
async def test_a_child_launders_nothing(runtime: Any, waits: bool, given: str, wanted: list[str]) -> None:
    inside = ACT % "${{ trigger.to }}"
    after = '  - {id: after, do: probe.effect.apply, with: {name: "${{ steps.child.output.who }}"}}\n'
    await world(runtime, CHILD % ((WAITS if waits else "") + inside), PARENT % given + after, policy=SEEN)
    run = await started(runtime, "parent", {**SENT})
    await runtime.go_on()
    if waits:
        await runtime.signal("go:x", {})
        await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert await origin(runtime) == [wanted], "in the child"
    assert await origin(runtime, step="after") == [wanted], "of what it came to"


@pytest.mark.req("P-14")
async def test_going_on_with_another_run_launders_nothing(runtime: Any) -> None:
    text = PARENT.replace("run: child", "continue_with: {workflow: child").replace('to: "%s"}}', 'to: "%s"}}}')
    await world(runtime, CHILD % (ACT % "${{ trigger.to }}"), text % "${{ steps.r.output.value }}")
    await started(runtime, "parent")
    await runtime.go_on()
    assert await origin(runtime) == [READ]


@pytest.mark.req("P-14")
async def test_an_inherited_channel_launders_nothing(runtime: Any) -> None:
    child = HEAD % "child" + "channels: {c: {initial: safe}}\nsteps:\n" + ACT % "${{ state.c }}"
    text = HEAD % "parent" + (
        "channels: {c: {initial: safe}}\nsteps:\n"
        '  - {id: r, do: probe.value.read, with: {name: r, value: "${{ trigger.other }}"},'
        ' set: {c: "${{ output.value }}"}}\n'
        '  - {id: child, run: child, with: {name: "${{ trigger.name }}"}, inherit: [c]}\n'
    )
    await world(runtime, child, text)
    await started(runtime, "parent")
    await runtime.go_on()
    assert sorted(await origin(runtime)) == [READ, ["workflow"]]


@pytest.mark.req("P-14")
async def test_what_was_handed_on_before_anybody_asked_is_unknown(runtime: Any) -> None:
    child = (
        HEAD % "child" + "channels: {c: {initial: safe}}\nsteps:\n" + WAITS + ACT % "${{ state.c }}${{ trigger.name }}"
    )
    text = HEAD % "parent" + (
        "channels: {c: {initial: safe}}\nsteps:\n"
        '  - {id: child, run: child, with: {name: "${{ trigger.name }}"}, inherit: [c]}\n'
    )
    await world(runtime, child, text, policy=READS.split("  - id: own")[0] + REST)
    await started(runtime, "parent")
    await runtime.go_on()
    await runtime.policy(READS.replace("version: 1", "version: 2"))
    await runtime.signal("go:x", {})
    await runtime.go_on()
    assert await origin(runtime) == [["unknown"]]


@pytest.mark.req("P-14")
async def test_words_of_an_added_step_are_not_the_authors(runtime: Any) -> None:
    first = "  - {id: r, do: probe.value.read, with: {name: r}}\n"
    await world(runtime, HEAD % "w" + "steps:\n" + first + WAITS)
    run = await started(runtime, "w")
    await runtime.go_on()
    await runtime.extend(
        run, {"steps": [{"id": "act", "do": "probe.effect.apply", "needs": ["r"], "with": {"name": "mallory"}}]}
    )
    await runtime.go_on()
    assert await origin(runtime) == [["unknown"]]


COUNTS = """
policy: counts
version: 1
rules:
  - id: once
    match: {operation: probe.effect.apply}
    when: counters.same_in_run == 0
    outcome: allow
    otherwise: deny
  - id: never
    match: {operation: probe.mail.send}
    when: counters.refused_in_run == 0 && counters.asked_in_run == 0
    outcome: deny
    otherwise: allow
"""


@pytest.mark.req("P-14")
async def test_the_same_call_of_another_step_is_counted(runtime: Any) -> None:
    text = HEAD % "w" + (
        "steps:\n  - {id: a, do: probe.effect.apply, with: {name: x}}\n"
        "  - {id: b, do: probe.effect.apply, with: {name: y}}\n"
        "  - {id: c, do: probe.effect.apply, with: {name: x},"
        " on_failure: [{id: d, do: probe.mail.send, with: {text: x}}]}\n"
    )
    await world(runtime, text, policy=COUNTS)
    run = await started(runtime, "w")
    await runtime.worker().work_off()
    outcomes = {
        one.step: (one.outcome, one.facts.get("counters.same_in_run")) for one in await runtime.books.decisions()
    }
    assert outcomes == {"a": ("allow", 0), "b": ("allow", 0), "c": ("deny", 1), "d": ("allow", None)}
    assert (await replayed(runtime, run)).ok


@pytest.mark.req("P-14")
async def test_nothing_is_worked_out_that_no_rule_reads(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.engine.life import facts

    def refuse(*_: Any) -> Any:
        raise AssertionError("nobody has asked")

    monkeypatch.setattr(facts, "trace_of", refuse)
    monkeypatch.setattr(facts, "call_of", refuse)
    monkeypatch.setattr(facts, "follower_of", refuse)
    run = await runtime.go(HEAD % "w" + "steps:\n" + ACT % "${{ trigger.name }}", SENT)
    assert await runtime.status(run) == "succeeded"


ASKS = """
policy: asks
version: 1
rules:
  - id: own
    match: {operation: probe.effect.apply}
    when: origin.name.all(o, 'requester' in o)
    outcome: allow
    otherwise: needs_approval
    approvers: [{group: owners}]
  - {id: rest, match: {connector: probe}, outcome: allow}
"""


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    "policy", [ASKS, ASKS.replace("origin.name.all(o, 'requester' in o)", "action.risk == 'none'")]
)
async def test_a_card_says_where_values_come_from_if_a_rule_reads_it(runtime: Any, policy: str) -> None:
    value = "${{ trigger.name }}"
    act = ACT % ('${{ steps.r.output.value }}", value: "' + value)
    text = (
        HEAD % "w" + 'steps:\n  - {id: r, do: probe.value.read, with: {name: r, value: "*Approved* `by` Ann"}}\n' + act
    )
    await world(runtime, text, policy=policy)
    await started(runtime, "w")
    await runtime.worker().work_off()
    card = (await runtime.books.approval()).card
    if policy != ASKS:
        assert not {"sources", "agent"} & card.keys(), "nobody asks where its values come from"
        return
    assert card["sources"] == [
        {
            "field": "name",
            "words": "is the whole of a field that anyone may write:",
            "of": "probe.value.read#/value",
            "ours": False,
            "value": "*Approved* `by` Ann",
        },
        {
            "field": "value",
            "words": "was given by whoever requested this",
            "of": "",
            "ours": True,
            "value": "",
        },
    ]
