"""What is configured, what is reachable, what is missing: `counterseal doctor`."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp

from app import adapters, storage
from app.settings import Settings, unknown_variables
from approvals.slack.calls import call
from connectors.port import SETTINGS
from core.db import FACES_ROLE, Database
from core.errors import ConfigurationError, CountersealError
from evidence.signing import FileSigner
from runtime.definition.catalog import Definitions
from runtime.engine.judge import BrokenPolicy
from runtime.requests.evidence import NOT_STORED, remedy
from runtime.store import bundles, documents, tenants

SECONDS_MAX = 15.0
RUNS_SHOWN = 20


class State(StrEnum):
    """``missing`` is no fault: nothing asked for it. ``broken`` is configured and does not work."""

    OK = "ok"
    MISSING = "missing"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding, and what to do about it."""

    what: str
    state: State
    detail: str


async def examine(settings: Settings) -> list[Check]:
    """Look at everything, each within 15 seconds. Changes nothing but that the embedded server may be started."""
    checks = [*_variables(), *await _database(settings), _key(settings)]
    looks = {"queue": _queue, "evidence store": _blobs, "slack": _slack, "connectors": _connectors}
    found = await asyncio.gather(*(_bounded(what, look(settings)) for what, look in looks.items()))
    return [*checks, *chain.from_iterable(found), _webhooks(settings)]


async def _bounded(what: str, look: Awaitable[list[Check]]) -> list[Check]:
    try:
        async with asyncio.timeout(SECONDS_MAX):
            return await look
    except TimeoutError:
        return [Check(what, State.BROKEN, f"no answer within {SECONDS_MAX:.0f} seconds")]
    except CountersealError as error:
        return [Check(what, State.BROKEN, str(error))]


def _variables() -> list[Check]:
    return [
        Check("settings", State.WARNING, f"{name} is not a setting; nothing reads it") for name in unknown_variables()
    ] or [Check("settings", State.OK, "every COUNTERSEAL_ variable is known and well-formed")]


async def _database(settings: Settings) -> list[Check]:
    kind = "the embedded server" if settings.database_url is None else "COUNTERSEAL_DATABASE_URL"
    try:
        async with storage.server(settings) as url:
            found, head = await storage.schema_revision(url), storage.head_revision()
            checks = [Check("database", State.OK, f"{kind} answers")]
            if found != head:
                words = f"at {found or 'nothing'}, needed is {head}; run `counterseal db upgrade`"
                state = State.WARNING if settings.auto_migrate else State.BROKEN
                return [*checks, Check("schema", state, words)]
            checks.append(Check("schema", State.OK, f"at {head}, the newest"))
            async with Database(url, FACES_ROLE) as database:
                return [*checks, *await _documents(settings, database)]
    except CountersealError as error:
        return [Check("database", State.BROKEN, str(error))]


async def _documents(settings: Settings, database: Database) -> list[Check]:
    definitions, tenant = Definitions(adapters.catalog_of(settings)), settings.tenant
    async with database.transaction(tenant) as connection:
        found = await tenants.listed(connection)
        if not found:
            words = f"there is no tenant {tenant!r}; `counterseal tenant create {tenant}` creates it"
            return [Check("tenant", State.BROKEN, words)]
        policy = await definitions.policy(connection, tenant, found[0]["policy_digest"])
        stored = await documents.newest_workflows(connection, tenant)
        refused = await bundles.failures(connection, tenant)
    checks = _evidence(refused)
    if policy is None:
        checks.append(Check("policy", State.MISSING, "none is published, so every action is denied"))
    elif isinstance(policy, BrokenPolicy):
        checks.append(Check("policy", State.BROKEN, f"every action is denied: {policy.message}"))
    else:
        checks.append(Check("policy", State.OK, f"{policy.name} version {policy.version} is active"))
    for version in stored:
        name = f"workflow {version.name}@{version.version}"
        try:
            workflow = definitions.compiled(version)
            checks.append(Check(name, State.OK, f"needs {', '.join(workflow.connectors) or 'no connector'}"))
        except CountersealError as error:
            checks.append(Check(name, State.BROKEN, str(error)))
    return checks or [Check("workflows", State.MISSING, "none is published")]


def _evidence(refused: Sequence[tuple[UUID, str]]) -> list[Check]:
    """Runs whose evidence contradicts itself, or could not be stored: somebody has to look, whatever else works."""
    if not refused:
        return [Check("evidence", State.OK, "no run has ended without it")]
    shown = [
        Check("evidence", State.BROKEN, f"run {run_id}: {NOT_STORED}: {why}. {remedy(run_id)}")
        for run_id, why in refused[:RUNS_SHOWN]
    ]
    more = len(refused) - len(shown)
    return [*shown, *([Check("evidence", State.BROKEN, f"and {more} more runs")] if more else [])]


def _key(settings: Settings) -> Check:
    path = settings.signing_key_path
    if not path.exists():
        return Check("signing key", State.MISSING, f"{path} is made at the first start")
    try:
        key_id = FileSigner.load(path).public_key.key_id
    except ConfigurationError as error:
        return Check("signing key", State.BROKEN, str(error))
    return Check("signing key", State.OK, f"{path} (mode {stat.S_IMODE(path.stat().st_mode):04o}), key {key_id[:16]}")


async def _queue(settings: Settings) -> list[Check]:
    if settings.sqs_queue_url is None:
        return [Check("queue", State.OK, "PostgreSQL (COUNTERSEAL_SQS_QUEUE_URL names none)")]
    await adapters.queue_depths(settings)
    checks = [Check("queue", State.OK, f"{settings.sqs_queue_url} answers")]
    if settings.sqs_dlq_url is None:
        words = "COUNTERSEAL_SQS_DLQ_URL is not set, so nobody looks after the dead letters"
        return [*checks, Check("dead letters", State.WARNING, words)]
    return [*checks, Check("dead letters", State.OK, f"{settings.sqs_dlq_url} answers")]


async def _blobs(settings: Settings) -> list[Check]:
    if settings.s3_bucket is None:
        if not _writable(settings.evidence_path):
            return [Check("evidence store", State.BROKEN, f"{settings.evidence_path} cannot be written to")]
        words = f"{settings.evidence_path} (COUNTERSEAL_S3_BUCKET names no bucket)"
        return [Check("evidence store", State.OK, words)]
    await adapters.check_bucket(settings)
    return [Check("evidence store", State.OK, f"s3://{settings.s3_bucket} answers")]


def _writable(folder: Path) -> bool:
    """Whether files can be made in it, or it can be made in what there is of its path."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


async def _slack(settings: Settings) -> list[Check]:
    async with aiohttp.ClientSession() as session:
        client = adapters.slack_client_of(settings, session)
        if client is None:
            return [Check("slack cards", State.MISSING, "COUNTERSEAL_SLACK_BOT_TOKEN is not set")]
        answer = await call(client.auth_test(), timeout_seconds=10)
        if not isinstance(answer, dict):
            return [Check("slack cards", State.BROKEN, answer.message)]
        known = await call(client.users_info(user=str(answer.get("user_id"))), timeout_seconds=10)
    checks = [Check("slack cards", State.OK, f"signed in as {answer.get('user')} of {_where(answer)}")]
    if not isinstance(known, dict):
        checks.append(Check("slack clicks", State.BROKEN, f"every click is refused: {known.message}"))
    if settings.slack_channel is None:
        words = "COUNTERSEAL_SLACK_CHANNEL is not set, so no card is shown"
        checks.append(Check("slack channel", State.WARNING, words))
    if settings.slack_signing_secret is None:
        words = "COUNTERSEAL_SLACK_SIGNING_SECRET is not set, so clicks are refused"
        checks.append(Check("slack clicks", State.WARNING, words))
    return checks


def _where(answer: Mapping[str, Any]) -> str:
    """Whose members may click (``approvals.slack.workspace``)."""
    if answer.get("is_enterprise_install") is True:
        return f"the organisation {answer.get('enterprise_id')}"
    return f"{answer.get('team')} ({answer.get('team_id')})"


async def _connectors(settings: Settings) -> list[Check]:
    connectors = adapters.connectors_of(settings, adapters.catalog_of(settings))
    try:
        answers = await connectors.check()
    finally:
        await connectors.aclose()
    checks = [
        Check(f"connector {name}", State.OK if well else State.BROKEN, words) for name, (well, words) in answers.items()
    ]
    return checks + [
        Check(f"connector {name}", State.MISSING, f"{setting} is not set")
        for name, setting in SETTINGS.items()
        if name not in answers
    ]


def _webhooks(settings: Settings) -> Check:
    if not settings.webhooks:
        return Check("webhooks", State.MISSING, "COUNTERSEAL_WEBHOOKS names no endpoint")
    names = ", ".join(f"/webhooks/servicenow/{name}" for name in sorted(settings.webhooks))
    return Check("webhooks", State.OK, names)
