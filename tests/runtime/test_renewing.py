"""Rules by which a start takes a tenant forward and never back, with the reasons that it tells (X-1)."""

from __future__ import annotations

import pytest

from runtime.requests.renewing import _higher, _not_forward, _of_number, _put_away, _renamed
from runtime.store.documents import Edition, Past

ONE, TWO, OTHER = Edition("p", 1, "d1"), Edition("p", 2, "d2"), Edition("o", 9, "d9")
AGAIN = Edition("p", 1, "d0")  # another text under the same number


@pytest.mark.req("X-1")
@pytest.mark.parametrize(
    ("edition", "editions", "in_use", "reason"),
    [
        (ONE, (), (), ""),
        (ONE, (OTHER,), (OTHER,), ""),
        (TWO, (ONE,), (ONE,), ""),
        (TWO, (ONE, OTHER), (), ""),
        (ONE, (TWO,), (TWO,), "version 2 was published"),
        (ONE, (TWO, Edition("p", 12, "d"), Edition("p", 3, "e")), (), "version 12 was published"),
        (ONE, (ONE,), (), "it was published before"),
        (ONE, (ONE, TWO), (TWO,), "it was published before, and p version 2 (d2) is in use"),
        (ONE, (ONE, OTHER), (OTHER,), "it was published before, and o version 9 (d9) is in use"),
        (ONE, (ONE, TWO, OTHER), (OTHER, TWO), "it was published before, and p version 2 (d2) is in use"),
        (AGAIN, (ONE,), (ONE,), ""),
        (AGAIN, (ONE, TWO), (TWO,), "version 2 was published"),
    ],
)
def test_only_what_is_new_and_above_all_others_takes_a_tenant_forward(
    edition: Edition, editions: tuple[Edition, ...], in_use: tuple[Edition, ...], reason: str
) -> None:
    assert _not_forward(edition, Past(editions, in_use)) == reason


@pytest.mark.parametrize(
    ("editions", "in_use", "away"),
    [
        ((), (), False),
        ((ONE,), (ONE,), False),
        ((ONE,), (), True),
        ((ONE, OTHER), (OTHER,), True),
        ((OTHER,), (), False),
        ((OTHER,), (OTHER,), False),
    ],
)
def test_a_name_that_somebody_has_put_away_stays_away(
    editions: tuple[Edition, ...], in_use: tuple[Edition, ...], away: bool
) -> None:
    reason = "a policy of this name is published and not in force" if away else ""
    assert _put_away(TWO, Past(editions, in_use)) == reason


def test_a_directory_is_not_replaced_by_one_of_another_name() -> None:
    assert _renamed(ONE, Past((), ())) == _renamed(TWO, Past((ONE,), (ONE,))) == _renamed(ONE, Past((OTHER,), ())) == ""
    assert _renamed(ONE, Past((OTHER,), (OTHER,))) == "o version 9 (d9) is in use, and a start changes no name"


def test_a_number_is_one_of_its_name_alone() -> None:
    every = (ONE, TWO, OTHER, Edition("o", 3, "d"))
    assert [_of_number(one, every) for one in (ONE, AGAIN, Edition("p", 3, "d"), Edition("o", 1, "d1"))] == [
        True,
        True,
        False,
        False,
    ]
    assert [_higher(Edition("p", number, "x"), every) for number in (1, 2, 3)] == [TWO, None, None]
    assert _higher(Edition("o", 2, "x"), every) == OTHER
