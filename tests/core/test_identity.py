"""Principals are normalised, and resolve to one person of a directory or to nobody (promise 12)."""

from __future__ import annotations

import pytest

from core.identity import Contributor, Directory, Entry, Role, normalised

RAJ = Entry(
    "raj.quist",
    "Raj Quist",
    principals=(
        "email:Raj.Quist@Example.com",
        "servicenow:rquist",
        "servicenow:46d44a23a9fe19810012d100cca80666",
        "slack:U0REQ",
        "slack:T0TEAM/U0SECOND",
        "oidc:https://idp.example#Raj",
        "os:raj",
    ),
)
BEN = Entry("ben.ortiz", "Ben Ortiz", principals=("servicenow:ben",))
ROBOT = Entry("snow-sync", "The integration user", principals=("servicenow:svc.sync",), owner="raj.quist")
DIRECTORY = Directory.of("d", [RAJ, BEN, ROBOT])


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (" Person:Raj.Quist ", "person:raj.quist"),
        ("email:RAJ@EXAMPLE.COM", "email:raj@example.com"),
        ("slack:t0team/u0user", "slack:T0TEAM/U0USER"),
        ("oidc:https://idp.example#Raj ", "oidc:https://idp.example#Raj"),
        ("person:raj.quist", "person:raj.quist"),
        ("person:raj\u200b.quist", "person:raj.quist"),
        ("person:\uff32aj.quist", "person:raj.quist"),
        (" raj.quist ", "raj.quist"),
        # Of what is not ASCII the invisible is taken out, a space of any kind is a space, and the rest is kept.
        ("person:raj\u00a0quist", "person:raj quist"),
        ("person:raj\u3000\u2003quist", "person:raj quist"),
        ("person:raj\u2028quist", "person:raj quist"),
        ("person:raj\u0085\u00e9", "person:raj \u00e9"),
        ("person:\u00e9\t\nraj", "person:\u00e9 raj"),
        ("person:\u00adr\u2060a\ufeffj\u202e", "person:raj"),
        ("person:raj\ue000\u0378\x01", "person:raj\ue000\u0378\x01"),
        ("person:e\u0301\ufb01", "person:\u00e9fi"),
    ],
)
def test_a_principal_is_normalised_where_its_kind_is_blind(text: str, same: str) -> None:
    assert normalised(text) == same


@pytest.mark.parametrize(
    "text",
    [
        "raj.quist",
        "Raj.Quist",
        "raj.quist ",
        "RQUIST",
        "raj.quist@example.com",
        "servicenow:Raj.Quist@example.com",
        "46D44A23A9FE19810012D100CCA80666",
        "slack:T0TEAM/U0SECOND",
        "U0REQ",
        "token:raj.quist",
        "oidc:https://idp.example#Raj",
        "os:raj",
        "svc.sync",
        "token:snow-sync",
    ],
)
def test_every_spelling_of_a_person_resolves_to_that_person(text: str) -> None:
    assert DIRECTORY.resolve(text) == "raj.quist"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "servicenow",
        "oidc:https://idp.example#raj",
        "slack:T0OTHER/U0REQ",
        "person:",
        "cara.diaz",
        "acme:raj.quist",
    ],
)
def test_what_nobody_claims_is_unresolved(text: str) -> None:
    assert DIRECTORY.resolve(text) is None


@pytest.mark.parametrize("claimants", [2, 3, 4])
def test_a_principal_that_several_people_claim_is_nobodys(claimants: int) -> None:
    people = [Entry(name, name.upper(), principals=(f"os:{text}",)) for name, text in zip("abcd", "xXxX", strict=True)]
    assert Directory.of("d", people[:1]).resolve("os:x") == "a"
    assert Directory.of("d", people[:claimants]).resolve("os:x") is None


def test_a_name_that_means_two_people_in_two_kinds_resolves_to_neither_and_names_both() -> None:
    both = Directory.of("d", [Entry("sam", "Sam"), Entry("kim", "Kim", principals=("os:sam",))])
    assert both.resolve("sam") is None
    assert both.people("sam") == {"sam", "kim"}
    assert both.resolve("os:sam") == "kim"


def test_the_entry_of_a_service_account_is_its_own_though_it_speaks_for_its_owner() -> None:
    entry = DIRECTORY.entry("token:snow-sync")
    assert entry is not None
    assert (entry.id, entry.owner) == ("snow-sync", "raj.quist")
    assert DIRECTORY.entry("raj.quist", "token:snow-sync") is None, "two entries, though of one person"


def test_a_contributor_is_read_back_as_written() -> None:
    one = Contributor(Role.UPDATER, "servicenow:rquist", None)
    assert Contributor.from_json(one.to_json()) == one
    assert one.to_json() == {"role": "updater", "principal": "servicenow:rquist", "person": None}
    with pytest.raises(ValueError, match="role"):
        Contributor.from_json({"role": "friend", "principal": "x", "person": None})
    for name, other in {"role": None, "principal": 7, "person": True}.items():
        with pytest.raises(ValueError, match=name):
            Contributor.from_json({**one.to_json(), name: other})
        with pytest.raises(ValueError, match=f"required field `{name}`"):
            Contributor.from_json({key: value for key, value in one.to_json().items() if key != name})
