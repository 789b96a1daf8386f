"""The end of what an action began outside: what is sent for it, and what its message comes to. Without a database."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Before, Call, Connectors, Done, InDoubt, NotSent, Parked, Refused
from runtime.engine.instructions import last_receipt
from runtime.keep.dispatcher import Delivered, Later, Undeliverable
from runtime.keep.errands import Errands
from tests.engine.governing import CASE, governed

pytestmark = pytest.mark.req("V-13")


class Desk:
    """A connector that ends what it began, and notes what it was asked for."""

    def __init__(self, answer: Any, target: str = "") -> None:
        self.asked: list[Any] = []
        self.target = target
        self._answer = answer

    async def cancel(self, call: Call, external_id: str | None) -> Any:
        self.asked.append((call, external_id))
        return self._answer

    async def perform(self, call: Call) -> Any:
        raise NotImplementedError

    async def read_before(self, call: Call) -> Before:
        raise NotImplementedError

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Any:
        raise NotImplementedError

    async def check(self) -> tuple[bool, str]:
        return True, ""

    async def aclose(self) -> None:
        """No-op: nothing is open."""


def begun(system: str = "") -> tuple[Any, Any]:
    """A workflow, and the receipt of what its step began outside."""
    run = governed(CASE, said=(Parked("c1", {"ref": 1}),))
    run.systems = {"probe": system} if system else {}
    receipt = last_receipt(run.drive().whole().run, "a")
    assert receipt is not None
    return run.workflow, receipt


async def ended(connectors: Any, workflow: Any, receipt: Any) -> Any:
    nothing: Any = None
    return await Errands(nothing, nothing, connectors)._cancel_outside(workflow, receipt)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (Done({}), Delivered()),
        (Refused("404", "no such case"), Undeliverable("404: no such case")),
        (NotSent("busy", 7.0), Later("busy", 7.0)),
        (NotSent("busy"), Later("busy")),
        (InDoubt("no answer"), Later("no answer")),
    ],
)
async def test_it_is_ended_by_the_call_that_began_it_and_its_own_id(answer: Any, result: Any) -> None:
    workflow, receipt = begun()
    desk = Desk(answer)
    assert await ended(Connectors(probe=desk), workflow, receipt) == result
    ((call, external_id),) = desk.asked
    assert (call.operation, call.input, call.idempotency_key) == (
        "probe.case.open", {"name": "x"}, receipt.idempotency_key,
    )  # fmt: skip
    assert (external_id, call.correlation_key is not None) == ("c1", True)


@pytest.mark.parametrize(
    ("began_at", "now", "result"),
    [
        ("", "", Delivered()),
        ("", "https://two", Delivered()),
        ("https://one", "https://one", Delivered()),
        (
            "https://one", "https://two",
            Undeliverable("It was begun at https://one, and https://two is called now."),
        ),
        ("https://one", "", Undeliverable("It was begun at https://one, and another system is called now.")),
    ],
)  # fmt: skip
async def test_only_the_system_at_which_it_was_begun_is_asked_to_end_it(began_at: str, now: str, result: Any) -> None:
    workflow, receipt = begun(began_at)
    desk = Desk(Done({}), now)
    assert await ended(Connectors(probe=desk), workflow, receipt) == result
    assert len(desk.asked) == (result == Delivered())


async def test_what_nobody_can_end_is_given_up_and_a_missing_connector_is_tried_a_bounded_number_of_times() -> None:
    workflow, receipt = begun()
    assert await ended(Connectors(), workflow, None) == Undeliverable("Nothing was begun outside.")
    missing = await ended(Connectors(), workflow, receipt)
    assert missing == Later(str(Connectors().missing("probe")), counted=True)
    other = replace(receipt, operation="probe.case.open")

    class Short:
        target = ""

    words = "The connector of probe.case.open cannot end what it has begun."
    assert await ended(Connectors(probe=Short()), workflow, other) == Undeliverable(words)
