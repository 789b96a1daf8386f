"""The log tells an operator what happened: one line with tenant, run, reference, step, operation and code."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from connectors.port import NotSent, Refused
from core.db import after_commit
from core.errors import InputError
from evidence.events import RUN_EVENTS, TENANT_EVENTS
from runtime.engine.book import notices
from tests.support.runtime_again import DENY, PROBED, approved_by, begun, in_doubt
from tests.support.runtime_pausing import pause, resume

REFERENCED = PROBED.replace("${{ run.id }}", "INC0010001")


def test_each_kind_of_fact_has_a_line_or_is_known_to_have_none() -> None:
    """A new kind of event has to be put into one of these tables by whoever adds it."""
    for of, silent, kinds in (
        (notices.OF_RUNS, notices.SILENT_OF_RUNS, RUN_EVENTS),
        (notices.OF_TENANTS, notices.SILENT_OF_TENANTS, TENANT_EVENTS),
    ):
        assert {*of} | silent == kinds
        assert not {*of} & silent


async def _denied(runtime: Any) -> None:
    await begun(runtime, REFERENCED, policy=DENY)
    await runtime.worker().work_off()


async def _failed(runtime: Any) -> None:
    runtime.outside.script["a"] = [Refused("not_found", "There is no such thing.")]
    await begun(runtime, REFERENCED)
    await runtime.worker().work_off()


async def _asked(runtime: Any) -> None:
    await begun(runtime, REFERENCED, policy=approved_by("leads", 1))
    await runtime.worker().work_off()
    await runtime.vote("lea", "reject")
    await runtime.worker().work_off()


async def _doubted(runtime: Any) -> None:
    await in_doubt(runtime, "person", effect=True)
    await runtime.worker().work_off()


async def _busy(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("429", 60.0)]
    await begun(runtime, REFERENCED)
    await runtime.worker().work_off()


async def _paced(runtime: Any) -> None:
    runtime.connectors.rates = {"probe": 1}
    await begun(runtime, REFERENCED)
    await runtime.start("w", ref="two")
    await runtime.worker().work_off()


async def _paused(runtime: Any) -> None:
    run_id = await begun(runtime, REFERENCED)
    await pause(runtime, "run", run_id)
    await pause(runtime, "tenant", run_id)
    await resume(runtime, "tenant", run_id)


# What is done, and lines that tell it: their words, and facts that stand beside them.
TOLD: dict[str, tuple[Any, dict[str, dict[str, Any]]]] = {
    "an action is denied": (
        _denied,
        {
            "run started": {"workflow": "w 1", "reference": "INC0010001"},
            "action denied": {"step": "a", "operation": "probe.effect.apply", "rules": ["stop"]},
            "run ended": {"status": "failed_terminal", "code": "policy_denied", "log_level": "warning"},
        },
    ),
    "a step fails": (
        _failed,
        {
            "action failed": {"code": "not_found", "operation": "probe.effect.apply"},
            "step failed": {"step": "a", "code": "not_found", "reference": "INC0010001"},
        },
    ),
    "people are asked": (
        _asked,
        {
            "question asked": {"tier": "medium", "operation": "probe.effect.apply", "log_level": "info"},
            "vote recorded": {"choice": "reject", "actor": "lea"},
            "question answered": {"outcome": "rejected", "step": "a"},
        },
    ),
    "an action is in doubt": (
        _doubted,
        {
            "a worker is gone; its step is ready for another": {"step": "a"},
            "action in doubt": {"operation": "probe.mail.send"},
            "doubt resolved": {"by": "people", "step": "a"},
            "run ended": {"status": "succeeded", "log_level": "info"},
        },
    ),
    "a target asks for no calls": (
        _busy,
        {
            "a target asks for no calls; the tenant's steps wait": {"target": "probe"},
            "step waits": {"step": "a", "waits": "busy", "target": "probe", "attempt": 1, "log_level": "info"},
        },
    ),
    "a step waits for the rate of its target": (
        _paced,
        {"step waits": {"step": "a", "waits": "rate", "target": "probe", "operation": "probe.effect.apply"}},
    ),
    "somebody pauses": (
        _paused,
        {"run paused": {"actor": "olga"}, "pause set": {"reason": "An emergency."}, "pause lifted": {}},
    ),
}


@pytest.mark.parametrize("what", [*TOLD])
async def test_what_happens_to_a_run_has_a_line(runtime: Any, what: str) -> None:
    done, wanted = TOLD[what]
    with structlog.testing.capture_logs() as lines:
        await done(runtime)
    for words, facts in wanted.items():
        line = next((line for line in lines if line["event"] == words), {})
        assert line, f"{words} is not among {[line['event'] for line in lines]}"
        assert {name: line.get(name) for name in facts} == facts
        assert line["tenant"] == "acme"
        assert line.get("run") or words.startswith(("pause ", "a target "))
        assert "until" in line or not words.endswith((" waits", " wait"))
    assert "because" not in str(lines), "no reason and no other value is in a line"


async def test_a_transaction_that_is_rolled_back_says_nothing(runtime: Any) -> None:
    said: list[str] = []
    for error in (None, InputError("No.")):
        try:
            async with runtime.database.transaction() as connection:
                after_commit(connection, lambda: said.append("done"))
                assert said == ([] if error is None else ["done"])
                if error is not None:
                    raise error
        except InputError:
            pass
    async with runtime.database.transaction():
        pass
    assert said == ["done"]
