"""Derives a run's decisions, costs and checkpoints from its events, for the bundle and for the verifier."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from core.canonical import Json, JsonObject
from evidence.events import EventType


class _Cost(Struct):
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal = field(default_factory=Decimal)
    unpriced_calls: int = 0


# The members of a checkpoint that say how it was made; bundles of 0.2.0 lack them.
MADE_OF = frozenset({"source", "writes", "versions_seen"})


class Rollup(Struct):
    """Folds events in order. An event that reports a model call holds ``data.usage``::

    {"provider": …, "model": …, "input_tokens": int, "output_tokens": int, "cost_usd": "0.0012" | null}

    A checkpoint has the ``writes`` of the steps that succeeded since the checkpoint before. A write names its event,
    whose line binds the values. ``versions_seen`` maps each channel that a step has written to the newest checkpoint
    with a write to it.
    """

    decisions: list[JsonObject] = field(default_factory=list)
    checkpoints: list[JsonObject] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _source: str = "input"
    _writes: list[tuple[int, str, list[str]]] = field(default_factory=list)
    _versions: JsonObject = field(default_factory=dict)
    _costs: dict[tuple[str, str], _Cost] = field(default_factory=dict)

    def observe(self, event: dict[str, Any]) -> None:
        """Fold one event of the chain."""
        kind, data = event["type"], event["data"]
        if kind == EventType.DECISION_MADE:
            self.decisions.append({**data, "seq": event["seq"], "step": event["step"], "ts": event["ts"]})
        elif kind == EventType.CHECKPOINT_COMMITTED:
            self.checkpoints.append(
                {**data, "seq": event["seq"], "ts": event["ts"], **self._provenance(data["number"])}
            )
        elif kind == EventType.STEP_SUCCEEDED and data.get("writes"):
            self._written(event)
        elif kind == EventType.RUN_REOPENED:
            self._source = "retry"
        elif kind in (EventType.RUN_EXTENDED, EventType.RUN_MIGRATED) and self._source == "loop":
            self._source = "extension"
        if "usage" in data and not self._spend(data["usage"]):
            self.problems.append(f"event {event['seq']}: its usage is malformed")

    def _written(self, event: dict[str, Any]) -> None:
        channels = event["data"]["writes"]
        if type(channels) is list and all(type(name) is str for name in channels):
            self._writes.append((event["seq"], event["step"], channels))
        else:
            self.problems.append(f"event {event['seq']}: its writes are no names of channels")

    def _provenance(self, number: Json) -> JsonObject:
        """The members ``MADE_OF`` of a checkpoint: its source, its writes, each channel's newest version."""
        writes = [dict[str, Json](seq=seq, step=step, channels=[*names]) for seq, step, names in self._writes]
        for _, _, names in self._writes:
            self._versions.update(dict.fromkeys(names, number))
        made: JsonObject = {"source": self._source, "writes": [*writes], "versions_seen": {**self._versions}}
        self._source, self._writes = "loop", []
        return made

    def costs(self) -> list[JsonObject]:
        """One entry per provider and model, sorted; ``cost_usd`` sums the priced calls only."""
        return [
            {
                "provider": provider,
                "model": model,
                **asdict(cost),
                "cost_usd": format(cost.cost_usd.normalize() + 0, "f"),
            }
            for (provider, model), cost in sorted(self._costs.items())
        ]

    def _spend(self, usage: object) -> bool:
        match usage:
            case {
                "provider": str(provider),
                "model": str(model),
                "input_tokens": int(tokens_in),
                "output_tokens": int(tokens_out),
                "cost_usd": None | str() as price,
            }:
                amount = _money(price)
            case _:
                return False
        if price is not None and amount is None:
            return False
        cost = self._costs.setdefault((provider, model), _Cost())
        cost.calls += 1
        cost.input_tokens += tokens_in
        cost.output_tokens += tokens_out
        if amount is None:
            cost.unpriced_calls += 1
        else:
            cost.cost_usd += amount
        return True


def _money(text: str | None) -> Decimal | None:
    if text is None or len(text) > 30:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return None
    # Within 28 significant digits, sums of such amounts are exact, so every verifier gets the same sum.
    exponent = amount.as_tuple().exponent  # a letter for NaN and infinity
    return amount if isinstance(exponent, int) and exponent >= -15 and 0 <= amount < 10**9 else None
