"""Waits and runs within, in memory: what is ordered, how each ends, and the whole error of what is refused."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Parked
from core.canonical import derived_id
from evidence.chain import Actor
from runtime.engine import waits
from runtime.engine.beginnings import Inherited
from runtime.engine.graph import Reducer
from runtime.engine.instructions import OtherRun, StartRun, known_of
from runtime.engine.origins import carried
from runtime.engine.states import WaitKind
from runtime.engine.step import begin
from runtime.engine.transition import REFERENCE_CHARACTERS_MAX, Transition
from runtime.engine.waits import CORRELATION_CHARACTERS_MAX, DEPTH_MAX, TIMER_MAX, child_result
from tests.engine.conftest import NOW, RUN_ID
from tests.engine.governing import CASE, CHILD, HEAD, Governed, governed, loaded, ruled
from tests.engine.test_contributors import marked
from tests.engine.test_whole_books import TASK, again, canceled, filled, held
from tests.runtime.conftest import ALLOW_ALL

SIGNAL = HEAD + '  - {id: a, wait: {signal: s, correlate: "CORRELATE"}, timeout: P1D}\n'
UNTIL = HEAD + '  - {id: a, wait: {until: "UNTIL"}}\n'
NAMED = HEAD + '  - {id: a, set: {}, reference: "NAME"}\n'
TWO = HEAD.replace("steps:", "channels: {seen: {reduce: append}, last: {initial: none}}\nsteps:")
HEIR = TWO + "  - {id: a, run: other@7, with: {who: x}, timeout: PT5M, abandon: true, inherit: [seen, last]}\n"
GOES_ON = HEAD + "  - {id: a, continue_with: {workflow: other, with: {who: x}}}\n"
ANN = Actor("person", "ann")
TRACES = ALLOW_ALL.replace(
    "rules:", "rules:\n  - {id: own, match: {connector: probe}, when: \"'x' in carries.name\", outcome: allow}"
)


def expression(message: str, where: str) -> dict[str, Any]:
    return {"class": "expression", "code": "expression", "message": f"{where}: {message}"}


LONG = f"is empty or longer than {CORRELATION_CHARACTERS_MAX} characters"
NO_NAME = f"is empty, longer than {REFERENCE_CHARACTERS_MAX} characters, or holds what no text can"


def error_of(run: Governed) -> Any:
    return run.rows["a"].last_error


@pytest.mark.req("X-7")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (UNTIL.replace("UNTIL", "soon"), expression("'soon' is no moment in RFC 3339", "wait.until")),
        (UNTIL.replace("UNTIL", "x" * 61), expression(f"'{'x' * 59}…' is no moment in RFC 3339", "wait.until")),
        (
            UNTIL.replace("UNTIL", (NOW + TIMER_MAX + timedelta(seconds=1)).isoformat()),
            expression("is more than ten years away", "wait.until"),
        ),
        (SIGNAL.replace("CORRELATE", "${{ '' }}"), expression(LONG, "wait.correlate")),
        (SIGNAL.replace("CORRELATE", "k" * (CORRELATION_CHARACTERS_MAX + 1)), expression(LONG, "wait.correlate")),
        (NAMED.replace("NAME", "${{ '' }}"), expression(NO_NAME, "reference")),
        (NAMED.replace("NAME", "r" * (REFERENCE_CHARACTERS_MAX + 1)), expression(NO_NAME, "reference")),
    ],
)
def test_what_cannot_be_waited_for_says_where_and_why(text: str, error: Any) -> None:
    run = governed(text).drive()
    assert (run.status, error_of(run)) == ("failed_terminal", error)


@pytest.mark.req("X-7")
@pytest.mark.parametrize(("hours", "waits_for"), [(-5, 0), (0, 0), (3, 3)])
def test_a_moment_that_is_past_is_waited_for_no_longer(hours: int, waits_for: int) -> None:
    run = governed(UNTIL.replace("UNTIL", (NOW + timedelta(hours=hours)).isoformat())).drive()
    (wait,) = run.waits.values()
    assert (run.status, wait.kind, wait.due_in) == ("waiting", WaitKind.TIMER, timedelta(hours=waits_for))


IN_TOKYO, TEN_YEARS = timezone(timedelta(hours=9)), 3660 * 24
MOMENTS = [
    ((NOW + timedelta(hours=5)).astimezone(IN_TOKYO).isoformat(), 5),
    ((NOW + timedelta(hours=5)).astimezone(timezone(-timedelta(hours=3))).isoformat(), 5),
    ((NOW + timedelta(hours=5)).astimezone(UTC).isoformat().replace("+00:00", "Z"), 5),
    ((NOW + timedelta(hours=5)).astimezone(UTC).replace(tzinfo=None).isoformat(), 5),
    ((NOW - timedelta(hours=1)).astimezone(IN_TOKYO).isoformat(), 0),
    ((NOW + timedelta(hours=TEN_YEARS)).isoformat(), TEN_YEARS),
]


@pytest.mark.req("X-7")
@pytest.mark.parametrize(("moment", "hours"), MOMENTS)
def test_a_moment_is_in_the_zone_that_it_names_and_else_in_utc(moment: str, hours: int) -> None:
    run = governed(UNTIL.replace("UNTIL", moment)).drive()
    (wait,) = run.waits.values()
    assert (run.status, wait.kind, wait.due_in) == ("waiting", WaitKind.TIMER, timedelta(hours=hours))


@pytest.mark.req("X-7")
def test_a_signal_is_awaited_by_its_name_and_its_correlation() -> None:
    run = governed(SIGNAL.replace("CORRELATE", "k1")).drive()
    (wait,) = run.waits.values()
    assert (wait.kind, wait.due_in, wait.token) == (WaitKind.SIGNAL, timedelta(days=1), "n1")
    assert (wait.context, wait.correlation_key) == ({"signal": "s", "correlate": "k1"}, "s:k1")


WORDY = TWO + (
    "  - {id: a, task: {title: '${{ trigger.title }}', description: '${{ trigger.about }}', assign: {group: owners},"
    " form: {type: object, properties: {x: {type: string}}}}}\n"
)


@pytest.mark.req("X-9")
@pytest.mark.parametrize("length", [300, 301])
def test_a_task_has_a_title_of_bounded_length_and_all_of_its_description(length: int) -> None:
    run = Governed(loaded(WORDY), {"title": "t" * length, "about": "d\x00" * 400}, policy=ruled(ALLOW_ALL))
    run.open()
    (wait,) = run.drive().waits.values()
    context: Any = wait.context
    assert context["title"] == ("t" * 300 if length == 300 else f"{'t' * 299}…")
    assert context["description"] == "d\N{REPLACEMENT CHARACTER}" * 400


ORDERED = TASK.replace(
    "properties: {x: {type: string}}", "properties: {z: {type: string}, a: {type: string}, m: {type: string}}"
)


@pytest.mark.req("X-9")
def test_a_form_is_read_in_the_order_in_which_it_was_written() -> None:
    (wait,) = governed(ORDERED.partition("  - {id: b")[0]).drive().waits.values()
    context: Any = wait.context
    assert (context["fields"], context["group"], [*context["form"]["properties"]]) == (
        ["z", "a", "m"], "owners", ["z", "a", "m"],
    )  # fmt: skip


WAITING = (
    UNTIL.replace("UNTIL", (NOW + timedelta(hours=1)).isoformat()), SIGNAL.replace("CORRELATE", "k"), TASK, CHILD,
    GOES_ON, NAMED.replace("NAME", "R2"),
)  # fmt: skip


@pytest.mark.req("X-7")
@pytest.mark.parametrize("text", WAITING)
def test_a_step_of_a_run_that_is_being_canceled_begins_nothing(text: str) -> None:
    run = governed(text)
    run.claim("a")
    view = run.view()
    canceling: Any = {"by": "x", "reason": ""}
    made = Transition(replace(view, run=replace(view.run, canceling=canceling)), run.workflow.graph)
    waits.begin(made, run.rows["a"], run.workflow.graph.leaf("a"), run.nonce)
    told = [str(one.event.TYPE) for one in made._told]
    assert (told[0], "checkpoint.committed" in told, made.run.error) == ("step.canceled", True, None)
    assert {"run.continued", "step.parked", "step.succeeded"}.isdisjoint(told)


@pytest.mark.req("X-7")
@pytest.mark.parametrize(
    ("given", "key"),
    [(r"${{ 'a\\u0000b' }}", "a\N{REPLACEMENT CHARACTER}b"), ("${{ 7 }}", "7"), ("${{ true }}", "True")],
)
def test_a_correlation_is_a_text_that_can_be_stored(given: str, key: str) -> None:
    run = governed(SIGNAL.replace("CORRELATE", given)).drive()
    (wait,) = run.waits.values()
    assert (wait.context, wait.correlation_key) == ({"signal": "s", "correlate": key}, f"s:{key}")


USUAL = {"class": "transport", "code": "failed_outside", "message": "It failed outside."}


@pytest.mark.req("V-9")
@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, USUAL),
        ({"class": None, "code": "", "message": ""}, USUAL),
        (
            {"class": "timeout", "code": "c", "message": "m", "sent": True, "by": "person:p", "more": 1},
            {"class": "timeout", "code": "c", "message": "m", "sent": True, "by": "person:p"},
        ),
        ({"class": "timeout", "sent": "yes", "by": 5}, {**USUAL, "class": "timeout"}),
        ({"message": "a\x00b", "sent": False, "by": None}, {**USUAL, "message": "a\N{REPLACEMENT CHARACTER}b"}),
    ],
)
@pytest.mark.parametrize("text", [TASK, CASE])
def test_an_error_from_outside_is_told_in_its_four_parts_and_no_more(text: str, said: Any, error: Any) -> None:
    run = governed(text, said=(Parked("c1"),)).drive()
    run.over("a", lambda t, s, wait: waits.complete(t, s, wait, {"error": said}, ANN)).drive()
    assert (run.status, error_of(run)) == ("failed_terminal", error)


@pytest.mark.req("X-10")
@pytest.mark.parametrize(
    ("text", "sent"),
    [(TASK, {}), (SIGNAL.replace("CORRELATE", "k"), {}), (CASE, {"sent": True}), (CHILD, {"sent": True})],
)  # fmt: skip
def test_a_timeout_says_whether_something_was_begun_elsewhere(text: str, sent: dict[str, Any]) -> None:
    said: Any = OtherRun("waiting") if text == CHILD else Parked("c1")
    run = governed(text, said=(said,)).drive().over("a", waits.time_out).drive()
    told = {"class": "timeout", "code": "timed_out", "message": "It took longer than the step's timeout.", **sent}
    assert (run.status, error_of(run)) == ("failed_terminal", told)


def test_an_output_that_cannot_be_kept_fails_the_step_and_says_why() -> None:
    run = governed(TASK).drive()
    filled(run, {"x": "\x00"}).drive()
    why = "What the wait ended with cannot be recorded: it holds the character U+0000."
    assert error_of(run) == {"class": "transport", "code": "unusable_output", "message": why}


class Caught(Governed):
    """A run whose orders to start another one are kept, so many runs below its first parent."""

    depth: int = 0
    orders: tuple[StartRun, ...] = ()

    def view(self) -> Any:
        return replace(super().view(), depth=self.depth)

    def carry_out(self, key: str, work: Any) -> Any:
        self.orders += (work,)
        return super().carry_out(key, work)


def catching(run: Governed, *said: Any, depth: int = 0) -> Caught:
    caught = Caught(**vars(run))
    caught.said, caught.depth = [*said], depth
    return caught


def ordered(run: Caught) -> list[StartRun]:
    """The orders, each of the step as it is now."""
    return [replace(one, step=run.rows[one.step.key]) for one in run.orders]


def run_of(key: str) -> Any:
    return derived_id(RUN_ID, f"run:{key}")


@pytest.mark.req("X-13")
def test_an_order_to_start_a_run_holds_all_that_it_is_given() -> None:
    opened = {"shaped": sorted(marked(letter) for letter in "GEFABDC"), "channels": {"seen": [1]}}
    run = catching(held(text=HEIR, **opened), OtherRun("waiting")).drive()
    assert ordered(run) == [
        StartRun(
            run.rows["a"],
            run_of("a"),
            "other",
            7,
            {"who": "x"},
            waits=True,
            shaped=tuple(marked(letter) for letter in "ABCDEFG"),
            inherited={"seen": Inherited([1], Reducer.APPEND), "last": Inherited("none", Reducer.REPLACE)},
        )
    ]
    (wait,) = run.waits.values()
    child = str(run_of("a"))
    assert (wait.kind, wait.context, wait.correlation_key, wait.due_in) == (
        WaitKind.CHILD, {"run": child, "abandons": True}, child, timedelta(minutes=5),
    )  # fmt: skip


@pytest.mark.req("X-14")
def test_a_run_that_goes_on_elsewhere_waits_for_nothing() -> None:
    run = catching(held(text=GOES_ON), OtherRun("queued")).drive()
    assert ordered(run) == [StartRun(run.rows["a"], run_of("a"), "other", None, {"who": "x"}, waits=False)]
    assert (run.status, run.rows["a"].output, run.waits) == ("succeeded", {"run": str(run_of("a"))}, {})


@pytest.mark.req("P-14")
def test_a_run_within_is_told_where_its_input_and_its_copies_come_from_if_a_rule_asks() -> None:
    run = catching(held(text=HEIR).rule_by(TRACES), OtherRun("waiting")).drive()
    (order,) = run.orders
    assert order.origins == {
        "trigger": carried(((("who",), [["workflow"]]),)),
        "state.seen": [[[], [["workflow"]]]],
        "state.last": [[[], [["workflow"]]]],
    }
    assert run.waits["a"].context == {"run": str(run_of("a")), "abandons": True, "traced": True}


@pytest.mark.req("X-13")
@pytest.mark.parametrize(("depth", "started"), [(DEPTH_MAX - 1, 1), (DEPTH_MAX, 0), (DEPTH_MAX + 1, 0)])
@pytest.mark.parametrize("text", [CHILD, GOES_ON])
def test_runs_are_nested_so_deep_and_no_deeper(text: str, depth: int, started: int) -> None:
    run = catching(held(text=text), OtherRun("succeeded", {}), depth=depth).drive()
    assert len(run.orders) == started
    refused = expression("is within 10 other runs; no more are started", "other")
    assert error_of(run) == (None if started else refused)


@pytest.mark.req("X-18")
def test_a_step_that_begins_anew_starts_another_run() -> None:
    run = catching(held(text=CHILD), OtherRun(problem="There is no other."), OtherRun("succeeded", {"n": 1})).drive()
    told = {"class": "definition", "code": "not_started", "message": "There is no other."}
    assert (run.status, error_of(run)) == ("failed_terminal", told)
    again(run)
    run.drive()
    assert (run.status, run.rows["a"].output) == ("succeeded", {"n": 1})
    assert [one.run_id for one in run.orders] == [run_of("a"), derived_id(RUN_ID, "run:a#1")]


@pytest.mark.req("X-13")
@pytest.mark.parametrize(("text", "ends_it"), [(CHILD, True), (HEIR, False), (GOES_ON, False)])
def test_a_run_that_was_started_while_its_parent_was_canceled_is_ended_with_it(text: str, ends_it: bool) -> None:
    run = catching(held(text=text), OtherRun("waiting"))
    run.claim("a")
    work = run.move("a", lambda t, s: begin(t, s, run.workflow, run.policy, known_of(t.run, "a"), run.nonce))
    canceled(run)
    run.carry_out("a", work)
    ends = {"run": str(run_of("a"))}
    assert [one.payload for one in run.commands.values() if one.kind == "cancel"] == ([ends] if ends_it else [])
    assert (run.status, str(run.rows["a"].status)) == ("canceled", "canceled")


def within(message: str, code: str, kind: str = "consistency") -> Any:
    return {"error": {"class": kind, "code": code, "message": f"The run within: {message}"}}


@pytest.mark.req("P-8")
@pytest.mark.parametrize(
    ("other", "result"),
    [
        (OtherRun("succeeded", {"n": 1}), {"output": {"n": 1}}),
        (OtherRun("succeeded", error={"class": "timeout"}), {"output": None}),
        (OtherRun("canceled"), within("It was canceled.", "child_canceled")),
        (OtherRun("canceled", {"n": 1}), within("It was canceled.", "child_canceled")),
        (OtherRun("failed_terminal", {"n": 1}), within("It was canceled.", "child_failed_terminal")),
        (OtherRun("canceled", 1, {"class": "canceled", "message": "Enough."}), within("Enough.", "child_canceled")),
        (OtherRun("failed_terminal", error={"message": ""}), within("It was canceled.", "child_failed_terminal")),
        (
            OtherRun("failed_terminal", error={"class": "timeout", "code": "c", "message": "Late\x00."}),
            within("Late\N{REPLACEMENT CHARACTER}.", "child_failed_terminal", "timeout"),
        ),
    ],
)  # fmt: skip
def test_the_end_of_a_run_within_is_its_parents_result_or_error(other: OtherRun, result: Any) -> None:
    assert child_result(other) == result
    run = governed(CHILD, said=(other,)).drive()
    assert (run.rows["a"].output, error_of(run)) == (result.get("output"), result.get("error"))


@pytest.mark.parametrize(
    ("title", "description", "still"),
    [("Look at 1", "It is 1.", True), ("Look at 2", "It is 1.", False), ("Look at 1", "It is 2.", False)],
)
def test_a_task_asks_the_same_if_all_its_words_are_the_same(title: str, description: str, still: bool) -> None:
    text = HEAD.replace("steps:", "channels: {n: {initial: 1}}\nsteps:") + (
        "  - {id: a, task: {title: 'Look at ${{ state.n }}', description: 'It is ${{ state.n }}.',"
        " form: {type: object, properties: {x: {type: string}}}, assign: {group: owners}}}\n"
    )
    run = held(text=text).drive()
    context = {**(run.waits["a"].context or {}), "title": title, "description": description}
    wait = replace(run.waits["a"], context=context)
    transition = Transition(run.view(), run.workflow.graph)
    assert waits.still_asks(transition, run.rows["a"], wait) is still
    del transition.run.state.channels["n"]
    assert not waits.still_asks(transition, run.rows["a"], wait)


SEEN = 'set: {found: ["${{ signal.by }}", "${{ signal.kind }}", "${{ signal.payload }}", "${{ output }}"]}'


def writing(step: str) -> str:
    """A step that writes down what ended its wait."""
    return HEAD.replace("steps:", "channels: {found: {}}\nsteps:") + f"  - {{id: a, {step}, {SEEN}}}\n"


FORM = "form: {type: object, properties: {x: {type: string}}}"


@pytest.mark.req("P-5")
@pytest.mark.parametrize(
    ("step", "said", "actor", "by", "kind"),
    [
        (f"task: {{title: Look, {FORM}, assign: {{group: owners}}}}", None, ANN, "person:ann", "task"),
        ("wait: {signal: s, correlate: k}", None, Actor("token", "t"), "token:t", "signal"),
        ("do: probe.case.open, with: {name: x}", Parked("c"), Actor("connector", "p"), "connector:p", "external"),
        ("run: other, with: {who: x}", OtherRun("waiting"), Actor("run", "r"), "run:r", "child"),
        ("run: other, with: {who: x}", OtherRun("succeeded", {"x": "1"}), None, None, "child"),
        ("wait: {for: PT1H}", None, None, None, None),
    ],
)  # fmt: skip
def test_what_ended_a_wait_is_there_for_the_steps_expressions(
    step: str, said: Any, actor: Actor | None, by: str | None, kind: str | None
) -> None:
    run = governed(writing(step), said=(said,) if said else ()).drive()
    if actor is not None:
        run.over("a", lambda t, s, wait: waits.complete(t, s, wait, {"output": {"x": "1"}}, actor)).drive()
    elif kind is None:
        run.over("a", lambda t, s, wait: waits.complete(t, s, wait, {}, Actor("engine", "e"))).drive()
        by, kind = "engine:e", "timer"
    output = None if kind == "timer" else {"x": "1"}
    assert (run.status, run.state.channels["found"]) == ("succeeded", [by, kind, output, output])
