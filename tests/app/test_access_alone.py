"""Tokens by themselves: who gets one, for how long, which are taken, and which one a beginning names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app import access
from app.access import Principal, Role
from core.canonical import sha256_hex
from core.errors import AuthenticationError, InputError, NotFoundError
from core.identity import Directory, Entry
from evidence.chain import Actor, EventType, timestamp
from runtime.store import audit, tenants, tokens
from runtime.store.tokens import Ending

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
TESTER = Actor("person", "tess")
TOKEN = "cst_" + "aB3_-" * 8 + "xyz"
HASH = sha256_hex(TOKEN.encode())


class Tenant:
    """One tenant, its people and its tokens, which keeps what is done to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
        self.did: list[Any] = []
        self.people = Directory.of("d", entries)
        self.there = True
        self.row: Any = None
        self.revoked = 1
        for module, name, answer in (
            (tokens, "owner", lambda *_: self.row),
            (tokens, "create", lambda *_: AT),
            (tokens, "revoke", lambda *_: self.revoked),
            (tenants, "lock", lambda *_: None),
            (tenants, "exists", lambda *_: self.there),
            (tenants, "directory", lambda *_: self.people),
            (audit, "record", lambda *_: None),
        ):
            monkeypatch.setattr(module, name, self._asked(name, answer))

    def _asked(self, name: str, answer: Any) -> Any:
        async def asked(connection: str, *given: Any) -> Any:
            self.did.append((name, connection, *given))
            return answer()

        return asked

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[str]:
        yield "any"

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[str]:
        yield tenant


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (None, ""),
        (Ending.REVOKED, "it was revoked"),
        (Ending.EXPIRED, "it has expired"),
        (Ending.LEFT, "whoever it belongs to is not in the directory any more"),
        (Ending.DEACTIVATED, "whoever it belongs to is deactivated in the directory"),
    ],
)
async def test_a_token_is_its_owner_until_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, ended: Ending | None, why: str
) -> None:
    tenant: Any = Tenant(monkeypatch)
    tenant.row = {"tenant_id": "acme", "subject": "ann", "roles": ["admin", "auditor"], "ended": ended}
    if ended is None:
        found = await access.principal_of(tenant, TOKEN)
        assert found == Principal("acme", "ann", frozenset({"admin", "auditor"}))
        assert (found.person, found.actor) == ("person:ann", Actor("token", "ann"))
    else:
        with pytest.raises(AuthenticationError) as refused:
            await access.principal_of(tenant, TOKEN)
        assert str(refused.value) == (
            f"The bearer token is not valid: {why}. Create one with `counterseal token create`."
        )
    assert tenant.did == [("owner", "any", HASH)]


@pytest.mark.parametrize(
    "text", ["", "cst_", TOKEN[:-1], f"{TOKEN}x", f"x{TOKEN}", f"{TOKEN}\n", TOKEN.replace("aB", "a+"), TOKEN.upper()]
)
async def test_what_is_no_token_is_not_even_looked_up(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tenant: Any = Tenant(monkeypatch)
    with pytest.raises(AuthenticationError, match="it is none of ours"):
        await access.principal_of(tenant, text)
    assert tenant.did == []
    with pytest.raises(AuthenticationError, match="it is none of ours"):
        await access.principal_of(tenant, TOKEN)
    assert tenant.did == [("owner", "any", HASH)]


ANN = Entry("ann", "Ann")
GONE = Entry("gone", "Gone", active=False)
ROBOT = Entry("robot", "Robot", owner="ann")


@pytest.mark.parametrize(
    ("lifetime", "kept"),
    [
        (None, timedelta(days=90)),
        *((span, span) for span in (timedelta(seconds=1), timedelta(days=89), timedelta(days=91), timedelta(days=365))),
    ],
)
@pytest.mark.parametrize(("subject", "roles"), [("ann", {Role.APPROVER, Role.ADMIN}), ("robot", {Role.TRIGGER})])
async def test_a_token_is_made_for_its_time_and_is_on_record(
    monkeypatch: pytest.MonkeyPatch, lifetime: timedelta | None, kept: timedelta, subject: str, roles: set[Role]
) -> None:
    tenant: Any = Tenant(monkeypatch, ANN, ROBOT)
    made = await access.create_token(tenant, "acme", subject, frozenset(roles), lifetime, TESTER)
    assert (made.subject, made.expires_at) == (subject, AT)
    assert access._TOKEN.match(made.token)
    hashed, names = sha256_hex(made.token.encode()), sorted(map(str, roles))
    data = {"token": hashed[:12], "subject": subject, "roles": names, "expires": timestamp(AT)}
    assert tenant.did == [
        ("lock", "acme", "acme"),
        ("exists", "acme", "acme"),
        ("directory", "acme", "acme"),
        ("create", "acme", "acme", hashed, subject, names, kept),
        ("record", "acme", "acme", EventType.TOKEN_CREATED, TESTER, data),
    ]
    assert made.token != (await access.create_token(tenant, "acme", subject, frozenset(roles), None, TESTER)).token


NOBODY = (
    "'eve' is nobody whom the directory knows. Use a person's id in the directory; for a machine, add it there "
    "under service_accounts, with its owner. `counterseal directory publish FILE` publishes it."
)
NO_VOTER = (
    "'robot' is a service account, and those never decide. "
    "Leave the role out, or make a token for a person, such as its owner ann."
)
REFUSED: list[tuple[str, set[Role], timedelta | None, str, str]] = [
    ("ann", set(), None, "role", "names no role. One of admin, author, operator, approver, auditor, trigger."),
    (
        *("ann", {Role.ADMIN}, timedelta(days=365, microseconds=1), "expires"),
        "is longer than 365 days. Give P365D at most, and make a new one then.",
    ),
    (
        *("eve", {Role.ADMIN}, None, "subject"),
        NOBODY,
    ),
    (
        *("gone", {Role.ADMIN}, None, "subject"),
        "'gone' is deactivated in the directory. Take `active: false` away in the directory, and publish it.",
    ),
    *(
        (
            *("robot", roles, None, "role"),
            NO_VOTER,
        )
        for roles in ({Role.APPROVER}, {Role.APPROVER, Role.TRIGGER})
    ),
]


@pytest.mark.parametrize(("subject", "roles", "lifetime", "where", "words"), REFUSED)
async def test_whoever_may_have_no_such_token_gets_none(
    monkeypatch: pytest.MonkeyPatch, subject: str, roles: set[Role], lifetime: Any, where: str, words: str
) -> None:
    tenant: Any = Tenant(monkeypatch, ANN, GONE, ROBOT)
    with pytest.raises(InputError) as refused:
        await access.create_token(tenant, "acme", subject, frozenset(roles), lifetime, TESTER)
    assert (refused.value.where, str(refused.value)) == (where, f"{where}: {words}")
    assert "create" not in {each[0] for each in tenant.did}
    tenant.there = False
    with pytest.raises(NotFoundError) as lacking:
        await access.create_token(tenant, "acme", "ann", frozenset({Role.ADMIN}), None, TESTER)
    assert str(lacking.value) == "There is no tenant 'acme'. Create it with `counterseal tenant create acme`."


async def test_a_person_is_found_before_a_service_account_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    person, machine = Entry("x", "X"), Entry("m", "M", owner="ann")

    class People:
        def entry(self, name: str) -> Entry | None:
            return {"person:x": person, "x": machine}.get(name)

    found: Any = People()
    assert access._holder(found, "x", frozenset({Role.APPROVER})) is person


@pytest.mark.parametrize(
    ("named", "prefix"),
    [
        (TOKEN, HASH),
        *((HASH[:size], HASH[:size]) for size in (8, 12, 13, 64)),
        *(
            (text, None)
            for text in ("", HASH[:7], f"{HASH}0", HASH[:8].upper() + "A", "g" * 8, f"{HASH[:8]}\n", TOKEN[:-1])
        ),
    ],
)
async def test_a_token_is_revoked_by_itself_or_by_the_beginning_of_its_hash(
    monkeypatch: pytest.MonkeyPatch, named: str, prefix: str | None
) -> None:
    tenant: Any = Tenant(monkeypatch)
    if prefix is None:
        with pytest.raises(InputError) as refused:
            await access.revoke_token(tenant, "acme", named, TESTER)
        assert str(refused.value) == "token: is neither a token nor the beginning of a token's hash"
        assert tenant.did == []
        return
    tenant.revoked = 3
    assert await access.revoke_token(tenant, "acme", named, TESTER) == 3
    revoked, data = ("revoke", "acme", "acme", prefix), {"token": prefix[:12], "count": 3}
    assert tenant.did == [revoked, ("record", "acme", "acme", EventType.TOKEN_REVOKED, TESTER, data)]
    tenant.revoked = 0
    tenant.did.clear()
    with pytest.raises(NotFoundError, match="There is no such token that is still valid"):
        await access.revoke_token(tenant, "acme", named, TESTER)
    assert tenant.did == [revoked], "and nothing is on record"


@pytest.mark.parametrize("asked", [(), (Role.ADMIN,), (Role.AUDITOR, Role.ADMIN), (Role.TRIGGER, Role.APPROVER)])
def test_one_of_the_roles_suffices(asked: tuple[Role, ...]) -> None:
    for has in ((), (Role.ADMIN,), (Role.ADMIN, Role.TRIGGER), (Role.AUDITOR,)):
        who = Principal("acme", "ann", frozenset(map(str, has)))
        assert who.has(*asked) is bool({*has} & {*asked})
