"""A run begins from an earlier point of one that is over: what was done there stays done, and nothing is inherited."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from connectors.port import InDoubt, Refused
from core.errors import ConsistencyError, CountersealError, InputError
from evidence.bundle import build_bundle
from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.engine.life.forking import Preview
from runtime.keep.bundling import Bundling, content_of
from runtime.requests import forking
from runtime.requests.forking import Order
from runtime.requests.starting import StartRequest, start_named
from runtime.requests.steering import cancel_run
from tests.support.forging import Forged, laid
from tests.support.other_verifiers import by_node
from tests.support.verified import sound

OLGA, WHY = Actor("person", "olga"), "The table outside was wrong."
HEAD = "workflow: w\nversion: 1\nreference: ${{ run.id }}\nchannels: {log: {reduce: append, ledger: true}}\nsteps:\n"
ASKS = (
    "policy: asks\nversion: 2\nrules:\n"
    "  - {id: ask, match: {operation: probe.effect.apply}, outcome: needs_approval, approvers: [{group: owners}]}\n"
    "  - {id: read, match: {operation: probe.value.read}, outcome: allow}\n"
)


def act(name: str, value: str | None = None, more: str = "") -> str:
    return f"  - {{id: {name}, do: probe.effect.apply, with: {{name: {value or name}}}, set: {{log: {name}}}{more}}}\n"


LOOK = "  - {id: look, do: probe.value.read, with: {name: seen}}\n"
LAST = act("last", "'${{ steps.look.output.name }}-last'")
GATE = "  - {id: ok, approve: {summary: go on, approvers: {group: owners}}}\n"
IN = act("within", "'in${{ item }}'").strip()
LOOP = "  - id: each\n    foreach: '${{ [1, 2] }}'\n    steps:\n    " + IN + "\n"
VETTED = LOOP.replace("[1, 2]", "[1]").replace(IN, GATE.strip())


async def ended(runtime: Any, *steps: str, refused: str = "", policy: str | None = None) -> UUID:
    """A run that is over, or waits for people. What ``refused`` names is refused outside, once."""
    if refused:
        runtime.outside.script[refused] = [Refused("no", "not today")]
    given = {} if policy is None else {"policy": policy}
    run: UUID = await runtime.go(HEAD + "".join(steps), **given)
    for person in ("ana", "olga"):
        await runtime.person(person, ("owners",))
    await runtime.worker().work_off()
    return run


async def fork(runtime: Any, run: UUID, at: str, *, again: bool = False, why: str = WHY) -> UUID:
    async with runtime.faces.transaction("acme") as connection:
        order = Order(run, at, why, again)
        return (await forking.fork_run(connection, runtime.definitions, "acme", order, OLGA)).run_id


async def preview(runtime: Any, run: UUID, at: str) -> Preview:
    async with runtime.faces.transaction("acme") as connection:
        return await forking.preview(connection, runtime.definitions, "acme", Order(run, at, WHY))


def performed(runtime: Any) -> list[str]:
    return [call.input["name"] for call in runtime.outside.effects]


@pytest.mark.parametrize("by", ["the step", "the line"])
async def test_a_fork_goes_on_with_the_recorded_values_and_does_nothing_again(
    runtime: Any, tmp_path: Path, by: str
) -> None:
    """Its evidence names the origin's line and receipts, and verifies; what comes later is judged as its own."""
    run = await ended(runtime, LOOK, act("first"), LAST, refused="seen-last")
    found = await preview(runtime, run, "last")
    assert (found.done, found.again) == ([("first", "probe.effect.apply"), ("look", "probe.value.read")], [])
    forked = await fork(runtime, run, "last" if by == "the step" else str(found.line + 2))
    await runtime.worker().work_off()
    assert (await runtime.status(run), await runtime.status(forked)) == ("failed_terminal", "succeeded")
    assert performed(runtime) == ["first", "seen-last"]
    assert (await runtime.state(forked))["channels"] == {"log": ["first", "last"]}
    event = next(one for one in await runtime.books.events(forked) if one.type == "run.forked")
    receipt = await runtime.books.receipt(run=run, step="first")
    told = (event.data["origin"], event.data["line"], event.data.get("again"))
    assert told == (str(run), found.line, None)
    assert str(receipt.id) in event.data["receipts"]
    await sound(runtime, forked, tmp_path)


async def test_people_are_asked_anew_and_whoever_forked_does_not_decide(runtime: Any, tmp_path: Path) -> None:
    """Each question is the fork's own, though the origin's was answered; the person who forks asks for all of it."""
    run = await ended(runtime, LOOK, LAST, policy=ASKS)
    assert (await runtime.vote("ana", "approve")).counted
    runtime.outside.script["seen-last"] = [Refused("no", "not today")]
    await runtime.worker().work_off()
    forked = await fork(runtime, run, "last")
    await runtime.worker().work_off()
    assert (await runtime.status(forked), performed(runtime)) == ("waiting_approval", [])
    assert not (await runtime.vote("olga", "approve")).counted
    assert (await runtime.vote("ana", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(forked), performed(runtime)) == ("succeeded", ["seen-last"])
    await sound(runtime, forked, tmp_path)


async def test_what_was_done_after_the_point_is_done_again_only_by_order(runtime: Any, tmp_path: Path) -> None:
    run = await ended(runtime, act("first"), LOOK, LAST)
    with pytest.raises(ConsistencyError, match=r"last \(probe.effect.apply\)"):
        await fork(runtime, run, "last")
    runtime.outside.may_repeat.add("seen-last")
    forked = await fork(runtime, run, "last", again=True)
    await runtime.worker().work_off()
    assert performed(runtime) == ["first", "seen-last", "seen-last"]
    await sound(runtime, forked, tmp_path)


async def test_a_run_has_one_fork_and_is_not_retried_then_and_a_fork_is_forked_like_any_run(
    runtime: Any, tmp_path: Path
) -> None:
    run = await ended(runtime, act("first"), LOOK, LAST, refused="seen-last")
    runtime.outside.script["seen-last"] = [Refused("no", "not today")]
    forked = await fork(runtime, run, "look")
    await runtime.worker().work_off()
    for verb in (fork(runtime, run, "last"), runtime.retry(run)):
        with pytest.raises(ConsistencyError, match=str(forked)):
            await verb
    second = await fork(runtime, forked, "look")
    await runtime.worker().work_off()
    assert (await runtime.status(second), performed(runtime)) == ("succeeded", ["first", "seen-last"])
    await sound(runtime, second, tmp_path)


# The steps, what is refused outside, the point, and the words of the refusal; None if it can be forked there.
POINTS: dict[str, tuple[tuple[str, ...], str, str, str | None]] = {
    "before a gate": ((act("first"), GATE, act("last")), "first", "first", None),
    "a loop that has just begun": ((LOOK, LOOP), "in1", "each[0].within", None),
    "behind a loop": ((LOOP, act("last")), "last", "last", None),
    "in the middle of a loop": ((LOOP,), "in2", "each[1].within", "the loop each"),
    "no such step": ((act("first"),), "first", "other", "no step of this name"),
    "no such line": ((act("first"),), "first", "9999", "no such line"),
    "in front of the first line": ((act("first"),), "first", "0", "no such line"),
}


@pytest.mark.parametrize("case", POINTS)
async def test_points_of_a_run(runtime: Any, tmp_path: Path, case: str) -> None:
    steps, refused, at, words = POINTS[case]
    run = await ended(runtime, *steps, refused=refused)
    before = performed(runtime)
    if words is not None:
        with pytest.raises(CountersealError, match=words):
            await fork(runtime, run, at)
        return
    forked = await fork(runtime, run, at)
    await runtime.worker().work_off()
    assert performed(runtime)[: len(before)] == before
    assert len(set(performed(runtime))) == len(performed(runtime))
    if "gate" not in case:
        assert await runtime.status(forked) == "succeeded"
        await sound(runtime, forked, tmp_path)


@pytest.mark.parametrize("gate", [GATE, VETTED], ids=["a gate", "a loop that holds one"])
async def test_no_answer_at_a_gate_lets_a_fork_go_on(runtime: Any, gate: str) -> None:
    run = await ended(runtime, gate, act("last"), refused="last")
    assert (await runtime.vote("ana", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run) == "failed_terminal"
    with pytest.raises(ConsistencyError, match="is over, where people may have let this run go on"):
        await fork(runtime, run, "last")


async def test_runs_that_are_not_forked(runtime: Any) -> None:
    """One that goes on, one of which something is in doubt, one without a reason; and no key can pass for a fork."""
    waits = await ended(runtime, act("first"), GATE)
    with pytest.raises(ConsistencyError, match="both would do the same"):
        await fork(runtime, waits, "ok")
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", waits, OLGA, "")
    with pytest.raises(InputError, match="reason"):
        await fork(runtime, waits, "ok", why=" ")
    assert await fork(runtime, waits, "ok")
    request = StartRequest("acme", "main", "http", f"fork:{uuid4()}", {}, "ana", OLGA)
    with pytest.raises(InputError, match="fork:"):
        await start_named(runtime.faces, runtime.definitions, "w", None, request)


async def test_nothing_is_forked_over_a_doubt(runtime: Any) -> None:
    runtime.outside.script["last"] = [InDoubt("no answer")]
    run = await ended(runtime, act("first"), act("last"))
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run, OLGA, "")
    await runtime.worker().work_off()
    if await runtime.status(run) == "canceled":
        with pytest.raises(ConsistencyError, match="Nobody knows"):
            await fork(runtime, run, "last", again=True)


CHILD = "workflow: child\nversion: 1\nreference: ${{ run.id }}\nsteps:\n"
CHILD += "  - {id: deep, do: probe.effect.apply, with: {name: deep}}\n"


@pytest.mark.parametrize("step", ["run: child", "continue_with: {workflow: child}"])
@pytest.mark.parametrize("came", ["goes on", "Nobody knows", ""])
async def test_nothing_is_forked_over_a_run_below_that_goes_on_or_is_in_doubt(
    runtime: Any, step: str, came: str
) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CHILD)
    await runtime.publish(HEAD + act("first") + f"  - {{id: sub, {step}}}\n" + act("last"))
    runtime.outside.script = {} if not came else {"deep": [InDoubt("no answer")]}
    runtime.outside.script["last"] = [Refused("no", "not today")]
    run = (await runtime.start("w", {}, ref="one")).run_id
    await runtime.worker().work_off()
    (child,) = [one.id for one in await runtime.books.runs() if one.id != run]
    canceled = {"goes on": [run], "Nobody knows": [run, child]}.get(came, [])
    async with runtime.faces.transaction("acme") as connection:
        for one in canceled:
            if await runtime.status(one) not in ("succeeded", "canceled", "failed_terminal"):
                await cancel_run(connection, runtime.definitions, "acme", one, OLGA, "")
    await runtime.worker().work_off()
    if came:
        with pytest.raises(ConsistencyError, match=came):
            await fork(runtime, run, "sub", again=True)
        assert performed(runtime) == ["first"]
        return
    await fork(runtime, run, "sub", again=True)
    await runtime.worker().work_off()
    assert performed(runtime).count("deep") == 2


AT = "run.forked"
# What nobody may make of the history of a fork, and the words of the verifier that finds it.
FALSE: dict[str, tuple[Any, str]] = {
    "": (lambda f: None, ""),
    "nothing tells of it": (lambda f: f.drop(AT), "begins before first is over"),
    "later than its opening": (lambda f: f.events.insert(2, f.events.pop(f.at(AT))), "at its opening, or not at all"),
    "a gate": (lambda f: f.event(AT)["data"]["steps"].append(["ok", "approve", "succeeded"]), "takes over the gate ok"),
    "no step": (lambda f: f.event(AT)["data"]["steps"].append(["x", "set", "succeeded"]), "x, which is no such step"),
    "another operation": (lambda f: f.event(AT)["data"]["steps"].append(["last", "set", "failed"]), "no such step"),
    "not over": (lambda f: f.event(AT)["data"]["steps"].append(["last", "probe.effect.apply", "open"]), "that is over"),
    "twice": (lambda f: f.event(AT)["data"]["steps"].append(["first", "probe.effect.apply", "failed"]), "that is over"),
}


async def test_a_false_history_of_a_fork_is_found_by_every_verifier(runtime: Any, tmp_path: Path) -> None:
    run = await ended(runtime, act("first"), act("last"), GATE, refused="last")
    forked = await fork(runtime, run, "last")
    await runtime.worker().work_off()
    assert (await runtime.vote("ana", "approve")).counted
    await runtime.worker().work_off()
    signer, key, path = FileSigner.load_or_create(tmp_path / "key.pem"), tmp_path / "public.pem", tmp_path / "made.zip"
    key.write_bytes(signer.public_key.pem)
    async with runtime.database.connection() as connection:
        making = Bundling(FileBlobStore(tmp_path), signer, "test", runtime.definitions)
        bundle = build_bundle(content_of(await making.material(connection, "acme", forked), "test"), signer)
    for name, (forge, words) in FALSE.items():
        forged = Forged(bundle)
        forge(forged)
        laid(path, forged.sealed(signer))
        found = " ".join(row.detail for row in verify_bundle(path, public_key=key).failed)
        ((_, rows),) = by_node(tmp_path, key, [path])
        assert (words in found, bool(found), bool(rows)) == (True, bool(name), bool(name)), (name, found, rows)
