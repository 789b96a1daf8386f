"""Counterseal's own workflows, which nobody else publishes, starts or alters, such as the question about a policy."""

from __future__ import annotations

from core.documents import load_document
from core.errors import AuthorizationError, DefinitionError
from core.terms import POLICY_APPROVERS
from runtime.engine.life.preflight import OWN_TRIGGER
from runtime.engine.model.run import ACTIONS, OWN

PREFIX = OWN
# The prefix of the workflows that undo one effect; the rest of a name is the operation.
UNDO = f"{PREFIX}undo-"
# The prefix of the workflows that do one action of an agent; the rest of a name is the operation.
ACTION = ACTIONS
POLICY_CHANGE = f"{PREFIX}policy-change"
# The trigger type of runs of these workflows, which only Counterseal starts, never a face.
TRIGGER = OWN_TRIGGER
# The step at which the change of a policy is decided.
DECIDE = "decide"

# The proposer has shaped the change, so another member of the group decides (promise 12).
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


def _instead(name: str) -> str:
    """The way by which a run of one of our workflows begins."""
    if name.startswith(ACTION):
        return "Its agent asks anew, with another key: `POST /v1/actions`. To withdraw it, cancel its run."
    if name.startswith(UNDO):
        return "Undo a receipt: `counterseal receipt reverse RECEIPT`."
    return "Propose a policy: `counterseal policy activate`. To withdraw a proposal, cancel its run."


def refuse_start(name: str, trigger_type: str) -> None:
    """Raise ``AuthorizationError`` if somebody else tries to start one of our own workflows."""
    if name.startswith(PREFIX) and trigger_type != TRIGGER:
        raise AuthorizationError(
            f"{name!r} is a workflow of Counterseal's own, which nobody starts by hand.",
            remedy=_instead(name),
        )


def refuse_altering(name: str, *, retry: bool = False) -> None:
    """Raise ``AuthorizationError`` for an extension of a run of one of our own workflows, or for a retry of it.

    A run that undoes an effect may be retried like any other: it is judged, and compared with the record, anew.
    """
    if name.startswith(PREFIX) and not (retry and name.startswith(UNDO)):
        raise AuthorizationError(
            f"{name!r} is a workflow of Counterseal's own: nothing is added to a run of it, and it is not done again.",
            remedy=_instead(name),
        )
