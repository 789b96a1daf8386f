"""The changes between two JSON values: applied to the one, they give the other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.changes import Change, ChangeKind, changes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "a/b", "m~n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["", "a", "a/b", "~0"]), inner),
    max_leaves=12,
)


def patched(value: Any, patch: list[Change]) -> Any:
    """RFC 6902, as far as it is used."""
    whole = {"": copy.deepcopy(value)}
    for change in patch:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in change.path.split("/")]
        holder: Any = whole
        for part in parts[:-1]:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        last: Any = int(parts[-1]) if isinstance(holder, list) else parts[-1]
        if change.op is ChangeKind.ADD and isinstance(holder, list):
            holder.insert(last, copy.deepcopy(change.after))
        elif change.op is ChangeKind.REMOVE:
            assert holder.pop(last) == change.before
        else:
            assert change.op is ChangeKind.ADD or holder[last] == change.before
            holder[last] = copy.deepcopy(change.after)
    return whole[""]


def typed(value: Any) -> Any:
    """With what Python takes for equal and JSON does not told apart."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value).__name__, value)


@given(before=JSON, after=JSON)
def test_the_changes_lead_from_the_one_to_the_other(before: Any, after: Any) -> None:
    found = list(changes(before, after))
    assert typed(patched(before, found)) == typed(after)
    assert (found == []) == (typed(before) == typed(after))


@pytest.mark.req("P-9")
def test_each_change_names_its_path_with_what_was_there_before() -> None:
    before = {"a/b": 1, "list": [1, 2, 3], "gone": {}, "same": [{}]}
    after = {"a/b": True, "list": [1, 4], "new": None, "same": [{}]}
    assert [(str(c.op), c.path, c.before, c.after) for c in changes(before, after)] == [
        ("replace", "/a~1b", 1, True),
        ("remove", "/gone", {}, None),
        ("replace", "/list/1", 2, 4),
        ("remove", "/list/2", 3, None),
        ("add", "/new", None, None),
    ]
    assert list(changes({"n": 1}, {"n": 1.0})) == []
