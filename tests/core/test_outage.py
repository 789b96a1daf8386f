"""Errors that pass by themselves, and those that come again: by PostgreSQL's SQLSTATE, or by their type."""

from __future__ import annotations

import asyncpg
import pytest

from core.errors import ConsistencyError, InputError, TransportError
from core.outage import is_away, is_passing

pytestmark = pytest.mark.req("Q-18")


class Unencodable(asyncpg.InterfaceError, ValueError):
    """An error of asyncpg's own, as for a parameter that it cannot encode."""


def of_state(state: str) -> Exception:
    error = asyncpg.PostgresError("x")
    vars(error)["sqlstate"] = state
    return error


@pytest.mark.parametrize("state", ["08006", "25006", "40001", "53100", "53300", "55P03", "57014", "57P01", "58030"])
def test_what_postgresql_gets_over_is_tried_again(state: str) -> None:
    assert is_away(of_state(state))
    assert is_passing(of_state(state))


@pytest.mark.parametrize("state", ["22P02", "23505", "23514", "42601", "42501", "54000", "P0001"])
def test_what_is_wrong_with_a_statement_comes_again(state: str) -> None:
    assert not is_away(of_state(state))
    assert not is_passing(of_state(state))


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (TransportError("x"), True),
        (asyncpg.InterfaceError("x"), True),
        (asyncpg.exceptions.DataError("x"), False),
        (Unencodable("x"), False),
        (asyncpg.ClientConfigurationError("x"), False),
        (OSError("x"), True),
        (ValueError("x"), False),
        (ConsistencyError("x"), False),
        (InputError("x"), False),
        (KeyError("x"), False),
    ],
)
def test_the_network_passes_and_what_was_written_does_not(error: Exception, passing: bool) -> None:
    assert is_passing(error) is passing
    assert is_away(error) is passing
