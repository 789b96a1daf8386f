"""Renders the report: verifies a bundle, reads it, and draws one self-contained page without script or reference."""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct

from core.errors import ConsistencyError, InputError
from evidence import layout
from evidence.container import Container
from evidence.judged import Compiler
from evidence.pins import Pins
from evidence.report import figures, folding, marks, words
from evidence.report.reading import ReadBundle, read
from evidence.report.ruling import Claim, Row, Rules
from evidence.report.telling import Teller
from evidence.verify import Status, Verification, verify_bundle

FOLDER = Path(__file__).parent
ROWS_MAX = 200
EVENTS_MAX = 400
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SIGNS = {
    Status.OK: ("applied", "green", "Checked"),
    Status.WARNING: ("in-doubt", "ochre", "Judge for yourself"),
    Status.NOT_PROVEN: ("in-doubt", "violet", "Not proven"),
}
_RULES = "rules"


class Report(Struct, frozen=True):
    """A report: its page, and the hash of its stylesheet for a Content-Security-Policy."""

    page: bytes
    style: str


def render_report(
    path: Path, *, pins: Pins | None = None, compiler: Compiler | None = None, require_final: bool = True
) -> tuple[Report, Verification]:
    """Verify the bundle at ``path`` and draw its report.

    ``ConsistencyError`` if a check fails: nothing is told about a bundle that was altered. ``InputError`` as
    ``verify_bundle``. The page is the same for the same bundle and the same pins.
    """
    with tempfile.TemporaryDirectory(prefix="counterseal-report-") as folder:
        # A private copy: the report reads the bytes that were verified, even if somebody writes to ``path`` meanwhile.
        copy = _copied(path, Path(folder))
        found = verify_bundle(copy, pins=pins, compiler=compiler, require_final=require_final)
        if not found.ok:
            failed = "; ".join(f"{row.check}: {row.detail}" for row in found.failed)
            remedy = "See `counterseal evidence verify`; get the bundle again from where you got it."
            raise ConsistencyError(f"The bundle does not verify, so there is no report: {failed}", remedy=remedy)
        try:
            return drawn(read(copy), found), found
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # Whoever signs by a key of their own can put anything into a card.
            raise InputError(f"holds what no card or question has: {error!r}", where=str(path)) from None


def _copied(path: Path, folder: Path) -> Path:
    if (values := path.with_name(path.name + layout.VALUES)).is_file():
        shutil.copyfile(values, folder / f"bundle{'' if path.is_dir() else '.zip'}{layout.VALUES}")
    if not path.is_dir():
        return Path(shutil.copyfile(path, folder / "bundle.zip")) if path.exists() else path
    copy = folder / "bundle"
    with closing(Container(path)) as source:
        for name in source.sizes:
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                file.writelines(source.chunks(name))
    return copy


def drawn(bundle: ReadBundle, found: Verification) -> Report:
    """Draw the report of a bundle that was verified with this result."""
    plot = folding.fold(bundle.events)
    teller, ruled = Teller(bundle, plot), Rules(bundle, plot)
    listed, left = figures.columns(plot)
    line, moments, more = figures.timeline(plot)
    run = str(bundle.predicate["run"])
    # The stylesheet names the run at the foot of each printed page: nothing else in it is from outside.
    run = f"run {run}" if _UUID.fullmatch(run) else "one run"
    style = _environment().get_template("report.css").render(run=run)
    style_hash = f"sha256-{base64.b64encode(sha256(style.encode()).digest()).decode()}"
    claims: dict[str, Any] = {
        "lead": teller.lead(), "people": teller.people(), "written": teller.written(ROWS_MAX), "rules": ruled.rules(),
    }  # fmt: skip
    page = _environment().get_template("report.html").render(
        **claims, run=run, style_hash=style_hash, title=teller.title(), verdict=teller.verdict(),
        plot=plot, bundle=bundle, found=found, predicate=bundle.predicate, checks=_checks(found),
        notices=_notices(found, bundle), figure=figures.authority(plot, listed), left=left, line=line, moments=moments,
        more=more, quoted=ruled.quoted(6), seals=teller.seals(12), events=_events(bundle, claims.values(), moments),
        rows_max=ROWS_MAX,
    )  # fmt: skip
    return Report(page.encode(), style_hash)


def _checks(found: Verification) -> list[tuple[str, str, str, list[Any]]]:
    """The rows of the verifier by their result: symbol, colour, word, rows."""
    return [(*_SIGNS[status], [row for row in found.rows if row.status is status]) for status in _SIGNS]


def _notices(found: Verification, bundle: ReadBundle) -> list[str]:
    """The notices that a reader must know before the first sentence."""
    notices = []
    if not found.trusted:
        notices.append(
            f"Nobody has said that the signing key is to be trusted. Compare its fingerprint {bundle.key_id} with one "
            "that you got on another way. Until then this page may be anybody's."
        )
    if any(row.check == _RULES and row.status is Status.NOT_PROVEN for row in found.rows):
        notices.append("Rules not evaluated: that a rule was met is recorded, and its facts are withheld.")
    return notices


def _events(bundle: ReadBundle, claims: Iterable[Sequence[Claim | Row]], moments: Sequence[figures.Point]) -> list[Any]:
    """The events to list: all of a short run, otherwise those on which a claim rests."""
    if len(bundle.events) <= EVENTS_MAX:
        return [*bundle.events]
    wanted = {seq for rows in claims for row in rows for seq in row.events} | {one.seq for one in moments}
    return [event for event in bundle.events if event["seq"] in wanted]


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        {name: getattr(marks, name) for name in ("q", "soft", "block", "withheld", "seal", "plain", "icon")},
        clock=words.clock, date=words.date, grouped=words.grouped, count=words.count, OUTCOMES=words.OUTCOMES,
    )  # fmt: skip
    return made
