"""Helpers of tests/runtime that several test files share: from test_again."""

from __future__ import annotations

from typing import Any

from connectors.port import InDoubt

STEPS = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: %s}
"""


KEYED = STEPS % "probe.key.put, with: {name: a}"


PROBED = STEPS % "probe.effect.apply, with: {name: a}"


ASKED = STEPS % "probe.mail.send, with: {text: hello}"


UPDATED = STEPS % "probe.record.update, with: {name: a, fields: {priority: high}}"


ALLOW = "policy: p\nversion: 1\nrules:\n  - {id: all, match: {connector: probe}, outcome: allow}\n"


DENY = "policy: p\nversion: 3\nrules:\n  - {id: stop, match: {connector: probe}, outcome: deny, because: Emergency.}\n"


def approved_by(group: str, version: int, of: int = 1) -> str:
    return (
        f"policy: p\nversion: {version}\nrules:\n  - {{id: ask, match: {{connector: probe}}, outcome: needs_approval, "
        f"approvers: [{{group: {group}, of: {of}}}]}}\n"
    )


async def begun(runtime: Any, text: str, policy: str = ALLOW) -> Any:
    await runtime.tenant()
    await runtime.policy(policy)
    for person, groups in {"olga": ("operators",), "lea": ("leads",), "leo": ("leads",), "sam": ("security",)}.items():
        await runtime.person(person, groups)
    await runtime.publish(text)
    return (await runtime.start("w")).run_id


async def in_doubt(runtime: Any, how: str, effect: bool = False) -> Any:
    """A run whose action is in doubt, and only a look at it is missing; ``effect`` says that it had happened."""
    run_id = await begun(runtime, {"retry": KEYED, "probe": PROBED, "person": ASKED}[how])
    if how == "retry":
        runtime.outside.script["a"] = [InDoubt("no answer")]
        await runtime.worker().work_off()
        return run_id
    name = "a" if how == "probe" else "probe.mail.send"
    await runtime.crash(runtime.gate_type(after_effect=effect), name)
    if how == "person":
        if effect:
            runtime.outside.may_repeat.add(name)  # it did happen; whoever says "again" means that, and gets it
        await runtime.worker().work_off()
        assert (await runtime.vote("olga", "again")).counted
    return run_id
