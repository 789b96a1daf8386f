"""The offline verifier: one row for each thing that a bundle proves or does not. Needs no database and no network.

    python -m evidence.verify BUNDLE [--key PEM]... [--fingerprint SHA256]... [--run ID] [--tenant NAME] [--sha256 HEX]
        [--after EARLIER] [--disclosed FILE]... [--log-key KEY]... [--allow-unfinished] [--json]

BUNDLE is the zip file, or the directory into which it was extracted. Exit codes: 0 all checks passed, and the key that
signed is trusted; 1 at least one check failed; 2 there is nothing to verify or the key is unusable; 6 nothing failed,
but nobody has said that the key is to be trusted.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from core.canonical import JsonObject
from core.errors import InputError
from evidence import layout
from evidence.chain import LINE_BYTES_MAX, ChainReport, verify_lines
from evidence.closed import Closed
from evidence.container import Container, Files, HeldFiles
from evidence.crosscheck import Crosscheck
from evidence.judged import TEXTS, Compiler
from evidence.log.notes import NoteKey
from evidence.pins import Pins, load_key
from evidence.sidecar import Attachments, SidecarValues
from evidence.signing import PublicKey, open_envelope
from evidence.statement import read_statement

FAILED, UNUSABLE, UNKNOWN_KEY = 1, 2, 6
_WIDTH = 100
_NOT_PROVEN = (
    ("recorded in full", "tamper evident after recording; nothing shows that everything was recorded"),
    ("transparency log", "this bundle holds no proof from a log, so another history of this run could exist"),
    ("time", "asserted by the runtime's database; no independent time stamp"),
    ("target systems", "receipts hold what the targets answered; compare with the targets' own logs"),
)


class Status(StrEnum):
    """The result of a check. ``warning``: a person should judge it. ``not_proven``: the bundle cannot show it."""

    OK = "ok"
    FAILED = "failed"
    WARNING = "warning"
    NOT_PROVEN = "not_proven"


class Row(Struct, frozen=True):
    """One check, its result, and the finding in words."""

    check: str
    status: Status
    detail: str


# Keyed by whether the whole bundle is of an earlier format.
_OLDER = {
    True: "its format is the second, which has nothing to judge the history by: only what is above was checked",
    False: "the run began under an earlier release, whose lines tell less: it is judged as far as they do",
}
_UNCOMPILED = "not compiled: only `counterseal evidence verify` compiles texts, unless declarations are withheld"
_UNRULED = "rules not evaluated"
_REST = Row("everything else", Status.NOT_PROVEN, "not checked, because of the failure above")


class Verification(Struct, frozen=True):
    """All rows, in the order of checking. ``trusted`` says that a key that the reader trusts has signed."""

    rows: tuple[Row, ...]
    trusted: bool = False

    @property
    def failed(self) -> tuple[Row, ...]:
        """The checks that failed."""
        return tuple(row for row in self.rows if row.status is Status.FAILED)

    @property
    def ok(self) -> bool:
        """True if no check failed. Read the other rows before relying on it."""
        return not self.failed

    @property
    def exit_code(self) -> int:
        """The exit code: 0 only if nothing failed and the key is trusted."""
        return FAILED if not self.ok else 0 if self.trusted else UNKNOWN_KEY

    def to_json(self) -> JsonObject:
        """The table as JSON."""
        return {"ok": self.ok, "trusted": self.trusted, "rows": [to_builtins(row) for row in self.rows]}

    def to_text(self) -> str:
        """The table as text. Escapes control characters, which a terminal would interpret."""
        wide = max(len(row.check) for row in self.rows)
        indent = " " * (wide + 14)
        lines: list[str] = []
        for row in self.rows:
            detail = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in row.detail)
            first = f"{row.check:<{wide}}  {row.status:<10}  "
            lines += textwrap.wrap(detail, _WIDTH, initial_indent=first, subsequent_indent=indent) or [first.rstrip()]
        counts = {status: sum(row.status is status for row in self.rows) for status in Status}
        summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        result = "no check failed" if self.ok else "VERIFICATION FAILED"
        if self.ok and not self.trusted:
            result = "intact, but NOBODY HAS SAID THAT ITS KEY IS TO BE TRUSTED"
        return "\n".join([*lines, "", f"{result}: {summary}"])


def verify_bundle(
    path: Path,
    *,
    public_key: Path | None = None,
    require_final: bool = True,
    pins: Pins | None = None,
    compiler: Compiler | None = None,
    disclosed: Sequence[Path] = (),
    log_keys: Sequence[NoteKey] = (),
) -> Verification:
    """Check a bundle against the keys that you trust or, without one, against the key inside the bundle.

    With ``require_final`` the bundle of a run that has not closed fails. Any fault of the bundle becomes a row.
    ``public_key`` is one more trusted key. ``compiler`` reads its texts, if the caller can load the compilers.
    ``disclosed`` are further files that open values; the sidecar is found beside the bundle, or among them.
    ``log_keys`` are keys of logs, by which the leaf of an erasure is proven.
    ``InputError`` only if there is no bundle at ``path``, or ``public_key`` or one of ``disclosed`` is not usable.
    """
    known = pins or Pins()
    if public_key is not None:
        known = replace(known, keys=(*known.keys, load_key(public_key)))
    if not path.exists():
        raise InputError("does not exist", where=str(path))
    try:
        container = Container(path)
    except InputError as error:
        return Verification((Row("container", Status.FAILED, str(error)), _REST))
    with closing(container):
        attachments = Attachments.of(path, disclosed, log_keys)
        return _Run(container, known, require_final, compiler, attachments).verify(path)


def verify_unsigned(
    files: Files | Mapping[str, bytes], statement: bytes, *, final: bool = True, attachments: Attachments | None = None
) -> Verification:
    """Make all checks of ``verify_bundle`` but the signature, before signing. The run must have closed if ``final``."""
    try:
        held = files if isinstance(files, Files) else HeldFiles(files)
        return _Run(held, Pins(), require_final=final, attachments=attachments or Attachments()).contents(statement)
    except InputError as error:
        return Verification((Row("container", Status.FAILED, str(error)),))


class _Run(Struct):
    container: Files
    pins: Pins
    require_final: bool
    compiler: Compiler | None = None
    attachments: Attachments = field(default_factory=Attachments)
    rows: list[Row] = field(default_factory=list)
    trusted: bool = False

    def verify(self, path: Path) -> Verification:
        self._check("container", self._exact)
        self._pinned("file", lambda: self.pins.check_file(path))
        try:
            return self.contents(self._signature())
        except InputError as error:
            self._add("signature", str(error), Status.FAILED)
            return Verification((*self.rows, _REST))

    def _exact(self) -> str:
        if isinstance(self.container, Container):
            self.container.check_exact()
        return f"{len(self.container.sizes)} plain files"

    def _pinned(self, name: str, check: Callable[[], str | None]) -> None:
        """Add a row about one of the reader's pins, if it is set."""
        try:
            if (words := check()) is not None:
                self._add(name, words)
        except InputError as error:
            self._add(name, str(error), Status.FAILED)

    def contents(self, statement: bytes) -> Verification:
        """Check everything against the statement. ``InputError`` if ``statement`` is no statement."""
        subjects, predicate, number = read_statement(statement)
        self._check("integrity", lambda: self._integrity(subjects, number))
        self._check("checksums", lambda: self._sums(subjects))
        made: Closed | Crosscheck
        if number >= layout.JUDGED_SINCE:
            made = Closed(self.container, SidecarValues(self.attachments, predicate, number), self.compiler)
        else:
            made = Crosscheck(self.container)
        with closing(made) as cross:
            return self._compared(cross, predicate)

    def _compared(self, cross: Closed | Crosscheck, predicate: JsonObject) -> Verification:
        report = self._chain(cross)
        if report is None:
            return Verification((*self.rows, _REST))
        self._complete(report, cross.history.after_the_end)
        self._check("statement", lambda: cross.predicate(predicate, report))
        self._pinned("question", lambda: self.pins.check_named(predicate))
        self._pinned("edition", lambda: self.pins.check_after(self.container))
        for name, check in cross.checks(report):
            self._check(name, check)
        if isinstance(cross, Closed):
            self._values(cross.sidecar)
        if cross.judged is None or cross.judged.begun_before:
            self._add("judged", _OLDER[cross.judged is None], Status.WARNING)
        if cross.judged is not None and cross.judged.withheld:
            detail = (
                f"{cross.judged.withheld} are withheld, because they have fixed inputs: what they say of effects is"
            )
            self._add("declarations", f"{detail} not bound to the definition that run.opened names", Status.WARNING)
        if cross.judged is not None and cross.judged.unshown:
            detail = f"who was in which group is not shown for {cross.judged.unshown} directories: see `directory show`"
            self._add("membership", detail, Status.WARNING)
        self._altered(cross.history.altered())
        self._late(cross.history.late_answers())
        if back := report.clock_steps_back:
            self._add("clock", f"{back} events are dated before the event above them", Status.WARNING)
        self.rows += [Row(check, Status.NOT_PROVEN, detail) for check, detail in _NOT_PROVEN]
        if cross.judged is not None:
            self.rows += [Row(TEXTS, Status.NOT_PROVEN, _UNCOMPILED)] if not cross.judged.compiled else ()
        if isinstance(cross, Closed):
            self._rules(cross)
        return Verification(tuple(self.rows), self.trusted)

    def _values(self, sidecar: SidecarValues) -> None:
        """Add the row about the values in the sidecar: disclosed, withheld or erased."""
        try:
            found = sidecar.finding()
        except InputError as error:
            self._add("values", str(error), Status.FAILED)
            return
        if found is not None:
            self._add("values", found[1], Status.OK if found[0] else Status.NOT_PROVEN)

    def _rules(self, closed: Closed) -> None:
        """Add the row about the rules, evaluated again as far as their facts are disclosed."""
        ruled = closed.ruled
        try:
            words, left = ruled.row(lambda: closed.judged.definition), ruled.left
        except InputError as error:
            self._add("rules", str(error), Status.FAILED)
            return
        if self.compiler is None or (left and not ruled.again):
            why = (
                "the facts that they read are withheld" if self.compiler else "only `counterseal evidence verify` does"
            )
            words = f"{_UNRULED}: {why}"
        elif left:
            words = f"{words}; of {left} {_UNRULED}: facts are withheld"
        self._add("rules", words, Status.NOT_PROVEN if left or self.compiler is None else Status.OK)

    def _add(self, check: str, detail: str, status: Status = Status.OK) -> None:
        self.rows.append(Row(check, status, detail))

    def _check(self, name: str, check: Callable[[], str]) -> None:
        try:
            self._add(name, check())
        except InputError as error:
            self._add(name, str(error), Status.FAILED)

    def _signature(self) -> bytes:
        inside = PublicKey.from_pem(self.container.read(layout.PUBLIC_KEY), where=layout.PUBLIC_KEY)
        trusted = self.pins.trusted(inside)
        # If no trusted key is inside, the check fails with any of them: the first one is used.
        key = self.pins.keys[0] if self.pins.exclusive and self.pins.keys and not trusted else inside
        envelope = self.container.read(layout.ENVELOPE)
        statement = open_envelope(envelope, layout.PAYLOAD_TYPE, key)
        if inside.key_id != key.key_id:
            raise InputError("is not the key that signed", where=layout.PUBLIC_KEY)
        if self.pins.exclusive and not trusted:
            raise InputError(f"it is signed by the key {key.key_id}, which is none of those that you trust")
        self.trusted = trusted
        if trusted:
            self._add("signature", f"by your key {key.key_id} ({key.algorithm})")
        else:
            detail = (
                f"trust on first use: the key came inside the bundle; compare its fingerprint {key.key_id} "
                "with one that you got on another way, and name it with --fingerprint, or the key with --key"
            )
            self._add("signature", detail, Status.WARNING)
        return statement

    def _integrity(self, subjects: dict[str, str], number: int) -> str:
        present = self.container.sizes.keys() - {layout.ENVELOPE}
        missing, extra = sorted(subjects.keys() - present), sorted(present - subjects.keys())
        if missing or extra:
            raise InputError(f"the files differ from the signed list: missing {_some(missing)}, extra {_some(extra)}")
        changed = [name for name in sorted(present) if self._hash(name) != subjects[name]]
        if changed:
            raise InputError(f"changed since signing: {_some(changed)}")
        absent, unknown = layout.misfits({*subjects, layout.ENVELOPE}, number)
        if absent or unknown:
            raise InputError(f"not what a bundle holds: lacks {_some(absent)}, has {_some(unknown)}")
        return f"all {len(subjects)} files are as signed; none is missing or extra"

    def _hash(self, name: str) -> str:
        hasher = sha256()
        for chunk in self.container.chunks(name):
            hasher.update(chunk)
        return hasher.hexdigest()

    def _sums(self, subjects: dict[str, str]) -> str:
        wanted = "".join(f"{subjects[name]}  {name}\n" for name in sorted(subjects) if name != layout.SUMS)
        if self.container.read(layout.SUMS) != wanted.encode():
            raise InputError("differs from the signed list", where=layout.SUMS)
        return "SHA256SUMS agrees with the signed list"

    def _chain(self, cross: Closed | Crosscheck) -> ChainReport | None:
        try:
            head, sizes = cross.claimed()
            with closing(self.container.lines(layout.EVENTS, LINE_BYTES_MAX)) as lines:
                report = verify_lines(head, lines, sizes, cross.observe)
            if report.problem is not None:
                raise InputError(report.problem, where=layout.EVENTS)
        except InputError as error:
            self._add("chain", str(error), Status.FAILED)
            return None
        self._add("chain", f"{report.count} events in {len(sizes)} appends, unbroken, head {report.head}")
        return report

    def _late(self, answers: list[tuple[str, str | None]]) -> None:
        """Add the late answers of workers that had lost their leases; a warning if one contradicts its receipt."""
        odds = [f"{what}. {problem}" for what, problem in answers if problem]
        if answers:
            detail = "; ".join(odds) or f"{len(answers)}; none contradicts its receipt"
            self._add("late answers", detail, Status.WARNING if odds else Status.OK)

    def _altered(self, names: list[str]) -> None:
        """Add the effects that were done otherwise than asked, if there are some."""
        if names:
            self._add("altered effects", f"{len(names)} done, but not as asked: {'; '.join(names[:5])}", Status.WARNING)

    def _complete(self, report: ChainReport, after: int) -> None:
        if report.final:
            detail = f"the run is closed; its last event counts {report.count - after} events, and all are here"
            self._add("completeness", detail + (f", with {after} late answers that came after it" if after else ""))
        else:
            detail = "the run had not closed when this was made; it shows the beginning of a history"
            self._add("completeness", detail, Status.FAILED if self.require_final else Status.WARNING)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none"


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="evidence.verify", description="Check an evidence bundle, offline.")
    parser.add_argument("bundle", type=Path, help="the zip file, or the directory it was extracted into")
    parser.add_argument("--key", type=Path, action="append", default=[], help="PEM public key that you trust")
    fingerprint = "SHA-256 of a key that you trust, in its DER form"
    parser.add_argument("--fingerprint", action="append", default=[], help=fingerprint)
    parser.add_argument("--run", help="the run that it must be of")
    parser.add_argument("--tenant", help="the tenant that it must be of")
    parser.add_argument("--sha256", help="the SHA-256 that the file must have")
    more = "the sidecar, if it is not beside the bundle, or a further file of `counterseal evidence disclose`"
    parser.add_argument("--disclosed", type=Path, action="append", default=[], help=more)
    keys = "key of the log (name+id+key), which proves that values were erased"
    parser.add_argument("--log-key", action="append", default=[], help=keys)
    parser.add_argument("--after", type=Path, help="an earlier edition, with whose events it must begin")
    unfinished = "accept the bundle of a run that has not closed"
    parser.add_argument("--allow-unfinished", action="store_true", help=unfinished)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    try:
        pinned = {name: getattr(options, name) for name in ("run", "tenant", "sha256", "after")}
        pins = Pins.of(options.key, options.fingerprint, **pinned)
        final = not options.allow_unfinished
        logs = [NoteKey.parse(each, "--log-key") for each in options.log_key]
        given = {"pins": pins, "disclosed": options.disclosed, "log_keys": logs}
        result = verify_bundle(options.bundle, require_final=final, **given)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return UNUSABLE
    sys.stdout.write(f"{json.dumps(result.to_json(), indent=2) if options.json else result.to_text()}\n")
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
