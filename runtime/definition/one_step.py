"""Builds workflows of one step, which are Counterseal's own: an undo, and an action of an agent."""

from __future__ import annotations

import re
from collections.abc import Mapping

from connectors.catalog import Catalog
from connectors.operation import Operation
from core.canonical import JsonObject, canonical_bytes, digest
from core.errors import InputError
from runtime.definition.workflow import load_workflow
from runtime.store.documents import StoredWorkflow

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")


def one_step(
    prefix: str, title: str, step: str, operation: Operation, inputs: Mapping[str, str], catalog: Catalog
) -> StoredWorkflow:
    """Build the workflow whose one step, with this id, calls the operation with these expressions as inputs.

    Its name begins with ``prefix`` and names the declaration, so the text under a name never changes.
    """
    values: JsonObject = {"id": step, "do": operation.name, "with": dict(inputs)}
    head = f"version: 1\ntitle: {title}\nreference: ${{{{ trigger.reference }}}}\nsteps:\n"
    head += f"  - {canonical_bytes(values).decode()}\n"
    draft = load_workflow(f"workflow: {prefix}draft\n{head}", step, catalog)
    name = f"{prefix}{digest([head, draft.frozen_operations])[:16]}"
    source = f"workflow: {name}\n{head}"
    made = load_workflow(source, name, catalog)
    return StoredWorkflow(made.name, made.version, made.digest, source, made.frozen_operations)


def is_plain(name: str) -> bool:
    """True if a name can be used in an expression as it is."""
    return _NAME.fullmatch(name) is not None


def of_input(name: str, *, raw: bool = False) -> str:
    """The expression for a member of the run's ``trigger.input``; ``raw``: its value is escaped already.

    ``InputError`` for a name with other characters: with it the requester could write into the workflow.
    """
    if not is_plain(name):
        raise InputError("has a name that no argument has", where="input", remedy="Use letters, digits, _, - and dots.")
    value = f"trigger.input[{canonical_bytes(name).decode()}]"
    return f"${{{{ raw({value}) }}}}" if raw else f"${{{{ {value} }}}}"
