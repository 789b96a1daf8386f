"""The lives of shared effects, from rows alone: who holds one, how it stands, which rows move, who is told (Q-15)."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from runtime.engine.commit import ReceiptRow, WaitRow
from runtime.engine.graph import NO_GRAPH
from runtime.engine.lives import ended, held_by, joined, life_of, moved, name_of, performed, taken_over
from runtime.engine.replaying import unopened
from runtime.engine.run import Run
from runtime.engine.shared_rows import EffectRow, JoinRow, ShareRow
from runtime.engine.states import EffectState, WaitKind, WaitState
from tests.engine.conftest import KEY, NOW, RUN_ID

pytestmark = pytest.mark.req("Q-15")


def receipt(number: int, status: str = "intended", step: str = "a", **more: Any) -> ReceiptRow:
    """A receipt of a shared effect. The greater its number, the earlier its key."""
    row = ReceiptRow(
        receipt_id=UUID(int=number),
        run_id=RUN_ID,
        step_key=step,
        operation="probe.ticket.open",
        target="t",
        idempotency_key=f"k{9 - number}",
        action_digest="d",
        status=status,
        attempt=1,
        lease_epoch=1,
        reversible=False,
        reverse=None,
        intended_at=NOW + timedelta(seconds=number),
        action={},
        shared=True,
    )
    return replace(row, **more)


def wait(number: int, status: str = "waiting", kind: str = "external", step: str = "a", **more: Any) -> WaitRow:
    row = WaitRow(UUID(int=number), UUID(int=0), step, WaitKind(kind), WaitState(status), f"t{number}")
    return replace(row, **more)


def of_others(number: int, status: str = "waiting", kind: str = "external", **more: Any) -> WaitRow:
    """A wait for the effect of another step. The greater its number, the earlier the key of the effect."""
    context = {"operation": "o", "shared": f"k{9 - number}", "receipt": str(UUID(int=100 + number))}
    return wait(number, status, kind, **{"context": context, **more})


def run_of(*rows: ReceiptRow | WaitRow, finished: bool = False) -> Run:
    run = unopened(RUN_ID, KEY, NO_GRAPH)
    run.receipts = {row.receipt_id: row for row in rows if isinstance(row, ReceiptRow)}
    run.waits = {row.wait_id: row for row in rows if isinstance(row, WaitRow)}
    run.finished = finished
    return run


NOTHING = run_of()
DONE, BAD = {"output": {}}, {"error": {"code": "no"}}


@pytest.mark.parametrize(
    ("status", "held", "life"),
    [
        ("intended", None, "intended"),
        ("in_doubt", None, "in_doubt"),
        ("failed", None, "failed"),
        ("succeeded", None, "succeeded"),
        ("intended", wait(1), "intended"),
        ("in_doubt", wait(1, "completed", result=DONE), "in_doubt"),
        ("failed", wait(1), "failed"),
        ("succeeded", wait(1), "begun"),
        ("succeeded", wait(1, "completed", result=DONE), "succeeded"),
        ("succeeded", wait(1, "completed", result={}), "succeeded"),
        ("succeeded", wait(1, "completed", result=BAD), "failed"),
        ("succeeded", wait(1, "completed", result=None), "failed"),
        ("succeeded", wait(1, "canceled"), "left"),
        ("succeeded", wait(1, "timed_out"), "left"),
        ("succeeded", wait(1, "timed_out", result=BAD), "left"),
    ],
)
def test_an_effect_lives_as_its_receipt_and_its_holders_wait_say(status: str, held: Any, life: str) -> None:
    assert life_of(receipt(1, status), held) is EffectState(life)


@pytest.mark.parametrize(
    ("waits", "holder"),
    [
        ((), None),
        ((wait(1),), 1),
        ((wait(1, "canceled"), wait(2)), 2),
        ((wait(2), wait(1, "canceled")), 1),
        ((wait(1, parked=False),), None),
        ((wait(1), wait(2, parked=False)), 1),
        ((wait(1, step="b"),), None),
        ((wait(1), wait(2, step="b")), 1),
        ((wait(1, kind="signal"),), None),
        ((wait(1, kind="shared"),), None),
        ((of_others(1),), None),
        ((wait(1, context={"operation": "o"}),), 1),
    ],
)
def test_the_holder_is_the_last_wait_of_the_step_itself_that_it_parked_on(waits: Any, holder: int | None) -> None:
    found = held_by(run_of(*waits), receipt(1))
    assert (None if found is None else found.wait_id) == (None if holder is None else UUID(int=holder))


def test_only_shared_effects_that_nothing_has_replaced_are_performed() -> None:
    rows = (receipt(1, "failed"), receipt(2, replaces=UUID(int=1)), receipt(3, shared=False), receipt(4, "succeeded"))
    held = wait(1)
    found = performed(run_of(*rows, held))
    assert found == {
        UUID(int=2): (rows[1], EffectState.INTENDED, None),
        UUID(int=4): (rows[3], EffectState.BEGUN, held),
    }
    lost = run_of(receipt(1, "intended"), receipt(2, "failed"), receipt(3, "in_doubt"), held)
    assert [each[1:] for each in performed(lost).values()] == [
        (EffectState.INTENDED, None), (EffectState.FAILED, None), (EffectState.IN_DOUBT, None),
    ]  # fmt: skip


def row(number: int, status: str, was: int | None, wait_id: int | None = None) -> EffectRow:
    held = None if wait_id is None else UUID(int=wait_id)
    before = None if was is None else UUID(int=was)
    return EffectRow(f"k{9 - number}", "a", UUID(int=number), EffectState(status), before, held)


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        ((), (), []),
        ((), (receipt(1),), [row(1, "intended", None)]),
        ((), (receipt(1, replaces=UUID(int=7)),), [row(1, "intended", 7)]),
        ((receipt(1),), (receipt(1),), []),
        ((receipt(1),), (receipt(1, "in_doubt"),), [row(1, "in_doubt", 1)]),
        ((receipt(1),), (receipt(1, "succeeded"),), [row(1, "succeeded", 1)]),
        ((receipt(1),), (receipt(1, "succeeded"), wait(5)), [row(1, "begun", 1, 5)]),
        ((receipt(1, replaces=UUID(int=7)),), (receipt(1, "failed", replaces=UUID(int=7)),), [row(1, "failed", 1)]),
        ((receipt(1, "succeeded"), wait(5)), (receipt(1, "succeeded"), wait(5, "canceled")), [row(1, "left", 1, 5)]),
        ((receipt(1, "succeeded"), wait(5)), (receipt(1, "succeeded"), wait(5, context={"setbacks": 1})), []),
        ((receipt(1, "succeeded"), wait(5)), (receipt(1, "succeeded"), wait(5), wait(6)), []),
        ((receipt(1, "failed"),), (receipt(1, "failed"), receipt(2, replaces=UUID(int=1))), [row(2, "intended", 1)]),
        ((), (receipt(1, shared=False),), []),
        ((receipt(3),), (receipt(1), receipt(3), receipt(2)), [row(2, "intended", None), row(1, "intended", None)]),
    ],
)
def test_the_rows_of_effects_that_moved_are_written_in_the_order_of_their_keys(
    before: Any, after: Any, rows: list[EffectRow]
) -> None:
    assert moved(run_of(*before), run_of(*after)) == rows


def share(number: int, status: str) -> ShareRow:
    return ShareRow(f"k{9 - number}", UUID(int=100 + number), EffectState(status), UUID(int=number))


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        ((), (wait(1),), []),
        ((), (of_others(1, kind="shared"),), []),
        ((), (of_others(1),), [share(1, "begun")]),
        ((of_others(1),), (of_others(1),), []),
        ((of_others(1),), (of_others(1, "completed", result=DONE),), [share(1, "succeeded")]),
        ((of_others(1),), (of_others(1, "completed", result=BAD),), [share(1, "failed")]),
        ((of_others(1),), (of_others(1, "canceled"),), [share(1, "left")]),
        ((of_others(1),), (of_others(1, "timed_out"), of_others(2)), [share(2, "begun"), share(1, "left")]),
    ],
)
def test_what_was_taken_over_is_told_when_it_moves_in_the_order_of_the_keys(
    before: Any, after: Any, rows: list[ShareRow]
) -> None:
    assert taken_over(run_of(*before), run_of(*after)) == rows


def test_whatever_comes_first_the_rows_are_in_the_order_of_their_keys() -> None:
    for order in permutations((1, 2, 3)):
        after = run_of(*(of_others(number) for number in order))
        assert [each.key for each in taken_over(NOTHING, after)] == ["k6", "k7", "k8"]
        after = run_of(*(of_others(number, kind="shared") for number in order))
        assert [each.key for each in joined(NOTHING, after)] == ["k6", "k7", "k8"]
        after = run_of(*(receipt(number) for number in order))
        assert [each.key for each in moved(NOTHING, after)] == ["k6", "k7", "k8"]


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        ((), (of_others(1, kind="shared"),), [JoinRow("k8", UUID(int=101))]),
        ((of_others(1, kind="shared"),), (of_others(1, kind="shared"),), []),
        ((), (of_others(1),), []),
        ((), (of_others(1, "canceled", "shared"),), []),
        ((), (of_others(1, "completed", "shared"),), []),
        ((), (wait(1, kind="shared"),), []),
        ((of_others(1, kind="shared"),), (of_others(1, kind="shared"), of_others(2, kind="shared")), [
            JoinRow("k7", UUID(int=102)),
        ]),
    ],
)  # fmt: skip
def test_an_effect_is_joined_once_by_a_wait_that_is_open(before: Any, after: Any, rows: list[JoinRow]) -> None:
    assert joined(run_of(*before), run_of(*after)) == rows


def told(number: int, held: int | None, status: str) -> tuple[str, str]:
    return f"k{9 - number}", f"{UUID(int=number)}:{None if held is None else UUID(int=held)}:{status}"


def test_the_sharers_are_told_of_every_end_and_of_no_beginning() -> None:
    going = ("intended", "in_doubt", "begun")
    over = ("succeeded", "failed", "left")
    moves = [row(number, status, None, 5) for number, status in enumerate(going + over, 1)]
    assert [*ended(NOTHING, NOTHING, moves, [])] == [told(n, 5, status) for n, status in enumerate(over, 4)]
    shares = [share(number, status) for number, status in enumerate(("begun", *over), 1)]
    assert [*ended(NOTHING, NOTHING, [], shares)] == [
        (f"k{9 - n}", f"{UUID(int=100 + n)}:{UUID(int=n)}:{status}") for n, status in enumerate(over, 2)
    ]
    both = [*ended(NOTHING, NOTHING, [row(1, "failed", None)], [share(2, "left")])]
    assert both == [told(1, None, "failed"), ("k7", f"{UUID(int=102)}:{UUID(int=2)}:left")]


@pytest.mark.parametrize(
    ("was", "finished", "says"), [(False, True, True), (False, False, False), (True, True, False), (True, False, False)]
)
def test_a_doubt_is_told_once_when_its_run_is_over(was: bool, finished: bool, says: bool) -> None:
    rows = (
        receipt(1), receipt(2, "in_doubt"), receipt(3, "failed"), receipt(4, "succeeded"),
        receipt(5, "succeeded", "b"), wait(5, step="b"), receipt(6, shared=False),
    )  # fmt: skip
    found = [*ended(run_of(*rows, finished=was), run_of(*rows, finished=finished), [], [])]
    assert found == ([("k8", f"{UUID(int=1)}:doubt"), ("k7", f"{UUID(int=2)}:doubt")] if says else [])


def test_those_who_wait_for_an_effect_have_a_name_of_its_key() -> None:
    assert name_of("k1") == "shared:k1"
