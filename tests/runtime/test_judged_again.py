"""A recorded decision is made once more by the policies that made it, if all of them can still be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from policy.sets import NO_POLICIES, BrokenPolicy, PolicySet
from runtime.requests.replaying import _judge

TEXT = "policy: p\nversion: 1\nrules: [{id: all, match: {connector: probe}, outcome: allow}]\n"
EFFECT = "probe.effect.apply"


@pytest.mark.req("P-9")
def test_only_what_can_be_judged_is_judged_again(runtime: Any) -> None:
    whole = runtime.definitions.compile_policy(TEXT, "p.yaml")
    known = {
        ("whole",): PolicySet([whole]),
        ("whole", "broken"): PolicySet([whole, BrokenPolicy("broken", "No.")]),
        ("broken",): PolicySet([BrokenPolicy("broken", "No.")]),
        (): NO_POLICIES,
    }

    def judged(digests: tuple[str, ...], *rules: str) -> Any:
        named = [{"digest": digest} for digest in digests]
        event: Any = SimpleNamespace(policies=named, rules=rules, facts={"action.operation": EFFECT}, operation=EFFECT)
        return _judge(known, "w", event)

    assert judged(("whole",), "all") == ("allow", ["all"])
    for digests in (("whole", "broken"), ("broken",), (), ("unknown",)):
        assert judged(digests, "all") is None, digests
    for cap in ("cap:max_writes_per_run", "contributors:unresolved"):
        assert judged(("whole",), cap) is None
