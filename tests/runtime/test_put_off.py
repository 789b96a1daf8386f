"""Operations of an installation: names, fixed inputs, escalations; and the end of a wait that the outside puts off."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.errors import ConsistencyError, DefinitionError, InputError, NotFoundError
from evidence.chain import Actor
from runtime.definition.workflow import load_workflow
from runtime.requests.postponing import PutOff, put_off
from tests.support.runtime_put_off import ASKS

CLERK = Actor("person", "clerk")


async def later(runtime: Any, key: str, **more: Any) -> Any:
    return await put_off(runtime.faces, runtime.definitions, PutOff("acme", key, CLERK, **more))


@pytest.mark.req("V-2")
async def test_the_outside_may_put_off_its_end_up_to_the_declared_limit(runtime: Any) -> None:
    run_id = await runtime.go(ASKS % "")
    wait = await runtime.books.wait()
    before = await runtime.books.run(run_id)
    key, token = wait.correlation_key, wait.token
    span = wait.due_at - datetime.now(UTC)
    assert timedelta(days=6) < span < timedelta(days=8)
    moved = await later(runtime, key, span=timedelta(days=20), token=token)
    assert (moved.changed, moved.run_id, moved.step) == (True, run_id, "p")
    assert (await runtime.books.wait()).due_at >= wait.due_at + timedelta(days=12)
    again = await later(runtime, key, until=moved.due_at)
    assert (again.changed, abs(again.due_at - moved.due_at) < timedelta(seconds=2)) == (False, True)
    with pytest.raises(InputError, match="is beyond"):
        await later(runtime, key, span=timedelta(days=31))
    with pytest.raises(ConsistencyError, match="stale"):
        await later(runtime, key, span=timedelta(days=21), token="another")
    with pytest.raises(NotFoundError):
        await later(runtime, "nobody", span=timedelta(days=1))
    with pytest.raises(InputError, match="one of them"):
        await later(runtime, key)
    after = await runtime.books.run(run_id)
    assert after.version == before.version + 1, "one event, one append"
    told = [(line["type"], line["actor"]["id"]) for line in map(json.loads, await runtime.books.lines(run_id))]
    assert told[-1] == ("wait.postponed", "clerk")
    await runtime.sweep()
    assert await runtime.status(run_id) == "waiting"
    assert (await runtime.signal(key, {"papers": 1})).code == "delivered"
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    with pytest.raises(ConsistencyError, match="is over"):
        await later(runtime, key, span=timedelta(days=8))


@pytest.mark.req("V-2")
async def test_only_a_declared_limit_lets_anybody_put_it_off(runtime: Any) -> None:
    await runtime.go(ASKS.replace("kyc.papers.request", "probe.case.open") % "")
    with pytest.raises(ConsistencyError, match=r"timeouts\.extend_to"):
        await later(runtime, (await runtime.books.wait()).correlation_key, span=timedelta(days=15))


@pytest.mark.req("V-2")
async def test_fixed_inputs_are_sent_and_no_workflow_gives_them(runtime: Any) -> None:
    run_id = await runtime.go(ASKS % "")
    (receipt,) = await runtime.books.receipts(run=run_id)
    assert receipt.action["input"] == {"name": "ann", "template": "id-card"}
    assert receipt.action["summary"] == "Ask ann for an id-card"
    with pytest.raises(DefinitionError, match="fixes 'template'"):
        load_workflow(ASKS % ", template: other", "w.yaml", runtime.catalog)


@pytest.mark.req("V-12")
async def test_a_declared_escalation_asks_when_it_takes_too_long(runtime: Any) -> None:
    run_id = await runtime.go(ASKS % "")
    await runtime.person("olga", ("owners",))
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "waiting_approval"
    assert (await runtime.vote("olga", "approve")).counted
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"


@pytest.mark.req("Q-16")
async def test_a_new_name_opens_no_hole() -> None:
    from connectors.catalog import Source, load_catalog
    from connectors.proposal import build_action
    from policy.evaluate import build_facts, evaluate
    from policy.facts import FactContext
    from policy.load import load_policy
    from policy.sets import PolicySet
    from runtime.definition.catalog import operation_facts

    text = """
operations:
  - name: kyc.documents.request
    connector: bpmn
    kind: durable
    handler: bpmn:start
    params: {process: documents}
    side_effects: human_process
    risk: low
    summary: Ask for documents
    target: anything
    in_doubt: probe
    input_schema: {type: object, properties: {variables: {type: object}}, additionalProperties: false}
    output_schema: {type: object}
"""
    catalog = load_catalog([Source("kyc.yaml", text)])
    operation = catalog.get("kyc.documents.request")
    action = build_action(operation, {})
    assert action.input == {"process": "documents"}

    def judged(*policies: str) -> str:
        texts = [f"policy: p{place}\nversion: 1\n{text}" for place, text in enumerate(policies)]
        members = [load_policy(text, "p.yaml", operation_facts(catalog)) for text in texts]
        return str(evaluate(PolicySet(members), build_facts(action, FactContext()), operation.name).outcome)

    own = "rules:\n  - {id: own, match: {operation: kyc.*}, outcome: allow}\n"
    started = "  - {id: bpmn, match: {operation: bpmn.process.start}, outcome: %s%s}\n"
    assert judged(own) == "allow"
    assert judged(own + started % ("deny", "")) == "deny"
    assert judged(own + started % ("deny", ", when: \"action.fields.process == 'documents'\"")) == "deny"
    assert judged(own + started % ("deny", ", when: \"action.fields.process == 'other'\"")) == "allow"
    assert judged(own + started % ("needs_approval", ", approvers: [{group: g}]")) == "needs_approval"
    assert judged("rules:\n" + started % ("allow", "")) == "deny", "what allows the packaged one allows no other"
    assert judged("rules:\n  - {id: c, match: {connector: bpmn}, outcome: allow}\n") == "allow"
    for wrong, words in (("variables", "case_id"), ("params: {process: documents}", "params: {}")):
        with pytest.raises(DefinitionError) as caught:
            load_catalog([Source("kyc.yaml", text.replace(wrong, words))])
        assert "kyc.documents.request: bpmn:start" in str(caught.value)
    for scope in ("connectors: [bpmn]", "operations: [bpmn.process.start]", "operations: [kyc.*]"):
        everything = f"applies: {{{scope}}}\nrules:\n  - {{id: nothing, match: {{operation: '*'}}, outcome: deny}}\n"
        assert judged(own, everything) == "deny", scope
