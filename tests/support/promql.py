"""The part of PromQL that the alert rules use: a comparison, `or`, `sum`, and `increase` between two looks."""

from __future__ import annotations

import re
from dataclasses import dataclass

SELECTOR = re.compile(r"(?P<name>[a-z_:][a-z0-9_:]*)(?:\{(?P<labels>[^}]*)\})?(?:\[(?P<window>\w+)\])?")
MATCHER = re.compile(r'(?P<label>\w+)(?P<how>=~|!=|=)"(?P<value>[^"]*)"')
SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Look:
    """One answer of /metrics: the samples, each with its labels."""

    text: str

    @property
    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        found = SAMPLE.findall(self.text)
        return [(name, dict(LABEL.findall(labels)), float(value)) for name, labels, value in found]

    def select(self, selector: str) -> dict[tuple[tuple[str, str], ...], float]:
        met = SELECTOR.fullmatch(selector)
        assert met, f"{selector!r} is outside of what is understood"
        wanted = MATCHER.findall(met["labels"] or "")
        return {
            tuple(sorted(labels.items())): value
            for name, labels, value in self.samples
            if name == met["name"] and all(fits(labels.get(label, ""), how, given) for label, how, given in wanted)
        }


def fits(value: str, how: str, given: str) -> bool:
    if how == "=~":
        return re.fullmatch(given, value) is not None
    return (value == given) is (how == "=")


def fires(expression: str, before: Look, now: Look) -> bool:
    """True if the rule has a result ``now``; ``before`` is the look at the begin of its window."""
    return any(_compared(part.strip(), before, now) for part in expression.split(" or "))


def _compared(part: str, before: Look, now: Look) -> bool:
    inner, _, limit = part.rpartition(" > ")
    total = inner.startswith("sum(")
    inner = inner[4:-1] if total else inner
    grown = inner.startswith("increase(")
    selector = inner[9:-1] if grown else inner
    values, earlier = now.select(selector), before.select(selector) if grown else {}
    found = [value - earlier.get(key, 0.0) for key, value in values.items()]
    return any(value > float(limit) for value in ([sum(found)] if total and found else found))


def names(expression: str) -> list[tuple[str, set[str]]]:
    """Every metric of an expression, with the labels that it selects or groups by."""
    grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression))))
    plain = re.sub(r"by \([^)]*\)", "", expression)
    found = [
        (one["name"], set(re.findall(r"(\w+)(?==~|!=|=)", one["labels"] or ""))) for one in SELECTOR.finditer(plain)
    ]
    return [(name, labels | grouped) for name, labels in found if name.startswith("counterseal_")]
