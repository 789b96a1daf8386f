"""Limits of votes and forms: each of them itself, and one more; and who of several parts is named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from approvals.forms import VALUE_BYTES_MAX, check_value
from approvals.model import Approval, Choice, VoteChannel, Voter
from approvals.quorum import REASON_CHARACTERS_MAX, Counted, NotCounted, RefusalCode, consider
from approvals.tally import excluded, stuck_requesters
from core.canonical import canonical_bytes
from core.identity import Contributor, Role
from core.terms import GroupQuorum, Terms, Tier

LEADS = Terms(Tier.HIGH, (GroupQuorum("leads", 1),))


@pytest.mark.req("Q-3")
def test_a_reason_has_its_longest_length_and_no_more(approval: Approval) -> None:
    voter, at = Voter("ann", "Ann", frozenset({"group:leads"})), datetime(2026, 8, 1, tzinfo=UTC)

    def said(reason: str) -> Counted | NotCounted:
        return consider(approval, voter, Choice.REJECT, reason, at=at, channel=VoteChannel.HTTP)

    assert isinstance(said(f"  {'x' * REASON_CHARACTERS_MAX}  "), Counted)
    refused = said("x" * (REASON_CHARACTERS_MAX + 1))
    assert isinstance(refused, NotCounted)
    assert refused.code is RefusalCode.REASON_TOO_LONG


@pytest.mark.req("P-12")
def test_of_several_parts_the_first_that_bars_is_named() -> None:
    parts = [Contributor(role, "p", "ann") for role in (Role.REQUESTER, Role.EDITOR, Role.UPDATER)]
    parts.append(Contributor(Role.EDITOR, "nobody", None))
    assert excluded(LEADS, parts) == {"ann": Role.REQUESTER}
    assert excluded(replace(LEADS, allow=(Role.REQUESTER,)), parts) == {"ann": Role.EDITOR}
    assert excluded(replace(LEADS, allow=tuple(Role)), parts) == {}


@pytest.mark.req("P-12")
def test_a_requester_is_stuck_unless_requesters_may_decide() -> None:
    groups = {"leads": frozenset({"ann"})}
    for allow, stuck in (((), ["ann"]), ((Role.EDITOR,), ["ann"]), ((Role.EDITOR, Role.REQUESTER), [])):
        assert stuck_requesters(replace(LEADS, allow=allow), groups) == stuck


@pytest.mark.req("X-9")
def test_a_value_has_its_largest_size_and_no_more() -> None:
    names = [f"f{number}" for number in range(20)]
    form = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    value = dict.fromkeys(names, "é" * 1500)
    left = VALUE_BYTES_MAX - len(canonical_bytes(value))
    for name in names:
        more = min(left // 2, 1500)
        value[name] = "é" * (1500 + more)
        left -= 2 * more
    value["f19"] += "x" * left
    assert len(canonical_bytes(value)) == VALUE_BYTES_MAX
    assert check_value(form, value) == []
    [problem] = check_value(form, {**value, "f19": value["f19"] + "x"})
    assert problem.message == f"The value has {VALUE_BYTES_MAX + 1} bytes."


@pytest.mark.parametrize(("many", "more"), [(20, []), (21, ["The form has none of 21 fields that were given."])])
def test_twenty_strangers_are_named(many: int, more: list[str]) -> None:
    form = {"type": "object", "properties": {"a": {"type": "string"}}}
    found = [problem.message for problem in check_value(form, {f"s{number}": 1 for number in range(many)})]
    assert found == ["The form has no such field."] * 20 + more
