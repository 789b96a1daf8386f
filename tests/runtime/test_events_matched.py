"""Events of ServiceNow by themselves: who asks for the runs that they start, and what is kept of those that did not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import asdict

from core.canonical import digest
from core.errors import InputError
from evidence.chain import Actor
from runtime.requests import triggers
from runtime.requests.starting import Started, StartRequest
from runtime.requests.triggers import Unstarted
from tests.support.rows import uid

pytestmark = pytest.mark.req("Q-1", "P-11")

EVENT = {"table": "incident", "event": "update", "number": "INC1"}
HERE: Any = "transaction"


class Store:
    """The store and the starts, which note what they are asked. ``before`` are workflows that the event had started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *workflows: Any, before: tuple[str, ...] = ()) -> None:
        self.requests: dict[str, StartRequest] = {}
        self.inbox, self.audit = list[tuple[Any, ...]](), list[tuple[Any, ...]]()

        async def newest(_: Any, tenant: str) -> Any:
            assert tenant == "acme"
            return workflows

        async def start(_: Any, workflow: Any, request: StartRequest) -> Started:
            self.requests[workflow.name] = request
            return Started(uid(workflow.version), workflow.name not in before, "r")

        async def inbox(*given: Any) -> None:
            self.inbox.append(given[1:])

        async def audit(*given: Any) -> None:
            self.audit.append(given[1:])

        monkeypatch.setattr(triggers.documents, "newest_workflows", newest)
        monkeypatch.setattr(triggers, "start_run", start)
        monkeypatch.setattr(triggers.inbox, "record", inbox)
        monkeypatch.setattr(triggers.inbox, "processed", inbox)
        monkeypatch.setattr(triggers.audit, "record", audit)


def compiled(one: Any) -> Any:
    if one.broken:
        raise one.broken
    return one


DEFINITIONS: Any = SimpleNamespace(compiled=compiled)


def listening(name: str, version: int, *, table: str = "incident", when: Any = None, broken: Any = None) -> Any:
    """A workflow that listens to updates; ``when`` is what its condition says."""
    condition = None if when is None else SimpleNamespace(render=lambda _: when)
    listens = SimpleNamespace(
        table=table, events=("update",), when=condition, dedupe=SimpleNamespace(render=lambda _: name)
    )
    return SimpleNamespace(name=name, version=version, servicenow=listens, broken=broken)


@pytest.mark.parametrize(
    ("opened", "requester"),
    [
        ({"opened_by_user_name": "ann", "opened_by": "0" * 32}, "ann"),
        ({"opened_by_user_name": "ann"}, "ann"),
        ({"opened_by_user_name": "", "opened_by": "0" * 32}, "0" * 32),
        ({"opened_by_user_name": None, "opened_by": "0" * 32}, "0" * 32),
        ({"opened_by": "0" * 32}, "0" * 32),
        ({"opened_by_user_name": "", "opened_by": None}, "servicenow:sn"),
        ({"opened_by": ["ann"]}, "servicenow:sn"),
        ({}, "servicenow:sn"),
    ],
)
async def test_a_run_is_asked_for_by_the_name_of_who_opened_the_record_or_else_by_the_id(
    monkeypatch: pytest.MonkeyPatch, opened: dict[str, Any], requester: str
) -> None:
    store = Store(monkeypatch, listening("flow", 1))
    event = EVENT | opened
    await triggers.start_from_servicenow(HERE, DEFINITIONS, "acme", "side", "sn", event)
    assert store.requests == {
        "flow": StartRequest("acme", "side", "servicenow", "sn:update:flow", event, requester, Actor("webhook", "sn"))
    }


async def test_one_workflow_that_cannot_be_started_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that the same event had started are among them. Each that failed is told with its own version."""
    workflows = [
        listening("broken", 7, broken=InputError("cannot be read", where="steps")),
        listening("elsewhere", 2, table="problem"),
        listening("first", 3),
        listening("odd", 4, when=1),
        listening("text", 8, when="true"),
        listening("older", 5, broken=InputError("of another release")),
        listening("second", 6, when=True),
    ]
    store = Store(monkeypatch, *workflows, before=("second",))
    started, unstarted = await triggers.start_from_servicenow(HERE, DEFINITIONS, "acme", "side", "sn", EVENT)
    assert started == [Started(uid(3), True, "r"), Started(uid(6), False, "r")]
    failed = [Unstarted("broken", 7, "steps: cannot be read"), Unstarted("older", 5, "of another release")]
    assert unstarted == failed
    event, who = digest(EVENT), Actor("webhook", "sn")
    assert store.audit == [
        ("acme", "workflow.unstarted", who, {"name": one.workflow, "version": one.version, "event": event})
        for one in failed
    ]
    told = {"runs": [str(uid(3)), str(uid(6))], "unstarted": [asdict(one) for one in failed]}
    assert store.inbox == [("acme", "servicenow:sn", event, EVENT), ("acme", "servicenow:sn", event, told)]


@pytest.mark.parametrize("kind", ["INSERT", "Update", "", "inserted", 1, ["insert"]])
def test_the_kind_of_an_event_is_written_as_it_is(kind: Any) -> None:
    with pytest.raises(InputError, match="is neither insert nor update"):
        triggers._read(EVENT | {"event": kind})
