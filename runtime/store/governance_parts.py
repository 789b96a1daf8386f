"""The parts of a commit that govern: receipts, approvals and votes."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.kernel.commit import Commit
from runtime.store.commit_part import Part, columns, records, runs, texts

_INSERT_RECEIPTS = """INSERT INTO receipts (receipt_id, run_id, tenant_id, step_key, operation, target,
        idempotency_key, action_digest, action, status, attempt, lease_epoch, reversible, reverse, intended_at)
      SELECT r.receipt_id, g.run_id, g.tenant_id, r.step_key, r.operation, r.target, r.idempotency_key,
        r.action_digest, r.action, r.status, r.attempt, r.lease_epoch, r.reversible, r.reverse, r.intended_at
      FROM json_to_recordset({0}) AS r(run uuid, receipt_id uuid, step_key text, operation text, target text,
        idempotency_key text, action_digest text, status text, attempt int, lease_epoch int, reversible bool,
        action jsonb, reverse jsonb, intended_at timestamptz) JOIN guard g ON g.run_id = r.run"""


def _receipt_values(cs: Sequence[Commit]) -> list[object]:
    return [
        records(cs, "new_receipts", "receipt_id", "step_key", "operation", "target", "idempotency_key", "action_digest",
            "status", "attempt", "lease_epoch", "reversible", "action", "reverse", "intended_at",
        )
    ]  # fmt: skip


_NEW_RECEIPTS = Part(
    "new_receipts",
    _INSERT_RECEIPTS,
    _receipt_values,
    lambda c: bool(c.new_receipts) and not c.freed_receipts,
)

# A failed attempt at another action gives its key up, so that a key never has more than one receipt. The insert
# waits for that: it counts what was freed. If somebody has taken the key meanwhile, it fails, and nothing is performed.
# ``IS TRUE`` as in the parts of a run: a receipt is found by its id, never among all receipts of its tenant.
_FREED_RECEIPTS = Part(
    "freed_receipts",
    """UPDATE receipts SET idempotency_key = receipts.idempotency_key || ':' || receipts.receipt_id::text
      FROM guard g WHERE receipts.receipt_id = ANY ({0}::uuid[]) AND (receipts.tenant_id = g.tenant_id) IS TRUE
        AND receipts.status = 'failed' RETURNING receipts.receipt_id""",
    lambda cs: [cs[0].freed_receipts],
    lambda c: bool(c.freed_receipts),
    alone=True,
)
_REPLACING_RECEIPTS = Part(
    "new_receipts",
    f"{_INSERT_RECEIPTS}, (SELECT count(*) FROM do_freed_receipts) AS f(count)",
    _receipt_values,
    lambda c: bool(c.new_receipts) and bool(c.freed_receipts),
    alone=True,
)

# The times are those of the audit's lines, which bind the receipt.
_RECEIPTS = Part(
    "receipts",
    """UPDATE receipts SET status = r.status, attempt = r.attempt, lease_epoch = r.epoch, external_id = r.external,
        resolution = r.resolution, output = r.output::jsonb, usage = r.usage::jsonb, error = r.error::jsonb,
        action = CASE WHEN r.authority IS NULL THEN receipts.action ELSE receipts.action || r.authority::jsonb END,
        intended_at = r.intended_at, settled_at = r.settled_at
      FROM unnest({0}::uuid[], {1}::text[], {2}::int[], {3}::int[], {4}::text[], {5}::text[], {6}::text[],
        {7}::text[], {8}::text[], {9}::text[], {10}::uuid[], {11}::timestamptz[], {12}::timestamptz[])
        AS r(receipt_id, status, attempt, epoch, external, resolution, output, usage, error, authority, run,
          intended_at, settled_at)
      JOIN guard g ON g.run_id = r.run
      WHERE receipts.receipt_id = r.receipt_id AND (receipts.tenant_id = g.tenant_id) IS TRUE""",
    lambda cs: [
        *columns(cs, "receipts", "receipt_id", "status", "attempt", "lease_epoch", "external_id", "resolution"),
        *texts(cs, "receipts", "output", "usage", "error", "authority"),
        runs(cs, "receipts"),
        *columns(cs, "receipts", "intended_at", "settled_at"),
    ],
    lambda c: bool(c.receipts),
)

_NEW_APPROVALS = Part(
    "new_approvals",
    """INSERT INTO approvals (approval_id, run_id, tenant_id, step_id, step_key, kind, status, action_digest, nonce,
        tier, terms, requester, card, action, expires_at, decided_at)
      SELECT a.approval_id, g.run_id, g.tenant_id, a.step_id, a.step_key, a.kind, a.status, a.action_digest,
        a.nonce, a.tier, a.terms, a.requester, a.card, a.action, now() + make_interval(secs => a.expires_in),
        CASE WHEN a.status <> 'requested' THEN now() END
      FROM json_to_recordset({0}) AS a(run uuid, approval_id uuid, step_id uuid, step_key text, kind text, status text,
        action_digest text, nonce text, tier text, requester text, terms jsonb, card jsonb, action jsonb,
        expires_in float8) JOIN guard g ON g.run_id = a.run""",
    lambda cs: [
        records(cs, "new_approvals", "approval_id", "step_id", "step_key", "kind", "status", "action_digest", "nonce",
            "tier", "requester", "terms", "card", "action", "expires_in",
        )
    ],
    lambda c: bool(c.new_approvals),
)  # fmt: skip

_APPROVALS = Part(
    "approvals",
    """UPDATE approvals SET status = a.status, choice = coalesce(a.choice, approvals.choice),
        reason = coalesce(a.reason, approvals.reason), escalated = approvals.escalated OR a.escalated,
        consumed_at = CASE WHEN a.consumed THEN now() ELSE approvals.consumed_at END,
        decided_at = CASE WHEN a.status = 'requested' THEN NULL ELSE coalesce(approvals.decided_at, now()) END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::bool[], {5}::bool[])
        AS a(approval_id, status, choice, reason, consumed, escalated)
      WHERE approvals.approval_id = a.approval_id AND (approvals.run_id = g.run_id) IS TRUE""",
    lambda cs: columns(cs, "approvals", "approval_id", "status", "choice", "reason", "consumed", "escalated"),
    lambda c: bool(c.approvals),
)

_VOTES = Part(
    "votes",
    """INSERT INTO votes (approval_id, person_id, tenant_id, choice, reason, groups, channel)
      SELECT v.approval_id, v.person_id, g.tenant_id, v.choice, v.reason, v.groups, v.channel
      FROM json_to_recordset({0}) AS v(run uuid, approval_id uuid, person_id text, choice text, reason text,
        groups text[], channel text) JOIN guard g ON g.run_id = v.run
      ON CONFLICT (approval_id, person_id) DO UPDATE SET choice = excluded.choice, reason = excluded.reason,
        groups = excluded.groups, channel = excluded.channel, voted_at = now()""",
    lambda cs: [records(cs, "votes", "approval_id", "person_id", "choice", "reason", "groups", "channel")],
    lambda c: bool(c.votes),
    alone=True,
)

_CANCEL_APPROVALS = Part(
    "cancel_approvals",
    """UPDATE approvals SET status = 'canceled', decided_at = now() FROM guard g
      WHERE approvals.run_id = g.run_id AND approvals.status = 'requested'
        AND approvals.approval_id <> ALL ({0}::uuid[])""",
    lambda cs: [[row.approval_id for row in cs[0].approvals]],
    lambda c: c.cancels_rest,
    alone=True,
)
GOVERNANCE_PARTS: tuple[Part, ...] = (
    _FREED_RECEIPTS, _NEW_RECEIPTS, _REPLACING_RECEIPTS, _RECEIPTS, _NEW_APPROVALS, _APPROVALS, _VOTES,
    _CANCEL_APPROVALS,
)  # fmt: skip
