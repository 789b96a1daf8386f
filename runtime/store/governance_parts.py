"""The parts of a commit that govern: decisions, receipts, approvals and votes."""

from __future__ import annotations

from runtime.kernel.commit import Commit
from runtime.store.commit_part import Part, columns, texts

# Formatting a text once leaves the numbers of its parameters to be filled in when it is used.
PLACES = tuple(f"{{{number}}}" for number in range(12))

_DECISIONS = Part(
    "decisions",
    """INSERT INTO decisions (decision_id, run_id, tenant_id, step_key, operation, action_digest, outcome,
        policy_digest, rules, errors, reasons, facts)
      SELECT d.decision_id, g.run_id, g.tenant_id, d.key, d.operation, d.digest, d.outcome, d.policy, d.rules::jsonb,
        d.errors::jsonb, d.reasons::jsonb, d.facts::jsonb
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::text[], {5}::text[], {6}::text[],
        {7}::text[], {8}::text[], {9}::text[])
        AS d(decision_id, key, operation, digest, outcome, policy, rules, errors, reasons, facts)""",
    lambda c: [
        *columns(c.decisions, "decision_id", "step_key", "operation", "action_digest", "outcome", "policy_digest"),
        *texts(c.decisions, "rules", "errors", "reasons", "facts"),
    ],
    lambda c: bool(c.decisions),
)

_INSERT_RECEIPTS = """INSERT INTO receipts (receipt_id, run_id, tenant_id, step_key, operation, target,
        idempotency_key, action_digest, action, status, attempt, lease_epoch, reversible, reverse)
      SELECT r.receipt_id, g.run_id, g.tenant_id, r.key, r.operation, r.target, r.idempotency, r.digest,
        r.action::jsonb, r.status, r.attempt, r.epoch, r.reversible, r.reverse::jsonb
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::text[], {5}::text[], {6}::text[],
        {7}::int[], {8}::int[], {9}::bool[], {10}::text[], {11}::text[])
        AS r(receipt_id, key, operation, target, idempotency, digest, status, attempt, epoch, reversible, action,
             reverse){freed}"""


def _receipt_values(c: Commit) -> list[object]:
    return [
        *columns(c.new_receipts, "receipt_id", "step_key", "operation", "target", "idempotency_key", "action_digest"),
        *columns(c.new_receipts, "status", "attempt", "lease_epoch", "reversible"),
        *texts(c.new_receipts, "action", "reverse"),
    ]


_NEW_RECEIPTS = Part(
    "new_receipts",
    _INSERT_RECEIPTS.format(*PLACES, freed=""),
    _receipt_values,
    lambda c: bool(c.new_receipts) and not c.freed_receipts,
)

# A failed attempt at another action gives its key up, so that a key never has more than one receipt. The insert
# waits for that: it counts what was freed. If somebody has taken the key meanwhile, it fails, and nothing is performed.
_FREED_RECEIPTS = Part(
    "freed_receipts",
    """UPDATE receipts SET idempotency_key = receipts.idempotency_key || ':' || receipts.receipt_id::text
      FROM guard g WHERE receipts.receipt_id = ANY ({0}::uuid[]) AND receipts.tenant_id = g.tenant_id
        AND receipts.status = 'failed' RETURNING receipts.receipt_id""",
    lambda c: [c.freed_receipts],
    lambda c: bool(c.freed_receipts),
)
_REPLACING_RECEIPTS = Part(
    "new_receipts",
    _INSERT_RECEIPTS.format(*PLACES, freed=", (SELECT count(*) FROM do_freed_receipts) AS f(count)"),
    _receipt_values,
    lambda c: bool(c.new_receipts) and bool(c.freed_receipts),
)

# An attempt that is intended again is intended now: how long ago is what a probe wants to know.
_RECEIPTS = Part(
    "receipts",
    """UPDATE receipts SET status = r.status, attempt = r.attempt, lease_epoch = r.epoch, external_id = r.external,
        resolution = r.resolution, output = r.output::jsonb, usage = r.usage::jsonb, error = r.error::jsonb,
        intended_at = CASE WHEN r.status = 'intended' THEN now() ELSE receipts.intended_at END,
        settled_at = CASE WHEN r.status IN ('succeeded', 'failed') THEN now() END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::int[], {3}::int[], {4}::text[], {5}::text[], {6}::text[],
        {7}::text[], {8}::text[]) AS r(receipt_id, status, attempt, epoch, external, resolution, output, usage, error)
      WHERE receipts.receipt_id = r.receipt_id AND receipts.tenant_id = g.tenant_id""",
    lambda c: [
        *columns(c.receipts, "receipt_id", "status", "attempt", "lease_epoch", "external_id", "resolution"),
        *texts(c.receipts, "output", "usage", "error"),
    ],
    lambda c: bool(c.receipts),
)

_NEW_APPROVALS = Part(
    "new_approvals",
    """INSERT INTO approvals (approval_id, run_id, tenant_id, step_id, step_key, kind, status, action_digest, nonce,
        tier, terms, requester, card, action, expires_at)
      SELECT a.approval_id, g.run_id, g.tenant_id, a.step_id, a.key, a.kind, 'requested', a.digest, a.nonce, a.tier,
        a.terms::jsonb, a.requester, a.card::jsonb, a.action::jsonb, now() + a.expires
      FROM guard g, unnest({0}::uuid[], {1}::uuid[], {2}::text[], {3}::text[], {4}::text[], {5}::text[], {6}::text[],
        {7}::text[], {8}::text[], {9}::text[], {10}::text[], {11}::interval[])
        AS a(approval_id, step_id, key, kind, digest, nonce, tier, requester, terms, card, action, expires)""",
    lambda c: [
        *columns(c.new_approvals, "approval_id", "step_id", "step_key", "kind", "action_digest", "nonce", "tier"),
        *columns(c.new_approvals, "requester"),
        *texts(c.new_approvals, "terms", "card", "action"),
        *columns(c.new_approvals, "expires_in"),
    ],
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
      WHERE approvals.approval_id = a.approval_id AND approvals.run_id = g.run_id""",
    lambda c: columns(c.approvals, "approval_id", "status", "choice", "reason", "consumed", "escalated"),
    lambda c: bool(c.approvals),
)

_VOTES = Part(
    "votes",
    """INSERT INTO votes (approval_id, person_id, tenant_id, choice, reason, groups, channel)
      SELECT v.approval_id, v.person, g.tenant_id, v.choice, v.reason, string_to_array(v.groups, chr(31)), v.channel
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::text[], {5}::text[])
        AS v(approval_id, person, choice, reason, groups, channel)
      ON CONFLICT (approval_id, person_id) DO UPDATE SET choice = excluded.choice, reason = excluded.reason,
        groups = excluded.groups, channel = excluded.channel, voted_at = now()""",
    lambda c: [
        *columns(c.votes, "approval_id", "person_id", "choice", "reason"),
        ["\x1f".join(vote.groups) for vote in c.votes],
        *columns(c.votes, "channel"),
    ],
    lambda c: bool(c.votes),
)

_CANCEL_APPROVALS = Part(
    "cancel_approvals",
    """UPDATE approvals SET status = 'canceled', decided_at = now() FROM guard g
      WHERE approvals.run_id = g.run_id AND approvals.status = 'requested'
        AND approvals.approval_id <> ALL ({0}::uuid[])""",
    lambda c: [[row.approval_id for row in c.approvals]],
    lambda c: c.cancels_rest,
)
GOVERNANCE_PARTS: tuple[Part, ...] = (
    _DECISIONS, _FREED_RECEIPTS, _NEW_RECEIPTS, _REPLACING_RECEIPTS, _RECEIPTS, _NEW_APPROVALS, _APPROVALS, _VOTES,
    _CANCEL_APPROVALS,
)  # fmt: skip
