"""Workflows and policies: publish, retire, and see what is published; the JSON Schemas of what people write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from msgspec import structs
from pydantic import BaseModel, Field

from app.access import Principal, Role
from app.checking import members, stand
from app.definitions import describe
from app.faces import Faces
from app.http import models
from app.http.dependencies import Admin, Author, Composer, FacesDep, Reader
from app.outlining import outline
from runtime.definition.schemas import SchemaName, schema_text
from runtime.requests import confirming, publishing
from runtime.requests import policies as policy_requests
from runtime.requests.confirming import Activated
from runtime.requests.policies import Published
from runtime.requests.publishing import Retired
from runtime.store import documents, read_models, tenants
from runtime.store import replication as unavailable
from runtime.store.offload import COMPILING, offload

router = APIRouter(prefix="/v1", tags=["definitions"])

SCHEMA_MEDIA_TYPE = "application/schema+json"

Name = Annotated[str, Path(max_length=100, pattern=models.PRINTABLE, description="The workflow's name")]
Number = Annotated[int, Path(ge=1, lt=2**31, description="The version's number")]
OnlyName = Annotated[str | None, Query(max_length=100, pattern=models.PRINTABLE, description="Only this workflow")]


class Document(models.In):
    """A document's exact text (YAML 1.2); ``file`` is the name that problems are reported under."""

    source: Annotated[str, Field(min_length=1)]
    file: Annotated[str, Field(min_length=1, max_length=200, pattern=models.PRINTABLE)] = "document.yaml"


_UNCHANGED = "This text was published before"
DryRun = Annotated[bool, Query(description="Only show the consequences.")]


class PublishedOut(BaseModel):
    """A published version; ``changed`` is false if exactly this was published before.

    ``warnings`` name questions that nobody in the tenant's directory could decide, and rules that allow actions because
    of text that anyone may write outside. ``waits``: it comes into force once another member of ``policy_approvers``
    does the same. ``questions`` counts the open questions that are judged again now.
    """

    name: str
    version: int
    digest: str
    changed: bool
    warnings: list[str]
    waits: bool
    questions: int


class StepForeseenOut(BaseModel):
    """A step of the workflow, and the decision on its actions under the policies in force: ``verdict`` is always
    denied, always asks people, always allowed, or it depends.
    """

    step: str
    operation: str
    verdict: str
    words: str
    outcomes: list[str]
    rules: list[str]


class RuleChange(BaseModel):
    """A rule that is added, changed or removed."""

    rule: str
    what: str


class StepChange(BaseModel):
    """A step of a published workflow whose decision changes, from ``before`` to ``after``."""

    workflow: str
    step: str
    operation: str
    before: str
    after: str


class QuestionChange(BaseModel):
    """An open question that becomes void. ``outcome`` is the new decision; `needs_approval` asks people anew."""

    approval: str
    run: str
    step: str
    outcome: str


class ConsequencesOut(BaseModel):
    """The consequences of a change of the policies in force. ``more`` counts items that are not listed, ``unread`` open
    questions that this preview did not judge. ``rollback_from`` is the higher version that a rollback replaces.
    """

    rules: list[RuleChange]
    steps: list[StepChange]
    questions: list[QuestionChange]
    more: dict[str, int]
    unread: int
    rollback_from: int | None


class PolicyOut(PublishedOut):
    """A change of the policies in force. ``consequences`` is null if nothing changes or the policy was only stored."""

    retired: bool
    staged: bool
    dry_run: bool
    consequences: ConsequencesOut | None


class Version(BaseModel):
    """One published version."""

    name: str
    version: int
    digest: str
    published_by: str
    published_at: datetime


class PolicyVersion(Version):
    """One published policy; the active one judges every action."""

    active: bool


class WorkflowSummary(Version):
    """One published version, with the names of the operations and connectors that it needs.

    ``waits_for`` says why it waits for an admin, so that no run starts with it; null if it does not.
    """

    retired_at: datetime | None
    waits_for: str | None
    connectors: list[str]
    operations: list[str]


class UnavailableOut(BaseModel):
    """A definition that was unusable at the last start: its place, and the reason."""

    kind: str
    name: str
    place: str
    reason: str


class WorkflowPage(models.Page[WorkflowSummary]):
    """Every published version, and the workflows that the last start found unavailable."""

    unavailable: list[UnavailableOut]


class WorkflowDetail(Version):
    """One published version in full.

    ``operations`` maps each operation to the SHA-256 of its declaration as frozen with the version; ``outline`` is the
    graph as a tree. A version that this release cannot read has a ``problem`` instead of an outline, and cannot run.
    """

    retired_at: datetime | None
    waits_for: str | None
    connectors: list[str]
    operations: dict[str, str]
    source: str
    definition_digest: str | None
    outline: dict[str, Any] | None
    problem: str | None


class WorkflowPublished(PublishedOut):
    """The published version. If it is ``retired``, no run starts with it: publish the text under a new number.

    If it ``waits``, an admin has to activate it before a run starts with it; ``waits_for`` says why.
    """

    retired: bool
    waits_for: str | None
    steps: list[StepForeseenOut]


@router.get("/workflows", response_model=WorkflowPage, summary="Every published workflow")
async def workflows(who: Composer, faces: FacesDep, name: OnlyName = None) -> dict[str, Any]:
    """All versions, also retired ones, the newest of each name first; and unusable definitions with the reasons."""
    unusable = await faces.ask(who.tenant, unavailable.listed, "workflow", name)
    shown = [structs.asdict(one) for one in unusable]
    return {"items": await faces.ask(who.tenant, documents.workflow_versions, name), "unavailable": shown}


@router.get("/workflows/{name}/{version}", response_model=WorkflowDetail, summary="One version of a workflow")
async def workflow(name: Name, version: Number, who: Composer, faces: FacesDep) -> dict[str, Any]:
    """The version's exact text, the digests of the declarations frozen with it, and an outline of what it does."""
    async with faces.database.transaction(who.tenant) as connection:
        return await describe(connection, faces.definitions, who.tenant, name, version)


class WorkflowChecked(BaseModel):
    """A workflow that could be published: its names, its graph as a tree, the state of each of its connectors in this
    process, and ``warnings`` about connectors, literal addresses and declarations, as `workflow check` gives them.
    """

    name: str
    version: int
    digest: str
    outline: dict[str, Any]
    connectors: dict[str, str]
    warnings: list[str]


@router.post("/workflows/check", response_model=WorkflowChecked, summary="Check a workflow")
async def check_workflow(body: Document, who: Author, faces: FacesDep) -> dict[str, Any]:
    """Checks a document and publishes nothing. 422 lists every problem with its line and column."""
    catalog = await faces.ask(who.tenant, faces.definitions.published)
    await faces.helpers.read(who.tenant, "workflow", body.source, body.file, catalog.own)
    found = await offload(COMPILING, partial(publishing.check_workflow, catalog, body.source, body.file))
    people = members(await faces.ask(who.tenant, tenants.directory))
    here = await stand(faces.settings, found, body.file, people)
    answer = {"name": found.name, "version": found.version, "digest": found.digest, "outline": outline(found)}
    return {**answer, **structs.asdict(here)}


@router.post(
    "/workflows",
    status_code=201,
    response_model=WorkflowPublished,
    summary="Publish a workflow version",
    responses={200: {"model": WorkflowPublished, "description": _UNCHANGED}},
)
async def publish_workflow(body: Document, who: Author, faces: FacesDep, response: Response) -> Published:
    """Publishes a version, which never changes: 200 if this text was published before, 409 if another text was.
    422 lists every problem of the document with its line and column. A name belongs to whoever published it first: an
    author gets 403 for somebody else's name.
    """
    publish = partial(publishing.publish_workflow, owned=not who.has(Role.ADMIN))
    published = await _publish("workflow", publish, body, who, faces, response)
    response.headers["Location"] = f"/v1/workflows/{published.name}/{published.version}"
    return published


@router.post("/workflows/{name}/{version}/activate", summary="Activate a workflow version")
async def activate_workflow(name: Name, version: Number, who: Admin, faces: FacesDep) -> Activated:
    """Lets runs start with a version that an author has published and that waits for an admin: it has a trigger, a
    policy names it, or a workflow of others runs it. Repeating it changes nothing.
    """
    async with faces.database.transaction(who.tenant) as connection:
        return await confirming.activate_workflow(connection, faces.definitions, who.tenant, name, version, who.actor)


@router.post("/workflows/{name}/{version}/retire", summary="Retire a workflow version")
async def retire_workflow(name: Name, version: Number, who: Admin, faces: FacesDep) -> Retired:
    """Retires a version for good: no run starts with it; runs that have started go on. Repeating it changes nothing."""
    return await faces.ask(who.tenant, publishing.retire_workflow, name, version, who.actor)


@router.get("/policies", response_model=models.Page[PolicyVersion], summary="Every published policy")
async def policies(who: Reader, faces: FacesDep) -> dict[str, Any]:
    """Lists policies, the newest first, and which one is active."""
    return {"items": await faces.ask(who.tenant, read_models.policy_versions)}


@router.post(
    "/policies",
    status_code=201,
    response_model=PolicyOut,
    summary="Publish and activate a policy",
    responses={200: {"model": PolicyOut, "description": _UNCHANGED}},
)
async def publish_policy(
    body: Document,
    who: Admin,
    faces: FacesDep,
    response: Response,
    stage: Annotated[bool, Query(description="Only store it.")] = False,
    dry_run: DryRun = False,
) -> Published:
    """Publishes a policy and puts it in force beside the others, in place of the version of its name. It judges every
    action from now on, also those that had been approved.
    """
    publish = partial(policy_requests.publish_policy, stage=stage, dry_run=dry_run)
    return await _publish("policy", publish, body, who, faces, response)


@router.post("/policies/{name}/retire", response_model=PolicyOut, summary="Take a policy out of force")
async def retire_policy(name: Name, who: Admin, faces: FacesDep, dry_run: DryRun = False) -> Published:
    """Takes the policy of this name out of force; its versions stay published. If the directory has a group
    `policy_approvers`, two of its members must do so: the first call only proposes.
    """
    async with faces.database.transaction(who.tenant) as connection:
        retire = partial(policy_requests.retire_policy, connection, faces.definitions, who.tenant)
        return await retire(name, who.actor, dry_run=dry_run)


@router.post("/policies/{name}/{version}/activate", response_model=PolicyOut, summary="Activate a policy")
async def activate_policy(
    name: Name, version: Number, who: Admin, faces: FacesDep, dry_run: DryRun = False
) -> Published:
    """Puts a published version in force, also an older one, in place of the one of its name. If the directory has a
    group `policy_approvers`, two of its members must do so: the first call only proposes.
    """
    async with faces.database.transaction(who.tenant) as connection:
        activate = partial(policy_requests.activate_policy, connection, faces.definitions, who.tenant)
        return await activate(name, version, who.actor, dry_run=dry_run)


@router.get("/schemas/{name}", response_class=Response, summary="The JSON Schema of a kind of document")
async def schema(name: SchemaName, who: Composer) -> Response:
    """JSON Schema (2020-12) for editors: of a workflow, a policy, a directory, or declarations of operations."""
    return Response(schema_text(name), media_type=SCHEMA_MEDIA_TYPE)


async def _publish(
    kind: str,
    publish: Callable[..., Awaitable[Published]],
    body: Document,
    who: Principal,
    faces: Faces,
    response: Response,
) -> Published:
    declared = (await faces.ask(who.tenant, faces.definitions.published)).own
    await faces.helpers.read(who.tenant, kind, body.source, body.file, declared)
    async with faces.database.transaction(who.tenant) as connection:
        published = await publish(connection, faces.definitions, who.tenant, body.source, body.file, who.actor)
    if not published.changed:
        response.status_code = 200
    return published
