"""Checks that the files of a bundle of the second format agree with its events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from core import bounded_json
from core.canonical import Json, JsonObject, canonical_bytes, digest, sha256_hex
from core.errors import InputError
from evidence import layout, origins
from evidence.chain import ChainHead, ChainReport
from evidence.commitments import Disclosed, open_disclosure
from evidence.container import FILE_BYTES_MAX, Files
from evidence.events import EventType
from evidence.history import History
from evidence.receipts import ReceiptStatus
from evidence.rollup import MADE_OF, Rollup

_SHOWN = 3


class Crosscheck:
    """Observes a chain while it is verified, then compares. A check returns its finding or raises InputError."""

    judged = None  # it holds nothing to be judged by

    def __init__(self, container: Files) -> None:
        self._container = container
        self.history = History()
        self._rollup = Rollup()
        self._run: JsonObject = {}
        self._head: JsonObject = {}
        self._committed = 0
        self._disclosed: dict[tuple[str, str], str] = {}
        self._opened: dict[tuple[str, str], Json] = {}
        self._facts: dict[int, tuple[Json, Json, Json]] = {}
        self._disclosure_fault: InputError | None = None
        try:
            self._opened = {(item.path, item.commitment): item.value for item in self._disclosures()}
            self._disclosed = dict.fromkeys(self._opened, "")
        except InputError as error:
            self._disclosure_fault = error

    def close(self) -> None:
        """Release nothing: its files are read whole."""

    def observe(self, event: dict[str, Any]) -> None:
        """Record one verified event."""
        self.history.observe(event)
        self._rollup.observe(event)
        self._commitments(event["data"].get("committed"), "chain")
        if event["type"] == EventType.DECISION_MADE or origins.counts(event["type"], event["step"]):
            self._facts[event["seq"]] = (event["type"], event["step"], event["data"].get("values"))
        if event["type"] == EventType.APPROVAL_REQUESTED and type(event["data"]["card"]) is str:
            self._committed += 1

    def claimed(self) -> tuple[ChainHead, list[Json]]:
        """The expected head of the chain, and the number of lines of each append, as ``run-head.json`` claims."""
        self._head = self._object(layout.RUN_HEAD)
        match self._head:
            case {"run": str(run), "count": int(count), "head": str(head), "appends": [*sizes]}:
                return ChainHead(f"run:{run}", count, head), sizes
        raise InputError("does not name a run, its head and its appends", where=layout.RUN_HEAD)

    def checks(self, report: ChainReport) -> Iterable[tuple[str, Callable[[], str]]]:
        """The checks by name, in the order of the table."""
        return (
            ("run", lambda: self._check_run(report)),
            ("workflow and policies", self._texts),
            ("decisions", lambda: self._derived(layout.DECISIONS, self._rollup.decisions, "decisions")),
            ("authority", self._authority),
            ("origins", self._origins),
            ("approvals", self._approvals),
            ("receipts", self._receipts),
            ("checkpoints", self._checkpoints),
            ("costs", lambda: self._derived(layout.COSTS, self._rollup.costs(), "models' costs")),
            ("disclosures", self._disclosure_row),
        )

    def predicate(self, predicate: JsonObject, report: ChainReport) -> str:
        """Check the signed statement's claims about the chain."""
        workflow = self.history.workflow if isinstance(self.history.workflow, dict) else None
        wanted: JsonObject = {"first_seq": 0, "last_seq": report.count - 1, "count": report.count}
        wanted |= {"head": report.head, "final": report.final, "workflow": workflow}
        for name, value in wanted.items():
            if predicate.get(name) != value or type(predicate.get(name)) is not type(value):
                raise InputError(f"{name} differs between the signed statement and the events", where="statement")
        if f"run:{predicate.get('run')}" != report.stream:
            raise InputError(f"the statement is about another run than {report.stream}", where="statement")
        policies = predicate.get("policies")
        listed = policies if isinstance(policies, list) else []
        digests = [item.get("digest") if isinstance(item, dict) else None for item in listed]
        if not all(isinstance(each, str) for each in digests) or {*digests} != {*self.history.policies}:
            raise InputError("the policies differ between the signed statement and the events", where="statement")
        self._run = predicate
        return f"signed head and count are the chain's; redaction profile: {predicate.get('redaction')}"

    def _object(self, name: str) -> JsonObject:
        return bounded_json.parse_object(self._container.read(name), bytes_max=FILE_BYTES_MAX, where=name)

    def _check_run(self, report: ChainReport) -> str:
        run = self._object(layout.RUN_FILE)
        for name in ("inputs", "outputs"):
            self._commitments(run.get(name), "files")
        claims = {name: self._run.get(name) for name in ("tenant", "run", "status", "workflow")}
        if self.history.tenant is not None:
            raise InputError("its lines are of a release that writes the third format, and this is the second")
        _compare(layout.RUN_FILE, run, claims)
        wanted = {"v": 2, "count": report.count, "final": report.final}
        _compare(layout.RUN_HEAD, self._head, {**wanted, "tenant": claims["tenant"], "run": claims["run"]})
        if report.final and run["status"] != self.history.run_status:
            raise InputError("its status is not the one with which the run closed", where=layout.RUN_FILE)
        _compare(layout.RUN_FILE, run, self.history.run)
        self._check_canceled(run.get("canceled"))
        self._commitments(run.get("state"), "files")
        if run.get("attempts") is not None:  # bundles of 0.2.0 list none
            self._check_attempts(run["attempts"])
        return f"run {run['run']} of tenant {run['tenant']}: {run['status']}"

    def _check_attempts(self, stated: Json) -> None:
        """Check that the attempts and the digests of their values are those of the events."""
        listed = stated if isinstance(stated, list) else []
        if len(listed) != len(self.history.attempts):
            raise InputError("its attempts are not those of the events", where=layout.RUN_FILE)
        for one, (facts, bound) in zip(listed, self.history.attempts, strict=True):
            given = {**one} if isinstance(one, dict) else {}
            values = given.pop("values", None)
            if canonical_bytes(given) != canonical_bytes(facts):
                raise InputError("its attempts are not those of the events", where=layout.RUN_FILE)
            if values is not None and digest(values) != bound:
                raise InputError(f"the attempt of event {facts['seq']} has other values", where=layout.RUN_FILE)
            self._commitments(values, "chain")

    def _origins(self) -> str:
        """Check the events from which origins are computed, and recompute the origins whose values are disclosed."""
        events = origins.listed(self._object(layout.RUN_FILE).get("origins"), self._facts)
        for one in events:
            self._commitments([[*pair] for pair in one.values or ()], "chain")
        return origins.recompute(events, lambda *one: (one in self._opened, self._opened.get(one))).words()

    def _check_canceled(self, stated: Json) -> None:
        """Check who canceled the run and why, if the bundle says so."""
        if stated is None:
            return
        by, reason = self.history.canceled or (None, None)
        if by is None or not isinstance(stated, dict) or stated.get("by") != by:
            raise InputError("canceled: it names another actor than the events", where=layout.RUN_FILE)
        try:
            _opened(layout.RUN_FILE, stated, "reason", reason)
        except InputError as error:
            raise InputError(f"canceled: {error.message}", where=layout.RUN_FILE) from None

    def _texts(self) -> str:
        workflow = self.history.workflow
        named = [("workflow", workflow)]
        named += [("policy", policy) for policy in self.history.policies.values()]
        expected: set[str] = set()
        for kind, document in named:
            match document:
                case {"name": str(name), "version": str() | int() as version, "digest": str(digest)}:
                    file = layout.text_file(kind, name, version)
                case _:
                    raise InputError("an event names a workflow or policy without name, version and digest")
            if sha256_hex(self._container.read(file)) != digest:
                raise InputError("is not the text whose digest the events name", where=file)
            expected.add(file)
        self._exactly(expected, ("workflow/", "policy/"))
        return f"the workflow and {len(self.history.policies)} policies are the texts that the events name"

    def _exactly(self, expected: set[str], folders: tuple[str, ...]) -> None:
        present = {name for name in self._container.sizes if name.startswith(folders)}
        if lacking := sorted(expected - present):
            raise InputError("is missing although the events name it", where=lacking[0])
        if extra := sorted(present - expected):
            raise InputError("is not named by any event", where=extra[0])

    def _derived(self, name: str, wanted: list[JsonObject], words: str) -> str:
        if self._rollup.problems:
            raise InputError(_few(self._rollup.problems), where=layout.EVENTS)
        found = bounded_json.parse(self._container.read(name), bytes_max=FILE_BYTES_MAX, where=name)
        if canonical_bytes(found) != canonical_bytes(wanted):
            raise InputError("is not what the events add up to", where=name)
        return f"{len(wanted)} {words}, as the events add up to"

    def _checkpoints(self) -> str:
        wanted = self._rollup.checkpoints
        found = bounded_json.parse(self._container.read(layout.CHECKPOINTS), bytes_max=FILE_BYTES_MAX)
        if isinstance(found, list) and not any(isinstance(one, dict) and MADE_OF & one.keys() for one in found):
            wanted = [{name: fact for name, fact in one.items() if name not in MADE_OF} for one in wanted]
        return self._derived(layout.CHECKPOINTS, wanted, "checkpoints")

    def _authority(self) -> str:
        history = self.history
        if faults := history.unauthorised or history.irregular:
            raise InputError(_few(faults))
        return (
            f"each of {history.performed} attempts at {len(history.receipts)} actions was let out by a decision "
            "'allow' or an approval of exactly that action"
        )

    def _approvals(self) -> str:
        history = self.history.approvals
        self._exactly({layout.record_file("approvals", key) for key in history}, ("approvals/",))
        withheld = unsaid = 0
        for key, known in history.items():
            file = layout.record_file("approvals", key)
            found = self._object(file)
            wanted = {"approval": key, "action": known.action, "status": known.status, "card_commitment": known.card}
            _compare(file, found, wanted)
            votes = _votes(file, found.get("votes"), known.votes)
            withheld += _opened(file, found, "card", known.card)
            _opened(file, found, "asked", known.asked)
            for vote, reason in zip(votes, known.reasons, strict=True):
                unsaid += _opened(file, vote, "reason", reason)
        notes = f"; {unsaid} reasons withheld" if unsaid else ""
        return f"{len(history)} approvals and their votes agree with the events; {withheld} cards withheld{notes}"

    def _receipts(self) -> str:
        history, unbound = self.history.receipts, 0
        self._exactly({layout.record_file("receipts", key) for key in history}, ("receipts/",))
        for key, known in history.items():
            file = layout.record_file("receipts", key)
            wanted = {
                "receipt": key,
                "run": self._run.get("run"),
                "action": known.action,
                "operation": known.operation,
                "status": str(known.status),
                "attempt": known.attempt,
                **({"late": known.late} if known.late else {}),
            }
            found = self._object(file)
            _compare(file, found, wanted)
            if known.digest is None:
                unbound += 1
            elif digest(found) != known.digest:
                raise InputError("is not the receipt whose digest the events name", where=file)
            self._commitments(found.get("committed"), "files")
            reverse = found.get("reverse")
            self._commitments(reverse.get("committed") if isinstance(reverse, dict) else None, "files")
        doubtful = sum(known.status in (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT) for known in history.values())
        notes = f"; {doubtful} without a known outcome" if doubtful else ""
        notes += f"; {unbound} bound to the events by id, action, status and attempt only" if unbound else ""
        return f"{len(history)} receipts agree with the events{notes}"

    def _disclosures(self) -> list[Disclosed]:
        data = self._container.read(layout.DISCLOSURES)
        if data and not data.endswith(b"\n"):
            raise InputError("does not end with a newline", where=layout.DISCLOSURES)
        try:
            return [open_disclosure(line) for line in data.decode("ascii").split("\n")[:-1]]
        except UnicodeDecodeError:
            raise InputError("is not ASCII", where=layout.DISCLOSURES) from None

    def _commitments(self, pairs: object, source: str) -> None:
        for pair in pairs if isinstance(pairs, list) else ():
            if type(pair) is list and len(pair) == 2 and type(pair[0]) is type(pair[1]) is str:
                self._committed += 1
                if self._disclosed.get((pair[0], pair[1])) == "":
                    self._disclosed[pair[0], pair[1]] = source

    def _disclosure_row(self) -> str:
        if self._disclosure_fault:
            raise self._disclosure_fault
        if strays := [path for (path, _), source in self._disclosed.items() if not source]:
            raise InputError(f"nothing commits to what is disclosed: {_few(strays)}", where=layout.DISCLOSURES)
        unchained = sum(source == "files" for source in self._disclosed.values())
        note = f" ({unchained} in signed files only, not in the chain)" if unchained else ""
        return f"{len(self._disclosed)} values disclosed as committed{note}; {self._committed} commitments in all"


def _compare(file: str, found: JsonObject, wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if name not in found or canonical_bytes(found[name]) != canonical_bytes(value):
            raise InputError(f"its {name} is not the one of the events", where=file)


def _votes(file: str, found: Json, known: list[dict[str, object]]) -> list[JsonObject]:
    """The votes in a file. ``InputError`` unless they agree with the votes in the events, in the same order."""
    listed = found if isinstance(found, list) else [found]
    votes = [vote for vote in listed if isinstance(vote, dict)]
    stated = [{name: vote.get(name) for name in facts} for vote, facts in zip(votes, known, strict=False)]
    if not len(listed) == len(votes) == len(known) or stated != known:
        raise InputError("its votes are not those of the events", where=file)
    return votes


def _opened(file: str, holder: JsonObject, name: str, commitment: str | None) -> bool:
    """True if the value is withheld. ``InputError`` if a shown value is not the one that the chain commits to."""
    line, value = holder.get(f"{name}_disclosure"), holder.get(name)
    if line is None and value is None:
        return commitment is not None
    if not isinstance(line, str):
        raise InputError(f"shows a {name} without the disclosure that would prove it", where=file)
    opened = open_disclosure(line)
    if opened.commitment != commitment:
        raise InputError(f"its {name} is not the one that was committed to", where=file)
    if json.dumps(opened.value, sort_keys=True) != json.dumps(value, sort_keys=True):
        raise InputError(f"its {name} is not the one that it discloses", where=file)
    return False


def _few(items: list[str]) -> str:
    more = f" (and {len(items) - _SHOWN} more)" if len(items) > _SHOWN else ""
    return "; ".join(items[:_SHOWN]) + more
