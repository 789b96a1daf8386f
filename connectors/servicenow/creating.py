"""Creates records that can be found again: a record has the key of its action in one of its own fields.

The Table API has no idempotency key, so the same request twice makes two records. Before each request the key is looked
for, and after a doubt a probe finds the record by it. The instance silently drops a condition on a field, and a value
for a field, that it does not know or does not show us. So an answer counts only if it has the key, and the absence of
the key proves nothing while a record of ours without a key may be the right one.
"""

from __future__ import annotations

from msgspec.structs import replace

from connectors.exchange import Unread, deadline_in, seconds_to
from connectors.port import Before, Call, NotSent, Outcome, Probe, ProbeVerdict, Refused
from connectors.proposal import writes_of
from connectors.readback import ASKED, FOUND, same_text
from connectors.servicenow.client import ServiceNowSettings, TableClient
from connectors.servicenow.presence import is_gone
from connectors.servicenow.written import FACTS, done_of, settable, settled, table_of
from core.canonical import JsonObject

CORRELATION = "correlation_id"
_CREATED, _CREATOR = "sys_created_on", "sys_created_by"
# The number of our newest records among which a record without its key is looked for.
_LATEST = 100


class Creating:
    """Creates records in one instance."""

    def __init__(self, client: TableClient, settings: ServiceNowSettings) -> None:
        self._client = client
        self._settings = settings

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        """Check that the record to restore is still gone; there is nothing else to read before a creation."""
        restored = call.input.get("restores")
        if restored is not None:
            table, seconds = table_of(call), call.timeout_seconds
            deleted = await is_gone(self._client, table, str(restored), timeout_seconds=seconds)
            if isinstance(deleted, Refused | NotSent):
                return deleted
            if not deleted:
                return Refused("changed_since", f"{table} {restored} is there again, so it is not made once more")
        return Before({}, None, writers=())

    async def perform(self, call: Call) -> Outcome:
        """Create the record, unless one has the action's key already: then that one is the result, and nothing is sent.

        A crash before the answer leaves a doubt, which the next lease resolves by the same key.
        """
        deadline = deadline_in(call.timeout_seconds)
        found = await self._find(call, call.timeout_seconds)
        if isinstance(found, Refused | NotSent):
            return found
        record = found
        if record is None:
            body = {**writes_of(call.declaration, call.input), _field(call): call.idempotency_key}
            made = await self._client.create(table_of(call), body, timeout_seconds=seconds_to(deadline))
            if isinstance(made, Unread):  # the creation succeeded, and the returned record cannot be kept
                back = await self._find(call, seconds_to(deadline))
                made = back if isinstance(back, dict) else made
            if not isinstance(made, dict):
                return made
            record = made
        fields = settable(call.declaration, writes_of(call.declaration, call.input))
        done = await settled(self._client, table_of(call), record, fields, seconds_to(deadline))
        name, key = _field(call), call.idempotency_key
        if record.get(name) == key:
            return done
        # The record exists, but without its key it could not be found again: people have to know.
        altered: JsonObject = {**done.altered, name: {ASKED: key, FOUND: record.get(name)}}
        return replace(done, altered=altered, output={**done.output, "altered": [*altered]})

    async def probe(self, call: Call, seconds_since_intent: float) -> Probe:
        """Look for the record with the action's key."""
        found, name = await self._find(call, call.timeout_seconds), _field(call)
        if isinstance(found, Refused | NotSent):
            return Probe.unreadable("the record could not be looked for", found)
        fields = settable(call.declaration, writes_of(call.declaration, call.input))
        if found is not None:
            words = f"the record {found.get('sys_id')} bears this action's key in {name}"
            return Probe(ProbeVerdict.APPLIED, words, done_of(found, fields))
        if self._settings.integration_user is None:
            words = f"no record bears this action's key in {name}, but our own user name is not configured"
            return Probe(ProbeVerdict.CANNOT_TELL, words)
        twin = await self._without_key(call, self._settings.integration_user, fields)
        if isinstance(twin, Refused | NotSent):
            return Probe.unreadable("our own records could not be read", twin)
        if twin:
            words = f"no record bears this action's key in {name}, but {twin} is ours, has these values and no key"
            return Probe(ProbeVerdict.CANNOT_TELL, words)
        limit, absent = self._settings.transaction_limit_seconds, f"no record bears this action's key in {name}"
        early = f"{absent}, but a transaction may run for {limit:g} s"
        late = f"{absent}, {seconds_since_intent:.0f} s after the intent: nothing was made"
        return Probe.absent(early, late, seconds_left=limit - seconds_since_intent)

    async def _find(self, call: Call, seconds: float) -> JsonObject | Refused | NotSent | None:
        """The record with the action's key; the oldest, if somebody has copied it. None if there is none."""
        name, key, table = _field(call), call.idempotency_key, table_of(call)
        wanted = settable(call.declaration, writes_of(call.declaration, call.input))
        fields = tuple(sorted({*wanted, *FACTS, name, _CREATED}))
        query = f"{name}={key}^ORDERBY{_CREATED}"
        rows = await self._client.query(table, query, fields, limit=10, timeout_seconds=seconds)
        if not isinstance(rows, list):
            return rows
        if any(row.get(name) != key for row in rows):
            words = f"{table} cannot be searched by {name}: the instance does not know the field, or hides it from our"
            return Refused("not_correlated", f"{words} user; name a field with text under `correlate_by`")
        return rows[0] if rows else None

    async def _without_key(self, call: Call, user: str, fields: JsonObject) -> str | Refused | NotSent:
        """The sys_id of a record that we created with these values, and that has no key; "" if there is none."""
        name, wanted = _field(call), tuple(sorted({*fields, "sys_id", _field(call), _CREATOR}))
        query, seconds = f"{_CREATOR}={user}^ORDERBYDESC{_CREATED}", call.timeout_seconds
        rows = await self._client.query(table_of(call), query, wanted, limit=_LATEST, timeout_seconds=seconds)
        if not isinstance(rows, list):
            return rows
        for row in rows:
            ours = row.get(_CREATOR, user) == user and not row.get(name)
            if ours and all(same_text(value, row.get(each, value)) for each, value in fields.items()):
                return str(row.get("sys_id") or "a record")
        return ""


def _field(call: Call) -> str:
    """The field for the action's key."""
    return str(call.input.get("correlate_by") or CORRELATION)
