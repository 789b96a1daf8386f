"""Putting a policy in force is a verb with an author and an approver, and can take two people (promise 11)."""

from __future__ import annotations

from typing import Any

import pytest

from app.definitions import prepare
from tests.support.app_activating import GROUP, TWO, active, admin, people
from tests.support.app_stage import PEOPLE


async def test_an_older_version_is_activated_by_name_and_the_audit_says_by_whom(installation: Any) -> None:
    client = await admin(installation, "ann")
    assert (await client.post("/v1/policies", json={"source": TWO})).json()["changed"] is True
    assert await active(installation) == "tests@2"
    answer = await client.post("/v1/policies/tests/1/activate")
    assert (answer.status_code, answer.json()["changed"], await active(installation)) == (200, True, "tests@1")
    assert (await client.post("/v1/policies/tests/1/activate")).json()["changed"] is False
    told = (await installation.tenant_events("policy.activated"))[-1]["data"]
    assert (told["name"], told["version"], told["author"], told["approver"]) == ("tests", 1, "tester", "ann")
    missing = await client.post("/v1/policies/tests/7/activate")
    assert (missing.status_code, "tests@7" in missing.text) == (404, True)


async def test_with_policy_approvers_it_takes_two_of_them(installation: Any) -> None:
    await people(installation, GROUP)
    ann, bob, eve = [await admin(installation, name) for name in ("ann", "bob", "eve")]
    for _ in range(2):  # the same person does not count twice
        answer = await ann.post("/v1/policies", json={"source": TWO})
        assert (answer.json()["waits"], await active(installation)) == (True, "tests@1"), answer.text
    refused = await eve.post("/v1/policies/tests/2/activate")
    assert (refused.status_code, "policy_approvers" in refused.text) == (403, True)
    answer = await bob.post("/v1/policies/tests/2/activate")
    assert (answer.json()["changed"], answer.json()["waits"], await active(installation)) == (True, False, "tests@2")
    told = (await installation.tenant_events("policy.activated"))[-1]["data"]
    assert (told["author"], told["by"], told["approver"]) == ("ann", "ann", "bob")
    # What was proposed before something else came in force has to be proposed anew.
    assert (await ann.post("/v1/policies/tests/1/activate")).json()["waits"] is True
    three = TWO.replace("version: 2", "version: 3").replace("Two.", "Three.")
    assert (await bob.post("/v1/policies", json={"source": three})).json()["waits"] is True
    assert (await ann.post("/v1/policies", json={"source": three})).json()["changed"] is True
    assert (await bob.post("/v1/policies/tests/1/activate")).json()["waits"] is True
    assert await active(installation) == "tests@3"


async def test_nobody_gets_rid_of_the_second_person_alone(installation: Any) -> None:
    await people(installation, GROUP)
    alone = GROUP.replace("policy_approvers: [ann, bob]", "policy_approvers: [ann]")
    for text in (PEOPLE, alone):
        assert (await people(installation, text, "ann")).waits
    # Other people may come and go by one hand.
    assert (await people(installation, GROUP.replace("leads: [ann, bob]", "leads: [ann]"), "eve")).changed
    assert (await people(installation, PEOPLE, "bob")).waits  # ann's word was for the directory before
    assert (await people(installation, PEOPLE, "ann")).changed


async def test_who_proposes_the_same_people_again_is_on_record_once(installation: Any) -> None:
    await people(installation, GROUP)
    for person in ("ann", "ann", "ann"):
        assert (await people(installation, PEOPLE, person)).waits
    told = await installation.tenant_events("directory.proposed")
    assert [one["data"]["by"] for one in told] == ["ann"]
    assert (await people(installation, PEOPLE, "bob")).changed


async def test_a_start_puts_no_policy_in_force_where_it_takes_two(installation: Any, definitions_dir: Any) -> None:
    await people(installation, GROUP)
    (definitions_dir / "policies").mkdir(exist_ok=True)
    (definitions_dir / "policies" / "tests.yaml").write_text(TWO)
    (definitions_dir / "directory.yaml").write_text(PEOPLE.replace("directory: tests", "directory: tests\nversion: 9"))
    await prepare(installation.app.faces)
    assert await active(installation) == "tests@1"
    assert await installation.tenant_events("directory.proposed") == []


@pytest.mark.parametrize("text", ["tests", "@1", "tests@x"])
def test_a_version_is_named_with_its_number(command: Any, text: str) -> None:
    command("policy", "activate", text, exit_code=2)
