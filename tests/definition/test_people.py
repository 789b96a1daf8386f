"""Directories: each fault is named at the line where it stands, of people, of service accounts and of groups."""

from __future__ import annotations

import pytest

from core.errors import DefinitionError
from core.identity import Entry
from runtime.definition.people import load_directory

GOOD = """directory: staff
people:
  - {id: ann, name: Ann, email: ann@acme.example}
  - {id: bob, name: Bob, slack: U0BOB0BOB}
service_accounts:
  - {id: robot, owner: ann}
  - {id: engine, owner: bob, oidc: "https://idp.example#Engine"}
groups:
  leads:
    - ann
    - bob
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("id: bob, name: Bob", "id: Ann, name: Bob", 4, "The id 'ann' is here twice"),
        ("id: engine", "id: BOB", 7, "The id 'bob' is here twice"),
        ("slack: U0BOB0BOB", "email: ANN@acme.example", 4, "The email account 'ann@acme.example' belongs"),
        (
            "owner: ann}",
            "owner: ann, email: ann@acme.example}",
            6,
            "The email account 'ann@acme.example' belongs",
        ),
        ("owner: ann}", "owner: ron}", 6, "'ron', who owns 'robot', is not among the people"),
        ("owner: bob", "owner: robot", 7, "'robot', who owns 'engine', is not among the people"),
        ("    - bob\n", "    - bop\n", 11, "The group 'leads' names 'bop', who is not among the people"),
        ("    - bob\n", "    - robot\n", 11, "The group 'leads' names 'robot', who is not among the people"),
        ("    - bob\n", "    - ann\n", 11, "'ann' is in 'leads' twice"),
    ],
)
def test_a_fault_is_named_where_it_stands(old: str, new: str, line: int, words: str) -> None:
    assert load_directory(GOOD, "d.yaml").deciders == {"leads": {"ann", "bob"}}
    text = GOOD.replace(old, new)
    assert text != GOOD
    if "id: Ann" in new:
        text = text.replace("owner: bob", "owner: ann").replace("    - bob\n", "")
    with pytest.raises(DefinitionError) as refused:
        load_directory(text, "d.yaml")
    assert [(problem.line, words in problem.message) for problem in refused.value.problems] == [(line, True)]


def test_subjects_of_an_issuer_differ_by_their_case() -> None:
    other = '  - {id: other, owner: bob, oidc: "https://idp.example#engine"}\n'
    assert load_directory(GOOD.replace("groups:\n", f"{other}groups:\n"), "d.yaml").entries[-1].id == "other"


@pytest.mark.parametrize("kind", ["slack", "email", "oidc", "servicenow"])
def test_each_of_several_accounts_is_that_person(kind: str) -> None:
    names = {"slack": "U0AN{}", "email": "ann{}@acme.example", "oidc": "https://idp.example#{}", "servicenow": "ann{}"}
    every = [names[kind].format(number) for number in range(4)]
    for given in (every[:1], every[:2], every):
        text = GOOD.replace("email: ann@acme.example", f"{kind}: [{', '.join(map(repr, given))}]")
        assert load_directory(text, "d.yaml").entries[0].principals == tuple(f"{kind}:{name}" for name in given)
    text = GOOD.replace("email: ann@acme.example", f"{kind}: {every[3]!r}")
    assert load_directory(text, "d.yaml").entries[0].principals == (f"{kind}:{every[3]}",)


WHOLE = """directory: staff
version: 3
people:
  - {id: ann, name: Ann Lee, email: [ann@acme.example, ann@a.example], slack: [U0ANN0ANN, T0ACME/U0ANN0ANN], os: ann}
  - {id: bob, name: Bob, active: false, slack: U0BOB0BOB, servicenow: [b.ob, 6816f79cc0a8016401c5a33be04be441]}
  - {id: cat, name: Cat}
service_accounts:
  - {id: robot, owner: bob, name: The robot, oidc: ["https://idp.example#r", "https://idp.example#R"]}
  - {id: engine, owner: ann}
groups:
  leads: [bob, ann]
  owners: [ann, cat]
  former: [bob]
  nobody: []
"""


def test_a_directory_is_read_whole() -> None:
    found = load_directory(WHOLE, "d.yaml")
    assert (found.directory, found.version) == ("staff", 3)
    own = ("slack:U0ANN0ANN", "slack:T0ACME/U0ANN0ANN", "email:ann@acme.example", "email:ann@a.example", "os:ann")
    former = ("slack:U0BOB0BOB", "servicenow:b.ob", "servicenow:6816f79cc0a8016401c5a33be04be441")
    machine = ("oidc:https://idp.example#r", "oidc:https://idp.example#R")
    assert found.entries == (
        Entry("ann", "Ann Lee", True, frozenset({"leads", "owners"}), own, None),
        Entry("bob", "Bob", False, frozenset({"leads", "former"}), former, None),
        Entry("cat", "Cat", True, frozenset({"owners"}), (), None),
        Entry("robot", "The robot", True, frozenset(), machine, "bob"),
        Entry("engine", "engine", True, frozenset(), (), "ann"),
    )
    assert found.deciders == {"leads": {"ann"}, "owners": {"ann", "cat"}, "former": set(), "nobody": set()}
