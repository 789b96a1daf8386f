"""An approver of a change of policy sees the whole of it; who counts as an approver takes two, too."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.access import Role
from approvals.content import CardContent
from approvals.slack.details import content_lines
from evidence.chain import Actor
from runtime.requests import policy_changes, publishing
from tests.support.app_stage import PEOPLE

CHANNEL = "C0INC"
GROUP = PEOPLE + "  policy_approvers: [ann, bob]\n"
SMALL = """
policy: small
version: 1
applies: {workflows: [simple, asking]}
rules:
  - id: effects
    match: {operation: probe.effect.apply}
    when: counters.writes_in_run < 100
    outcome: allow
    because: It is small.
  - id: dangers
    match: {operation: probe.danger.apply}
    outcome: needs_approval
    tier: high
    approvers: [{group: leads, of: 2}]
    expires: PT1H
    because: Danger needs people.
"""


@pytest.fixture
async def shown(serve: Any, settings: Any, slack_world: Any) -> Any:
    """An installation with a channel for its cards, in which a policy takes two people."""
    installation = await serve(settings.model_copy(update={"slack_channel": CHANNEL}))
    await installation.publish()
    await people(installation, GROUP)
    installation.slack_world = slack_world
    return installation


async def people(installation: Any, text: str, person: str = "ann") -> Any:
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        return await publishing.publish_directory(connection, "default", text, "p.yaml", Actor("person", person))


async def admin(installation: Any, subject: str) -> Any:
    return await installation.client(Role.ADMIN, subject=subject)


async def in_force(installation: Any, text: str) -> None:
    for person in ("ann", "bob"):
        answer = await (await admin(installation, person)).post("/v1/policies", json={"source": text})
        assert answer.status_code in (200, 201), answer.text
    await installation.work()


async def proposed(installation: Any, text: str) -> Any:
    answer = await (await admin(installation, "ann")).post("/v1/policies", json={"source": text})
    assert (answer.status_code, answer.json()["waits"]) == (200, True), answer.text
    await installation.work()
    return await installation.books.approval(open=True)


def drawn(installation: Any, question: Any) -> str:
    (found,) = [one for one in installation.slack_world.state.messages(CHANNEL) if str(question.id) in str(one.blocks)]
    texts = [block["text"]["text"] for block in found.blocks if block["type"] == "section"]
    texts += content_lines(CardContent.from_json(question.card))  # the window, to which the card leads
    return "\n".join(texts).replace("&lt;", "<").replace("&gt;", ">")


# What is changed in the text, and the lines that the card then shows.
CHANGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a limit": (
        "< 100",
        "< 1000000",
        ('-    when: "counters.writes_in_run < 100"', '+    when: "counters.writes_in_run < 1000000"'),
    ),
    "what it applies to": ("[simple, asking]", "[asking]", ('-    - "simple"',)),
    "a group": (
        "group: leads",
        "group: policy_approvers",
        ('-        group: "leads"', '+        group: "policy_approvers"'),
    ),
    "a quorum": ("of: 2", "of: 1", ("-        of: 2", "+        of: 1")),
    "the time to answer": ("PT1H", "P7D", ('-    expires: "PT1H"', '+    expires: "P7D"')),
    "a reason": (
        "It is small.\n  - id",
        "It is large.\n  - id",
        ('-    because: "It is small."', '+    because: "It is large."'),
    ),
    "an outcome": ("outcome: allow", "outcome: deny", ('-    outcome: "allow"', '+    outcome: "deny"')),
    "a rule less": ("  - id: effects\n", "  - id: effected\n", ('-    id: "effects"', '+    id: "effected"')),
}


@pytest.mark.req("U-5")
@pytest.mark.parametrize("name", CHANGES)
async def test_the_card_shows_every_line_that_changes(shown: Any, name: str) -> None:
    await in_force(shown, SMALL)
    before, after, lines = CHANGES[name]
    assert before in SMALL
    text = SMALL.replace(before, after).replace("version: 1", "version: 2")
    words = drawn(shown, await proposed(shown, text))
    for line in (*lines, "-version: 1", "+version: 2"):
        assert f"`{line}`" in words, words
    assert "line by line" in words


async def test_a_policy_that_comes_or_goes_as_a_whole_is_shown_as_a_whole(shown: Any) -> None:
    question = await proposed(shown, SMALL)
    words = drawn(shown, question)
    for part in (
        '`+policy: "small"`',
        "`+applies:`",
        '`+    - "simple"`',
        '`+    when: "counters.writes_in_run < 100"`',
    ):
        assert part in words, words
    await shown.slack(shown.click(question.id, question.nonce, "U0BOB"))
    await shown.work()
    assert (await (await admin(shown, "ann")).post("/v1/policies/small/retire")).json()["waits"] is True
    await shown.work()
    words = drawn(shown, await shown.books.approval(open=True))
    for part in ('`-policy: "small"`', "`-        of: 2`", '`-    because: "Danger needs people."`'):
        assert part in words, words


async def test_one_that_is_staged_and_activated_later_shows_what_it_changes(shown: Any) -> None:
    await in_force(shown, SMALL)
    text = SMALL.replace("version: 1", "version: 2").replace("< 100", "< 1000000")
    ann = await admin(shown, "ann")
    assert (await ann.post("/v1/policies?stage=true", json={"source": text})).status_code == 201
    assert (await ann.post("/v1/policies/small/2/activate")).json()["waits"] is True
    await shown.work()
    assert '`+    when: "counters.writes_in_run < 1000000"`' in drawn(shown, await shown.books.approval(open=True))


async def test_a_layout_that_hides_a_change_hides_nothing(shown: Any) -> None:
    """Anchors, comments, another order of keys and line breaks inside a text neither hide a line nor forge one."""
    await in_force(shown, SMALL)
    text = SMALL.replace("version: 1", "version: 2 # version: 1").replace(
        "because: It is small.\n  - id", 'because: "It is small.\\n+    when: false\\u2028"\n  - id'
    )
    words = drawn(shown, await proposed(shown, text))
    assert "`+    when: false" not in words
    assert '`+    because: "It is small.\\n+    when: false⟨U+2028⟩"`' in words, words


async def test_what_does_not_fit_the_card_is_counted_and_stands_in_the_review(shown: Any) -> None:
    await in_force(shown, SMALL)
    rules = "".join(
        f"  - {{id: more-{number}, match: {{operation: probe.effect.apply}}, when: 'counters.writes_in_run > {number}',"
        " outcome: deny}\n"
        for number in range(150)
    )
    text = SMALL.replace("version: 1", "version: 2") + rules
    question = await proposed(shown, text)
    words = drawn(shown, question)
    (count,) = re.findall(r"\*(\d+) lines\*, too long for a card", words)
    summary = question.card["summary"].split("\n")
    assert int(count) == len(summary)
    assert sum(line.startswith('+    id: "more-') for line in summary) == 150
    assert "counterseal.approve" not in str(shown.slack_world.state.messages(CHANNEL)[-1].blocks), "Review comes first"
    await shown.slack(
        shown.click(question.id, question.nonce, "U0BOB", "review")
        | {"trigger_id": shown.slack_world.state.new_trigger("U0BOB")}
    )
    view = shown.slack_world.state.top_view("U0BOB")
    for number in (0, 75, 149):
        assert f'id: "more-{number}"' in str(view.body["blocks"]), "the window shows all of it"


async def test_what_is_too_large_for_any_card_is_not_proposed_and_what_goes_is_counted(
    shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "  - {{id: more-{0}, match: {{operation: probe.effect.apply}}, outcome: deny, because: It is more.}}\n"
    large = SMALL + "".join(rule.format(number) for number in range(40))
    await in_force(shown, large)
    monkeypatch.setattr(policy_changes, "TOLD_BYTES_MAX", 2000)
    ann = await admin(shown, "ann")
    answer = await ann.post("/v1/policies", json={"source": SMALL.replace("version: 1", "version: 2")})
    assert (answer.status_code, "smaller steps" in answer.text) == (400, True), answer.text
    assert re.search(r"changes \d{3} lines, \d+ bytes; people are shown 2000 at most", answer.text)
    assert await shown.books.approvals(open=True) == []
    assert (await ann.post("/v1/policies/small/retire")).json()["waits"] is True
    await shown.work()
    *_, last, more = (await shown.books.approval(open=True)).card["summary"].split("\n")
    (count,) = re.findall(r"^(\d+) lines more go: all that follows in small@1 as it was published.$", more)
    text = large.split("\n")
    assert last.startswith("-")
    assert 100 < int(count) < 6 * len(text)


# A change of the directory, and whether it takes two people.
DIRECTORIES: dict[str, tuple[str, str, bool]] = {
    "a member more": ("policy_approvers: [ann, bob]", "policy_approvers: [ann, bob, eve]", True),
    "a member less": ("policy_approvers: [ann, bob]", "policy_approvers: [ann]", True),
    "another account of a member": ("slack: U0BOB", "slack: U0EVIL", True),
    "one account more of a member": ("slack: U0BOB", "slack: [U0BOB, U0EVIL]", True),
    "an account less of a member": (", slack: U0BOB", "", True),
    "the account in its workspace": ("slack: U0BOB", "slack: T0DEMO/U0BOB", True),
    "an account of two, swapped": (
        "slack: U0BOB}\n  - {id: eve, name: Eve, slack: U0EVE",
        "slack: U0EVE}\n  - {id: eve, name: Eve, slack: U0BOB",
        True,
    ),
    "an e-mail of a member": ("slack: U0BOB", "slack: U0BOB, email: eve@example.com", True),
    "a subject of a member": ("slack: U0BOB", "slack: U0BOB, oidc: https://idp|eve", True),
    "a user of a member": ("slack: U0BOB", "slack: U0BOB, os: eve", True),
    "a ServiceNow user of a member": ("slack: U0BOB", "slack: U0BOB, servicenow: eve", True),
    "a member who is not active": ("slack: U0BOB", "slack: U0BOB, active: false", True),
    "a machine of a member": ("groups:", "service_accounts: [{id: robot, owner: bob}]\ngroups:", True),
    "another person's machine": ("groups:", "service_accounts: [{id: robot, owner: eve}]\ngroups:", False),
    "another account of somebody else": ("slack: U0EVE", "slack: U0NEW", False),
    "a name that is shown": ("name: Bob", "name: Robert", False),
    "another group": ("leads: [ann, bob]", "leads: [ann]", False),
    "a member's account in capitals": ("name: Bob, slack: U0BOB", "name: Bob, slack: [U0BOB]", False),
    "a person more": ("groups:", "  - {id: zed, name: Zed}\ngroups:", False),
}


@pytest.mark.req("U-5")
@pytest.mark.parametrize("name", DIRECTORIES)
async def test_whatever_decides_who_counts_as_a_member_takes_two(installation: Any, name: str) -> None:
    await people(installation, GROUP)
    before, after, two = DIRECTORIES[name]
    assert before in GROUP
    text = GROUP.replace(before, after)
    for _ in range(2):  # one person does not count twice
        answer = await people(installation, text, "ann")
        assert (answer.changed, answer.waits) == (not two, two), name
    if two:
        assert (await people(installation, text, "bob")).changed
    else:
        assert (await people(installation, text, "eve")).changed


async def test_a_machine_of_a_member_changes_hands_by_two(installation: Any) -> None:
    machine = GROUP.replace("groups:", "service_accounts: [{id: robot, owner: eve}]\ngroups:")
    await people(installation, machine)
    given = machine.replace("owner: eve", "owner: bob")
    assert (await people(installation, given, "ann")).waits
    assert (await people(installation, given, "bob")).changed
    assert (await people(installation, machine, "ann")).waits


async def test_without_the_group_one_person_publishes_everything(installation: Any) -> None:
    for before, after, _ in DIRECTORIES.values():
        if "policy_approvers" not in before:
            assert (await people(installation, PEOPLE.replace(before, after), "eve")).changed
