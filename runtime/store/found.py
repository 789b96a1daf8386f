"""The find of a claim: the SELECT at its end, over the rows ``run`` and ``step`` of what it has leased."""

from __future__ import annotations

from runtime.store.views import KEPT_ON, TAIL

# What a claim needs to know, besides what the leased rows themselves say. Of a run with many steps at once, most of
# which the same workers take, the book is not read for each.
FOUND = f"""
SELECT to_jsonb(run) - 'state' - 'run_key' - 'error' - 'result' AS run, run.state, to_jsonb(step) AS step, run.run_key,
  t.policy_digest, t.max_writes_per_run, clock_timestamp() AS now, tail.*
FROM {{source}} LEFT JOIN (run JOIN step USING (run_id)) ON true
LEFT JOIN tenants t ON t.tenant_id = run.tenant_id
{TAIL.format("run", f"({KEPT_ON.format('run')}) AND run.executing <= 1")}"""
