"""The scope of a policy: the workflows, connectors and operations that it applies to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from core.documents import Document
from core.errors import Problem, nearest
from core.globs import Glob
from policy.facts import OperationFacts
from policy.model import AppliesDocument, PolicyDocument

# The names of steps that call no operation of a connector, by which a policy lets them come before a gate. Agents and
# child workflows are left out: their names do not tell what they would do.
OWN = ("approve", "set", "task", "wait.signal", "wait.timer")


_Globs: TypeAlias = tuple[Glob, ...] | None


class Scope(Struct, frozen=True):
    """The scope of one policy. None restricts nothing.

    ``kin`` are the operations that each operation can stand in for. A rule on ``servicenow.incident.update`` also
    restrains ``servicenow.record.update``, so the policy must reach that operation too. ``owners`` are the connectors
    of operations whose names do not begin with them.
    """

    workflows: _Globs = None
    connectors: _Globs = None
    operations: _Globs = None
    kin: Mapping[str, tuple[str, ...]] = {}
    owners: Mapping[str, str] = {}

    @classmethod
    def of(cls, applies: AppliesDocument | None, operations: Mapping[str, OperationFacts]) -> Scope:
        """The scope that a document declares, for these operations."""
        if applies is None:
            return EVERYTHING
        kin: dict[str, tuple[str, ...]] = {}
        for name, facts in operations.items():
            for generic in facts.generics:
                kin[generic] = (*kin.get(generic, ()), name)
        owners = {name: facts.connector for name, facts in operations.items() if facts.connector}
        reached = _globs(applies.connectors), _globs(applies.operations)
        return cls(_globs(applies.workflows), *reached, kin, owners)

    def names(self, workflow: str) -> bool:
        """True if the policy names this workflow, by a glob of its own."""
        return self.workflows is not None and _one(self.workflows, workflow)

    def covers(self, workflow: str, operation: str) -> bool:
        """True if the policy applies to this operation in this workflow."""
        return _one(self.workflows, workflow) and self.reaches(operation)

    def reaches(self, operation: str) -> bool:
        """True if the policy applies to this operation, or to one that it can stand in for, in some workflow."""
        return any(map(self.holds, (operation, *self.kin.get(operation, ()))))

    def holds(self, operation: str) -> bool:
        """True if the globs match this operation itself."""
        connector = self.owners.get(operation) or operation.partition(".")[0]
        return _one(self.connectors, connector) and _one(self.operations, operation)


EVERYTHING = Scope()


def _globs(globs: tuple[str, ...] | None) -> _Globs:
    return None if globs is None else tuple(map(Glob.of, globs))


def _one(patterns: _Globs, name: str) -> bool:
    return patterns is None or any(glob.matches(name) for glob in patterns)


def scope_problems(
    document: Document, content: PolicyDocument, operations: Mapping[str, OperationFacts]
) -> Iterator[Problem]:
    """Yield each glob of ``applies`` that matches no operation or connector of this installation."""
    if content.applies is None:
        return
    connectors = {facts.connector_of(name) for name, facts in operations.items()}
    known = {"connectors": ("connector", connectors), "operations": ("operation", set(operations))}
    for key, (kind, names) in known.items():
        for at, glob in enumerate(getattr(content.applies, key) or ()):
            if not any(Glob.of(glob).matches(name) for name in names):
                path = ("applies", key, at)
                yield document.problem(path, f"no {kind} matches {glob!r}.", nearest(glob, names))


def early_problems(
    document: Document, content: PolicyDocument, operations: Mapping[str, OperationFacts]
) -> Iterator[Problem]:
    """Yield each glob of ``extensions.before_gates`` that names nothing which can be added before a gate."""
    names = {*operations, *OWN}
    for at, glob in enumerate(content.extensions.before_gates if content.extensions else ()):
        if not any(Glob.of(glob).matches(name) for name in names):
            path = ("extensions", "before_gates", at)
            yield document.problem(
                path, f"no operation that can come before a gate matches {glob!r}.", nearest(glob, names)
            )
