"""Building bundles: complete, deterministic, and refused where the history is not whole."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace

from core.errors import ConsistencyError, InputError
from evidence import layout
from evidence.bundle import ContradictionError, DocumentText
from evidence.chain import ChainHead
from evidence.history import ATTEMPTED
from evidence.verify import verify_bundle
from tests.support.second_format import build_bundle


@pytest.mark.req("Q-21")
def test_a_bundle_holds_what_q_21_asks_for(workshop: Any) -> None:
    files = workshop.unzip(workshop.build())
    assert set(files) >= layout.ALWAYS[2]
    assert set(files) - layout.ALWAYS[2] == {
        "workflow/triage-4.yaml",
        "policy/it-operations-7.yaml",
        "approvals/a1.json",
        "receipts/receipt-1.json",
        "receipts/receipt-2.json",
    }
    run = json.loads(files[layout.RUN_FILE])
    assert [path for path, _ in run["inputs"]] == ["/run/input/number"]
    assert (run["attempts"], run["canceled"], "origins" in run) == (None, None, False)
    assert b"INC0010001" not in files[layout.RUN_FILE] + files[layout.EVENTS]
    assert [item["outcome"] for item in json.loads(files[layout.DECISIONS])] == [
        "allow",
        "needs_approval",
        "needs_approval",
    ]
    assert json.loads(files[layout.COSTS]) == [
        {"provider": "openai", "model": "m1", "calls": 1, "input_tokens": 10, "output_tokens": 2, "cost_usd": "0.0012",
         "unpriced_calls": 0}
    ]  # fmt: skip
    (checkpoint,) = json.loads(files[layout.CHECKPOINTS])
    assert (checkpoint["number"], checkpoint["source"], checkpoint["writes"]) == (1, "input", [])
    approval = json.loads(files["approvals/a1.json"])
    assert approval["card"]["title"].startswith("Raise")
    assert approval["votes"][0]["voter"] == "maria"


@pytest.mark.req("P-3")
def test_checkpoints_say_what_made_them_and_bundles_that_say_nothing_of_it_verify(workshop: Any) -> None:
    story = workshop.tell()
    at = next(n for n, event in enumerate(story.events) if event.type == "checkpoint.committed")
    wrote = replace(story.events[at], type=type(story.events[at].type)("step.succeeded"), data={"writes": ["log"]})
    story.events[at:at] = [replace(wrote, step="s0")]
    files = workshop.unzip(workshop.build(story))
    made = {"writes": [{"seq": at, "step": "s0", "channels": ["log"]}], "versions_seen": {"log": 1}}
    (told,) = json.loads(files[layout.CHECKPOINTS])
    assert {name: told[name] for name in made} == made
    older = {name: fact for name, fact in told.items() if name not in ("source", "writes", "versions_seen")}
    for kept, ok in (({}, True), ({"source": "input"}, False), ({"source": "loop", **made}, False)):
        files[layout.CHECKPOINTS] = json.dumps([{**older, **kept}]).encode()
        report = verify_bundle(workshop.pack(workshop.resign(files, workshop.signer)), public_key=workshop.key)
        assert report.ok is ok, report.to_text()


@pytest.mark.parametrize("names", ["log", [1], {"log": 1}, [None]])
def test_writes_that_name_no_channels_are_not_signed(workshop: Any, names: Any) -> None:
    story = workshop.tell()
    event = replace(story.events[2], type=type(story.events[2].type)("step.succeeded"), data={"writes": names})
    story.events.insert(2, event)
    with pytest.raises(ConsistencyError, match="names of channels"):
        workshop.build(story)


def test_the_same_content_gives_the_same_bytes(workshop: Any) -> None:
    first = build_bundle(workshop.tell().content(), workshop.signer)
    second = build_bundle(workshop.tell().content(), workshop.signer)
    assert first == second
    assert first.sha256 == sha256(first.bytes).hexdigest()
    assert first.name == f"evidence-{workshop.run_id}-14.zip"


def test_costs_add_up_exactly_per_provider_and_model(workshop: Any) -> None:
    story = workshop.tell()
    event = next(event for event in story.events if "usage" in event.data)
    calls = [("0.1", 1), ("0.2", 2), (None, 3), ("0", 4), ("0.000000000000001", 5), ("999999999", 6)]
    for price, tokens in calls:
        usage = {"provider": "a", "model": "m", "input_tokens": tokens, "output_tokens": 1, "cost_usd": price}
        extra = replace(event, type=type(event.type)("step.succeeded"), data={"usage": usage})
        story.events.insert(-1, extra)
    costs = json.loads(workshop.unzip(workshop.build(story))[layout.COSTS])
    assert costs[0] == {
        "provider": "a", "model": "m", "calls": 6, "input_tokens": 21, "output_tokens": 6,
        "cost_usd": "999999999.300000000000001",
        "unpriced_calls": 1,
    }  # fmt: skip


@pytest.mark.parametrize("price", ["NaN", "-1", "1e400", "", "0.0000000000000001", "1000000000", 0, "1" * 40])
def test_malformed_usage_is_not_signed(workshop: Any, price: Any) -> None:
    story = workshop.tell()
    at = next(n for n, event in enumerate(story.events) if "usage" in event.data)
    usage = {**story.events[at].data["usage"], "cost_usd": price}
    story.events[at] = replace(story.events[at], data={**story.events[at].data, "usage": usage})
    with pytest.raises(ConsistencyError, match="usage"):
        workshop.build(story)


@pytest.mark.req("Q-4")
def test_only_the_attempts_of_the_events_with_their_own_values_are_signed(workshop: Any) -> None:
    content = workshop.tell().content()
    lines = [json.loads(line) for append in content.appends for line in append]
    attempts = [
        {**{name: line["data"].get(name) for name in ATTEMPTED}, "seq": seq, "step": line["step"], "ts": line["ts"]}
        for seq, line in enumerate(lines)
        if line["type"] == "action.intended"
    ]

    def build(told: list[Any]) -> Any:
        return build_bundle(replace(content, run=replace(content.run, attempts=told)), workshop.signer).bytes

    files = workshop.unzip(build([{**one, "values": None} for one in attempts]))
    assert len(json.loads(files[layout.RUN_FILE])["attempts"]) == len(attempts) >= 2
    for forged in (attempts[1:], [], [{**one, "attempt": 9} for one in attempts], [None for _ in attempts]):
        with pytest.raises(ContradictionError, match="not those of the events"):
            build(forged)
    with pytest.raises(ContradictionError, match="has other values"):
        build([{**one, "values": [["/x/target", "0" * 64]]} for one in attempts])


def test_a_broken_or_truncated_chain_is_not_signed(workshop: Any) -> None:
    content = workshop.tell().content()
    appends = list(content.appends)
    assert build_bundle(content, workshop.signer)
    for forged in (appends[:-1], [appends[0], *appends[2:]], [appends[0], [*appends[1], *appends[2]], *appends[3:]]):
        with pytest.raises(ContradictionError, match="broken") as caught:
            build_bundle(replace(content, appends=forged), workshop.signer)
        assert caught.value.checks == ("chain",)
    with pytest.raises(ContradictionError, match="do not come to the head"):
        build_bundle(replace(content, head=ChainHead(content.head.stream, 14, "0" * 64)), workshop.signer)
    with pytest.raises(ContradictionError, match="not of run"):
        build_bundle(replace(content, run=replace(content.run, run_id="other")), workshop.signer)


def test_a_card_that_was_not_shown_is_not_signed(workshop: Any) -> None:
    content = workshop.tell().content()
    approval = replace(content.approvals[0], card_commitment="0" * 64)
    with pytest.raises(ConsistencyError, match="card"):
        build_bundle(replace(content, approvals=(approval,)), workshop.signer)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "a b", "é"])
def test_names_that_cannot_be_files_are_refused(workshop: Any, name: str) -> None:
    content = workshop.tell().content()
    with pytest.raises(InputError, match="name of a file"):
        build_bundle(replace(content, workflow=DocumentText(name, 1, "")), workshop.signer)


def test_two_files_of_one_name_are_refused(workshop: Any) -> None:
    content = workshop.tell().content()
    with pytest.raises(InputError, match="twice"):
        build_bundle(replace(content, receipts=content.receipts * 2), workshop.signer)
    upper = replace(content.policies[0], name=content.policies[0].name.upper())
    with pytest.raises(InputError, match="case"):
        build_bundle(replace(content, policies=(*content.policies, upper)), workshop.signer)


def test_malformed_disclosures_are_refused(workshop: Any) -> None:
    with pytest.raises(InputError, match="disclosure"):
        build_bundle(replace(workshop.tell().content(), disclosures=("!",)), workshop.signer)


def test_a_withheld_card_is_said_to_be_withheld(workshop: Any) -> None:
    story = workshop.tell()
    story.approvals = [replace(approval, card_disclosure=None) for approval in story.approvals]
    files = workshop.unzip(workshop.build(story))
    assert json.loads(files["approvals/a1.json"])["card"] is None
    assert b"Raise the priority" not in b"".join(files.values())
