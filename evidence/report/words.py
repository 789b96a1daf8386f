"""Words of the report: times, spans, actors, rules, and why a click did not count."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from evidence.receipts import ReceiptStatus
from evidence.report.folding import End, Outcome
from evidence.report.marks import plain, q
from evidence.report.reading import Policy

RULE_LINES_MAX = 40
REFUSED = {
    "already_decided": "the question had been decided",
    Outcome.EXPIRED: "the time to answer was over",
    "stale": "the question is too old",
    "changed": "the question had changed meanwhile",
    "wrong_choice": "this is no answer to the question",
    "separation_of_duties": "nobody decides about what they shaped",
    "group_unresolvable": "nobody can say who is in the group",
    "not_eligible": "is not in a group that is asked",
    "not_in_directory": "the directory does not know who this is",
    "deactivated": "the account is deactivated",
    "service_account": "a machine does not decide",
    "reason_missing": "a reason is needed, and none was given",
    "reason_too_long": "the reason was too long",
    "already_counted": "the same vote had been counted",
    "false_card": "the card was none of ours",
    "false_window": "the window was none of ours",
    "grant_refused": "the grant that was asked for is not allowed",
}
ROLES = {
    "requester": "asked for it",
    "updater": "changed its inputs",
    "step_adder": "added steps",
    "form_filler": "filled in a form",
    "signal_sender": "sent a signal",
    "editor": "wrote the workflow",
    "token_owner": "owns the token that was used",
    "agent_owner": "owns the agent",
    "retrier": "had it tried again",
    "source_requester": "asked for a run that this one reads",
    "outside_writer": "wrote outside what it reads",
    "subject": "is whom it is about",
}
ENDS: Mapping[str, tuple[str, str, str]] = {
    End.SUCCEEDED: ("applied", "green", "Done"),
    End.FAILED: ("failed", "red", "Failed"),
    End.CANCELED: ("canceled", "slate", "Canceled"),
    End.OPEN: ("waiting", "slate", "Not ended yet"),
}
_DENIED = "policy_denied"
ERRORS: Mapping[str, tuple[str, str, str]] = {
    _DENIED: ("denied", "red", "Denied by the rules"),
    Outcome.REJECTED: ("rejected", "red", "Rejected"),
    Outcome.EXPIRED: ("expired", "brown", "Expired"),
}
OUTCOMES: Mapping[str, tuple[str, str, str]] = {
    Outcome.APPROVED: ("approved", "green", "Approved"),
    Outcome.REJECTED: ("rejected", "red", "Rejected"),
    Outcome.EXPIRED: ("expired", "brown", "Expired"),
    Outcome.SUPERSEDED: ("superseded", "slate", "Superseded"),
    Outcome.OPEN: ("waiting", "slate", "Not answered"),
}
EFFECTS: Mapping[str, tuple[str, str, str]] = {
    ReceiptStatus.INTENDED: ("in-doubt", "violet", "No outcome recorded"),
    ReceiptStatus.SUCCEEDED: ("applied", "green", "Applied"),
    ReceiptStatus.FAILED: ("failed", "red", "Failed"),
    ReceiptStatus.IN_DOUBT: ("in-doubt", "violet", "In doubt"),
}
CHOICES = {
    "approve": "approved",
    "reject": "rejected",
    "happened": "answered: it happened",
    "again": "answered: do it again",
    "fail": "answered: give it up",
}


def bold(name: object) -> Markup:
    """The name of a person."""
    return Markup("<b>{}</b>").format(plain(name))


def italic(name: object) -> Markup:
    """The name of a group, a rule or a workflow."""
    return Markup("<i>{}</i>").format(plain(name))


def joined(parts: Sequence[object]) -> Markup:
    """Parts in a sentence: one, two and three."""
    every = [escape(part) for part in parts]
    if len(every) < 2:
        return every[0] if every else escape("nobody")
    return Markup("{} and {}").format(Markup(", ").join(every[:-1]), every[-1])


def count(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many}"


def read_time(text: str) -> datetime:
    """The time of a line."""
    return datetime.fromisoformat(text).astimezone(UTC)


def date(text: str) -> str:
    """A date in words."""
    at = read_time(text)
    return f"{at.day} {at:%B %Y}"


def clock(text: str, other_time: str = "") -> str:
    """A time of day; with its date if it is on another day than ``other_time``."""
    at = read_time(text)
    other = other_time and read_time(other_time).date() != at.date()
    return f"{at.day} {at:%b %H:%M:%S}" if other else f"{at:%H:%M:%S}"


def span(seconds: float) -> str:
    """A span of time in one unit or two."""
    left = int(seconds)
    if left < 1:
        return "less than a second"
    parts = []
    for size, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        number, left = divmod(left, size)
        if number:
            parts.append(count(number, name, f"{name}s"))
    return " ".join(parts[:2])


def actor(who: Mapping[str, Any]) -> Markup:
    """An actor by name and kind."""
    kind, name = str(who["kind"]), who["id"]
    if kind == "person":
        return bold(name)
    if kind == "webhook":
        return Markup("a signed message over the connection {}").format(q(name))
    return Markup("the {} {}").format(kind.replace("_", " "), q(name))


def quorum(approvers: Iterable[Mapping[str, Any]]) -> Markup:
    """The people who have to answer: one of a group, two of another."""
    words = [Markup("{} of {}").format(one.get("of", 1), italic(one.get("group"))) for one in approvers]
    return joined(words)


def rule_of(named: str, policies: Sequence[Policy]) -> tuple[Policy | None, str]:
    """The policy and the rule's own name, from a rule as a decision names it; with one policy, without a prefix."""
    for policy in policies:
        if named.startswith(f"{policy.name}/"):
            return policy, named.removeprefix(f"{policy.name}/")
    return (policies[0] if len(policies) == 1 else None), named


def because(policy: Policy | None, rule: str) -> str:
    """The rule's own reason; "" if the bundle does not show it."""
    found = [one for one in (policy.rules if policy else ()) if one.get("id") == rule]
    return str(found[0].get("because") or "") if found else ""


def rule_text(policy: Policy, rule: str) -> str:
    """The rule as it stands in the policy's text; as JSON if it cannot be found there."""
    lines = policy.text.split("\n")
    head = re.compile(rf"(\s*)-\s+id:\s*['\"]?{re.escape(rule)}['\"]?\s*(?:#.*)?")
    for number, text in enumerate(lines):
        if match := head.fullmatch(text):
            indent, rule_lines = len(match[1]), [text]
            for more in lines[number + 1 :]:
                if more.strip() and len(more) - len(more.lstrip()) <= indent:
                    break
                rule_lines.append(more)
            while rule_lines and (not rule_lines[-1].strip() or rule_lines[-1].lstrip().startswith("#")):
                rule_lines.pop()
            shown = [line[indent:] for line in rule_lines[:RULE_LINES_MAX]]
            return "\n".join(shown + (["…"] if len(rule_lines) > RULE_LINES_MAX else []))
    found = [one for one in policy.rules if one.get("id") == rule]
    return json.dumps(found[0], indent=1, ensure_ascii=False) if found else ""


def grouped(digest: str, digits: int = 24) -> str:
    """The beginning of a digest in groups of four."""
    return " ".join(digest[at : at + 4] for at in range(0, min(digits, len(digest)), 4))
