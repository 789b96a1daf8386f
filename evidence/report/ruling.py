"""Tells the rules: why the policies allowed, asked or denied, and how these rules read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from evidence.judging.people import ACTION
from evidence.report import words
from evidence.report.folding import ALLOW, ASK, DENY, Judged, Plot
from evidence.report.marks import plain, soft
from evidence.report.reading import ReadBundle
from evidence.report.words import italic, joined

_ORDER = {ASK: 0, DENY: 1, ALLOW: 2}
_OUTCOMES = {
    ASK: ("asks", "ochre", "Asked people"),
    DENY: ("denied", "red", "Denied"),
    ALLOW: ("allowed", "petrol", "Allowed"),
}


class Claim(Struct, frozen=True):
    """A sentence, and the events on which it rests."""

    words: Markup | str
    events: tuple[int, ...] = ()


class Row(Struct, frozen=True):
    """A row of a table: its cells, and the events on which it rests."""

    cells: tuple[Markup | str, ...]
    events: tuple[int, ...] = ()


class Rules:
    """The words about the rules of one report."""

    def __init__(self, bundle: ReadBundle, plot: Plot) -> None:
        self._read = bundle
        self._plot = plot

    def rules(self) -> list[Row]:
        """The reasons why the policy allowed, asked or denied: each outcome by the rules that made it."""
        found: dict[tuple[str, tuple[str, ...]], list[Judged]] = {}
        for one in self._plot.judged.values():
            found.setdefault((one.outcome, one.rules), []).append(one)
        rows = []
        for (outcome, rules), judged in sorted(found.items(), key=lambda item: _ORDER.get(item[0][0], 3)):
            policies = self._policies(judged[0])
            whys = [words.because(*words.rule_of(rule, policies)) for rule in rules]
            why = (
                Markup("{}").format(Markup(" ").join(plain(each) for each in whys if each))
                if any(whys)
                else soft("the rule says no reason")
            )
            if not rules:
                why = soft("no rule allowed it, so it is denied")
            names = joined([italic(rule) for rule in rules]) if rules else soft("no rule matched")
            operations = joined([plain(name) for name in sorted({one.operation for one in judged})])
            words_ = Markup("{} ({})").format(operations, f"{len(judged):,} times") if len(judged) > 1 else operations
            icon, colour, word = _OUTCOMES.get(outcome, ("denied", "red", plain(outcome)))
            sign = Markup(
                '<svg class="i c-{}" viewBox="0 0 16 16" aria-hidden="true"><use href="#i-{}"/></svg> {}'
            ).format(
                colour,
                icon,
                word,
            )
            rows.append(Row((sign, names, why, words_), tuple(one.seq for one in judged[:5])))
        return rows

    def quoted(self, most: int) -> list[tuple[Markup, str, Markup]]:
        """The rules that asked or denied, as they stand in their policies, and in words."""
        found: dict[tuple[str, str], tuple[Markup, str, Markup]] = {}
        for judged in self._plot.judged.values():
            policies = self._policies(judged)
            for named in judged.rules if judged.outcome in (ASK, DENY) else ():
                policy, rule = words.rule_of(named, policies)
                if policy is None or (policy.digest, rule) in found:
                    continue
                since = self._read.activated.get(policy.digest)
                head = Markup("Rule {} of policy {}, version {}{}.").format(
                    italic(rule), italic(policy.name), plain(policy.version),
                    f", in force since {words.date(since)}" if since else "",
                )  # fmt: skip
                found[policy.digest, rule] = (head, words.rule_text(policy, rule), self._in_words(judged))
        return [*found.values()][:most]

    def _in_words(self, judged: Judged) -> Markup:
        if judged.outcome == DENY:
            return Markup("In words: what this rule matches is not done, whoever wants it.")
        asked = next((one for one in self._plot.asked.values() if one.step == judged.step and one.kind == ACTION), None)
        terms = self._terms(asked.approval) if asked else None
        if not isinstance(terms, Mapping):
            return Markup("In words: what this rule matches needs the approval of people.")
        within = words.span(terms["expires_seconds"]) if terms.get("expires_seconds") else "the time that is set"
        return Markup(
            "In words: what this rule matches needs the approval of {} within {}. "
            "Nobody decides about what they shaped."
        ).format(
            words.quorum(terms.get("approvers") or ()),
            within,
        )

    def _policies(self, judged: Judged) -> list[Any]:
        return [self._read.policies[digest] for digest in judged.policies if digest in self._read.policies]

    def _terms(self, approval: str) -> Mapping[str, Any] | None:
        asked = (self._read.approvals.get(approval) or {}).get("asked")
        terms = asked.get("terms") if isinstance(asked, Mapping) else None
        return terms if isinstance(terms, Mapping) else None
