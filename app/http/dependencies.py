"""Shared parts of the routes: the faces behind the request, the caller, and pages."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import accumulate
from types import GenericAlias
from typing import Annotated, Any, TypeAlias, cast
from uuid import UUID

import orjson
from fastapi import Depends, Query, Request
from pydantic import AwareDatetime, Field, TypeAdapter

from app.access import Principal, Role
from app.faces import Faces
from core.errors import AuthorizationError, InputError
from runtime.engine.replay.past import PAGE_BYTES_MAX, size_of
from runtime.store.read_models import Row

LIMIT_DEFAULT = 50
LIMIT_MAX = 200
_CURSOR_CHARACTERS_MAX = 400
# A time that is not at the ends of the calendar, because those cannot be converted to UTC.
Moment: TypeAlias = Annotated[
    AwareDatetime, Field(ge=datetime(1970, 1, 1, tzinfo=UTC), lt=datetime(9999, 1, 1, tzinfo=UTC))
]
# Types of a cursor's values, with bounds.
_KINDS: Mapping[type, Any] = {
    UUID: UUID,
    str: str,
    int: Annotated[int, Field(gt=-(2**31), lt=2**31)],
    datetime: Moment,
}


# Dependencies are coroutines although they await nothing: FastAPI calls a plain function in a thread, which costs more
# than the function itself.
async def _faces(request: Request) -> Faces:
    return cast("Faces", request.app.state.faces)


def principal(request: Request) -> Principal:
    """The caller, as authenticated by the middleware."""
    return cast("Principal", request.state.principal)


async def wait_until_over(request: Request, faces: Faces, run_id: UUID, seconds: float) -> None:
    """Wait until a run of the caller's tenant is over, or so many seconds.

    ``AuthenticationError`` if the caller's token has ended meanwhile: whoever waits is told no more than who asks anew.
    """
    await faces.waiting.ended(principal(request).tenant, run_id, seconds)
    await request.state.prove()


FacesDep: TypeAlias = Annotated[Faces, Depends(_faces)]


def allow(*roles: Role) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency that returns the principal, and refuses one without any of the roles."""

    async def check(request: Request) -> Principal:
        found = principal(request)
        if not found.has(*roles):
            words = f"This needs the role {' or '.join(roles)}, which the token does not have."
            raise AuthorizationError(words, remedy="Ask an administrator for a token with that role.")
        return found

    return check


Reader: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR))]
# Readers and authors. Routes for a run also call ``check_own``: an author sees only runs started in its own name.
Composer: TypeAlias = Annotated[
    Principal, Depends(allow(Role.ADMIN, Role.AUTHOR, Role.OPERATOR, Role.APPROVER, Role.AUDITOR))
]
Author: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN, Role.AUTHOR))]
Extender: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN, Role.OPERATOR, Role.AUTHOR))]
Operator: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN, Role.OPERATOR))]
Starter: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN, Role.OPERATOR, Role.TRIGGER))]
Signaler: TypeAlias = Annotated[Principal, Depends(allow(Role.OPERATOR, Role.TRIGGER))]
Auditor: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN, Role.AUDITOR))]
# The roles that may end a hold. The directory says whether a person may end this one.
Steerer: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN, Role.OPERATOR, Role.APPROVER))]
# The roles that may comment on a question. The directory says whether a person may comment on this one.
Talker: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.TRIGGER))]
# The roles that may delegate: approvers for themselves, and admins for everybody.
Delegator: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN, Role.APPROVER))]
Approver: TypeAlias = Annotated[Principal, Depends(allow(Role.APPROVER))]
# All roles but that of an agent, which sees only its own actions.
Insider: TypeAlias = Annotated[Principal, Depends(allow(*(role for role in Role if role is not Role.AGENT)))]
Agent: TypeAlias = Annotated[Principal, Depends(allow(Role.AGENT))]
Admin: TypeAlias = Annotated[Principal, Depends(allow(Role.ADMIN))]


def check_own(who: Principal, run: Row) -> None:
    """Raise ``AuthorizationError`` if the caller is only an author and another account started the run.

    What counts is the account that was authenticated when the run was started, never a text that somebody sent with it.
    A token with any other role than author, trigger and agent passes.
    """
    if who.has(*(role for role in Role if role not in (Role.AUTHOR, Role.TRIGGER, Role.AGENT))):
        return
    # A run of an older release has no account; over HTTP its requester was the token's subject.
    account = run["started_by"] or (run["requested_by"] if run["trigger_type"] == "http" else None)
    if account != who.subject:
        words = "An author looks at and extends only runs that were started in its own name, and this is none of them."
        raise AuthorizationError(words, remedy="Ask an administrator for a token with the role operator.")


@dataclass(frozen=True, slots=True)
class Paging:
    """The requested page of a list."""

    limit: int
    cursor: str

    def after(self, *kinds: type) -> list[Any]:
        """The key of the previous page's last row; [] for the first page. See ``decode_cursor``."""
        return decode_cursor(self.cursor, *kinds)

    def page(self, rows: Sequence[Row], *key: str) -> dict[str, Any]:
        """Make ``{items, next}`` of ``limit + 1`` fetched rows. The members ``key`` order the rows and are unique.

        It has as many rows as fit into ``PAGE_BYTES_MAX``, and at least one.
        """
        sums = accumulate(map(size_of, rows[: self.limit]))
        items = list(rows[: max(1, sum(size <= PAGE_BYTES_MAX for size in sums))])
        following = encode_cursor([items[-1][name] for name in key]) if len(rows) > len(items) else None
        return {"items": items, "next": following}

    def page_of_all(self, rows: Sequence[Row], **key: type) -> dict[str, Any]:
        """Make ``{items, next}`` of all rows, which are sorted by ``key``: names of members with their types."""
        first = bisect_right(rows, self.after(*key.values()), key=lambda row: [row[name] for name in key])
        return self.page(rows[first : first + self.limit + 1], *key)


async def _paging(
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many at most")] = LIMIT_DEFAULT,
    cursor: Annotated[
        str, Query(max_length=_CURSOR_CHARACTERS_MAX, description="`next` of the page before; empty for the first")
    ] = "",
) -> Paging:
    return Paging(limit, cursor)


Paged: TypeAlias = Annotated[Paging, Depends(_paging)]


def encode_cursor(key: Sequence[object]) -> str:
    """An opaque text for the place after a row. (orjson does not know asyncpg's class for UUIDs, hence ``default``.)"""
    return base64.urlsafe_b64encode(orjson.dumps([*key], default=str)).decode().rstrip("=")


def decode_cursor(cursor: str, *kinds: type) -> list[Any]:
    """The key in a cursor, of these types of ``_KINDS``; [] for an empty cursor. ``InputError`` otherwise."""
    if not cursor:
        return []
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return [*_key(*kinds).validate_json(text, strict=True)]
    except ValueError:
        raise InputError("is not a cursor of this list.", where="cursor", remedy="Leave it out.") from None


@cache
def _key(*kinds: type) -> TypeAdapter[tuple[Any, ...]]:
    shape: Any = GenericAlias(tuple, tuple(_KINDS[kind] for kind in kinds))
    return TypeAdapter(shape)
