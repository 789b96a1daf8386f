"""Commands for evidence: get a run's bundle, print the public key, verify offline, draw a report."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer
from msgspec.structs import replace

from app.cli import context
from app.cli.outcome import Commands, Exit, Json, first_of, print_fields, print_one, print_rows
from app.cli.runs import RunId
from core.canonical import sha256_hex
from core.errors import ConsistencyError, InputError

if TYPE_CHECKING:
    from evidence.pins import Pins
    from runtime.requests.sealing import Sealed

evidence = Commands(
    name="evidence", help="Evidence: get, disclose, again, key, trust, verify, verifier, report, find, monitor, period."
)


@evidence.command("get")
async def get(
    run_id: RunId,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it: a file, or a directory.")],
    so_far: Annotated[bool, typer.Option("--so-far", help="Of a run that goes on: made now, with its leaf.")] = False,
    proof: Annotated[
        bool, typer.Option("--proof", help="With the run's leaf of the log, and the proof of it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Download a run's bundle, and beside it the values that it discloses, unless they are erased. It is recorded.

    With --so-far or --proof two files beside it say where the tenant's log has the run: `evidence logged` checks them.
    """
    from app.shown import ENDED, exported, run_row, values_exported
    from runtime.keep.bundling import NOT_STORED, remedy
    from runtime.store import read_models

    if so_far:
        await _get_so_far(run_id, output, as_json=as_json)
        return
    async with context.faces() as faces:
        tenant = faces.settings.tenant
        found = await run_row(faces, tenant, run_id, see="See `counterseal run list`.")
        if found["status"] not in ENDED:
            raise ConsistencyError(f"The run is {found['status']}; its evidence is written when it has ended.")
        row = await faces.ask(tenant, read_models.bundle, run_id)
        if row is None and found["evidence_problem"] is not None:
            raise ConsistencyError(f"{NOT_STORED}: {found['evidence_problem']}", remedy=remedy(run_id))
        if row is None:
            raise ConsistencyError("The bundle is being written.", remedy="Try again; `counterseal keep` writes it.")
        actor = context.actor(faces.settings)
        data = await exported(faces, tenant, actor, row)
        values = await values_exported(faces, tenant, actor, row, data)
    path = _named(output, row["name"])
    seal = await _sealed(run_id, row["lines"]) if proof else None
    sidecar = _write_both(path, data, values)
    if seal is not None:
        _write_seal(path, seal)
    written = {"path": str(path), "sha256": row["sha256"], "bytes": len(data), "values": sidecar and str(sidecar)}
    words = f"{path} ({len(data)} bytes, SHA-256 {row['sha256']})"
    if sidecar is not None:
        words += f"\n{sidecar}: its values, which `evidence verify` finds there"
    elif row["purged_at"] is not None:
        words += "\nIts values are erased: `--proof` gets the leaf of the log that says so."
    print_one(written, words, as_json=as_json)


async def _get_so_far(run_id: UUID, output: Path, *, as_json: bool) -> None:
    from app import sealing

    async with context.overview() as (settings, database):
        actor = context.actor(settings)
        made, seal = await sealing.so_far(settings, database, settings.tenant, run_id, actor)
    path = _named(output, made.name)
    sidecar = _write_both(path, made.bytes, made.sidecar)
    _write_seal(path, seal)
    written = {"path": str(path), "sha256": made.sha256, "bytes": len(made.bytes), "leaf": seal.leaf.kind}
    written["values"] = sidecar and str(sidecar)
    print_one(written, f"{path}: the run so far, as the log has it ({seal.leaf.kind})", as_json=as_json)


async def _sealed(run_id: UUID, lines: int) -> Sealed:
    """The signed leaf of a bundle with this number of lines."""
    from app import sealing

    async with context.overview() as (settings, database):
        return await sealing.leaf_of(database, settings.tenant, run_id, lines)


def _named(output: Path, name: str) -> Path:
    return output / name if output.is_dir() else output


def _write_both(path: Path, data: bytes, values: bytes | None) -> Path | None:
    """Write a bundle and its values; return the values' path. Old values there are removed: they would be used."""
    from evidence.layout import VALUES

    sidecar = path.with_name(path.name + VALUES)
    if values is None:
        sidecar.unlink(missing_ok=True)
    else:
        _write(sidecar, values)
    _write(path, data)
    return None if values is None else sidecar


def _write_seal(path: Path, seal: Sealed) -> None:
    from evidence.layout import LEAF, PROOF

    _write(path.with_name(path.name + LEAF), seal.leaf.bytes)
    _write(path.with_name(path.name + PROOF), seal.proof)


@evidence.command("again")
async def again(run_id: RunId, as_json: Json = False) -> None:
    """Write a run's evidence again after it was refused or could not be stored. Repair the cause first."""
    from runtime.keep.bundling import write_again

    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        await write_again(connection, faces.settings.tenant, run_id)
    print_fields({"run_id": run_id, "evidence": "ordered; `counterseal keep` writes it"}, as_json=as_json)


def _write(path: Path, data: bytes) -> None:
    """Write the file atomically."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".evidence-") as folder:
            draft = Path(folder, path.name)
            draft.touch(mode=0o600)
            draft.write_bytes(data)
            draft.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


@evidence.command("key")
def public_key(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it to this file.")] = None,
) -> None:
    """Print the public key of our signatures (PEM). Give it to auditors once, over a channel that they trust."""
    from app.settings import load_settings
    from evidence.signing import FileSigner

    pem = FileSigner.load(load_settings().signing_key_path).public_key.pem
    if output is None:
        typer.echo(pem.decode(), nl=False)
    else:
        _write(output, pem)
        typer.echo(str(output))


@evidence.command("trust")
def trust(
    keys: Annotated[list[Path] | None, typer.Argument(help="PEM public keys; this installation's own without.")] = None,
    as_json: Json = False,
) -> None:
    """Trust keys from now on, without `--key`. Compare the fingerprints with those that you got on another way."""
    from app.settings import TRUSTED, load_settings
    from evidence.pins import load_key
    from evidence.signing import FileSigner

    settings = load_settings()
    found = [load_key(path) for path in keys or ()] or [FileSigner.load(settings.signing_key_path).public_key]
    folder = settings.home / TRUSTED
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(folder)) from None
    for one in found:
        # The file is named by the fingerprint, so trusting a key twice changes nothing; a crash leaves no partial key.
        _write(folder / f"{one.key_id}.pem", one.pem)
    document = {"trusted": [one.key_id for one in found], "folder": str(folder)}
    print_one(document, "\n".join(f"trusted from now on: {one.key_id}" for one in found), as_json=as_json)


def _pins(
    keys: list[Path] | None,
    fingerprints: list[str] | None,
    *,
    run: str | None = None,
    tenant: str | None = None,
    sha256: str | None = None,
    after: Path | None = None,
) -> Pins:
    """The pins for the check: the keys that are named or, without any, the keys that are kept."""
    from app.settings import load_settings, trusted_keys
    from evidence.pins import Pins

    trusted = [] if keys or fingerprints else trusted_keys(load_settings().home)
    pins = Pins.of([*(keys or trusted)], fingerprints or (), run=run, tenant=tenant, sha256=sha256, after=after)
    return replace(pins, only=not trusted)  # keys that are trusted for good say nothing against others


@evidence.command("verify")
def verify(
    path: Annotated[Path, typer.Argument(help="The zip file, or the directory it was extracted into.")],
    key: Annotated[list[Path] | None, typer.Option(help="PEM public key that you trust; may be repeated.")] = None,
    fingerprint: Annotated[list[str] | None, typer.Option(help="SHA-256 of a key (DER) that you trust.")] = None,
    run: Annotated[str | None, typer.Option(help="The run that it must be of.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant that it must be of.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The SHA-256 that the file must have.")] = None,
    after: Annotated[Path | None, typer.Option(help="An earlier edition, with whose events it must begin.")] = None,
    disclosed: Annotated[
        list[Path] | None, typer.Option(help="Its values, if elsewhere, or a further file of disclosures.")
    ] = None,
    log_key: Annotated[
        list[str] | None, typer.Option(help="Key of the log, which proves that values were erased.")
    ] = None,
    allow_unfinished: Annotated[bool, typer.Option(help="Accept the bundle of a run that has not closed.")] = False,
    as_json: Json = False,
) -> None:
    """Check a bundle, offline: no database and no network. Exit 1 if a check failed, 6 if its key is not trusted."""
    from app.compiling import Texts
    from evidence.log.notes import NoteKey
    from evidence.verify import verify_bundle

    pins = _pins(key, fingerprint, run=run, tenant=tenant, sha256=sha256, after=after)
    logs = [NoteKey.parse(each, "--log-key") for each in log_key or ()]
    result = verify_bundle(
        path, require_final=not allow_unfinished, pins=pins, compiler=Texts(), disclosed=disclosed or (), log_keys=logs
    )
    print_one(result.to_json(), result.to_text(), as_json=as_json)
    if result.exit_code:
        raise typer.Exit(Exit(result.exit_code))


@evidence.command("disclose")
async def disclose(
    run_id: RunId,
    paths: Annotated[list[str], typer.Argument(help="Such as decision.made/facts, or 12/proposed/input: EVENT/VALUE.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it: a file, or a directory.")],
    as_json: Json = False,
) -> None:
    """Open further values of a run beside its bundle, for `evidence verify --disclosed`. Secrets are withheld."""
    from runtime.requests import disclosing

    async with context.faces() as faces:
        asked = (faces.definitions, context.actor(faces.settings), run_id, paths)
        made = await faces.ask(faces.settings.tenant, disclosing.disclose, *asked)
    path = _named(output, f"disclosed-{run_id}.jsonl")
    _write(path, made.lines)
    written = {"path": str(path), "disclosed": made.opened, "withheld": made.withheld}
    print_one(written, f"{path}: {made.opened} values disclosed, {made.withheld} withheld", as_json=as_json)


@evidence.command("verifier")
def verifier(
    language: Annotated[
        str, typer.Argument(help="python (needs the package cryptography) or javascript (needs Node).")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it: a file, or a directory.")],
    as_json: Json = False,
) -> None:
    """Write a verifier that stands alone in one file, for auditors who install nothing of ours."""
    from evidence.standalone.building import FILES, Language, build

    context.check_word(language, list(map(str, Language)), "language")
    made = build(Language(language))
    path = _named(output, FILES[Language(language)])
    _write(path, made)
    written = {"path": str(path), "sha256": sha256_hex(made), "bytes": len(made)}
    print_one(written, f"{path} ({len(made)} bytes, SHA-256 {written['sha256']})", as_json=as_json)


@evidence.command("report")
def report(
    path: Annotated[Path, typer.Argument(help="The zip file, or the directory it was extracted into.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it: a file, or a directory.")],
    key: Annotated[list[Path] | None, typer.Option(help="PEM public key that you trust; may be repeated.")] = None,
    fingerprint: Annotated[list[str] | None, typer.Option(help="SHA-256 of a key (DER) that you trust.")] = None,
    allow_unfinished: Annotated[bool, typer.Option(help="Accept the bundle of a run that has not closed.")] = False,
    as_json: Json = False,
) -> None:
    """Draw a bundle as one page to read and print, offline. It is verified first; exit 6 if its key is not trusted."""
    from app.compiling import Texts
    from evidence.report.rendering import render_report

    pins = _pins(key, fingerprint)
    drawn, found = render_report(path, pins=pins, compiler=Texts(), require_final=not allow_unfinished)
    written = output / "report.html" if output.is_dir() else output
    _write(written, drawn.page)
    document = {"path": str(written), "bytes": len(drawn.page), "trusted": found.trusted}
    words = "" if found.trusted else "; nobody has said that its key is to be trusted, and the page says so"
    print_one(document, f"{written} ({len(drawn.page)} bytes){words}", as_json=as_json)
    if found.exit_code:
        raise typer.Exit(Exit(found.exit_code))


@evidence.command("find")
async def find(
    person: Annotated[str | None, typer.Option(help="Any name of a person; needs --part.")] = None,
    part: Annotated[
        str | None, typer.Option(help="requester, approver, contributor, or refused (a click that did not count).")
    ] = None,
    decision: Annotated[
        str | None, typer.Option(help="allowed, asked, denied; approved, rejected, expired, superseded.")
    ] = None,
    operation: Annotated[str | None, typer.Option(help="Of an action, such as servicenow.incident.update.")] = None,
    target: Annotated[str | None, typer.Option(help="The beginning of the target of an effect.")] = None,
    rule: Annotated[str | None, typer.Option(help="A rule that decided, with or without its policy's name.")] = None,
    reference: Annotated[str | None, typer.Option(help="The business reference.")] = None,
    workflow: Annotated[str | None, typer.Option(help="The name of the workflow.")] = None,
    since: Annotated[str | None, typer.Option(help="Voted (--part approver) or begun from this moment on.")] = None,
    until: Annotated[str | None, typer.Option(help="Voted (--part approver) or begun before this moment.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many at most.")] = 100,
    as_json: Json = False,
) -> None:
    """Find runs by who did what in them, newest first. What is shown is verified; asking is recorded in the audit."""
    from runtime.requests import searching
    from runtime.requests.searching import Decision, Part

    for word, words, what in ((part, Part, "part"), (decision, Decision, "decision")):
        if word is not None:
            context.check_word(word, list(map(str, words)), what)
    when = context.moment("--since", since), context.moment("--until", until)
    asked = searching.Asked(
        person, Part(part) if part else None, Decision(decision) if decision else None,
        operation, target, rule, reference, workflow, *when,
    )  # fmt: skip
    found, after = list[Mapping[str, Any]](), searching.NEWEST
    async with context.faces() as faces:
        actor = context.actor(faces.settings)
        while len(found) <= limit:
            most = min(limit + 1 - len(found), 200)
            page = await faces.ask(faces.settings.tenant, searching.find, faces.definitions, actor, asked, most, after)
            found += page.runs
            if page.following is None:
                break
            after = page.following
    rows = first_of(found, limit)
    if not as_json:
        rows = [{**row, "workflow": f"{row['workflow']}@{row['workflow_version']}", "who": _who(row)} for row in rows]
    columns = ("run_id", "reference", "workflow", "status", "requester", "who", "created_at")
    print_rows(rows, columns, as_json=as_json, empty="No run fits.")


def _who(row: Mapping[str, Any]) -> str:
    """The answers to the run's questions that match the search, in short."""
    votes = [vote for question in row["questions"] for vote in question["answers"]]
    return ", ".join(f"{vote['person']}: {vote['choice'] or 'not counted'}" for vote in votes)
