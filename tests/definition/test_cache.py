"""The cache of compiled documents is bounded by the memory that they take, not only by their number."""

from __future__ import annotations

from runtime.definition.cache import CACHED_MAX, Cache


def test_large_documents_make_room_for_each_other() -> None:
    cache: Cache[str, str] = Cache(100)
    for name in "abcd":
        cache.put(name, name.upper(), 40)
    assert [cache.known(name) for name in "abcd"] == [None, None, "C", "D"]
    cache.known("c")
    cache.put("e", "E", 40)
    assert [cache.known(name) for name in "cde"] == ["C", None, "E"], "what was used last stays"
    cache.put("e", "E", 1)
    cache.put("f", "F", 50)
    assert [cache.known(name) for name in "cef"] == ["C", "E", "F"], "a value that is put again counts once"
    cache.put("huge", "HUGE", 1_000)
    assert [cache.known(name) for name in ("c", "e", "f", "huge")] == [None, None, None, "HUGE"], "the newest stays"


def test_small_documents_are_bounded_by_number() -> None:
    cache: Cache[int, int] = Cache(1_000_000)
    for number in range(CACHED_MAX + 1):
        cache.put(number, number, 1)
    assert (cache.known(0), cache.known(1)) == (None, 1)
