"""Tokens are somebody's: they end with their person, and by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app import access
from app.access import Role
from app.cli.outcome import Exit
from core.errors import InputError, NotFoundError
from evidence.chain import Actor
from runtime.store import tokens
from tests.support.people import add_person, deactivate, remove_person

TESTER = Actor("test", "tester")


async def made(installation: Any, subject: str, *roles: Role, lifetime: timedelta | None = None) -> access.NewToken:
    database = installation.app.faces.database
    return await access.create_token(database, "default", subject, frozenset(roles), lifetime, TESTER)


async def answer_to(installation: Any, token: str) -> tuple[int, str]:
    client = await installation.client()
    answer = await client.get("/v1/runs", headers={"Authorization": f"Bearer {token}"})
    return answer.status_code, answer.json().get("detail", "")


async def ended(installation: Any) -> list[str | None]:
    async with installation.app.faces.database.transaction("default") as connection:
        return [row["ended"] for row in await tokens.listed(connection, "default")]


async def test_a_token_lives_for_ninety_days_unless_another_time_is_given(installation: Any) -> None:
    begun = datetime.now(UTC)
    usual, short = await made(installation, "ann", Role.ADMIN), timedelta(hours=8)
    assert abs(usual.expires_at - begun - timedelta(days=90)) < timedelta(minutes=5)
    other = await made(installation, "ann", Role.ADMIN, lifetime=short)
    assert abs(other.expires_at - begun - short) < timedelta(minutes=5)
    await made(installation, "ann", Role.ADMIN, lifetime=timedelta(days=365))
    for longer in (timedelta(days=365, seconds=1), timedelta(days=366)):
        with pytest.raises(InputError, match=r"longer than 365 days.*P365D"):
            await made(installation, "ann", Role.ADMIN, lifetime=longer)


@pytest.mark.parametrize("spelled", ["ann", "ANN", " ann ", "U0ANN"])
async def test_a_token_is_for_the_person_however_they_are_named(installation: Any, spelled: str) -> None:
    assert (await made(installation, spelled, Role.ADMIN)).subject == "ann"
    (event,) = await installation.tenant_events("token.created")
    assert (event["data"]["subject"], event["data"]["roles"]) == ("ann", ["admin"])


async def test_no_token_is_made_for_somebody_whom_the_directory_does_not_know(installation: Any) -> None:
    with pytest.raises(InputError, match=r"'mallory' is nobody.*service_accounts, with its owner"):
        await made(installation, "mallory", Role.TRIGGER)
    await deactivate(installation.engine, "default", "bob")
    with pytest.raises(InputError, match=r"'bob' is deactivated.*active: false"):
        await made(installation, "bob", Role.TRIGGER)
    with pytest.raises(NotFoundError, match="There is no tenant 'nowhere'"):
        await access.create_token(
            installation.app.faces.database, "nowhere", "ann", frozenset({Role.ADMIN}), None, TESTER
        )
    assert await ended(installation) == []


async def test_a_service_account_gets_no_token_that_votes(installation: Any) -> None:
    await add_person(installation.engine, "default", "robot", owner="ann")
    with pytest.raises(InputError, match=r"'robot' is a service account.*its owner ann"):
        await made(installation, "robot", Role.TRIGGER, Role.APPROVER)
    assert (await made(installation, "robot", Role.TRIGGER)).subject == "robot"


ENDINGS: dict[str, tuple[Callable[..., Awaitable[None]], str, str]] = {
    "its person leaves": (remove_person, "bob", "left"),
    "its person is deactivated": (deactivate, "bob", "deactivated"),
    "its owner leaves": (remove_person, "ann", "left"),
    "its owner is deactivated": (deactivate, "ann", "deactivated"),
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_a_token_ends_with_its_person(installation: Any, name: str) -> None:
    change, person, why = ENDINGS[name]
    await add_person(installation.engine, "default", "robot", owner="ann")
    token = await made(installation, "bob" if person == "bob" else "robot", Role.ADMIN)
    assert await answer_to(installation, token.token) == (200, "")
    assert await ended(installation) == [None]
    await change(installation.engine, "default", person)
    status, detail = await answer_to(installation, token.token)
    assert status == 401
    assert {"left": "not in the directory any more", "deactivated": "is deactivated"}[why] in detail
    assert await ended(installation) == [why]


async def test_whoever_holds_a_token_is_told_how_it_ended_and_nobody_else(installation: Any) -> None:
    old = await made(installation, "ann", Role.ADMIN, lifetime=timedelta(seconds=-1))
    assert "it has expired" in (await answer_to(installation, old.token))[1]
    gone = await made(installation, "ann", Role.ADMIN)
    await access.revoke_token(installation.app.faces.database, "default", gone.token, TESTER)
    assert "it was revoked" in (await answer_to(installation, gone.token))[1]
    assert "none of ours" in (await answer_to(installation, "cst_" + "a" * 43))[1]
    assert await ended(installation) == ["expired", "revoked"]


async def test_a_token_is_good_in_its_own_tenant_alone_whoever_else_has_that_name(installation: Any) -> None:
    await add_person(installation.engine, "other", "bob")
    token = await made(installation, "bob", Role.ADMIN)
    await remove_person(installation.engine, "default", "bob")
    assert (await answer_to(installation, token.token))[0] == 401


def test_the_command_line_says_how_long_a_token_lives_and_why_it_ended(command: Any, tmp_path: Any) -> None:
    file = tmp_path / "people.yaml"
    file.write_text("directory: d\npeople: [{id: ann, name: Ann}, {id: bob, name: Bob}]\n")
    command("directory", "publish", str(file))
    token = ("token", "create", "--role", "admin", "--subject")
    assert "expires_at" in command.json(*token, "ann")
    command(*token, "bob", "--expires", "P1D")
    command(*token, "mallory", exit_code=Exit.INPUT)
    assert "directory publish" in command.said
    command(*token, "ann", "--expires", "P366D", exit_code=Exit.INPUT)
    file.write_text("directory: d\npeople: [{id: ann, name: Ann}, {id: bob, name: Bob, active: false}]\n")
    command("directory", "publish", str(file))
    assert [one["ended"] for one in command.json("token", "list")] == [None, "deactivated"]
