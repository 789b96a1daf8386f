"""Ids that are minted, terms that are stored, and the standing of whoever acts."""

from __future__ import annotations

import time
from hashlib import sha256
from uuid import UUID, uuid5

import pytest

from core.canonical import derived_id
from core.identity import Directory, Entry, Kind, Role, Standing, readings
from core.ids import correlation_id, new_id, new_nonce
from core.terms import FRESH_SECONDS, Escalation, GroupQuorum, GroupSource, Terms, Tier, Unresolved

RUN = UUID("01930000-0000-7000-8000-00000000abcd")


def test_a_new_id_says_when_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    made = [new_id() for _ in range(50)]
    after = time.time_ns() // 1_000_000
    assert all(before <= one.int >> 80 <= after for one in made)
    assert {one.version for one in made} == {7}
    assert {one.int >> 62 & 3 for one in made} == {2}
    assert len({one.int & (1 << 62) - 1 for one in made}) == 50
    assert len({one.int >> 64 & 0xFFF for one in made}) > 10


def test_a_derived_id_is_the_same_for_the_same_name_and_keeps_the_runs_time() -> None:
    one = derived_id(RUN, "step:a")
    assert (one, one.int >> 80) == (derived_id(RUN, "step:a"), RUN.int >> 80)
    assert (one.version, one.int >> 62 & 3) == (8, 2)
    every = {f"step:{name}": derived_id(RUN, f"step:{name}") for name in range(100)}
    assert {(one.version, one.int >> 62 & 3, one.int >> 80) for one in every.values()} == {(8, 2, RUN.int >> 80)}
    assert len(set(every.values())) == 100
    tails = {name: int.from_bytes(sha256(RUN.bytes + name.encode()).digest()[:10], "big") for name in every}
    assert {name: one.int & (1 << 62) - 1 for name, one in every.items()} == {
        name: tail & (1 << 62) - 1 for name, tail in tails.items()
    }
    assert {name: one.int >> 64 & 0xFFF for name, one in every.items()} == {
        name: tail >> 68 & 0xFFF for name, tail in tails.items()
    }
    assert derived_id(UUID(int=RUN.int + 1), "step:a") != one


def test_other_ids_are_made_of_what_they_name_or_of_nothing() -> None:
    named = ("a", "A", " a", "a/1", "")
    assert [correlation_id(RUN, name) for name in named] == [uuid5(RUN, name) for name in named]
    assert correlation_id(UUID(int=1), "a") == uuid5(UUID(int=1), "a")
    nonces = {new_nonce() for _ in range(50)}
    assert len(nonces) == 50
    assert {len(one) for one in nonces} == {22}, "128 bits, as URLs take them"


@pytest.mark.parametrize(
    "terms",
    [
        Terms(Tier.LOW, ()),
        Terms(
            Tier.HIGH,
            (GroupQuorum("leads", 2), GroupQuorum("S1", 1, GroupSource.SLACK_GROUP)),
            True,
            (Role.UPDATER,),
            Unresolved.DENY,
            60,
            (10, 20),
            Escalation(30, GroupQuorum("bosses"), frozenset({"group:leads"})),
            5,
        ),
    ],
)
def test_terms_are_read_back_as_they_were_stored(terms: Terms) -> None:
    stored = terms.to_json()
    assert Terms.from_json(stored) == terms
    assert stored["tier"] == str(terms.tier)
    with pytest.raises(ValueError, match="tier"):
        Terms.from_json({**stored, "tier": "huge"})
    for name, other in {"fresh_seconds": "5", "two_person": 1, "remind_seconds": [1.5], "approvers": None}.items():
        with pytest.raises(ValueError, match=name):
            Terms.from_json({**stored, name: other})


def test_a_quorum_has_a_seat_and_names_its_source() -> None:
    assert (GroupQuorum("leads").key, GroupQuorum("S1", 1, GroupSource.SLACK_GROUP).key) == (
        "group:leads",
        "slack_group:S1",
    )
    for seats in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            GroupQuorum("leads", seats)
    assert (GroupQuorum("leads").of, FRESH_SECONDS, Terms(Tier.LOW, ()).fresh_seconds) == (1, 86400, 86400)


@pytest.mark.parametrize(
    ("entry", "standing", "person"),
    [
        (Entry("a", "A"), Standing.PERSON, "a"),
        (Entry("a", "A", active=False), Standing.DEACTIVATED, "a"),
        (Entry("a", "A", owner="b"), Standing.MACHINE, "b"),
        (Entry("a", "A", active=False, owner="b"), Standing.MACHINE, "b"),
    ],
)
def test_who_may_vote_is_a_person_who_is_there(entry: Entry, standing: Standing, person: str) -> None:
    assert (entry.standing, entry.person) == (standing, person)
    found = Directory.of("d", [entry, Entry("b", "B")]).entry("a")
    assert found == entry


def test_accounts_are_those_of_one_kind() -> None:
    entry = Entry("a", "A", principals=("slack:U1", "slack:T1/U2", "os:a", "email:a@x", "slackish:U3", "slack"))
    assert (entry.accounts(Kind.SLACK), entry.accounts(Kind.OS)) == (("U1", "T1/U2"), ("a",))
    assert entry.accounts(Kind.SERVICENOW) == ()
    urls = Entry("b", "B", principals=("oidc:https://idp.example:8443#X:Y", "os:a:b"))
    assert (urls.accounts(Kind.OIDC), urls.accounts(Kind.OS)) == (("https://idp.example:8443#X:Y",), ("a:b",))


@pytest.mark.parametrize(
    ("text", "first", "count"),
    [
        ("slack:u1", ["slack:U1"], 1),
        ("servicenow:A@x", ["servicenow:a@x", "email:a@x"], 2),
        ("", [], 0),
        ("os:", [], 0),
    ],
)
def test_a_text_means_the_principal_that_it_names(text: str, first: list[str], count: int) -> None:
    found = [*readings(text)]
    assert found[:count] == first[:count]
    assert len(found) == count or text == "os:"


def test_a_bare_name_may_be_of_any_kind() -> None:
    found = {*readings("Ana")}
    assert {f"{kind}:" for kind in Kind} == {one.partition(":")[0] + ":" for one in found}
