"""People do not judge what they shaped themselves (promise 12)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from core.canonical import Json
from core.identity import Directory, Entry
from evidence.chain import Actor
from runtime.engine.book.instructions import OtherRun
from runtime.engine.life import waits
from runtime.engine.model.events import RunOpened
from tests.engine.agents import Piloted, piloted
from tests.engine.governing import ASK, HEAD, MAIL, Governed, governed, loaded
from tests.support.agents import calls, says
from tests.support.engine_agent_sources import MEMORY, OWN, apply, one
from tests.support.engine_scenes import act, driven

LOOP = HEAD + "  - id: each\n    foreach: ${{ ['x', 'y'] }}\n    as: name\n    max_parallel: 2\n    steps:\n"
FORM = "task: {title: '${{ name }}', form: {type: object, properties: {x: {type: string}}}, assign: {group: owners}}"
FILLED = LOOP + (
    f"      - {{id: form, {FORM}}}\n"
    "      - {id: wait, approve: {summary: 'Do ${{ name }}?', approvers: {group: owners}}}\n"
    "      - {id: act, do: probe.effect.apply, with: {name: '${{ steps.form.output.x }}'}}\n"
)
STARTED = LOOP + (
    "      - {id: other, run: other, with: {who: '${{ name }}'}}\n"
    "      - {id: act, do: probe.effect.apply, with: {name: '${{ steps.other.output.x }}'}}\n"
)


def shaped(run: Governed, key: str) -> set[str]:
    """The people who shaped the action that is asked about at this step."""
    (asked,) = [one for one in run.view().run.approvals.values() if one.step_key == key]
    return {str(one["principal"]) for one in asked.contributors or ()}


def fill(run: Governed, key: str, person: str) -> None:
    who = Actor("person", person)
    run.over(
        key, lambda t, s, wait: waits.complete(t, s, wait, {"output": {"x": person}, "by": f"person:{person}"}, who)
    )


@pytest.mark.req("V-5")
def test_a_round_that_is_over_takes_along_nobody_who_shaped_another() -> None:
    run = driven(governed(FILLED))
    for at, person in enumerate(("pat", "sam")):
        fill(run, f"each[{at}].form", person)
    driven(run)
    run.answer("ana", key="each[0].wait")
    driven(run)
    assert run.rows["each[0].act"].status == "succeeded"
    run.rule_by(ASK).answer("ana", key="each[1].wait")
    driven(run)
    assert "person:sam" in shaped(run, "each[1].act")


@pytest.mark.req("V-5")
def test_who_shaped_the_result_of_a_run_within_a_loop_shaped_what_is_done_with_it() -> None:
    said = [OtherRun("succeeded", {"x": name}, shaped=(f"form_filler f person:{name}",)) for name in ("pat", "sam")]
    run = driven(governed(STARTED, ASK, said=tuple(said)))
    assert [sorted(shaped(run, f"each[{at}].act") & {"person:pat", "person:sam"}) for at in (0, 1)] == [
        ["person:pat"], ["person:sam"],
    ]  # fmt: skip


@dataclass
class Peopled(Governed):
    """A run with a directory of its own."""

    people: dict[str, str] = field(default_factory=dict)

    def view(self) -> Any:
        entries = [Entry(name, name, groups=frozenset(of.split())) for name, of in self.people.items()]
        return replace(super().view(), directory=Directory.of("d1", entries))


@pytest.mark.req("Q-8")
@pytest.mark.parametrize(
    ("operators", "asked"), [("dan", "operators"), ("someone", "owners")], ids=["others", "the requester alone"]
)
def test_a_doubt_is_put_to_people_who_did_not_shape_the_action(operators: str, asked: str) -> None:
    """Operators come first; where they are who requested it, those who had approved it are asked."""
    run = Peopled(loaded(MAIL), {}, people={"ana": "owners", "ben": "owners", operators: "operators"})
    run.open()
    run.rule_by(ASK).drive().answer("ana", "ben").drive(dies=True).dead().drive()
    terms: Any = run.book_of_questions()[-1].terms
    assert [one["group"] for one in terms["approvers"]] == [asked]


def test_a_card_gives_the_reason_of_the_agents_own_turn() -> None:
    """An agent of an earlier run may have had the same key: what it said is no reason of this one."""
    earlier = piloted(MEMORY + one("triage"), {**calls(apply("zoe")), "content": "Because earlier."}, says("Done."))
    other = "01930000-0000-8000-8000-000000000002"
    remembered: Any = earlier.state.channels["messages"]
    messages: list[Json] = [[other, step] for _, step in remembered]
    opened = RunOpened(
        {"name": "agents"}, requested_by="someone", channels={"messages": messages}, inherited=["messages"]
    )
    said = {**calls(apply("adam")), "content": "Because of this."}
    run = Piloted(earlier.workflow, {}, turns=[said], others={(other, "triage"): earlier.book()})
    act(run, lambda t: t.open(opened, Actor("person", "ann")))
    run.rule_by(OWN)
    run.go_on()
    (asked,) = run.book_of_questions()
    assert asked.shown is not None
    assert "Because of this." in str(asked.shown["agent"])
    assert "Because earlier." not in str(asked.shown["agent"])
