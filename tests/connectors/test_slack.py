from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Call, Done, InDoubt, NotSent, ProbeVerdict, Refused
from connectors.slack.connector import SlackConnector, SlackSettings

POST = "slack.message.post"
MESSAGE = {"channel": "C0OPS", "text": "hello"}
MakeCall = Callable[..., Call]
Build = Callable[..., SlackConnector]


@pytest.fixture
def build(closing: Callable[[Any], Any], slack: Any) -> Build:
    def make(token: str = "xoxb-test", url: str | None = None) -> SlackConnector:
        connector: SlackConnector = closing(SlackConnector(SlackSettings(token, f"{url or slack.url}/api/")))
        return connector

    return make


async def test_a_message_is_posted_with_an_opaque_key(build: Build, make_call: MakeCall, slack: Any) -> None:
    outcome = await build().perform(make_call(POST, MESSAGE | {"thread_ts": "1.2"}))
    assert outcome == Done({"channel": "C0OPS", "ts": "9999999900.000100"}, "9999999900.000100")
    [message] = slack.messages
    assert (message["text"], message["thread_ts"]) == ("hello", "1.2")
    assert message["metadata"] == {
        "event_type": "counterseal_action",
        "event_payload": {"key": "0123456789abcdeffedcba9876543210"},
    }


async def test_all_that_was_judged_of_a_message_is_sent(build: Build, make_call: MakeCall, slack: Any) -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "*hello*"}}]
    given = MESSAGE | {"thread_ts": "1.2", "blocks": blocks}
    assert isinstance(await build().perform(make_call(POST, given)), Done)
    [message] = slack.messages
    assert {name: message.get(name) for name in ("text", "thread_ts", "blocks")} | {"channel": "C0OPS"} == given


@pytest.mark.req("Q-18")
async def test_slack_refuses_in_its_own_words(build: Build, make_call: MakeCall, slack: Any) -> None:
    outcome = await build().perform(make_call(POST, MESSAGE | {"channel": "C0NONE"}))
    assert outcome == Refused("channel_not_found", "Slack refused: channel_not_found")
    assert (await build("xoxb-wrong").perform(make_call(POST, MESSAGE))) == Refused(
        "invalid_auth", "Slack refused: invalid_auth"
    )
    slack.error = "invalid_blocks"
    outcome = await build().perform(make_call(POST, MESSAGE))
    assert outcome == Refused("invalid_blocks", "Slack refused: invalid_blocks; [ERROR] x")


@pytest.mark.req("Q-18")
async def test_a_rate_limit_was_not_sent(build: Build, make_call: MakeCall, slack: Any) -> None:
    slack.app.fail("postMessage", 429, Retry_After="30")
    outcome = await build().perform(make_call(POST, MESSAGE))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_seconds == 30
    slack.error = "ratelimited"
    assert isinstance(await build().perform(make_call(POST, MESSAGE)), NotSent)


@pytest.mark.req("Q-18")
async def test_refused_connections_were_not_sent(build: Build, make_call: MakeCall, closed_url: str) -> None:
    assert isinstance(await build(url=closed_url).perform(make_call(POST, MESSAGE)), NotSent)


@pytest.mark.req("Q-18")
@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("kind", [408, 500, 503, 200, "hang", "reset"])
async def test_what_ends_badly_is_posted_once_and_probed(
    build: Build, make_call: MakeCall, slack: Any, kind: Any, landed: bool
) -> None:
    slack.app.fail("postMessage", kind, landed=landed)
    connector, call = build(), make_call(POST, MESSAGE, timeout=0.3 if kind == "hang" else 5.0)
    assert isinstance(await connector.perform(call), InDoubt)
    assert len(slack.messages) == landed
    assert sum(path.endswith("postMessage") for _, path in slack.app.requests) == 1
    probe = await connector.probe(replace(call, timeout_seconds=5.0), seconds_since_intent=20)
    assert probe.verdict is (ProbeVerdict.APPLIED if landed else ProbeVerdict.NOT_APPLIED)
    assert (probe.done is not None) is landed


@pytest.mark.parametrize("error", ["fatal_error", "internal_error"])
async def test_errors_after_which_slack_itself_is_unsure(
    build: Build, make_call: MakeCall, slack: Any, error: str
) -> None:
    slack.error = error
    assert isinstance(await build().perform(make_call(POST, MESSAGE)), InDoubt)


async def test_probe_gives_the_message_time_to_arrive(build: Build, make_call: MakeCall) -> None:
    probe = await build().probe(make_call(POST, MESSAGE), seconds_since_intent=5)
    assert probe.verdict is ProbeVerdict.CANNOT_TELL
    assert probe.retry_after_seconds == pytest.approx(11)


async def test_probe_looks_in_the_thread_and_through_pages(build: Build, make_call: MakeCall, slack: Any) -> None:
    connector, call = build(), make_call(POST, MESSAGE | {"thread_ts": "1.2"})
    slack.page_size = 1
    slack.post({"text": "another", "thread_ts": "1.2"})
    slack.post({"text": "not ours", "thread_ts": "1.2", "metadata": {"event_type": "other", "event_payload": {}}})
    await connector.perform(call)
    assert (await connector.probe(call, seconds_since_intent=0)).verdict is ProbeVerdict.APPLIED
    in_channel = await connector.probe(make_call(POST, MESSAGE), seconds_since_intent=60)
    assert in_channel.verdict is ProbeVerdict.NOT_APPLIED


async def test_probe_stops_at_messages_older_than_the_intent(build: Build, make_call: MakeCall, slack: Any) -> None:
    slack.page_size = 1
    for number in range(30):
        slack.post({"text": "long ago"}, ts=f"10000000{number:02}.000100")
    probe = await build().probe(make_call(POST, MESSAGE), seconds_since_intent=60)
    assert probe.verdict is ProbeVerdict.NOT_APPLIED
    assert sum(path.endswith("history") for _, path in slack.app.requests) == 1


@pytest.mark.parametrize(("early", "found"), [(60, True), (110, True), (130, False)])
async def test_probe_looks_two_minutes_behind_the_intent_for_clocks_that_differ(
    build: Build, make_call: MakeCall, slack: Any, early: int, found: bool
) -> None:
    connector, call, intent = build(), make_call(POST, MESSAGE), time.time() - 60
    await connector.perform(call)
    [ours] = slack.messages
    ours["ts"] = f"{intent - early:.6f}"
    for older in (1, 0):  # the newer of them are looked at first
        slack.post({"text": "another"}, ts=f"{intent - early + 1 - older:.6f}")
    slack.page_size = 1
    verdict = (await connector.probe(call, seconds_since_intent=60)).verdict
    assert verdict is (ProbeVerdict.APPLIED if found else ProbeVerdict.NOT_APPLIED)


async def test_probe_admits_that_a_channel_is_too_busy(build: Build, make_call: MakeCall, slack: Any) -> None:
    slack.page_size = 1
    for _ in range(30):
        slack.post({"text": "busy"})
    probe = await build().probe(make_call(POST, MESSAGE), seconds_since_intent=60)
    assert probe.verdict is ProbeVerdict.CANNOT_TELL


async def test_a_probe_that_cannot_read_says_so(build: Build, make_call: MakeCall, slack: Any) -> None:
    slack.app.fail("history", 429, Retry_After="7")
    probe = await build().probe(make_call(POST, MESSAGE), seconds_since_intent=60)
    assert (probe.verdict, probe.retry_after_seconds) == (ProbeVerdict.CANNOT_TELL, 7)
    slack.error = "missing_scope"
    probe = await build().probe(make_call(POST, MESSAGE), seconds_since_intent=60)
    assert (probe.verdict, probe.retry_after_seconds) == (ProbeVerdict.CANNOT_TELL, None)


async def test_check(build: Build, closed_url: str) -> None:
    assert await build().check() == (True, "authorised as counterseal in Acme")
    assert await build("xoxb-wrong").check() == (False, "Slack refused: invalid_auth")
    assert (await build(url=closed_url).check())[0] is False
    assert isinstance(await build().read_before(Call(POST, {}, "k", 1.0)), Refused)
