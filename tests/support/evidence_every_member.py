"""Helpers of tests/evidence that several test files share: from test_every_member."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from core.canonical import canonical_bytes, digest, sha256_hex
from evidence import layout
from evidence.chain import Actor, EventType, timestamp
from evidence.commitments import commit, disclosure, path_of, reason_path
from evidence.history import ATTEMPTED
from evidence.verify import Verification, verify_unsigned
from tests.support.second_format import BundleContent, CancelRecord


def full(workshop: Any) -> Any:
    """A story with a reason, a value of an attempt, a late answer and what was asked, on top of the usual one."""
    story, key = workshop.tell(), workshop.run_key
    place, why = path_of("approval", "a1", "asked"), None
    for at, event in enumerate(story.events):
        if event.type is EventType.APPROVAL_REQUESTED:
            data = {**event.data, "committed": [[place, commit(key, place, {"kind": "action"})]]}
            story.events[at] = replace(event, data=data)
        if event.type is EventType.APPROVAL_VOTED:
            why = reason_path("a1", "maria", timestamp(event.at))
            story.events[at] = replace(event, data={**event.data, "committed": [[why, commit(key, why, "fine")]]})
    assert why is not None
    vote = replace(story.approvals[0].votes[0], reason=disclosure(key, why, "fine"))
    asked = disclosure(key, place, {"kind": "action"})
    story.approvals = [replace(story.approvals[0], votes=(vote,), asked=asked)]
    return story


def verified(files: dict[str, bytes], statement: dict[str, Any]) -> list[str]:
    """The failed checks, in words, after the list of files was made anew as by somebody who holds the key."""
    files = {name: data for name, data in files.items() if name != layout.SUMS}
    files[layout.SUMS] = "".join(f"{sha256_hex(files[name])}  {name}\n" for name in sorted(files)).encode()
    subject = [{"name": name, "digest": {"sha256": sha256_hex(files[name])}} for name in sorted(files)]
    return said(verify_unsigned(files, canonical_bytes({**statement, "subject": subject})))


def said(found: Verification) -> list[str]:
    return [f"{row.check}: {row.detail}" for row in found.failed]


def canceled(workshop: Any) -> BundleContent:
    """A run that had inputs and was canceled twice, with what its bundle tells of the attempts at its actions."""
    story, key = full(workshop), workshop.run_key
    inputs = [["/trigger/number", commit(key, "/trigger/number", "A1")], ["/trigger/by", "3" * 64]]
    opened = story.events[0]
    committed = [*inputs, ["/other", "2" * 64]]
    story.events[0], story.status = replace(opened, data={**opened.data, "committed": committed}), "canceled"
    (at,) = [
        at for at, one in enumerate(story.events) if one.data.get("receipt") == "receipt-2" and "attempt" in one.data
    ]
    values = [["/attempt/priority", commit(key, "/attempt/priority", "1")]]
    story.events[at] = replace(story.events[at], data={**story.events[at].data, "values": digest(values)})
    story.events.pop()
    why = path_of("cancel", "reason")
    reason = {"committed": [[why, commit(key, why, "no longer wanted")]]}
    story.add(EventType.RUN_CANCELED, reason, Actor("person", "olga"), None)
    story.add(EventType.RUN_CANCELED, {}, Actor("person", "otto"), None)
    story.add(EventType.RUN_CLOSED, {"status": "canceled"}, step=None)
    attempts = [
        {**{name: one.data.get(name) for name in ATTEMPTED}, "seq": seq, "step": one.step, "ts": timestamp(one.at)}
        for seq, one in enumerate(story.events)
        if one.type is EventType.ACTION_INTENDED
    ]
    attempts[-1]["values"] = values
    content: BundleContent = story.content()
    by = CancelRecord("olga", disclosure(key, why, "no longer wanted"))
    return replace(content, run=replace(content.run, inputs=inputs, attempts=attempts, canceled=by))
