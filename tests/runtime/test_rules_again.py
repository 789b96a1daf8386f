"""Rules are evaluated once more by whoever verifies, over facts that are disclosed beside the bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.compiling import Texts
from core.errors import InputError
from evidence.bundle import build_bundle
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import Row, verify_bundle
from runtime.keep.bundling import Bundling, content_of
from runtime.requests.disclosing import disclose
from tests.support.forging import Forged, laid
from tests.support.other_verifiers import by_node, by_python
from tests.support.runtime_stage import ACTOR

WORKFLOW = """
workflow: thrice
version: 1
reference: r
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
  - {id: b, do: probe.secret.send, needs: [a], with: {name: b, password: open-sesame}}
  - {id: c, do: probe.effect.apply, needs: [b], with: {name: c}}
"""
POLICY = """
policy: few
version: 1
rules:
  - id: few
    match: {connector: probe}
    when: counters.writes_in_run < 2
    outcome: allow
    otherwise: needs_approval
    approvers: [{group: owners}]
"""
ASKED = ("approval.requested", "approval.voted", "approval.decided", "approval.superseded")
FACTS = {"action.operation": "probe.effect.apply", "counters.writes_in_run": 2}


@pytest.fixture
async def thrice(runtime: Any, tmp_path: Path) -> tuple[Any, Any, Path, Path, Any]:
    """The bundle of a run whose third write people approved, and the trusted key."""
    await runtime.tenant()
    await runtime.policy(POLICY)
    await runtime.person("ana", ("owners",))
    await runtime.publish(WORKFLOW, filled=False)
    run = (await runtime.start("thrice")).run_id
    await runtime.worker().work_off()
    assert (await runtime.vote("ana", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run) == "succeeded"
    signer = FileSigner.load_or_create(tmp_path / "key.pem")
    making = Bundling(FileBlobStore(tmp_path), signer, "test", runtime.definitions)
    async with runtime.database.connection() as connection:
        material = await making.material(connection, "acme", run)
    bundle, key = tmp_path / "bundle.zip", tmp_path / "public.pem"
    made = build_bundle(content_of(material, "test"), signer)
    laid(bundle, made)
    key.write_bytes(signer.public_key.pem)
    return run, signer, bundle, key, made


def rules(bundle: Path, key: Path, *disclosed: Path) -> Row:
    found = verify_bundle(bundle, public_key=key, compiler=Texts(), disclosed=disclosed)
    assert [row.check for row in found.failed if row.check != "rules"] == [], found.to_text()
    return next(row for row in found.rows if row.check == "rules")


def let_out(f: Forged) -> None:
    """The third write went out by itself: nobody was asked, and its decision says so."""
    f.drop(*ASKED, step="c")
    f.drop("step.parked", "step.resumed", step="c")
    f.drop("step.started", "decision.made", step="c", number=1)
    f.event("decision.made", step="c")["data"]["outcome"] = "allow"
    f.event("action.intended", step="c")["data"].update(
        approval=None, decision=f.event("decision.made", step="c")["data"]["decision"]
    )
    for number, place in enumerate(place for place, e in enumerate(f.events) if e["type"] == "checkpoint.committed"):
        f.events[place]["data"]["number"] = number


async def test_a_verdict_that_the_rules_do_not_give_is_found_where_facts_are_disclosed(
    runtime: Any, thrice: Any, tmp_path: Path
) -> None:
    run, signer, bundle, key, made_of = thrice
    assert (rules(bundle, key).status, rules(bundle, key).detail[:19]) == ("not_proven", "rules not evaluated")
    more = tmp_path / "more.jsonl"
    async with runtime.faces.transaction("acme") as connection:
        made = await disclose(connection, "acme", runtime.definitions, ACTOR, run, ["decision.made/facts"])
    more.write_bytes(made.lines)
    told = rules(bundle, key, more)
    assert (told.status, told.detail.split()[0]) == ("ok", str(made.lines.count(b"\n"))), told
    lines = made.lines.splitlines(keepends=True)
    more.write_bytes(b"".join(lines[1:]))
    told = rules(bundle, key, more)
    assert (told.status, "of 1 rules not evaluated" in told.detail) == ("not_proven", True), told

    for shown, status in ({}, "not_proven"), (FACTS, "failed"), ({**FACTS, "counters.writes_in_run": 1}, "not_proven"):
        forged = Forged(made_of)
        let_out(forged)
        if shown:
            values = {f"/facts/{name}": fact for name, fact in shown.items()}
            forged.bind("decision.made", "c", values, values)
        laid(tmp_path / "forged.zip", forged.sealed(signer))
        assert rules(tmp_path / "forged.zip", key).status == status, "false facts that fit are found by no judge"


async def test_a_further_file_opens_only_what_its_bundle_binds_and_nothing_secret(
    runtime: Any, thrice: Any, tmp_path: Path
) -> None:
    run, _, bundle, key, _ = thrice

    async def opened(*paths: str) -> Any:
        async with runtime.faces.transaction("acme") as connection:
            return await disclose(connection, "acme", runtime.definitions, ACTOR, run, paths)

    every = await opened("action.intended", "decision.made")
    assert (every.opened > 10, every.withheld > 0) == (True, True)
    assert b"sesame" not in every.lines, "a secret withholds itself, whatever it stands in"
    assert b'"name":"c"' in every.lines, "what was written is disclosed"
    with pytest.raises(InputError, match="names no value"):
        await opened("decision.made/facts", "decision.made/feelings")

    more = tmp_path / "more.jsonl"
    for data, failed in (
        (every.lines, set[str]()),
        (every.lines.replace(b'"name":"c"', b'"name":"d"'), {"further disclosures"}),
        (every.lines + every.lines.splitlines(keepends=True)[0], {"further disclosures"}),
        (b"no line", {"further disclosures"}),
    ):
        more.write_bytes(data)
        found = verify_bundle(bundle, public_key=key, disclosed=[more])
        assert {row.check for row in found.failed} == failed
        for verify in (by_node, by_python):
            assert verify(tmp_path, key, [bundle], more) == [(int(bool(failed)), failed)]
