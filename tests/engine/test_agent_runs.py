"""An agent from its first turn to its end, in memory: what it calls, what it is told, where it stops (P-14)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from connectors.port import InDoubt, NotSent, Refused, Usage
from runtime.engine.book.instructions import OtherRun
from tests.engine.agents import Piloted, piloted
from tests.support.agents import agent, call, calls, says
from tests.support.engine_agent_runs import APPLY, ASK, BOTH, LOOP, ONE, READ, SHAPE, WITHIN

pytestmark = pytest.mark.req("P-14")
DENY = ASK.replace("needs_approval", "deny").replace("    approvers: [{group: owners}]\n", "")


def told(run: Piloted) -> dict[str, Any]:
    """The end of each call, as the model was last told."""
    return {name: json.loads(said).get("status", "done") for name, said in run.results().items()}


def answers(run: Piloted) -> list[tuple[str, list[str]]]:
    """Each answer with the codes of its calls, as public lines have them."""
    return [(each["came"], [code for _, code in each["calls"]]) for each in run.said_of("agent.answered")]


def ended(run: Piloted) -> tuple[str, str, int]:
    """The class and the code with which the agent failed its run, and the number of its turns."""
    run.settled("failed_terminal")
    error = run.rows["triage"].last_error
    assert error is not None
    return str(error["class"]), str(error["code"]), len(run.seen)


def test_an_agent_calls_and_answers() -> None:
    run = piloted(agent(), calls(call(READ, {"name": "a"}), call(APPLY, {"name": "b", "value": "1"})), says("Done."))
    run.settled()
    assert run.statuses() == dict.fromkeys(["triage", "triage/1", "triage/1/1", "triage/1/2", "triage/2"], "succeeded")
    assert run.state.channels == {"found": {"text": "Done."}}
    assert run.effects == [("probe.effect.apply", {"name": "b", "value": "1"})]
    assert [[message["role"] for message in each] for each in run.seen] == [
        ["system", "user"],
        ["system", "user", "assistant", "tool", "tool"],
    ]
    assert run.seen[0] == [
        {"role": "system", "content": "You triage. Say what you changed."},
        {"role": "user", "content": "help"},
    ]
    assert [tool["function"]["name"] for tool in run.messages[0]["tools"]] == [
        READ,
        APPLY,
        "probe_mail_send",
        "ask_desk",
    ]
    assert run.messages[0]["model"] == "script-given"
    assert run.state.agents == {}, "nothing of it is left"


def test_a_story_tells_each_call_and_what_came_of_it() -> None:
    run = piloted(
        agent(), calls(call(READ, {"name": "a"}, "r"), call("no_such", {}, "n")), ONE, says("Bye."), policy=ASK
    )
    (open_,) = run.stories()
    assert open_["turns"][1]["calls"][0]["came"] == "open"
    run.reject("triage/2/1").settled()
    (story,) = run.stories()
    turns = story.pop("turns")
    assert story == {
        "step_key": "triage",
        "model": "script-given",
        "tools": ["probe.value.read", "probe.effect.apply", "probe.mail.send", "ask_desk"],
        "status": "succeeded",
        "limit": "",
        "calls": 3,
        "refusals": 1,
        "tokens": 30,
        "cost_usd": "0.03",
    }
    assert [(turn["turn"], turn["step_key"], turn["status"], turn["came"], turn["tokens"]) for turn in turns] == [
        (1, "triage/1", "succeeded", "calls", 10),
        (2, "triage/2", "succeeded", "calls", 10),
        (3, "triage/3", "succeeded", "answer", 10),
    ]
    assert [(turn["reason"], turn["says"], turn["result"]) for turn in turns] == [
        ("", "", None),
        ("", "", None),
        ("", "Bye.", {"text": "Bye."}),
    ]
    shown = [
        tuple(one[name] for name in ("step_key", "tool", "source", "asked", "came", "status"))
        for turn in turns
        for one in turn["calls"]
    ]
    assert shown == [
        ("triage/1/1", READ, "probe.value.read", '{"name": "a"}', "done", "succeeded"),
        ("triage/1/2", "no_such", "?", "{}", "refused", ""),
        ("triage/2/1", APPLY, "probe.effect.apply", '{"name": "a", "value": "1"}', "rejected", "failed_terminal"),
    ]
    reasons = [(one["reason"], one["by"]) for turn in turns for one in turn["calls"]]
    assert reasons[:2] == [("", ""), ("There is no such tool.", "")]
    assert reasons[2] == ("Not now.", "ana")


def test_a_story_of_a_turn_that_failed_says_why() -> None:
    run = piloted(agent(), Refused("bad_request", "No such model.", usage=Usage("p", "m", 2, 1, None)))
    assert ended(run) == ("transport", "bad_request", 1)
    (story,) = run.stories()
    (turn,) = story["turns"]
    assert (turn["came"], turn["reason"], turn["status"], turn["calls"]) == (
        "failed",
        "No such model.",
        "failed_terminal",
        [],
    )
    assert (story["cost_usd"], story["tokens"]) == (None, 3), "a price that is not known is none"


def test_a_run_without_agents_has_no_story() -> None:
    text = "workflow: w\nversion: 1\nsteps: [{id: a, do: probe.value.read, with: {name: x}}]\n"
    assert piloted(text).settled().stories() == []


@pytest.mark.parametrize("policy", [ASK, DENY])
def test_a_call_that_was_not_let_out_is_told_and_never_asked_about_again(policy: str) -> None:
    run = piloted(agent(), ONE, ONE, says("I give up."), policy=policy)
    if policy == ASK:
        assert run.status == "waiting_approval"
        run.reject("triage/1/1")
    run.settled()
    assert run.effects == []
    assert answers(run) == [("calls", [""]), ("calls", ["asked_before"]), ("answer", [])]
    assert len(run.said_of("approval.requested")) == (policy == ASK)
    first, second = [json.loads(one["content"]) for one in run.seen[2] if one["role"] == "tool"]
    assert first["status"] == ("rejected" if policy == ASK else "denied")
    assert first["reason"] == ("Not now." if policy == ASK else "People look at effects.")
    assert second == {
        "status": "refused",
        "what": "The call was refused. Nothing was done.",
        "reason": "The same call was denied, rejected or left unanswered before.",
    }


def test_the_same_call_twice_in_a_turn_is_asked_about_once() -> None:
    """The second waits for the first; what was rejected meanwhile is not asked about again."""
    twice = calls(call(APPLY, {"name": "a"}, "one"), call(APPLY, {"name": "a"}, "two"), call(READ, {"name": "b"}, "r"))
    run = piloted(agent(), twice, says("Done."), policy=ASK)
    assert "triage/1/2" not in run.rows
    assert run.rows["triage/1/3"].status == "succeeded"
    run.reject("triage/1/1").settled()
    assert told(run) == {"one": "rejected", "two": "refused", "r": "done"}
    assert len(run.said_of("approval.requested")) == 1
    (story,) = run.stories()
    came = [(one["came"], one["status"]) for one in story["turns"][0]["calls"]]
    assert came == [("rejected", "failed_terminal"), ("refused", ""), ("done", "succeeded")]
    assert story["refusals"] == 1
    assert "nobody is asked again" in story["turns"][0]["calls"][1]["reason"]


def test_the_same_call_twice_is_made_twice_where_it_is_allowed() -> None:
    twice = calls(call(APPLY, {"name": "a"}, "one"), call(APPLY, {"name": "a"}, "two"))
    run = piloted(agent(), twice, says("Done.")).settled()
    assert len(run.effects) == 2
    assert [run.rows[key].superstep for key in ("triage/1/1", "triage/1/2")] == [2, 3]


def test_calls_on_one_target_keep_their_order() -> None:
    made = [call(APPLY, {"name": "a", "value": str(number)}, str(number)) for number in range(3)]
    run = piloted(agent(), calls(*made, call(APPLY, {"name": "b"}, "b"), call("ask_desk", {"question": "?"}, "q")))
    steps = {key: row.superstep for key, row in run.rows.items()}
    assert steps["triage/1/1"] == steps["triage/1/4"] == steps["triage/1/5"] < steps["triage/1/2"]
    assert [given["value"] for _, given in run.effects if given["name"] == "a"][:2] == ["0", "1"]


def test_approvals_of_one_turn_are_each_waited_for() -> None:
    made = [call(APPLY, {"name": name}, name) for name in ("a", "b")]
    run = piloted(agent(), calls(*made), says("One of them."), policy=ASK)
    run.answer("ana", key="triage/1/1")
    run.go_on()
    assert (run.status, len(run.seen), len(run.effects)) == ("waiting_approval", 1, 1)
    run.reject("triage/1/2").settled()
    assert (told(run), len(run.seen)) == ({"a": "done", "b": "rejected"}, 2)


@pytest.mark.parametrize(
    ("made", "code", "reason"),
    [
        (call("probe.effect.apply", {"name": "a"}, "x"), "unknown_tool", "There is no such tool."),
        (call(APPLY, "{", "x"), "arguments", "arguments"),
        (call(APPLY, {"value": "1"}, "x"), "arguments", "name"),
        (call(APPLY, {"name": "a", "other": "1"}, "x"), "arguments", "other"),
        (call(APPLY, {"name": "a\u0000"}, "x"), "arguments", "U+0000"),
    ],
)
def test_what_cannot_be_read_is_refused_and_nobody_judges_it(made: Any, code: str, reason: str) -> None:
    run = piloted(agent(), calls(made), says("Done.")).settled()
    assert (answers(run)[0], run.effects) == (("calls", [code]), [])
    assert "triage/1/1" not in run.rows
    assert reason in json.loads(run.results()["x"])["reason"]


def test_what_is_fixed_is_not_the_models() -> None:
    fixed = '        - {do: probe.effect.apply, with: {name: "${{ trigger.text }}"}}\n'
    text = agent().replace("        - probe.effect.apply\n", fixed)
    run = piloted(text, calls(call(APPLY, {"value": "1"}, "one"), call(APPLY, {"name": "theirs"}, "two")), says("."))
    run.settled()
    assert run.effects == [("probe.effect.apply", {"name": "help", "value": "1"})]
    assert told(run) == {"one": "done", "two": "refused"}
    offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in run.messages[0]["tools"]}
    assert "name" not in offered[APPLY]["properties"]


# -- limits ----------------------------------------------------------------------------------------------------------


def reads(*names: str) -> dict[str, Any]:
    return calls(*(call(READ, {"name": name}, name) for name in names))


@pytest.mark.parametrize(
    ("limits", "turns", "reached"),
    [
        ("turns: 1", 2, "turns"),
        ("turns: 2", 3, "turns"),
        ("calls: 2", 2, "calls"),
        ("calls: 3", 3, "calls"),
        ("tokens: 10", 2, "tokens"),
        ("tokens: 11", 3, "tokens"),
        ("turns: 9, calls: 99, tokens: 9999", 5, ""),
    ],
)
@pytest.mark.parametrize("on_limit", ["conclude", "fail"])
def test_a_limit_ends_an_agent(limits: str, turns: int, reached: str, on_limit: str) -> None:
    """An agent is told to conclude without tools, or fails at once."""
    made = [reads(f"{turn}x", f"{turn}y") for turn in range(4)]
    script = made[: turns - 1] if reached else made
    run = piloted(agent(more=f"limits: {{{limits}}}\non_limit: {on_limit}"), *script, says("So."))
    if reached and on_limit == "fail":
        assert ended(run) == ("definition", "agent_limit", turns - 1)
        assert run.error or f"limit of {reached}." in str(run.rows["triage"].last_error)
        return
    run.settled()
    assert (len(run.seen), "tools" in run.messages[-1]) == (turns, not reached)
    found: Any = run.state.channels["found"]
    assert found == ({"text": "So.", "limit": reached} if reached else {"text": "So."})
    last = run.seen[-1][-1]
    concluding = f"You have come to the limit of {reached}. Call no more tools: answer now, with what you know."
    assert (last == {"role": "user", "content": concluding}) == bool(reached)
    assert [story["limit"] for story in run.stories()] == [reached]


def test_an_agent_that_does_not_conclude_fails() -> None:
    run = piloted(agent(more="limits: {turns: 1}"), reads("a"), reads("b"))
    assert ended(run) == ("definition", "agent_limit", 2)
    assert answers(run) == [("calls", [""]), ("calls", ["limit"])]
    assert "did not conclude" in str(run.rows["triage"].last_error)


def test_calls_beyond_the_limit_are_refused() -> None:
    run = piloted(agent(more="limits: {calls: 2}"), reads("a", "b", "c"), says("So.")).settled()
    assert answers(run)[0] == ("calls", ["", "", "limit"])
    assert told(run) == {"a": "done", "b": "done", "c": "refused"}
    assert json.loads(run.results()["c"])["reason"] == "At most 2 calls are made."


def test_people_are_asked_so_often() -> None:
    def ask(name: str) -> dict[str, Any]:
        return call("ask_desk", {"question": name}, name)

    run = piloted(agent(more="limits: {asks: 2}"), calls(ask("a"), ask("b"), ask("c")), calls(ask("d")), says("So."))
    assert run.status == "waiting"
    run.complete("triage/1/1", {"answer": "1"}).complete("triage/1/2", {"answer": "2"}).settled()
    assert answers(run)[:2] == [("calls", ["", "", "limit"]), ("calls", ["limit"])]
    assert told(run) == {"a": "done", "b": "done", "c": "refused", "d": "refused"}
    assert "People are asked at most 2 times." in run.results()["d"]


def test_refusals_are_counted_over_turns() -> None:
    bad = calls(call("none", {}, "1"), call("none", {}, "2"))
    run = piloted(agent(more="limits: {refusals: 3}"), bad, bad, says("So.")).settled()
    assert (len(run.seen), run.state.channels["found"]) == (3, {"text": "So.", "limit": "refusals"})


@pytest.mark.parametrize(("cost", "turns"), [("0.01", 2), ("0.011", 3), ("0.02", 3), ("0.03", 4), ("9", 4)])
def test_cost_is_limited(cost: str, turns: int) -> None:
    text = agent("gpt-5-mini", f'limits: {{cost: "{cost}"}}')
    run = piloted(text, *[reads(str(turn)) for turn in range(min(turns - 1, 3))], says("So.")).settled()
    assert len(run.seen) == turns
    assert run.state.channels["found"] == ({"text": "So."} if cost == "9" else {"text": "So.", "limit": "cost"})


def test_what_has_no_price_is_at_the_limit_of_cost() -> None:
    text = agent("gpt-5-mini", 'limits: {cost: "9"}')
    run = piloted(text, reads("a"), says("So."), used=Usage("p", "m", 1, 1, None)).settled()
    assert run.state.channels["found"] == {"text": "So.", "limit": "cost"}


def test_a_turn_that_is_tried_again_has_used_what_it_used() -> None:
    spent = NotSent("away", usage=Usage("p", "m", 5, 5, "0.01"))
    run = piloted(agent(more="limits: {tokens: 20}"), spent, reads("a"), says("So."))
    assert (run.status, run.rows["triage/1"].status) == ("waiting", "failed_retryable")
    run.due("triage/1")
    run.go_on().settled()
    assert run.state.channels["found"] == {"text": "So.", "limit": "tokens"}
    assert run.stories()[0]["tokens"] == 30


# -- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['{"n": 1}', ' {"n": 1}\n', '```json\n{"n": 1}\n```', '```\n{"n": 1}```'])
def test_an_answer_that_fits_is_the_result(text: str) -> None:
    run = piloted(agent(more=SHAPE), says(text)).settled()
    assert run.state.channels["found"] == {"n": 1}
    assert answers(run) == [("answer", [])]
    assert '"required":["n"]' in run.seen[0][0]["content"]
    assert run.seen[0][0]["content"].startswith("You triage. Say what you changed.\n\nYour last answer is")


@pytest.mark.parametrize(
    "text", ["", "one", '{"n": "1"}', '{"n": 1, "m": 2}', '{"n": 1, "n": 2}', '```{"n": 1}```', '```\n{"n": 1}']
)
def test_an_answer_that_does_not_fit_is_asked_for_again(text: str) -> None:
    run = piloted(agent(more=SHAPE), says(text), says(text), says('{"n": 2}')).settled()
    assert [came for came, _ in answers(run)] == ["misfit", "misfit", "answer"]
    assert run.state.channels["found"] == {"n": 2}
    last = run.seen[-1]
    assert [one["role"] for one in last] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert last[3]["content"].startswith("Your answer is not the result that is wanted. ")
    assert last[3]["content"].endswith(" Answer again, with nothing but the JSON.")
    (story,) = run.stories()
    assert [turn["came"] for turn in story["turns"]] == ["misfit", "misfit", "answer"]
    assert story["turns"][0]["reason"]
    assert [turn["result"] for turn in story["turns"]] == [None, None, {"n": 2}]


def test_a_careless_model_fails_in_bounded_turns() -> None:
    run = piloted(agent(more=SHAPE), *[says("?")] * 4)
    assert ended(run) == ("transport", "agent_result", 3)
    assert "told what is wrong 2 times" in str(run.rows["triage"].last_error)


def test_repairs_at_a_limit_stay_concluding() -> None:
    run = piloted(agent(more=f"{SHAPE}\nlimits: {{turns: 1}}"), reads("a"), says("?"), says('{"n": 3}')).settled()
    assert run.state.channels["found"] == {"n": 3}
    assert ["tools" in each for each in run.messages] == [True, False, False]
    assert "limit of turns" in run.seen[2][-1]["content"]


def test_secrets_of_results_are_not_shown_and_answers_of_people_are() -> None:
    run = piloted(agent(), calls(call("ask_desk", {"question": "Who?"}, "q")), says("Ok."))
    assert run.status == "waiting"
    assert run.said_of("step.parked")[-1]["kind"] == "task"
    context: Any = run.waits_for("triage/1/1").context
    assert (context["group"], context["fields"]) == ("desk", ["answer"])
    assert "A model asks: Who?" in f"{context['title']} {context['description']}"
    run.complete("triage/1/1", {"answer": "Ada"}).settled()
    assert json.loads(run.results()["q"]) == {"answer": "Ada"}


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_denied_call_may_fail_the_agent() -> None:
    run = piloted(agent(more="on_denied: fail"), ONE, policy=DENY)
    assert ended(run) == ("authorization", "agent_denied", 1)
    run = piloted(agent(more="on_denied: fail"), ONE, policy=ASK)
    run.reject("triage/1/1")
    assert ended(run) == ("authorization", "agent_denied", 1)
    assert piloted(agent(more="on_denied: fail"), calls(call("none", {}, "x")), says("So.")).settled().effects == []


def test_a_timeout_cancels_what_waits() -> None:
    run = piloted(agent(beside="timeout: P1D"), BOTH, policy=ASK)
    run.runs_out("triage")
    run.settled("failed_terminal")
    assert run.statuses() == {
        "triage": "failed_terminal",
        "triage/1": "succeeded",
        "triage/1/1": "canceled",
        "triage/1/2": "canceled",
    }
    assert (run.rows["triage"].last_error or {})["code"] == "timed_out"
    assert [each["outcome"] for each in run.said_of("approval.decided")] == ["canceled"]


HANDLED = "timeout: P1D\non_timeout:\n  - {id: instead, do: probe.value.read, with: {name: instead}}"


def test_a_timeout_that_is_handled_leaves_no_question_and_no_task() -> None:
    run = piloted(agent(beside=HANDLED), BOTH, policy=ASK)
    run.runs_out("triage")
    run.settled()
    assert (run.rows["triage/1/1"].status, run.rows["triage/1/2"].status) == ("canceled", "canceled")
    assert [each["outcome"] for each in run.said_of("approval.decided")] == ["canceled"]
    assert [each["kind"] for each in run.said_of("wait.canceled")] == ["approval", "task"] or run.said_of(
        "wait.canceled"
    )
    assert {command.kind for command in run.commands.values()} >= {"card", "task"}


def test_an_answer_that_comes_after_the_end_is_no_turn() -> None:
    """A call that runs at the timeout settles; no turn follows it."""
    run = piloted(
        agent(beside=HANDLED), calls(call("ask_desk", {"question": "?"}, "q"), call(READ, {"name": "r"}, "r"))
    )
    run.runs_out("triage")
    run.settled()
    assert (len(run.seen), run.rows["triage/1/1"].status, run.rows["triage/1/2"].status) == (1, "canceled", "succeeded")


def test_a_doubt_outlives_its_agent() -> None:
    made = calls(call("probe_mail_send", {"text": "mail"}, "one"), call("ask_desk", {"question": "?"}, "two"))

    def outside(operation: str, given: Any) -> Any:
        return InDoubt("The line broke.") if operation == "probe.mail.send" else Refused("x", "no")

    run = piloted(agent(beside="timeout: P1D\non_timeout:\n  - {id: i, set: {found: 1}}"), made, outside=outside)
    run.runs_out("triage")
    assert run.status not in ("succeeded", "failed_terminal"), "the doubt is open"
    assert run.rows["triage/1/2"].status == "canceled"
    assert run.rows["triage/1/1"].status != "canceled"


def test_a_doubt_is_settled_before_the_model_is_told() -> None:
    run = piloted(
        agent(),
        calls(call("probe_mail_send", {"text": "mail"}, "one")),
        says("Done."),
        policy=ASK,
        outside=lambda operation, given: InDoubt("The line broke."),
    )
    run.answer("ana", key="triage/1/1")
    run.go_on()
    assert len(run.seen) == 1
    run.later += timedelta(hours=1)
    run.due("triage/1/1")
    run.go_on()
    assert (run.status, len(run.seen)) == ("waiting_approval", 1)
    run.answer("ana", choice="happened", key="triage/1/1")
    run.go_on().settled()
    assert told(run) == {"one": "done"}


def test_a_failed_call_is_told_and_may_be_tried_again() -> None:
    said = [Refused("not_found", "There is no a.")]
    run = piloted(
        agent(),
        ONE,
        calls(call(APPLY, {"name": "a", "value": "1"}, "two")),
        says("Done."),
        outside=lambda operation, given: said.pop() if said else Refused("x", "Still not."),
    ).settled()
    assert told(run) == {"one": "failed", "two": "failed"}
    assert json.loads(run.results()["one"]) == {
        "status": "failed",
        "what": "The call failed.",
        "reason": "There is no a.",
    }


@pytest.mark.parametrize(("tokens", "limit"), [(41, "tokens"), (42, "")])
def test_what_a_run_within_has_used_counts(tokens: int, limit: str) -> None:
    text = WITHIN.replace("      tools:", f"      limits: {{tokens: {tokens}}}\n      tools:")
    usage = [{"input_tokens": 10, "output_tokens": 5, "cost_usd": "0.01"}, {"input_tokens": 9, "output_tokens": 7}]
    other = OtherRun("succeeded", {"who": "ada"}, used={"calls": 3, "usage": usage})
    run = piloted(text, calls(call("check_1", {}, "one")), says("Done."), said_within=[other]).settled()
    found = {"text": "Done.", "limit": limit} if limit else {"text": "Done."}
    assert run.state.channels["found"] == found
    assert json.loads(run.results()["one"]) == {"who": "ada"}


def test_calls_of_a_run_within_count() -> None:
    text = WITHIN.replace("      tools:", "      limits: {calls: 4}\n      tools:")
    other = OtherRun("succeeded", {}, used={"calls": 3, "usage": []})
    run = piloted(text, calls(call("check_1", {}, "one")), says("Done."), said_within=[other]).settled()
    assert run.state.channels["found"] == {"text": "Done.", "limit": "calls"}


def test_a_run_within_that_is_waited_for_ends_with_its_agent() -> None:
    text = WITHIN.replace(
        "    set: {found", "    timeout: P1D\n    on_timeout: [{id: i, set: {found: 1}}]\n    set: {found"
    )
    run = piloted(text, calls(call("check_1", {}, "one")), said_within=[OtherRun("waiting")])
    assert run.status == "waiting"
    run.runs_out("triage").settled()
    assert run.rows["triage/1/1"].status == "canceled"
    assert "cancel" in {command.kind for command in run.commands.values()}


def test_a_run_within_that_fails_is_told() -> None:
    other = OtherRun("failed_terminal", error={"class": "transport", "message": "no"})
    run = piloted(WITHIN, calls(call("check_1", {}, "one")), says("Done."), said_within=[other]).settled()
    assert told(run) == {"one": "failed"}


def test_agents_of_a_loop_know_nothing_of_each_other() -> None:
    turns = [says("Done."), reads("a"), says("Late."), reads("b"), reads("c")]
    run = piloted(LOOP, *turns, trigger={"names": ["x", "y", "z"]}).settled()
    found: Any = run.state.channels["found"]
    assert sorted(found) == ["Done.", "Late.", "agent_limit"]
    assert {each[1]["content"] for each in run.seen} == {"x", "y", "z"}
