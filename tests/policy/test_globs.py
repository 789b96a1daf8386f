"""Globs of policies: what they match, and that no glob takes longer than its name is long."""

from __future__ import annotations

import random
import re

from core.globs import Glob


def test_a_glob_matches_what_its_stars_say() -> None:
    chance = random.Random(7)
    for _ in range(5_000):
        glob = "".join(chance.choices("ab.*", k=chance.randrange(6)))
        name = "".join(chance.choices("ab.", k=chance.randrange(7)))
        wanted = re.fullmatch(".*".join(map(re.escape, glob.split("*"))), name) is not None
        assert Glob.of(glob).matches(name) is wanted, (glob, name)


def test_stars_without_number_are_matched_at_once() -> None:
    name = "a" * 5_000
    for glob in ("*" * 30 + "z", "*a" * 1_000 + "z", "a*" * 1_000 + "z*a"):
        assert not Glob.of(glob).matches(name), "by a pattern with backtracking this does not end"
    assert Glob.of("*a" * 1_000 + "*").matches(name)
