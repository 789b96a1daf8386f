"""The layout of a bundle in which everything happens: each file, and the statement."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from evidence import layout
from evidence.bundle import Bundle, BundleContent, DocumentText, JudgedBy, assemble, seal
from evidence.chain import Actor, EventType, timestamp
from evidence.commitments import blind, commit, opening, path_of, reason_path
from evidence.opened import Opened
from evidence.receipts import Receipt, ReceiptStatus
from tests.support.golden import matches_golden

E = EventType
OTHERS = (DocumentText("it-operations", 10, "policy: ten\n"), DocumentText("access", 2, "policy: access\n"))
CARD = {"title": "Reset it", "z": [1, {"b": None, "a": "ü"}]}
ASKED = {"kind": "action", "requester": "rita"}
LATE = {"attempt": 1, "epoch": 1, "known": "failed", "sent": True}


def told(workshop: Any) -> Any:
    """A run that fails, goes on, is extended and canceled; with votes replaced, doubts, retries and late answers."""
    key, story = workshop.run_key, workshop.tell()
    story.policy = DocumentText("it-operations", 9, "policy: nine\n")
    story.events.clear()
    story.sizes = (3, 1, 4)
    story.status = "canceled"

    def usage(model: str, price: str | None, provider: str = "openai") -> dict[str, Any]:
        tokens = {"input_tokens": 10, "output_tokens": 2}
        return {"usage": {"provider": provider, "model": model, **tokens, "cost_usd": price}}

    def receipt(name: str, status: ReceiptStatus, **more: Any) -> Receipt:
        made = workshop.receipt(name, more.pop("operation", "servicenow.incident.update"))
        return replace(made, status=status, **more)

    done = receipt("r-done", ReceiptStatus.SUCCEEDED, attempt=2, lease_epoch=5, late=(
        {**LATE, "detail": "late detail", "external_id": "late-7", "output": {"a": 1}}, {**LATE, "known": "unanswered"},
    ))  # fmt: skip
    reset = receipt("r-reset", ReceiptStatus.SUCCEEDED, operation="iam.user.reset", resolution="a person saw it",
                    reverse={"operation": "iam.user.undo", "input": {"z/1": 1, "a~b": [2], "m": None}})  # fmt: skip
    failed = receipt("r-failed", ReceiptStatus.FAILED, reversible=False, reverse=None, external_id=None,
                     error={"message": "no", "code": "x"})  # fmt: skip
    open_ = receipt("r-open", ReceiptStatus.INTENDED, settled_at=None, external_id=None)
    other = receipt("r-open-2", ReceiptStatus.INTENDED, settled_at=None, external_id=None)
    committed = [
        ["/trigger/number", commit(key, "/trigger/number", "A1")],
        ["/other", "2" * 64],
        ["/trigger/by", "3" * 64],
    ]
    opened = {"workflow": story.named(story.workflow), "trigger": "api", "committed": committed}
    story.add(E.RUN_OPENED, opened, step=None)
    story.add(E.STEP_SUCCEEDED, {"writes": ["log", "state"], **usage("m2", "0.10")}, step="s0")
    story.add(E.CHECKPOINT_COMMITTED, {"number": 0, "digest": "a" * 64}, step=None)
    story.decide("d1", blind(key, done.action_digest), "allow")
    story.intend(done, "d1")
    story.settle(E.ACTION_FAILED, replace(done, status=ReceiptStatus.FAILED), **usage("m2", None))
    story.intend(done, "d1", attempt=2)
    story.add(E.ACTION_LATE, {**LATE, "receipt": "r-done", "values": "0" * 64})
    story.settle(E.ACTION_SUCCEEDED, done, **usage("m2", "0.2"))
    story.add(E.STEP_SUCCEEDED, {"writes": ["log"], **usage("m2", None)}, step="s1")
    story.add(E.RUN_EXTENDED, {"number": 1, "steps": ["x"]}, step=None)
    story.add(E.CHECKPOINT_COMMITTED, {"number": 1, "digest": "b" * 64}, step=None)
    action = blind(key, reset.action_digest)
    policies = [story.named(one) for one in (story.policy, *OTHERS)]
    asks = {"action": action, "operation": "iam.user.reset", "outcome": "needs_approval", "policies": policies}
    story.add(E.DECISION_MADE, {"decision": "d2", **asks, "rules": ["a/x", "b/y"]}, step="s2")
    place = path_of("approval", "a1", "card")
    asked = path_of("approval", "a1", "asked")
    requested = {"approval": "a1", "action": action, "card": commit(key, place, CARD)}
    story.add(E.APPROVAL_REQUESTED, {**requested, "committed": [[asked, commit(key, asked, ASKED)]]}, step="s2")
    for person, choice, reason in (("ana", "reject", "wait"), ("ben", "approve", None), ("ana", "approve", "now")):
        story.add(E.APPROVAL_VOTED, {"approval": "a1", "choice": choice}, Actor("person", person), "s2")
        event = story.events[-1]
        place_of = reason_path("a1", person, timestamp(event.at))
        if reason:
            pair = [place_of, commit(key, place_of, reason)]
            story.events[-1] = replace(event, data={**event.data, "committed": [pair]})
    story.add(E.APPROVAL_DECIDED, {"approval": "a1", "outcome": "approved"}, step="s2")
    story.intend(reset, "d2", "a1")
    story.settle(E.ACTION_IN_DOUBT, reset)
    story.add(E.ACTION_HELD, {"receipt": "r-reset"})
    story.settle(E.ACTION_DOUBT_RESOLVED, reset, resolution="applied", **usage("m1", "3", "Openai"))
    gate = {"approval": "a2", "action": None, "card": "c" * 64}
    story.add(E.APPROVAL_REQUESTED, gate, step="gate")
    story.add(E.APPROVAL_EXPIRED, {"approval": "a2"}, step="gate")
    story.decide("d3", blind(key, failed.action_digest), "allow")
    story.intend(failed, "d3")
    story.settle(E.ACTION_FAILED, failed)
    story.add(E.RUN_CLOSED, {"status": "failed_terminal"}, step=None)
    story.add(E.RUN_REOPENED, {"bundle": "d" * 64, "steps": ["s3"]}, step=None)
    story.add(E.RUN_EXTENDED, {"number": 2, "steps": ["y"]}, step=None)
    story.add(E.CHECKPOINT_COMMITTED, {"number": 2, "digest": "e" * 64}, step=None)
    story.add(E.CHECKPOINT_COMMITTED, {"number": 3, "digest": "f" * 64}, step=None)
    story.decide("d4", blind(key, open_.action_digest), "allow")
    story.intend(open_, "d4")
    story.decide("d5", blind(key, other.action_digest), "allow")
    story.intend(other, "d5")
    why = path_of("cancel", "reason")
    ordered = [[why, commit(key, why, "no longer wanted")]]
    story.add(E.RUN_CANCELED, {"committed": ordered}, Actor("token", "olga"), None)
    story.add(E.RUN_CANCELED, {}, Actor("token", "otto"), None)
    story.add(E.RUN_CLOSED, {"status": "canceled"}, step=None)
    story.add(E.ACTION_LATE, {**LATE, "known": "unanswered", "receipt": "r-done"}, step="s1")
    story.events[-1] = replace(story.events[-1], at=story.events[0].at)
    return story


@pytest.fixture
def whole(workshop: Any) -> Bundle:
    story = told(workshop)
    second, key = story.content(), workshop.run_key
    (ana,) = [
        seq for seq, one in enumerate(story.events) if one.type is E.APPROVAL_VOTED and one.data["choice"] == "approve"
        and one.actor.id == "ana"
    ]  # fmt: skip
    why = reason_path("a1", "ana", timestamp(story.events[ana].at))
    (question, _) = [seq for seq, one in enumerate(story.events) if one.type is E.APPROVAL_REQUESTED]
    put = [opening(key, f"/approval/a1/{name}", one) for name, one in (("asked", ASKED), ("card", CARD))]
    shown = [
        Opened(0, [opening(key, "/trigger/number", "A1")]),
        Opened(question, put),
        Opened(ana, [opening(key, why, "now")]),
    ]
    people = {"d" * 64: {"people": {"ana": {"groups": ["owners"], "standing": "person"}}, "principals": {}}}
    actor, ts = {"kind": "person", "id": "ana"}, timestamp(story.events[0].at)
    line = {"v": 2, "ts": ts, "type": "pause.set", "actor": actor, "step": None, "data": {}}
    judged_by = JudgedBy({"operations": {}, "added": {}, "editions": [{}]}, people, [(3, line)])
    policies = (replace(second.policies[0], plain={"policy": "nine"}), *OTHERS)
    chain = (second.appends, second.head)
    content = BundleContent("acme", second.workflow, policies, *chain, judged_by, shown, "counterseal 0.3.0")
    made = assemble(content, workshop.signer.public_key)
    with closing(made.files):
        return seal(made, workshop.signer)


@pytest.mark.golden
@pytest.mark.req("Q-21", "U-7")
def test_the_layout_of_a_bundle_in_which_everything_happens(workshop: Any, whole: Bundle) -> None:
    files = workshop.unzip(whole.bytes)
    envelope = json.loads(files[layout.ENVELOPE])
    found: dict[str, Any] = {"name": whole.name, "statement": json.loads(base64.b64decode(envelope["payload"]))}
    del found["statement"]["subject"]
    for name in sorted(files.keys() - {layout.ENVELOPE, layout.README, layout.PUBLIC_KEY, layout.SUMS, layout.EVENTS}):
        found[name] = files[name].decode().splitlines()
    found["sidecar"] = (whole.sidecar or b"").decode().splitlines()
    matches_golden("bundle", found)


def test_files_of_a_bundle_are_plain_and_of_one_time(whole: Bundle) -> None:
    with zipfile.ZipFile(io.BytesIO(whole.bytes)) as archive:
        entries = archive.infolist()
    assert [one.filename for one in entries] == sorted(one.filename for one in entries)
    for one in entries:
        assert (one.external_attr >> 16, one.create_system, one.compress_type) == (0o100644, 3, zipfile.ZIP_STORED)
        assert one.date_time == (1980, 1, 1, 0, 0, 0)
