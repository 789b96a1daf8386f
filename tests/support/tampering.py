"""Named ways to alter the evidence of the one run that there is, behind the engine's back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson

from tests.support.trouble import Forger


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


class Tampering(Forger):
    """Alters exactly one record, as the database's owner and past its triggers."""

    async def _alter(self, sql: str, *parameters: object) -> None:
        met = await self._forge(sql, *parameters)
        assert met == 1, f"{met} records were altered, not one"

    # -- the question -------------------------------------------------------------------------------------------------

    async def asked_elsewhere(self) -> None:
        """Another append of the run is said to have asked."""
        await self._alter("UPDATE approvals SET n = n - 1")

    async def ended_otherwise(self) -> None:
        """Every approved action is said to have failed."""
        await self._forge("UPDATE approvals SET outcome = 'failed', why = 'no' WHERE status = 'approved'")

    async def rejected(self) -> None:
        """The answer is a rejection."""
        await self._alter("UPDATE approvals SET status = 'rejected', choice = 'reject'")

    async def vote_reason(self, reason: str, *, person: str | None = None) -> None:
        """The reason of the vote, or of this person's vote."""
        await self._alter("UPDATE votes SET reason = $1 WHERE $2::text IS NULL OR person_id = $2", reason, person)

    async def lost_vote(self) -> None:
        await self._alter("DELETE FROM votes")

    async def wait_output(self, kind: str, value: Any) -> None:
        """Change what a wait of this kind ended with: the member ``value`` of it."""
        await self._alter(
            "UPDATE waits SET result = jsonb_set(result, '{output,value}', $2::text::jsonb) WHERE kind = $1",
            kind,
            _json(value),
        )

    # -- the action and the run ---------------------------------------------------------------------------------------

    async def receipt_target(self, target: str) -> None:
        await self.told_value("target", target)

    async def external_id(self, value: str) -> None:
        """The id that the target gave."""
        await self.told_value("external_id", value)

    async def reverse(self, value: Any) -> None:
        """The action that would undo this one."""
        await self.told_value("reverse", value)

    async def intended_earlier(self, by: timedelta) -> None:
        await self.told_earlier("action.intended", by)

    async def settled_earlier(self, by: timedelta) -> None:
        await self.told_earlier("action.succeeded", by)

    async def lost_receipt(self) -> None:
        """Nothing tells the intent any more."""
        await self.lost_audit("action.intended")

    async def effect_failed(self) -> None:
        """The row of a shared effect says that it certainly did not happen."""
        await self._alter("UPDATE effects SET status = 'failed'")

    async def effect_of_nobody(self) -> None:
        """The row of a shared effect names a receipt that there is not."""
        await self._alter("UPDATE effects SET receipt_id = gen_random_uuid()")

    async def lost_effect(self) -> None:
        await self._alter("DELETE FROM effects")

    async def workflow(self) -> None:
        """The published text of the workflow."""
        await self._alter("UPDATE workflows SET source = source || '  # changed' WHERE name = 'w'")

    async def result(self, value: Any) -> None:
        """Change what the run hands over."""
        await self._alter("UPDATE runs SET result = $1::text::jsonb", _json(value))

    async def cancel_reason(self, reason: str) -> None:
        """The reason for which the run was canceled."""
        await self._alter(
            "UPDATE runs SET error = error || jsonb_build_object('message', $1::text), "
            "canceling = canceling || jsonb_build_object('reason', $1::text)",
            reason,
        )
