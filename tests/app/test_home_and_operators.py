"""Slack's Home shows what waits for whoever opens it; operators go on with a failed run from its message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.port import Refused
from sandbox.slack_interact import Interactivity
from sandbox.slack_state import User
from tests.support.app_stage import PEOPLE

pytestmark = pytest.mark.req("Q-20")

DIRECTORY = PEOPLE.replace("name: Tess,", "name: Tess, slack: U0WHO,") + "  operators: [eve]\n"


@pytest.fixture
async def people(serve: Any, settings: Any, slack_world: Any) -> Any:
    """An installation with operators, and the people of its Slack, who click and open the app's Home."""
    made = await serve(settings.model_copy(update={"slack_channel": "C0INC"}))
    await made.publish()
    await made.people(DIRECTORY)
    for channel in slack_world.state.channels.values():
        channel.messages.clear()
    where = {"url": f"{made.url}/slack/events", "signing_secret": settings.slack_signing_secret.get_secret_value()}
    clicks = Interactivity(slack_world.state, base_url=lambda: f"{slack_world.url}/", **where)
    yield made, clicks
    await clicks.close()


async def home(clicks: Any, user: str) -> str:
    assert (await clicks.open_home(user)).ok
    return json.dumps(clicks.state.homes[user]["blocks"])


async def test_the_home_shows_what_waits_for_its_person_and_their_requests(people: Any) -> None:
    made, clicks = people
    _, question, nonce = await made.asked()
    (card,) = clicks.state.messages("C0INC")
    for_ann, for_eve, for_tess = [await home(clicks, user) for user in ("U0ANN", "U0EVE", "U0WHO")]
    assert "1 question waits for you" in for_ann
    assert "Endanger INC1" in for_ann
    assert f"archives/C0INC/p{card.ts.replace('.', '')}" in for_ann
    assert ("Nothing waits for you" in for_eve, "Endanger" in for_eve) == (True, False)
    assert "*Waiting for people:* asking for INC1" in for_tess
    await made.slack(made.click(question, nonce))
    await made.work()
    assert "Nothing waits for you" in await home(clicks, "U0ANN")
    assert "*Done:* asking for INC1" in await home(clicks, "U0WHO")


@pytest.mark.parametrize("flags", [(), ("is_restricted",), ("is_bot",), ("deleted",)])
async def test_who_is_nobody_here_sees_nothing(people: Any, flags: tuple[str, ...]) -> None:
    made, clicks = people
    await made.asked()
    account = f"U0ZED{''.join(flags).upper().replace('_', '')}"
    clicks.state.users[account] = User(account, "zed", "Zed", "#000000", flags=flags)
    shown = await home(clicks, account)
    assert "Endanger" not in shown
    assert ("Only full members" in shown) if flags else ("not in the directory" in shown)


@pytest.mark.parametrize(("user", "may"), [("U0EVE", True), ("U0ANN", False), ("U0NOBODY", False)])
async def test_only_operators_go_on_with_a_failed_run(people: Any, user: str, may: bool) -> None:
    made, clicks = people
    made.outside.script["INC1"] = [Refused("shut", "it is shut")]
    run_id = await made.parked("simple")
    await made.app.dispatcher().work_off()
    (message,) = clicks.state.direct("U0EVE").messages
    assert "it is shut" in str(message.blocks)
    clicks.state.stacks.pop(user, None)
    shown = message
    if user != "U0EVE":  # whoever forges a click on a message that is not theirs
        shown = clicks.state.post(type(message)("C0INC", clicks.state.next_ts(), "U0BOT", "", message.blocks))
    assert (await clicks.click(shown.channel, shown.ts, "counterseal.run.retry", user)).ok
    window = clicks.state.top_view(user)
    if may:
        assert (await clicks.submit_view(window.view_id, user, {"reason": "It is open now."})).ok
        window = clicks.state.top_view(user)
    await made.work()
    assert await made.status(run_id) == ("succeeded" if may else "failed_terminal")
    assert ("begin anew" in str(window.body)) is may


async def test_whoever_asked_in_vain_asks_again_in_home(people: Any) -> None:
    made, clicks = people
    run_id, question, _ = await made.asked()
    await made.trouble.make_waits_due(run=run_id)
    await made.app.sweeper().sweep()
    await made.work()
    assert "*Expired:* asking for INC1" in await home(clicks, "U0WHO")
    clicks.state.homes["U0ANN"] = clicks.state.homes["U0WHO"]  # whoever sees their Home over their shoulder
    for user, said in (("U0ANN", "Only Tess, who asked for this"), ("U0WHO", "It is asked again")):
        assert (await clicks.click_home("counterseal.home.ask_again", user)).ok
        assert said in str(clicks.state.top_view(user).body)
    await made.work()
    (again,) = await made.books.approvals(run=run_id, open=True)
    assert again.id != question
    assert "ask_again" not in await home(clicks, "U0WHO")
