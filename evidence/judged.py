"""Reads what a bundle of format 3 is judged by, and has its history judged while its chain is verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import orjson

from core import bounded_json
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import InputError
from evidence import layout
from evidence.chain import LINE_BYTES_MAX
from evidence.commitments import path_of
from evidence.container import FILE_BYTES_MAX, Files
from evidence.events import TENANT_EVENTS
from evidence.events import EventType as E
from evidence.judging.case import Case, Definition, Extract, Question
from evidence.judging.judge import KNOWN, Judgement
from evidence.members import OF_TENANT, check_members

TEXTS = "texts"
# Lines that name the directory by which people were found.
_BY_PEOPLE = (E.APPROVAL_REQUESTED, E.APPROVAL_VOTED, E.ACTION_INTENDED, E.APPROVAL_CONSUMED, E.APPROVAL_SUPERSEDED)


class Compiler(Protocol):
    """Reads the texts of a bundle as the runtime does, for a verifier that may load the runtime's compilers."""

    def steps(self, text: str, definition: JsonObject) -> JsonObject:
        """The steps of a workflow's text, by the declarations of ``definition.json``. ``InputError`` if it has none."""

    def document(self, text: str) -> Json:
        """A text as JSON. ``InputError`` if it is none."""

    def decide(
        self, texts: Sequence[str], definition: JsonObject, operation: str, workflow: str, facts: JsonObject
    ) -> tuple[str, list[str], bool] | None:
        """The outcome and the rules that fired, by the texts of policies; None if these cannot be compiled here.

        The last item is False if rules were left out because nothing declares their operations. Such rules can only
        make the outcome stricter.
        """


class Judged:
    """The judgement of one bundle. Whatever cannot be read becomes a fault of the row ``what it is judged by``."""

    def __init__(self, files: Files, compiler: Compiler | None = None, *, sidecar_missing: bool = False) -> None:
        self._files = files
        self._compiler = compiler
        self._workflow: JsonObject = {}
        self._judgement: Judgement | None = None
        self._problems: list[str] = []
        self._directories: set[str] = set()
        self._policies: dict[str, tuple[str, str]] = {}
        self._newer: list[str] = []
        self._moved: list[tuple[int, str]] = []
        self._opened: Mapping[str, Json] = {}
        self._case = Case(self._question, sidecar_missing=sidecar_missing)

    def observe(self, event: dict[str, Any], opened: Mapping[str, Json]) -> None:
        """Judge one verified event. ``opened`` holds its opened values by their paths."""
        kind, data = event["type"], event["data"]
        self._opened = opened
        if kind not in KNOWN:
            self._newer.append(f"event {event['seq']}: {kind} is newer than this verifier")
        if self._judgement is None:
            self._read(data)
            self._judgement = Judgement(self._case)
            self._judgement.standing.set_run(self._run())
        if kind == E.RUN_MIGRATED and isinstance(data["workflow"], dict) and type(data["number"]) is int:
            self._moved.append((data["number"], str(data["workflow"].get("version"))))
        if kind == E.DECISION_MADE:
            self._read_policies(data["policies"])
        if kind in _BY_PEOPLE and isinstance(data.get("directory"), str):
            self._read_people(data["directory"])
        try:
            self._judgement.observe(event)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self._problems.append(f"event {event['seq']}: cannot be judged: {error!r}")

    def rows(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """The rows of the judgement, for the verifier's table."""
        yield "what it is judged by", self._material
        if self._judgement is None:
            return
        if self._compiler is not None and self.compiled:
            yield TEXTS, partial(self._compiled, self._compiler)
        for name, faults, words in self._judgement.rows():
            yield name, partial(_or_faults, faults, words)

    @property
    def withheld(self) -> int:
        """The number of declarations that are withheld, so that the texts cannot be compiled."""
        return 0 if self._case.definition is None else self._case.definition.withheld

    @property
    def compiled(self) -> bool:
        """True if the texts were compiled."""
        return self._compiler is not None and not self.withheld

    @property
    def unshown(self) -> int:
        """The number of directories by which votes were counted, but of which the bundle has no extract."""
        return 0 if self._judgement is None else len(self._judgement.people.unproven)

    @property
    def begun_before(self) -> bool:
        """True if the run began under an earlier release, whose lines tell less."""
        return self._judgement is not None and not self._judgement.whole

    def _material(self) -> str:
        extra = sorted(
            name for name in self._files.sizes
            if name.startswith("directory/") and name not in {layout.people_file(each) for each in self._directories}
        )  # fmt: skip
        self._problems += [f"{name} is of a directory that no event names" for name in extra]
        _or_faults([*self._newer, *self._problems], "")
        added = 0 if self._case.definition is None else len(self._case.definition.unbound)
        note = f" and {added} of extensions, which nothing binds" if added else ""
        return (
            f"the declarations that run.opened names{note}, {len(self._case.policies)} policies, "
            f"{len(self._case.extracts)} directories, {len(self._case.tenant or ())} lines of the tenant"
        )

    def _compiled(self, compiler: Compiler) -> str:
        """Compare the steps and the rules that the history was judged by with the texts that the events name."""
        name, version = str(self._workflow.get("name")), str(self._workflow.get("version"))
        file = layout.text_file("workflow", name, version)
        definition = self._object(layout.DEFINITION)
        editions = definition.get("editions")
        first = editions[0] if isinstance(editions, list) and editions else None
        if canonical_bytes(compiler.steps(self._text(file), definition)) != canonical_bytes(first):
            raise InputError("has other steps than the workflow's text", where=layout.DEFINITION)
        whole: JsonObject = {
            "operations": {**_object(definition.get("added")), **_object(definition.get("operations"))}
        }
        for edition, version in self._moved:
            text = self._text(layout.text_file("workflow", name, version))
            now = editions[edition] if isinstance(editions, list) and edition < len(editions) else None
            if canonical_bytes(compiler.steps(text, whole)) != canonical_bytes(now):
                raise InputError("has other steps than the text to which the run was moved", where=layout.DEFINITION)
        for digest, (policy, number) in self._policies.items():
            plain = self._case.policies.get(digest)
            text = self._text(layout.text_file("policy", policy, number))
            if plain is not None and canonical_bytes(compiler.document(text)) != canonical_bytes(plain):
                raise InputError("is not its text", where=layout.canonical_file("policy", policy, number))
        return f"the steps and the rules of {len(self._case.policies)} policies are those of the texts"

    def _text(self, file: str) -> str:
        try:
            return self._files.read(file).decode()
        except UnicodeDecodeError:
            raise InputError("is not UTF-8", where=file) from None

    def _object(self, name: str) -> JsonObject:
        """A file of one canonical object. ``InputError`` for any other spelling of it."""
        data = self._files.read(name)
        document = bounded_json.parse_object(data, bytes_max=FILE_BYTES_MAX, where=name)
        if canonical_bytes(document) + b"\n" != data:
            raise InputError("is not spelled canonically", where=name)
        return document

    @property
    def definition(self) -> JsonObject:
        """The declarations of the run's operations. ``InputError`` if they cannot be read."""
        return self._object(layout.DEFINITION)

    def _run(self) -> str:
        try:
            return str(self._object(layout.RUN_HEAD).get("run"))
        except InputError:
            return ""  # the rows of the chain and of the run say so

    def _read(self, opened: JsonObject) -> None:
        workflow = opened["workflow"]
        self._workflow = workflow if isinstance(workflow, dict) else {}
        digest = workflow.get("digest") if isinstance(workflow, dict) else None
        try:
            self._case.definition = Definition.read(self._object(layout.DEFINITION), opened.get("definition"), digest)
        except InputError as error:
            self._problems.append(f"{layout.DEFINITION}: {error.message}")
        try:
            self._case.tenant = [*self._tenant()]
        except InputError as error:
            self._problems.append(f"{layout.TENANT}: {error.message}")

    def _tenant(self) -> Iterator[dict[str, Any]]:
        before = -1
        for line in self._files.lines(layout.TENANT, 2 * LINE_BYTES_MAX):
            document = bounded_json.parse_object(line, bytes_max=2 * LINE_BYTES_MAX, where=layout.TENANT)
            match document:
                case {"seq": int(seq), "line": {"type": str(kind), "data": dict(), "actor": dict(), "ts": str()}}:
                    if seq <= before or kind not in TENANT_EVENTS or canonical_bytes(document) != line:
                        raise InputError("is out of order, or is no line of a tenant")
                    _check_tenant(document)
                    before = seq
                    yield orjson.loads(line)["line"]
                case _:
                    raise InputError("holds what is no line of a tenant")

    def _read_policies(self, named: object) -> None:
        for policy in named if isinstance(named, list) else ():
            match policy:
                case {"name": str(name), "version": int() | str() as version, "digest": str(digest)}:
                    if digest in self._policies:
                        continue
                    self._policies[digest] = (name, str(version))
                    plain = layout.canonical_file("policy", name, version)
                    if plain not in self._files.sizes:
                        continue  # a text that is no document: whatever it judges is denied
                    try:
                        found = self._object(plain)
                    except InputError as error:
                        self._problems.append(f"the policy {name}: {error.message}")
                        continue
                    self._case.policies = {**self._case.policies, digest: found}

    def _read_people(self, digest: str) -> None:
        if digest in self._directories:
            return
        self._directories.add(digest)
        name = layout.people_file(digest)
        if name not in self._files.sizes:
            return  # an older release kept no text of it; the row of the people says so
        try:
            self._case.extracts = {**self._case.extracts, digest: Extract.read(self._object(name))}
        except InputError as error:
            self._problems.append(f"{name}: {error.message}")

    def _question(self, approval: str) -> Question | None:
        """The question that the event at hand asks, as far as it is opened."""
        asked, card = (self._opened.get(path_of("approval", approval, each)) for each in ("asked", "card"))
        try:
            return Question.read(asked, card if isinstance(card, dict) else None) if isinstance(asked, dict) else None
        except InputError as error:
            self._problems.append(f"the question {approval}: {error.message}")
            return None


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _check_tenant(document: JsonObject) -> None:
    """Refuse what no line of a tenant holds."""
    line: Any = document["line"]
    check_members(layout.TENANT, document, frozenset({"seq", "line"}))
    check_members(layout.TENANT, line, frozenset({"v", "ts", "type", "actor", "step", "data"}))
    check_members(layout.TENANT, line["actor"], frozenset({"kind", "id"}))
    check_members(layout.TENANT, line["data"], OF_TENANT)


def _or_faults(faults: list[str], words: str) -> str:
    if faults:
        more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
        raise InputError("; ".join(faults[:5]) + more)
    return words
