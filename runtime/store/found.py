"""The find of a claim: the SELECT at its end, over the rows ``run`` and ``step`` of what it has leased."""

from __future__ import annotations

from runtime.store.views import TAIL

# What a claim needs to know, besides what the leased rows themselves say.
FOUND = f"""
SELECT to_jsonb(run) - 'state' - 'run_key' - 'error' - 'result' AS run, run.state, to_jsonb(step) AS step, run.run_key,
  t.policy_digest, t.max_writes_per_run, clock_timestamp() AS now, tail.*
FROM {{source}} LEFT JOIN (run JOIN step USING (run_id)) ON true
LEFT JOIN tenants t ON t.tenant_id = run.tenant_id
{TAIL.format("run", "run.state_n")}"""
