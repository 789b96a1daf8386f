"""A cache of compiled documents, which is bounded by their number and by the memory that they take."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from core.budgets import KIB
from core.identity import Directory
from policy.load import Policy
from policy.sets import BrokenPolicy, PolicySet
from runtime.engine.model.workflow import Workflow

Key = TypeVar("Key")
Value = TypeVar("Value")

CACHED_MAX: Final = 512


class Cache(Generic[Key, Value]):
    """The most recently used values. They are immutable, so nothing ever has to be invalidated.

    ``most`` is the largest sum of their sizes, in bytes of memory. The newest value always stays.
    """

    def __init__(self, most: int) -> None:
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._most, self._sum = most, 0

    def known(self, key: Key) -> Value | None:
        """The value of a key, which is used last from now on."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: Key, value: Value, size: int) -> Value:
        """Cache a value of this size in bytes, and return it."""
        self._sum += size - self._values.pop(key, (value, 0))[1]
        self._values[key] = (value, size)
        while len(self._values) > CACHED_MAX or (self._sum > self._most and len(self._values) > 1):
            _, (_, freed) = self._values.popitem(last=False)
            self._sum -= freed
        return value


def size_of_workflow(workflow: Workflow) -> int:
    """Estimate the memory of a compiled workflow. Each node knows what comes before it, so large ones take more."""
    nodes = len(workflow.graph.leaves)
    return len(workflow.text) + 16 * KIB * nodes + 32 * nodes * nodes


def size_of_policy(policy: Policy | BrokenPolicy) -> int:
    """Estimate the memory of a compiled policy."""
    return KIB if isinstance(policy, BrokenPolicy) else len(policy.text) + 5 * KIB * len(policy.rules)


def size_of_policies(policies: PolicySet) -> int:
    """Estimate the memory of a set of policies."""
    return KIB + sum(size_of_policy(policy) for policy in policies.policies)


def size_of_directory(directory: Directory) -> int:
    """Estimate the memory of a directory."""
    return KIB * (1 + len(directory.entries)) + 128 * len(directory.claimed)
