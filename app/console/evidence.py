"""The evidence desk of auditors: a question about runs, what the verifier says of a bundle, and its report."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.compiling import Texts
from app.console.sessions import Viewer
from app.console.web import AUDITORS, FacesDep, identified, opened_to, page
from app.faces import Faces
from app.http.dependencies import decode_cursor, encode_cursor
from app.outcomes import state_of
from app.settings import trusted_keys
from app.shown import fetched, run_row, values_of
from core.errors import ConsistencyError, InputError
from evidence.layout import VALUES
from evidence.pins import Pins
from evidence.report.rendering import Report, render_report
from evidence.verify import Status, Verification, verify_bundle
from runtime.requests import searching
from runtime.requests.searching import Asked, Decision, Part
from runtime.store import read_models
from runtime.store.read_models import Row

router = APIRouter(prefix="/evidence")
# The bytes of a bundle, and of its sidecar.
Files: TypeAlias = tuple[bytes, bytes | None]
Desk: TypeAlias = Annotated[Viewer, Depends(opened_to(*AUDITORS))]

SHOWN = 25
PARTS = {
    Part.APPROVER: "answered a question",
    Part.REQUESTER: "asked for it",
    Part.CONTRIBUTOR: "shaped an action",
    Part.REFUSED: "clicked, and it did not count",
}
DECISIONS = {
    Decision.APPROVED: "people approved",
    Decision.REJECTED: "people rejected",
    Decision.EXPIRED: "nobody answered in time",
    Decision.SUPERSEDED: "the question became void",
    Decision.ALLOWED: "the rules allowed",
    Decision.ASKED: "the rules asked people",
    Decision.DENIED: "the rules denied",
}
_SIGNS = {
    Status.OK: ("applied", "Checked"),
    Status.WARNING: ("needs-you", "Judge for yourself"),
    Status.NOT_PROVEN: ("in-doubt", "Not proven"),
    Status.FAILED: ("failed", "Failed"),
}
TEXTS = ("operation", "rule", "target", "reference", "workflow")


class Form(Struct, frozen=True):
    """The question as it was typed: every field as text."""

    person: str = ""
    part: str = Part.APPROVER
    decision: str = ""
    since: str = ""
    until: str = ""
    operation: str = ""
    rule: str = ""
    target: str = ""
    reference: str = ""
    workflow: str = ""

    @property
    def more(self) -> bool:
        """True if a field of the folded part is filled in."""
        return bool(self.decision) or any(getattr(self, name) for name in TEXTS)

    def asked(self) -> Asked:
        """The search that the fields describe. ``InputError`` names a field that cannot be read."""
        texts = {name: getattr(self, name) or None for name in TEXTS}
        return Asked(
            person=self.person or None,
            part=Part(self.part) if self.person else None,
            decision=Decision(self.decision) if self.decision else None,
            since=_day(self.since, "From"),
            # The last day is part of the period.
            until=None if not self.until else (_day(self.until, "Until") or datetime.min) + timedelta(days=1),
            **texts,
        )


def _day(text: str, where: str) -> datetime | None:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC) if text else None
    except ValueError:
        raise InputError(f"{text!r} is no day.", where=where, remedy="Such as 2026-10-01.") from None


@router.get("")
async def desk(request: Request, viewer: Desk, faces: FacesDep) -> Response:
    """Show the form, and the answer if something was asked. The question stands in the address, and is an event."""
    given = request.query_params
    names = Form.__struct_fields__
    form = Form(**{name: given[name].strip()[:200] for name in names if given.get(name, "").strip()})
    if form.part not in list(Part) or form.decision not in ("", *Decision):
        raise HTTPException(404)
    shown = await page(request, faces, viewer)
    values: dict[str, Any] = {"form": form, "parts_of": PARTS, "decisions": DECISIONS, "problem": "", "result": None}
    values |= {"said": _description(form), "following": "", "later": bool(given.get("after")), "state_of": state_of}
    values["query"] = [(name, item) for name, item in given.multi_items() if name != "after"]
    if "ask" not in given:
        return shown.show("evidence.html", at="evidence", **values)
    try:
        asked, key = form.asked(), decode_cursor(given.get("after", "")[:400], datetime, UUID)
        after = (key[0], key[1]) if key else searching.NEWEST
        tenant, definitions = viewer.who.tenant, faces.definitions
        answer = await faces.ask(tenant, searching.find, definitions, viewer.actor, asked, SHOWN, after)
    except InputError as error:
        return shown.show("evidence.html", at="evidence", status=422, **{**values, "problem": str(error)})
    counted = [sum(vote["counted"] for one in row["questions"] for vote in one["answers"]) for row in answer.runs]
    values |= {"answers": sum(counted)}
    values |= {"result": answer, "following": "" if answer.following is None else encode_cursor(answer.following)}
    return shown.show("evidence.html", at="evidence", **values)


def _description(form: Form) -> str:
    """The search in words, for the heading of its answer."""
    words = f"Runs in which {form.person} {PARTS[Part(form.part)]}" if form.person else "Runs"
    if form.decision:
        words += f"{',' if form.person else ''} where {DECISIONS[Decision(form.decision)]}"
    words += "".join(f", {name} {getattr(form, name)}" for name in TEXTS if getattr(form, name))
    words += f", from {form.since}" if form.since else ""
    return words + (f", until {form.until}" if form.until else "")


@router.get("/{run}")
async def checked(request: Request, run: str, viewer: Desk, faces: FacesDep) -> Response:
    """Verify the newest bundle of a run now, and show every row of the verifier."""
    row, bundle, files = await _bundle(viewer, faces, identified(run))
    found = await asyncio.to_thread(_verified, files, await _pins(viewer, faces, row, bundle))
    shown = await page(request, faces, viewer)
    rows = [(*_SIGNS[one.status], one) for one in found.rows]
    return shown.show("bundle.html", at="evidence", run=row, bundle=bundle, found=found, rows=rows)


@router.get("/{run}/report")
async def report(run: str, viewer: Desk, faces: FacesDep) -> Response:
    """Draw the report of the newest bundle of a run. Its one stylesheet is named by its hash; it has no script."""
    row, bundle, files = await _bundle(viewer, faces, identified(run))
    drawn = await asyncio.to_thread(_drawn, files, await _pins(viewer, faces, row, bundle))
    csp = f"default-src 'none'; style-src '{drawn.style}'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    return Response(drawn.page, media_type="text/html", headers={"content-security-policy": csp})


async def _bundle(viewer: Viewer, faces: Faces, run_id: UUID) -> tuple[Row, Row, Files]:
    """The run, its newest bundle, and the bytes of the bundle and its sidecar. The read is recorded."""
    tenant = viewer.who.tenant
    row = await run_row(faces, tenant, run_id)
    bundle = await faces.ask(tenant, read_models.bundle, run_id)
    if bundle is None:
        raise ConsistencyError("This run has no evidence yet.", remedy="It is written when the run has ended.")
    data = await fetched(faces, tenant, bundle)
    return row, bundle, (data, await values_of(faces, tenant, bundle, data))


async def _pins(viewer: Viewer, faces: Faces, row: Row, bundle: Mapping[str, Any]) -> Pins:
    """The pins: the bundle must be of this run and tenant, and the recorded one; keys are the keys trusted here."""
    keys = await asyncio.to_thread(trusted_keys, faces.settings.home)
    pins = Pins.of(keys, run=str(row["run_id"]), tenant=viewer.who.tenant, sha256=bundle["sha256"])
    return Pins(pins.keys, (), pins.run, pins.tenant, pins.sha256, only=False)


def _verified(files: Files, pins: Pins) -> Verification:
    with _written(files) as path:
        return verify_bundle(path, pins=pins, compiler=Texts())


@contextmanager
def _written(files: Files) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="counterseal-bundle-") as folder:
        path = Path(folder, "bundle.zip")
        path.write_bytes(files[0])
        if files[1] is not None:
            path.with_name(path.name + VALUES).write_bytes(files[1])
        yield path


def _drawn(files: Files, pins: Pins) -> Report:
    with _written(files) as path:
        return render_report(path, pins=pins, compiler=Texts())[0]
