"""Helpers of tests/runtime that several test files share: from test_refusals_hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.starting import StartRequest, start_named
from tests.support.people import add_person
from tests.support.runtime_again import approved_by

PAY = """
workflow: pay
version: 1
steps:
  - {id: a, do: probe.effect.apply, with: {name: a, amount: 5}}
"""


def bundling_in(runtime: Any, folder: Path) -> Bundling:
    blobs, signer = FileBlobStore(folder / "blobs"), FileSigner.load_or_create(folder / "key")
    return Bundling(blobs, signer, "test", runtime.definitions)


async def retried(runtime: Any, folder: Path, run_id: UUID, actor: Actor) -> None:
    bundling = bundling_in(runtime, folder)
    await runtime.trouble.drop_messages_except("bundle", "cancel", "shared", "return")
    await Dispatcher(runtime.database, bundling.handlers(), "d").work_off()
    await runtime.retry(run_id, actor=actor)
    await runtime.worker().work_off()


async def asked(runtime: Any) -> list[Any]:
    return list(await runtime.books.approvals(open=True))


WITHIN = "workflow: within\nversion: 1\nsteps:\n  - {id: c, run: pay}\n"
GATE = """
workflow: gate
version: 1
steps:
  - {id: a, approve: {summary: "Close it?", approvers: {group: leads}}}
"""


async def office(runtime: Any, *texts: str, policy: str = "") -> None:
    """Raj asks, lea and leo decide; Ben is a colleague of Raj, ``bot`` is Raj's machine and ``robot`` Ben's."""
    await runtime.tenant()
    await runtime.policy(policy or approved_by("leads", 1))
    for text in texts or (PAY,):
        await runtime.publish(text)
    for person, groups in {"raj": (), "ben": (), "cy": (), "lea": ("leads",), "leo": ("leads",)}.items():
        await add_person(
            runtime.database,
            "acme",
            person,
            groups,
            principals=(f"email:{person}@x.example", f"slack:U{person.upper()}"),
        )
    await add_person(runtime.database, "acme", "bot", owner="raj")
    await add_person(runtime.database, "acme", "robot", owner="ben")


async def started(runtime: Any, by: str, ref: str, name: str = "pay", trigger: dict[str, Any] | None = None) -> UUID:
    request = StartRequest("acme", "main", "test", ref, trigger or {}, by, Actor("person", by))
    run_id: UUID = (await start_named(runtime.faces, runtime.definitions, name, None, request)).run_id
    await runtime.worker().work_off()
    return run_id
