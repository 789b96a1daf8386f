"""Workflows of Counterseal itself, which nobody else publishes, starts or alters; the question about a policy."""

from __future__ import annotations

from core.documents import load_document
from core.errors import AuthorizationError, DefinitionError
from runtime.engine.preflight import OWN_TRIGGER

PREFIX = "counterseal-"
POLICY_CHANGE = f"{PREFIX}policy-change"
# If the directory has a group of this name, a change of the policy in force, or of this group, takes two of it.
POLICY_APPROVERS = "policy_approvers"
# The trigger of the runs of these workflows: we start them, never a face.
TRIGGER = OWN_TRIGGER
# The step at which the change of a policy is decided.
DECIDE = "decide"

# The proposer has shaped the change, so another of the group decides (promise 12).
POLICY_CHANGE_SOURCE = f"""workflow: {POLICY_CHANGE}
version: 1
title: A change of policy
reference: ${{{{ trigger.policy }}}}
steps:
  - id: {DECIDE}
    approve:
      summary: ${{{{ trigger.summary }}}}
      approvers: {{group: {POLICY_APPROVERS}}}
      expires: P7D
      remind: [P1D, P3D]
"""


def refuse_reserved(name: str, text: str, file: str) -> None:
    """Raise ``DefinitionError`` for a workflow under one of our names."""
    if name.startswith(PREFIX):
        message = f"{name!r} is a name of Counterseal's own: names that begin with {PREFIX!r} are reserved."
        raise DefinitionError((load_document(text, file).problem(("workflow",), message, "Choose another name."),))


def refuse_start(name: str, trigger_type: str) -> None:
    """Raise ``AuthorizationError`` for a run of one of our workflows that somebody else would start."""
    if name.startswith(PREFIX) and trigger_type != TRIGGER:
        raise AuthorizationError(
            f"{name!r} is a workflow of Counterseal's own, which nobody starts by hand.",
            remedy="Do what it is for: `counterseal policy activate` proposes a policy.",
        )


def refuse_altering(name: str) -> None:
    """Raise ``AuthorizationError`` for an extension of such a run, or a retry of it after its end."""
    if name.startswith(PREFIX):
        raise AuthorizationError(
            f"{name!r} is a workflow of Counterseal's own: nothing is added to a run of it, and it is not done again.",
            remedy="Propose it anew: `counterseal policy activate`. To withdraw a proposal, cancel its run.",
        )
