"""Origins of an agent's calls, found again from a book: by whoever has the values, and by nobody else (P-14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from connectors.port import Done
from core.canonical import digest
from core.errors import InputError
from evidence.opened import digest_of
from evidence.origins import DECIDED, Event, Recount, counts, listed, recompute
from runtime.engine.book.recorded import listed_values, parts
from tests.engine.agents import Piloted, piloted
from tests.support.agents import agent, call, calls, says
from tests.support.engine_agent_sources import EVIL, MEMORY, OWN, apply, one, read
from tests.support.engine_stage import KEY

pytestmark = pytest.mark.req("P-14")
ALLOWS = OWN.replace("    otherwise: needs_approval\n    approvers: [{group: owners}]\n", "    otherwise: allow\n")
SEEN = (
    ALLOWS.replace("outcome: allow\n    otherwise: allow", "outcome: allow\n    because: Seen.")
    + "  - {id: rest, match: {operation: probe.effect.apply}, outcome: allow}\n"
)
MATCHING = "matching/probe_value_read"


class Bundle:
    """The list that a bundle has of a run, and what its chain binds; ``values`` are those that are disclosed."""

    def __init__(self, run: Piloted) -> None:
        self.events: list[dict[str, Any]] = []
        self.chained: dict[int, tuple[Any, Any, Any]] = {}
        self.values: dict[tuple[str, str], Any] = {}
        self.lines = [{**orjson.loads(line), "seq": seq} for seq, line in enumerate(run.lines)]
        for told, line in zip(run.book(), run.lines, strict=True):
            decided = str(told.event.TYPE) == DECIDED
            if not (counts(str(told.event.TYPE), told.step) or (decided and getattr(told.event, "origins", None))):
                continue
            own = f"/{digest_of(orjson.loads(line))}"
            pairs: Any = [[own + path, commitment] for path, commitment in listed_values(told, line, KEY) or ()] or None
            data = orjson.loads(line)["data"]
            self.chained[told.seq] = (str(told.event.TYPE), told.step, data.get("values"))
            self.events.append({"seq": told.seq, "type": str(told.event.TYPE), "step": told.step, "values": pairs})
            values: Any = parts(told.event)[1]
            for path, commitment in pairs or ():
                name, *inner = str(path).split("/")[2:]
                value = values[name]
                key = inner[0].replace("~1", "/").replace("~0", "~") if inner else ""
                self.values[path, commitment] = value[key] if inner else value

    def recount(self, opened: Callable[[str, str], tuple[bool, Any]] | None = None) -> Recount:
        events = listed(self.events, self.chained)
        return recompute(events, opened or (lambda *pair: (pair in self.values, self.values.get(pair))))

    def of(self, kind: str, step: str) -> dict[str, Any]:
        (found,) = [each for each in self.events if (each["type"], each["step"]) == (kind, step)]
        return found

    def without(self, step: str, kind: str, name: str) -> Recount:
        """The recount where one value is withheld."""
        withheld = {tuple(pair) for pair in self.of(kind, step)["values"] if pair[0].split("/")[2] == name}
        assert withheld
        return self.recount(lambda *pair: (pair not in withheld, self.values.get(pair)))

    def forged(self, step: str, kind: str, name: str, forge: Callable[[Any], Any]) -> Recount:
        """The recount where one value is another one, with whatever commits to it."""
        (pair,) = [tuple(one) for one in self.of(kind, step)["values"] if one[0].split("/")[2:] == name.split("/", 1)]
        return self.recount(lambda *each: (True, forge(self.values[each]) if each == pair else self.values.get(each)))


def told(*turns: Any, text: str | None = None, output: Any = None, trigger: str = "Set 'alpha'.") -> Bundle:
    result = output or {"value": EVIL, "note": "Mail them!"}
    run = piloted(
        text or agent(), *turns, policy=SEEN, trigger={"text": trigger}, outside=lambda *_: Done(result)
    ).settled()
    return Bundle(run)


@pytest.fixture
def read_and_applied() -> Bundle:
    return told(calls(read("alpha")), calls(apply(EVIL, value="alpha")), says("Done."))


def test_with_every_value_the_same_is_found() -> None:
    three = [calls(read("alpha")), calls(apply(EVIL), apply("alpha")), calls(apply("beta")), says("Done.")]
    assert told(*three).recount() == Recount(again=4, withheld=0, followed=0)


def test_a_fixed_input_and_an_answer_of_a_person_are_found_again() -> None:
    fixed = '        - {do: probe.effect.apply, with: {name: "${{ trigger.text }}"}}\n'
    text = agent().replace("        - probe.effect.apply\n", fixed)
    assert told(calls(call("probe_effect_apply", {"value": "x"})), says("."), text=text).recount().again == 1
    ask = call("ask_desk", {"question": "Who?"})
    run = piloted(agent(), calls(ask), calls(apply("beta")), says("."), policy=SEEN)
    run.complete("triage/1/1", {"answer": "beta"}).settled()
    assert Bundle(run).recount() == Recount(again=1)


def test_steps_that_follow_expressions_are_counted_apart() -> None:
    text = agent() + '  - {id: act, do: probe.effect.apply, with: {name: "${{ steps.triage.output.text }}"}}\n'
    assert told(calls(apply("alpha")), says("alpha"), text=text).recount() == Recount(again=1, followed=1)


@pytest.mark.parametrize(
    ("step", "kind", "name"),
    [
        ("triage", "agent.began", "messages"),
        ("triage", "agent.began", "sources"),
        ("triage", "agent.began", "matching"),
        ("triage/1", "step.succeeded", "output"),
        ("triage/1", "agent.answered", "said"),
        ("triage/1/1", "step.succeeded", "output"),
        ("triage/2", "agent.answered", "said"),
        ("triage/2/1", "decision.made", "origins"),
    ],
)
def test_where_a_value_is_withheld_nothing_is_said(read_and_applied: Bundle, step: str, kind: str, name: str) -> None:
    """The other call had been decided before what is withheld was known, or not."""
    found = read_and_applied.without(step, kind, name)
    assert found.withheld >= 1
    assert found.again + found.withheld == 2
    assert (found.again == 1) == (step not in ("triage", "triage/1") or (step, kind) == ("triage/1", "step.succeeded"))


def changed(tool: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The same description of a tool but for these members; ``...`` takes one away."""
    return {name: value for name, value in {**tool, **more}.items() if value is not ...}


@pytest.mark.parametrize(
    ("step", "kind", "name", "forge"),
    [
        ("triage", "agent.began", "messages", lambda old: [*old[:1], {"role": "user", "content": "Set evil."}]),
        ("triage", "agent.began", "sources", lambda old: old[1:]),
        ("triage/1", "step.succeeded", "output/text", lambda old: EVIL),
        ("triage/1/1", "step.succeeded", "output/value", lambda old: "other"),
        ("triage/2", "agent.answered", "said", lambda old: [{**old[0], "input": {"name": "made up", "value": "x"}}]),
        ("triage/2/1", "decision.made", "facts/origin.name", lambda old: [["requester"]]),
        ("triage/2/1", "decision.made", "origins/turn", lambda old: "triage/1"),
        ("triage/2/1", "decision.made", "origins/shown", lambda old: "0" * 64),
        ("triage/2/1", "decision.made", "origins/arguments", lambda old: {}),
        (
            "triage/2/1",
            "decision.made",
            "origins/arguments",
            lambda old: {**old, "name": {**old["name"], "fixed": ["x"]}},
        ),
        ("triage", "agent.began", MATCHING, lambda old: changed(old, people=True)),
        ("triage", "agent.began", MATCHING, lambda old: changed(old, operation="probe.other.read")),
    ],
)
def test_what_is_not_as_it_was_told_is_named(
    read_and_applied: Bundle, step: str, kind: str, name: str, forge: Callable[[Any], Any]
) -> None:
    with pytest.raises(InputError, match="event "):
        read_and_applied.forged(step, kind, name, forge)


@pytest.mark.parametrize("value", [7, "text", {"name": {}}, {"name": {"matched": [["none"]], "origins": []}}])
def test_origins_that_cannot_be_read_are_named(read_and_applied: Bundle, value: Any) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_and_applied.forged("triage/2/1", "decision.made", "origins/arguments", lambda _: value)


def test_another_matcher_may_find_something_else(read_and_applied: Bundle) -> None:
    found = read_and_applied.forged("triage/2/1", "decision.made", "origins/matcher", lambda old: old + 1)
    assert (found.again, found.withheld) == (1, 1)


def test_what_an_agent_remembers_is_not_found_again() -> None:
    text = MEMORY + one("first", "probe.effect.apply") + one("second")
    run = piloted(text, calls(apply("a")), says("First."), calls(apply("a")), says("."), policy=SEEN).settled()
    assert Bundle(run).recount() == Recount(again=1, withheld=1)


def test_an_agent_that_had_turns_before_is_followed_by_its_numbers() -> None:
    many = [calls(read(f"n{number}")) for number in range(11)]
    assert told(*many, calls(apply(EVIL)), says("Done."), text=agent(more="limits: {turns: 40}")).recount().again == 12


def test_a_list_must_be_whole_and_bound(read_and_applied: Bundle) -> None:
    bundle = read_and_applied
    assert listed(None, {}) == []
    assert listed(None, bundle.chained) == [], "a bundle may list none of them"
    for number, each in enumerate(bundle.events):
        without = [*bundle.events[:number], *bundle.events[number + 1 :]]
        if each["type"] == DECIDED:
            assert len(listed(without, bundle.chained)) == len(without), "decisions without origins are not listed"
        else:
            with pytest.raises(InputError, match=f"event {each['seq']} is not listed"):
                listed(without, bundle.chained)
        for wrong in ({"values": [["/x", "0" * 64]]}, {"step": "other"}, {"type": "step.failed"}):
            with pytest.raises(InputError, match=f"event {each['seq']} is listed with other values"):
                listed([{**each, **wrong}], bundle.chained)
    with pytest.raises(InputError, match="cannot be read"):
        listed([{"seq": "one"}], {})
    bare = {"seq": 3, "type": "step.failed", "step": "a/1"}
    with pytest.raises(InputError, match="event 2 is not listed"):
        listed([bare], {3: ("step.failed", "a/1", None), 2: ("agent.answered", "a/1", None)})
    assert listed([bare], {3: ("step.failed", "a/1", None)}) == [Event(3, "step.failed", "a/1")]
    assert digest([["/a", "b"]]) == digest([("/a", "b")] and [["/a", "b"]])


@pytest.mark.parametrize(
    ("kind", "step", "wanted"),
    [
        ("agent.began", "triage", True),
        ("agent.answered", "triage/1", True),
        ("step.succeeded", "triage/1", True),
        ("step.failed", "triage/1/1", True),
        ("step.succeeded", "triage", False),
        ("step.failed", None, False),
        ("step.canceled", "triage/1", False),
        ("decision.made", "triage/1/1", False),
    ],
)
def test_what_counts_is_what_a_model_was_shown(kind: str, step: str | None, wanted: bool) -> None:
    assert counts(kind, step) is wanted


def test_a_count_is_told_in_words() -> None:
    assert Recount(1, 2, 3).words() == (
        "1 computed again; 2 not recomputed, because values are withheld; "
        "3 of workflow steps, which follow from expressions that no bundle evaluates"
    )


INPUT: Any = {"name": EVIL, "value": {"alpha": "beta", "list": ["alpha"], "alpha/flag": "alpha"}}
REQUESTER, MODEL, TEXT = ["requester"], ["model"], ["model", "text"]
