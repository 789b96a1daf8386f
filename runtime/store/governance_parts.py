"""The parts of a commit that govern: shared effects, approvals and votes."""

from __future__ import annotations

from evidence.receipts import ReceiptStatus
from runtime.store.run_parts import Part, columns, records

# Effects of wider scope than a step: their key holds neither run nor step, so the table makes it unique. Who
# moves one holds its key; who begins one finds the key free, or takes it from an attempt that certainly failed. If
# somebody else has taken it meanwhile, the insert fails and with it the append: nothing is performed. An outcome never
# meets that, because nobody takes a key from an attempt that may have had its effect. A crash leaves the row and the
# event that moves it, or neither.
_EFFECTS = Part(
    "effects",
    """UPDATE effects SET run_id = g.run_id, step_key = e.step_key, receipt_id = e.receipt_id, status = e.status
      FROM unnest({0}::text[], {1}::text[], {2}::uuid[], {3}::text[], {4}::uuid[])
        AS e(key, step_key, receipt_id, status, was) CROSS JOIN guard g
      WHERE effects.tenant_id = g.tenant_id AND effects.key = e.key AND effects.receipt_id = e.was
        AND (e.was = e.receipt_id OR effects.status = 'failed') RETURNING effects.key""",
    lambda cs: columns(cs, "effects", "key", "step_key", "receipt_id", "status", "was"),
    lambda c: bool(c.effects),
    alone=True,
)
_NEW_EFFECTS = Part(
    "new_effects",
    """INSERT INTO effects (tenant_id, key, run_id, step_key, receipt_id, status)
      SELECT g.tenant_id, e.key, g.run_id, e.step_key, e.receipt_id, e.status
      FROM unnest({0}::text[], {1}::text[], {2}::uuid[], {3}::text[]) AS e(key, step_key, receipt_id, status)
      CROSS JOIN guard g
      WHERE e.status = 'intended' AND e.key NOT IN (SELECT moved.key FROM do_effects AS moved)""",
    lambda cs: columns(cs, "effects", "key", "step_key", "receipt_id", "status"),
    lambda c: any(row.status == ReceiptStatus.INTENDED for row in c.effects),
    alone=True,
)

_NEW_APPROVALS = Part(
    "new_approvals",
    """INSERT INTO approvals (approval_id, run_id, n, tenant_id, step_key, status, expires_at, decided_at)
      SELECT a.approval_id, g.run_id, g.version, g.tenant_id, a.step_key, a.status,
        now() + make_interval(secs => a.expires_in), CASE WHEN a.status <> 'requested' THEN now() END
      FROM json_to_recordset({0}) AS a(run uuid, approval_id uuid, step_key text, status text, expires_in float8)
        JOIN guard g ON g.run_id = a.run""",
    lambda cs: [records(cs, "new_approvals", "approval_id", "step_key", "status", "expires_in")],
    lambda c: bool(c.new_approvals),
)

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
        AND approvals.approval_id <> ALL ({0}::uuid[]) AND {1}::bool""",
    lambda cs: [[row.approval_id for row in cs[0].approvals], cs[0].cancels_rest],
    lambda c: c.cancels_rest,
    alone=True,
)
GOVERNANCE_PARTS: tuple[Part, ...] = (
    _EFFECTS, _NEW_EFFECTS, _NEW_APPROVALS, _APPROVALS, _VOTES, _CANCEL_APPROVALS,
)  # fmt: skip
