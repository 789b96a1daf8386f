"""Commitments hide values, and disclosures open exactly them."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from evidence.commitments import (
    Disclosed,
    blind,
    commit,
    commit_fields,
    disclosure,
    new_run_key,
    open_disclosure,
    path_of,
)

KEY = b"k" * 32
# U+0000 is refused everywhere where data enters; the canonical form of a whole float above 2^53 reads as a big integer
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-(2**53) + 1, 2**53 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_a_disclosure_opens_its_commitment(value: Any) -> None:
    opened = open_disclosure(disclosure(KEY, "/a/b", value))
    assert (opened.path, opened.value) == ("/a/b", value)
    assert opened.commitment == commit(KEY, "/a/b", value)


def test_anybody_can_check_a_disclosure_with_base64_and_sha256() -> None:
    line = disclosure(KEY, "/a", "München")
    assert sha256(base64.urlsafe_b64decode(line + "=" * (-len(line) % 4))).hexdigest() == commit(KEY, "/a", "München")


def test_key_path_and_value_all_matter() -> None:
    seen = {commit(KEY, "/a", 1), commit(b"x" * 32, "/a", 1), commit(KEY, "/b", 1), commit(KEY, "/a", 2)}
    assert len(seen) == 4


def test_no_part_of_a_key_is_that_of_another_or_comes_twice() -> None:
    keys = [new_run_key() for _ in range(20)]
    assert {len(key) for key in keys} == {32}
    quarters = [key[at : at + 8] for key in keys for at in range(0, 32, 8)]
    assert len({*quarters}) == len(quarters)


def test_fields_are_committed_in_order_under_escaped_paths() -> None:
    fields = commit_fields(KEY, path_of("r", "1"), {"b/c": 1, "a~": "x"})
    assert fields == [["/r/1/a~0", commit(KEY, "/r/1/a~0", "x")], ["/r/1/b~1c", commit(KEY, "/r/1/b~1c", 1)]]
    # In the order of their paths, not of their names.
    pairs: Any = commit_fields(KEY, "", {"a/b": 1, "a0": 2, "B": 3})
    assert [path for path, _ in pairs] == ["/B", "/a0", "/a~1b"]


def test_digests_are_blinded_per_run() -> None:
    assert blind(KEY, "d") == blind(KEY, "d")
    assert len({blind(KEY, "d"), blind(KEY, "e"), blind(b"x" * 32, "d"), "d"}) == 4


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "!",
        "a",
        "A A",
        encoded(b"[]"),
        encoded(b'["00","/a",1]'),
        encoded(b'["' + b"0" * 32 + b'","/a"]'),
        encoded(b'["' + b"0" * 32 + b'","/a",{"x":1,"x":1}]'),
        encoded(b'["' + b"0" * 32 + b'","/a",' + b"[" * 99 + b"]" * 99 + b"]"),
        encoded(b"\xff"),
        disclosure(KEY, "/ab", 1)[:-1] + "_",
        disclosure(KEY, "/ab", 1) + "=",
    ],
)
def test_only_the_canonical_spelling_is_read(line: str) -> None:
    with pytest.raises(InputError):
        open_disclosure(line)


def test_another_spelling_is_another_commitment() -> None:
    spaced = encoded(b'["' + b"0" * 32 + b'", "/a", 1]')
    assert open_disclosure(spaced).commitment != open_disclosure(encoded(b'["' + b"0" * 32 + b'","/a",1]')).commitment


def test_a_whole_float_above_2_to_the_53_can_be_disclosed() -> None:
    assert open_disclosure(disclosure(KEY, "/a", 1e16)).commitment == commit(KEY, "/a", 1e16)


def test_values_without_a_json_form_are_refused() -> None:
    with pytest.raises(InputError):
        commit(KEY, "/a", float("nan"))


@pytest.mark.parametrize(("salt", "taken"), [(31, False), (32, True), (33, False), (16, False), (0, False)])
def test_a_disclosure_has_a_salt_of_its_one_length(salt: int, taken: bool) -> None:
    preimage = json.dumps(["a" * salt, "/x", 1], separators=(",", ":")).encode()
    line = base64.urlsafe_b64encode(preimage).rstrip(b"=").decode()
    if taken:
        assert open_disclosure(line) == Disclosed("/x", 1, sha256(preimage).hexdigest())
    else:
        with pytest.raises(InputError, match=r"is not \[salt, path, value\]"):
            open_disclosure(line)
