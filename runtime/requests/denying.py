"""Denies single operations until a time: each denial is a policy of one rule, which is in force at once (promise 11).

A denial only makes the tenant's policies stricter, so one operator may make it without a second person. It ends at its
time, because its rule reads `now`, or when it is lifted. It is a policy like all others: open questions are judged
again, each decision names it, and evidence holds its text. Its name holds the operation, so that the judge of evidence
knows what it is about.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from msgspec import Struct

from core.canonical import JsonObject, check_text
from core.db import Connection
from core.errors import ConsistencyError, InputError, NotFoundError, nearest
from evidence.chain import Actor
from evidence.events import DENIALS
from runtime.definition.catalog import Definitions
from runtime.requests import policy_changes
from runtime.requests.policy_changes import Proposed, Way
from runtime.store import documents, tenants

LONGEST = timedelta(days=366)
DENIALS_MAX = 200


class Denial(Struct, frozen=True):
    """A denial. If its time is ``over``, it denies nothing any more, but stays until it is lifted."""

    operation: str
    until: str
    reason: str
    by: str
    over: bool
    changed: bool = True


async def deny(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    operation: str,
    until: datetime,
    reason: str,
    actor: Actor,
) -> Denial:
    """Deny an operation until a time; an earlier denial of it is replaced. ``InputError`` names what is wrong.

    Once it has returned, no intent of the operation goes out that was decided before. It is one transaction: after a
    crash before its commit the operation is not denied, and the caller repeats the call.
    """
    check_text(reason, "reason")
    if not reason.strip():
        raise InputError("is empty.", where="reason", remedy="Say why: whoever meets the denial reads it.")
    await tenants.lock(connection, tenant)
    published = await definitions.published(connection, tenant)
    known = published.operations
    if operation not in known:
        raise NotFoundError(f"There is no operation {operation!r}.", remedy=nearest(operation, known, "Known"))
    now = (await tenants.directory_now(connection, tenant))[0]
    if until.tzinfo is None or not now < until <= now + LONGEST:
        remedy = f"Write a moment with its time zone within {LONGEST.days} days, such as 2030-01-31T18:00:00Z."
        raise InputError("is past, too far away, or has no time zone.", where="until", remedy=remedy)
    past = await documents.past_policies(connection, tenant)
    name, standing = DENIALS + operation, [one for one in past.in_use if one.name.startswith(DENIALS)]
    if len(standing) >= DENIALS_MAX and past.used(name) is None:
        raise ConsistencyError(f"{DENIALS_MAX} denials are kept.", remedy="Lift those that are over, or pause.")
    version = 1 + max((one.version for one in past.editions if one.name == name), default=0)
    text = _text(name, version, operation, until, reason)
    policy = definitions.compile_policy(text, f"{name}@{version}", published)
    own: JsonObject = {each: one.model_dump(mode="json") for each, one in published.own.items()}
    await documents.store_policy(connection, tenant, policy, text, actor, own)
    proposed = Proposed(Way.ACTIVATE, name, version, policy.digest)
    foreseen = await policy_changes.foresee(connection, definitions, tenant, proposed, policy)
    await policy_changes.make(connection, definitions, tenant, proposed, foreseen, actor, "")
    return Denial(operation, until.isoformat(), reason, actor.id, False)


async def lift(connection: Connection, definitions: Definitions, tenant: str, operation: str, actor: Actor) -> Denial:
    """Lift a denial; ``changed`` is False if none is in force. ``NotFoundError`` if there never was one."""
    await tenants.lock(connection, tenant)
    past, name = await documents.past_policies(connection, tenant), DENIALS + operation
    used = past.used(name)
    if used is None:
        if not any(one.name == name for one in past.editions):
            remedy = "See `counterseal deny`. Other policies are retired: `counterseal policy retire NAME`."
            raise NotFoundError(f"{operation!r} is not denied by `deny`.", remedy=remedy)
        return Denial(operation, "", "", "", True, False)
    now = (await tenants.directory_now(connection, tenant))[0]
    found = await _read(connection, tenant, operation, used.version, now)
    proposed = Proposed(Way.RETIRE, name, used.version, used.digest)
    foreseen = await policy_changes.foresee(connection, definitions, tenant, proposed, None)
    await policy_changes.make(connection, definitions, tenant, proposed, foreseen, actor, "")
    return found


async def listed(connection: Connection, tenant: str) -> list[Denial]:
    """Every denial that was not lifted, sorted by operation."""
    now = (await tenants.directory_now(connection, tenant))[0]
    past = await documents.past_policies(connection, tenant)
    used = [one for one in past.in_use if one.name.startswith(DENIALS)]
    return [await _read(connection, tenant, one.name.removeprefix(DENIALS), one.version, now) for one in used]


async def _read(connection: Connection, tenant: str, operation: str, version: int, now: datetime) -> Denial:
    _, text, by = await documents.policy_of(connection, tenant, DENIALS + operation, version)
    (rule,) = json.loads(text)["rules"]
    until = str(rule["when"]).split("'")[1]
    return Denial(operation, until, rule["because"], by, datetime.fromisoformat(until) <= now)


def _text(name: str, version: int, operation: str, until: datetime, reason: str) -> str:
    """The text of the policy: JSON, which is also YAML."""
    rule = {"id": "denied", "match": {"operation": operation}, "when": f"now < timestamp('{until.isoformat()}')"}
    rule |= {"outcome": "deny", "because": reason}
    return json.dumps({"policy": name, "version": version, "rules": [rule]}, indent=1) + "\n"
