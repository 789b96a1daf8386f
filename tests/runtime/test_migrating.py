"""Waiting runs move to a mended version by order alone: each moves whole, or is refused with its reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from app.compiling import Texts
from core.errors import AuthorizationError, InputError, NotFoundError
from evidence.bundle import build_bundle
from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling, content_of
from runtime.requests import several
from runtime.requests.migrating import Move, prepared
from runtime.requests.publishing import retire_workflow
from tests.support.forging import Forged, laid
from tests.support.other_verifiers import by_node, by_python, row_by_each
from tests.support.verified import sound

ACTOR = Actor("test", "olga")
# COUNTERSEAL_MIGRATED_RUNS=212 moves two hundred and refuses twelve.
RUNS, BAD = int(os.environ.get("COUNTERSEAL_MIGRATED_RUNS", "24")), 12

HEAD = "workflow: w\nversion: %s\nreference: ${{ run.id }}\n%ssteps:\n"
FIRST = "  - {id: first, do: probe.effect.apply, with: {name: first}}\n"
GO = "  - {id: go, wait: {signal: go, correlate: '${{ run.id }}'}}\n"
LAST = "  - {id: last, do: probe.effect.apply, with: {name: last}}\n"
OK = "  - {id: ok, approve: {summary: go on, approvers: {group: owners}}}\n"
READ = "  - {id: look, do: probe.value.read, with: {name: seen}}\n"


def text(version: int, *steps: str, more: str = "") -> str:
    return HEAD % (version, more) + "".join(steps)


async def moving(runtime: Any, *, to: int = 2, since: int = 1, owned: bool = False, **more: Any) -> Any:
    return await prepared(runtime.faces, runtime.definitions, "acme", Move("w", since, to, **more), ACTOR, owned=owned)


async def move(runtime: Any, *, to: int = 2, since: int = 1, dry: bool = False, by: Actor = ACTOR) -> list[Any]:
    steer, order = await moving(runtime, to=to, since=since), Move("w", since, to)
    place = (runtime.faces, runtime.definitions, "acme", steer)
    plan = await several.plan(*place, order.filter(), by, "It is mended.")
    return plan if dry else [one async for one in several.carry_out(*place, plan, by, "It is mended.")]


async def names(runtime: Any) -> list[str]:
    return [call.input["name"] for call in runtime.outside.effects]


async def test_a_moved_run_goes_on_with_the_new_version_and_its_whole_history_is_sound(
    runtime: Any, tmp_path: Path
) -> None:
    """Nothing is done again; outputs that only the new version reads are there, and so are its channels."""
    run_id = await runtime.go(text(1, READ, FIRST, GO, LAST))
    mended = LAST.replace("name: last", "name: '${{ steps.look.output.name + state.more }}'")
    more = "channels: {more: {initial: '-${{ run.id }}'}}\n"
    after = "  - {id: after, do: probe.effect.apply, with: {name: after}}\n"
    await runtime.publish(text(2, READ, FIRST, GO, mended, after, more=more))
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "waiting", "nothing moves without the order"
    (planned,) = await move(runtime, dry=True)
    assert (planned.ok, "run.migrated" in await runtime.events(run_id)) == (True, False)
    (told,) = await move(runtime)
    assert (told.ok, told.says) == (True, "waiting")
    assert await move(runtime) == [], "it is of the new version, in lists as well"
    await runtime.signal(f"go:{run_id}", {})
    runtime = runtime.restarted()
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert await names(runtime) == ["first", f"seen-{run_id}", "after"]
    await sound(runtime, run_id, tmp_path)


async def asked(runtime: Any, old: str, new: str, policy: str | None = None) -> Any:
    """A run waits for its gate, and a version follows."""
    run_id = await (runtime.go(old) if policy is None else runtime.go(old, policy=policy))
    for person in ("ana", "ben"):
        await runtime.person(person, ("owners",))
    await runtime.publish(new)
    await runtime.worker().work_off()
    return run_id


async def test_a_question_that_changes_is_void_and_asked_anew_and_one_that_does_not_stays(
    runtime: Any, tmp_path: Path
) -> None:
    changed = text(2, FIRST, OK.replace("go on", "really go on"), LAST)
    run_id = await asked(runtime, text(1, FIRST, OK, LAST), changed)
    first = await runtime.question()
    (told,) = await move(runtime)
    assert (told.ok, told.says) == (True, "running; asked anew: ok")
    await runtime.worker().work_off()
    second = await runtime.question()
    assert second != first
    assert not (await runtime.vote("ana", "approve", on=first)).counted
    await runtime.publish(text(3, FIRST, OK.replace("go on", "really go on"), READ, LAST))
    (again,) = await move(runtime, since=2, to=3)
    assert (again.says, await runtime.question()) == ("waiting_approval", second)
    assert (await runtime.vote("ana", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), await names(runtime)) == ("succeeded", ["first", "last"])
    await sound(runtime, run_id, tmp_path)


EVIL = LAST.replace("name: last", "name: evil")


@pytest.mark.parametrize("step", [EVIL, LAST + EVIL.replace("id: last", "id: more"), LAST])
async def test_an_open_gate_is_asked_anew_if_what_follows_changes_and_whoever_moved_the_run_does_not_decide(
    runtime: Any, tmp_path: Path, step: str
) -> None:
    run_id = await asked(runtime, text(1, FIRST, OK, LAST), text(2, FIRST, OK, READ, step))
    first = await runtime.question()
    (told,) = await move(runtime, by=Actor("person", "ana"))
    await runtime.worker().work_off()
    assert (told.ok, await runtime.question() == first) == (True, step == LAST), told.says
    assert not (await runtime.vote("ana", "approve")).counted
    assert (await runtime.vote("ben", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    await sound(runtime, run_id, tmp_path)


TWICE = LAST.replace("id: last", "id: other").replace("name: last", "name: first")
NESTED = "  - {if: '${{ true }}', id: c, then: [{id: last, do: probe.effect.apply, with: {name: last}}]}\n"
UNNAMED = "  - {if: '${{ true }}', then: [{id: first, do: probe.effect.apply, with: {name: first}}]}\n"
LOOP = (
    "  - id: each\n    foreach: '${{ [1, 2] }}'\n    steps:\n"
    "      - {id: vet, approve: {summary: one, approvers: {group: owners}}}\n"
    "      - {id: act, do: probe.effect.apply, with: {name: 'a${{ item }}'}}\n"
)
TASK = (
    "  - id: fill\n"
    "    task: {title: %s, assign: {group: owners}, form: {type: object, properties: {x: {type: string}}}}\n"
)
IN_LOOP = "  - {id: l, foreach: '${{ [1] }}', steps: [{id: first, do: probe.effect.apply, with: {name: first}}]}\n"
SET = "  - {id: put, set: {n: '${{ run.id }}'}}\n"
SAID = LAST.replace("name: last", "name: '${{ state.n[0] }}'")
STATE = "channels: {n: {reduce: append}}\n"

# Why a run is not moved: the old version, the new one, and what is said.
REFUSED = {
    "a step that ran is gone": (text(1, FIRST, OK, LAST), text(2, OK, LAST), "first has begun"),
    "a step that waits is gone": (text(1, FIRST, OK, LAST), text(2, FIRST, LAST), "ok has begun"),
    "a step that ran is of another kind": (
        text(1, FIRST, OK, LAST), text(2, READ.replace("id: look", "id: first"), OK, LAST), "first has begun, and is of"
    ),
    "a step that ran is in a loop now": (
        text(1, FIRST, OK, LAST), text(2, IN_LOOP, OK, LAST), "first has begun, and stands elsewhere"
    ),
    "an effect would be done again under another name": (
        text(1, FIRST, OK, LAST), text(2, FIRST, OK, TWICE, LAST), "other would do again what first has done"
    ),
    "a step without an id of its own is another one": (
        text(1, UNNAMED, OK, LAST), text(2, UNNAMED.replace("true", "1 == 1"), OK, LAST), "no id of its own"
    ),
    "a gate ahead is gone": (
        text(1, FIRST, GO, OK, LAST), text(2, FIRST, GO, LAST), "still to pass ok"
    ),
    "an effect no longer comes after its gate": (
        text(1, FIRST, OK, LAST), text(2, FIRST, OK, LAST.replace("with:", "needs: [first], with:")),
        "last no longer comes after ok",
    ),
    "a new effect before the gate": (
        text(1, FIRST, OK, LAST), text(2, FIRST, TWICE.replace("name: first", "name: x"), OK, LAST),
        "other no longer comes after ok",
    ),
    "a new gate before what has run": (
        text(1, FIRST, GO, LAST), text(2, OK, FIRST, GO, LAST), "ok of version 2 comes before first"
    ),
    "a gate that people passed says something else": (
        text(1, OK, GO, LAST), text(2, OK.replace("go on", "other"), GO, LAST), "people have passed"
    ),
    "an effect in a loop loses its gate": (
        text(1, LOOP), text(2, LOOP.replace("{id: act, do", "{id: act, needs: [], do")), "act no longer comes after vet"
    ),
    "the list of a loop changes": (text(1, LOOP), text(2, LOOP.replace("[1, 2]", "[1, 2, 3]")), "each is under way"),
    "the form of a waiting task changes": (text(1, TASK % "a"), text(2, TASK % "b"), "fill waits"),
    "the signal changes": (text(1, FIRST, GO), text(2, FIRST, GO.replace("signal: go", "signal: on")), "go waits"),
    "what comes after a passed gate is another one": (
        text(1, OK, GO, LAST), text(2, OK, GO, LAST.replace("name: last", "name: evil")), "People have passed ok"
    ),
    "what comes after a passed gate is done always": (
        text(1, OK, GO, NESTED.replace("true", "false")), text(2, OK, GO, NESTED), "People have passed ok"
    ),
    "an effect is new after a passed gate": (text(1, OK, GO), text(2, OK, GO, LAST), "People have passed ok"),
    "what a passed gate's effect reads is another value": (
        text(1, OK, GO, SET, SAID, more=STATE),
        text(2, OK, GO, SET.replace("run.id", "run.reference"), SAID, more=STATE),
        "People have passed ok",
    ),
    "a channel is gone": (text(1, FIRST, OK, more=STATE), text(2, FIRST, OK), "channel n is gone"),
    "a channel is folded otherwise": (
        text(1, FIRST, OK, more=STATE), text(2, FIRST, OK, more=STATE.replace("append", "union")), "channel n is gone"
    ),
    "the trigger does not fit": (
        text(1, FIRST, OK), text(2, FIRST, OK, more="trigger: {type: object, required: [who]}\n"), "does not take"
    ),
    "it would fail at once": (
        text(1, FIRST, OK),
        text(2, FIRST, OK, "  - {id: c, needs: [first], if: '${{ trigger.none == 1 }}', then: [{set: {}, id: d, "
             "reference: 'x'}]}\n"), "would fail at once",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_a_run_is_refused_with_its_reason_and_stays_as_it_was(runtime: Any, case: str) -> None:
    old, new, why = REFUSED[case]
    await asked(runtime, old, new)
    if "passed" in case:
        await runtime.vote("ana", "approve")
        await runtime.worker().work_off()
    if "loop loses" in case:  # its first iteration is over, and the gate of the second is still ahead
        await runtime.vote("ana", "approve")
        await runtime.worker().work_off()
    before = await runtime.fingerprint()
    (told,) = await move(runtime)
    assert (told.ok, why in told.says) == (False, True), told.says
    assert await runtime.fingerprint() == before


async def test_many_runs_are_moved_or_refused_each_by_itself(runtime: Any) -> None:
    """Those in the middle of a leased step cannot; all chains stay whole, and every run ends once."""
    await runtime.tenant(concurrency=64)
    await runtime.policy()
    await runtime.publish(text(1, FIRST, GO, LAST))
    runs = [(await runtime.start("w", ref=str(number))).run_id for number in range(RUNS)]
    await runtime.worker(concurrency=16).work_off()
    await runtime.publish(text(2, FIRST, GO, READ, LAST))
    stuck = runs[:BAD]
    for run_id in stuck:
        await runtime.signal(f"go:{run_id}", {})  # their steps stand in line
    told = await move(runtime)
    assert ({one.run_id for one in told if not one.ok}, len(told)) == ({*stuck}, RUNS)
    assert all("in the middle of its work" in one.says for one in told if not one.ok)
    for run_id in runs[BAD:]:
        await runtime.signal(f"go:{run_id}", {})
    await runtime.restarted().worker(concurrency=16).work_off()
    assert (await names(runtime)).count("last") == RUNS
    for run_id in runs:
        assert (await runtime.status(run_id), run_id) == ("succeeded", run_id)
        await runtime.history(run_id)
        assert ("run.migrated" in await runtime.events(run_id)) is (run_id not in stuck)


async def test_who_may_publish_the_workflow_may_move_its_runs_and_only_to_what_runs_may_start_with(
    runtime: Any,
) -> None:
    await runtime.go(text(1, FIRST, GO, LAST))
    await runtime.publish(text(2, FIRST, GO, LAST.replace("last", "end")))
    with pytest.raises(AuthorizationError, match="belongs to test"):
        await moving(runtime, owned=True)
    for wrong in (Move("w", 2, 2), Move("w", 1, 2, ["version=3"]), Move("w", 1, 2, ["workflow=x"])):
        with pytest.raises(InputError):
            wrong.filter()
    with pytest.raises(NotFoundError):
        await moving(runtime, since=7)
    with pytest.raises(AuthorizationError, match="Counterseal's own"):
        await prepared(runtime.faces, runtime.definitions, "acme", Move("counterseal-x", 1, 2), ACTOR, owned=False)
    (told,) = await move(runtime, to=3)
    assert (told.ok, "no workflow 'w' version 3" in told.says) == (False, True)
    async with runtime.faces.transaction("acme") as connection:
        await retire_workflow(connection, "acme", "w", 2, ACTOR)
    (told,) = await move(runtime)
    assert (told.ok, "is retired" in told.says) == (False, True)


BEFORE, AT = "approval.requested", "run.migrated"
# What nobody may make of the history of a moved run, and the words of the verifier that finds it.
FALSE: dict[str, tuple[Any, str]] = {
    "nothing tells of it": (lambda f: f.drop(AT), "more editions than the events tell"),
    "another number": (lambda f: f.event(AT)["data"].update(number=2), "migration 2 is number 1"),
    "another definition before": (lambda f: f.event(AT)["data"].update(before="0" * 64), "another definition before"),
    "another definition after": (lambda f: f.event(AT)["data"].update(definition="0" * 64), "not the one that is here"),
    "a declaration that is another": (
        lambda f: f.definition["added"]["probe.value.read"].update(reversible=True), "not the one that is here"
    ),
    "its mover decides on what comes": (
        lambda f: f.event(AT)["actor"].update(kind="person", id="ana"), "ana moved the run to another version"
    ),
    "told twice": (lambda f: f.events.insert(f.at(AT), f.event(AT)), "migration 1 is number 2"),
    "no text": (lambda f: f.event(AT)["data"].update(workflow={}), "not the one that is here"),
    "no edition": (lambda f: f.definition["editions"].pop(), "has no such edition"),
    "another edition": (lambda f: f.definition["migrated"][0].update(edition=7), "not the one that is here"),
    "an operation more": (
        lambda f: f.definition["migrated"][0]["operations"].append("x.y.z"), "not the one that is here"
    ),
    "no migration": (lambda f: f.definition["migrated"].clear(), "not the one that is here"),
    "a gate before what ran": (
        lambda f: f.definition["editions"][1]["first"].update(needs=["sure"]), "comes after the gate sure"
    ),
    "a need of nobody": (lambda f: f.definition["editions"][1]["first"].update(needs=["nobody"]), "first needs nobody"),
    "in the middle of a step": (lambda f: f.events.insert(f.at(BEFORE), f.events.pop(f.at(AT))), "middle of its work"),
    "a step that ran is gone": (
        lambda f: f.definition["editions"][1].update(gone=f.definition["editions"][1].pop("first")), "does not have it"
    ),
    "a gate ahead is gone": (
        lambda f: f.definition["editions"][1]["sure"].update(operation="set", terms=None), "still ahead"
    ),
    "a text that is not its own": (
        lambda f: f.edits.append(lambda files: files.update({"workflow/w-2.yaml": b"workflow: w"})), "not the text"
    ),
    "steps that its text does not have": (
        lambda f: f.definition["editions"][1]["last"].update(needs=["ok"]), "to which the run was moved"
    ),
}  # fmt: skip


async def test_a_false_history_of_a_moved_run_is_found_by_every_verifier(runtime: Any, tmp_path: Path) -> None:
    sure = OK.replace("id: ok", "id: sure")
    run_id = await asked(runtime, text(1, FIRST, OK, sure, LAST), text(2, FIRST, OK, READ, sure, LAST))
    await move(runtime)
    for _ in range(2):
        await runtime.vote("ana", "approve")
        await runtime.worker().work_off()
    signer, key = FileSigner.load_or_create(tmp_path / "key.pem"), tmp_path / "public.pem"
    key.write_bytes(signer.public_key.pem)
    async with runtime.database.connection() as connection:
        making = Bundling(FileBlobStore(tmp_path), signer, "test", runtime.definitions)
        bundle = build_bundle(content_of(await making.material(connection, "acme", run_id), "test"), signer)
    paths = {name: tmp_path / f"{number}.zip" for number, name in enumerate(["", *FALSE])}
    wanted, said = list[tuple[int, set[str]]](), list[tuple[str, str]]()
    for name, (forge, words) in {"": (lambda f: None, ""), **FALSE}.items():
        forged = Forged(bundle)
        forge(forged)
        laid(paths[name], forged.sealed(signer))
        found = " ".join(row.detail for row in verify_bundle(paths[name], public_key=key, compiler=Texts()).failed)
        alone = verify_bundle(paths[name], public_key=key)
        wanted.append((alone.exit_code, {row.check for row in alone.failed}))
        said += [] if words in found else [(name, found)]
    assert said == []
    assert [name for name, (code, _) in zip(paths, wanted, strict=True) if code == 0] == ["", [*FALSE][-1]]
    for verifier in (by_python, by_node):
        assert dict(zip(paths, verifier(tmp_path, key, [*paths.values()]), strict=True)) == dict(
            zip(paths, wanted, strict=True)
        )
    for _, status, detail in row_by_each(tmp_path, key, paths[""], "order of steps"):
        assert (status, "moved 1 times, not evaluated: that nothing behind a passed gate" in detail) == ("ok", True)
