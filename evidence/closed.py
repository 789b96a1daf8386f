"""Checks a bundle since the third format: every file follows from the events, and is compared byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import Any

from core import bounded_json
from core.canonical import Json, JsonObject, canonical_bytes, sha256_hex
from core.errors import InputError
from evidence import layout, origins
from evidence.chain import ChainHead, ChainReport
from evidence.commitments import path_of, reason_path
from evidence.container import FILE_BYTES_MAX, Files
from evidence.derived import Derived, predicate_of
from evidence.events import EventType as E
from evidence.history import History
from evidence.judged import Compiler, Judged
from evidence.members import check_line
from evidence.opened import OpenedFile, pairs_of
from evidence.receipts import ReceiptStatus
from evidence.ruled import Ruled
from evidence.sidecar import SidecarValues, is_terms
from evidence.signing import PublicKey

_PRODUCER = re.compile(r"(?:counterseal )?[0-9A-Za-z.+-]{0,64}", re.ASCII)
_FEW = 3


class Compared:
    """Compares the lines that a bundle's files should have with those that they have, file by file."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lines: dict[str, Generator[bytes]] = {}
        self._counts: dict[str, int] = {}
        self._problems: dict[str, InputError] = {}

    def emit(self, name: str, line: bytes) -> None:
        """Compare the next line of a file."""
        if name in self._problems:
            return
        try:
            number = self._counts[name] = self._counts.get(name, 0) + 1
            if self._line(name) != line:
                raise InputError(f"its line {number} is not what the events tell", where=name)
        except InputError as error:
            self._problems[name] = error

    def end(self, name: str) -> None:
        """Check that a file has no more lines. ``InputError`` is the first difference."""
        if name in self._problems:
            raise self._problems[name]
        if self._line(name) is not None:
            raise InputError("has more lines than the events tell", where=name)

    def close(self) -> None:
        """Release the files that are half read."""
        for lines in self._lines.values():
            lines.close()

    def _line(self, name: str) -> bytes | None:
        if name not in self._lines:
            self._lines[name] = self._files.lines(name, FILE_BYTES_MAX)
        return next(self._lines[name], None)


class Closed:
    """Follows a chain while it is verified, then compares files. A check returns a finding or raises ``InputError``."""

    def __init__(self, container: Files, sidecar: SidecarValues, compiler: Compiler | None = None) -> None:
        self._container = container
        self._compared = Compared(container)
        self._derived = Derived(self._compared.emit)
        self._opened: OpenedFile | None = None
        self._unopened: InputError | None = None
        self._faults: list[str] = []
        self._origins = origins.OriginEvents()
        self._withheld, self._unsaid = 0, 0
        self._appends: list[Json] = []
        self._tenant = ""
        self.judged = Judged(container, compiler, sidecar_missing=sidecar.withheld)
        self.ruled = Ruled(container, compiler)
        self.sidecar = sidecar
        self._besides = [*([] if sidecar.here is None else [sidecar.here]), *sidecar.further]
        try:
            self._opened = OpenedFile(container)
        except InputError as error:
            self._unopened = error

    def close(self) -> None:
        """Release the files."""
        self._compared.close()
        self.sidecar.close()
        if self._opened is not None:
            self._opened.close()

    @property
    def history(self) -> History:
        """The fold of the events."""
        return self._derived.history

    def observe(self, event: dict[str, Any]) -> None:
        """Follow one verified event."""
        self._derived.observe(event)
        try:
            check_line(event)
            committed = dict(pairs_of(event))
        except InputError as error:
            self._faults.append(str(error))
            committed = {}
        opened, listed = ({}, None) if self._opened is None else self._opened.of(event)
        if self.sidecar.has_sidecars and (listed is not None or not all(map(is_terms, opened))):
            words = f"event {event['seq']}: values stand in the sidecar, and the bundle itself opens more than terms"
            self._unopened = self._unopened or InputError(words, where=layout.OPENED)
        for each in self._besides:
            more, also = each.of(event)
            opened, listed = {**opened, **more}, listed if also is None else also
        self.ruled.observe(event, opened, listed)
        self._origins.observe(event, opened, listed)
        self.judged.observe(event, opened)
        if event["type"] == E.APPROVAL_REQUESTED:
            place = path_of("approval", str(event["data"]["approval"]), "card")
            self._withheld += place in committed and place not in opened
        elif event["type"] == E.APPROVAL_VOTED:
            place = reason_path(str(event["data"]["approval"]), event["actor"]["id"], event["ts"])
            self._unsaid += place in committed and place not in opened

    def claimed(self) -> tuple[ChainHead, list[Json]]:
        """The expected head of the chain, and the number of lines of each append, as ``run-head.json`` claims."""
        name = layout.RUN_HEAD
        document = bounded_json.parse_object(self._container.read(name), bytes_max=FILE_BYTES_MAX, where=name)
        match document:
            case {"run": str(run), "count": int(count), "head": str(head), "appends": [*sizes]}:
                self._appends = sizes
                return ChainHead(f"run:{run}", count, head), sizes
        raise InputError("does not name a run, its head and its appends", where=name)

    def predicate(self, predicate: JsonObject, report: ChainReport) -> str:
        """Compare all claims of the signed statement with the events."""
        tenant, producer = predicate.get("tenant"), predicate.get("producer")
        self._tenant = tenant if isinstance(tenant, str) else ""
        if not isinstance(tenant, str) or not isinstance(producer, str) or not _PRODUCER.fullmatch(producer):
            raise InputError("names no tenant, or no release as releases are named", where="statement")
        wanted = predicate_of(self.history, report, tenant, producer, self.sidecar.claim)
        for name in sorted({*wanted, *predicate}):
            if name not in wanted:
                raise InputError(f"has the member {name[:100]!r}, which no bundle has", where="statement")
            if name not in predicate or canonical_bytes(predicate[name]) != canonical_bytes(wanted[name]):
                raise InputError(f"{name} differs between the signed statement and the events", where="statement")
        return f"signed head and count are the chain's; redaction profile: {predicate.get('redaction')}"

    def checks(self, report: ChainReport) -> Iterable[tuple[str, Callable[[], str]]]:
        """The checks by name, in the order of the table."""
        self._derived.finish(report, self._tenant, self._appends)
        history, receipts = self.history, self.history.receipts
        doubtful = sum(each.status in (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT) for each in receipts.values())
        unsaid = f"; {self._unsaid} reasons {self.sidecar.word}" if self._unsaid else ""
        approvals = f"{len(history.approvals)} approvals and their votes agree with the events; {self._withheld} cards"
        unknown = f"; {doubtful} without a known outcome" if doubtful else ""
        acted = f"{len(receipts)} receipts agree with the events{unknown}"
        return (
            ("run", lambda: self._run(report)),
            ("lines", self._members),
            ("readme", lambda: self._readme(report)),
            ("workflow and policies", self._texts),
            ("authority", self._authority),
            ("attempts", lambda: self._same(layout.ATTEMPTS, f"{self._derived.attempts} attempts, as the events tell")),
            ("origins", self._origins.row),
            ("approvals", lambda: self._same(layout.APPROVALS, f"{approvals} {self.sidecar.word}{unsaid}")),
            ("receipts", lambda: self._same(layout.RECEIPTS, acted)),
            ("checkpoints", lambda: self._summed(layout.CHECKPOINT_LINES, self._derived.checkpoints, "checkpoints")),
            ("costs", lambda: self._summed(layout.COSTS, len(self._derived.rollup.costs()), "models' costs")),
            ("disclosures", self._disclosures),
            *([("further disclosures", self._more)] if self.sidecar.further else ()),
            *self.judged.rows(),
        )  # fmt: skip

    def _same(self, name: str, words: str) -> str:
        self._compared.end(name)
        return words

    def _summed(self, name: str, count: int, what: str) -> str:
        if problems := self._derived.rollup.problems:
            raise InputError(_few(problems), where=layout.EVENTS)
        return self._same(name, f"{count} {what}, as the events add up to")

    def _run(self, report: ChainReport) -> str:
        if self.history.tenant not in (None, self._tenant):
            raise InputError(f"the run was opened in the tenant {self.history.tenant!r}", where=layout.RUN_FILE)
        self._compared.end(layout.RUN_FILE)
        self._compared.end(layout.RUN_HEAD)
        return f"run {report.stream.removeprefix('run:')} of tenant {self._tenant}"

    def _members(self) -> str:
        if self._faults:
            raise InputError(_few(self._faults), where=layout.EVENTS)
        return "every line has the members of its type, and commits to what is its own"

    def _readme(self, report: ChainReport) -> str:
        pem = self._container.read(layout.PUBLIC_KEY)
        key = PublicKey.from_pem(pem, where=layout.PUBLIC_KEY)
        if key.pem != pem:
            raise InputError("holds more than a key", where=layout.PUBLIC_KEY)
        run = report.stream.removeprefix("run:")
        if self._container.read(layout.README) != layout.readme(run, self._tenant, key.key_id, key.algorithm).encode():
            raise InputError("is not the text that every bundle has", where=layout.README)
        return "the text that every bundle has"

    def _texts(self) -> str:
        history, expected = self.history, set[str]()
        workflows = [("workflow", one) for one in (history.workflow, *history.moved_to)]
        for kind, document in [*workflows, *(("policy", one) for one in history.policies.values())]:
            match document:
                case {"name": str(name), "version": str() | int() as version, "digest": str(digest)}:
                    file = layout.text_file(kind, name, version)
                case _:
                    raise InputError("an event names a workflow or policy without name, version and digest")
            if sha256_hex(self._container.read(file)) != digest:
                raise InputError("is not the text whose digest the events name", where=file)
            expected.add(file)
            plain = layout.canonical_file(kind, name, version)
            if kind == "policy" and plain in self._container.sizes:
                expected.add(plain)
        present = {name for name in self._container.sizes if name.startswith(("workflow/", "policy/"))}
        if extra := sorted(present - expected):
            raise InputError("is not named by any event", where=extra[0])
        return f"the workflow and {len(history.policies)} policies are the texts that the events name"

    def _authority(self) -> str:
        history = self.history
        if faults := history.unauthorised or history.irregular:
            raise InputError(_few(faults))
        return (
            f"each of {history.performed} attempts at {len(history.receipts)} actions was let out by a decision "
            "'allow' or an approval of exactly that action"
        )

    def _disclosures(self) -> str:
        if self._opened is None or self._unopened is not None:
            raise self._unopened or InputError("cannot be read", where=layout.OPENED)
        self._opened.end()
        return f"{self._opened.count} values are opened, each as its event's line commits to it"

    def _more(self) -> str:
        for number, each in enumerate(self.sidecar.further, 1):
            try:
                each.end()
            except InputError as error:
                words = (
                    f"{error.message}. It is of another run or tenant, of a later edition, or was changed: leave it out"
                )
                raise InputError(f"file {number}: {words}", where="--disclosed") from None
        count = sum(each.count for each in self.sidecar.further)
        return f"{count} values are opened, each as its event's line commits to it"


def _few(items: list[str]) -> str:
    more = f" (and {len(items) - _FEW} more)" if len(items) > _FEW else ""
    return "; ".join(items[:_FEW]) + more
