"""The checks of `counterseal doctor`: what is configured, what is reachable, what is missing."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import UUID

from app import adapters, rates, storage
from app.faces import version
from app.outside import Outsides, incoming_of
from app.settings import Settings, unknown_variables
from approvals.slack.calls import call
from connectors.catalog import load_catalog
from connectors.port import SETTINGS, Declared
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from core.errors import ConfigurationError, CountersealError, TransportError
from core.secret_values import SecretError
from evidence.log.notes import Note
from evidence.signing import FileSigner
from policy.scope import EVERYTHING
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.keep.bundling import NOT_STORED, remedy
from runtime.requests import pausing
from runtime.requests.publishing import Unread, unread
from runtime.store import (
    approvals,
    bundles,
    documents,
    glass,
    inbox,
    logs,
    replication,
    tenants,
)
from runtime.store.replication import Kind, listed

SECONDS_MAX = 15.0
RUNS_SHOWN = 20


class State(StrEnum):
    """The state of a finding. ``missing``: not configured, which is no fault. ``broken``: configured, but failing."""

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
    """Run every check, each within 15 seconds. Changes nothing, except that it may start the embedded server."""
    checks = [
        Check("settings", State.WARNING, f"{name} is not a setting; nothing reads it") for name in unknown_variables()
    ] or [Check("settings", State.OK, "every COUNTERSEAL_ variable is known and well-formed")]
    checks.insert(0, Check("version", State.OK, f"counterseal {version()}"))
    checks += [*await _database(settings), _key(settings), *await outside(settings)]
    names = ", ".join(f"/webhooks/servicenow/{name}" for name in sorted(settings.webhooks))
    nothing = Check("webhooks", State.MISSING, "COUNTERSEAL_WEBHOOKS names no endpoint")
    return [*checks, Check("webhooks", State.OK, names) if names else nothing]


async def outside(settings: Settings) -> list[Check]:
    """Ask the queue, the evidence store, Slack and each connector's system, each within 15 seconds."""
    looks = {"queue": _queue, "evidence store": _blobs, "slack": _slack, "connectors": _connectors}
    looks |= {"console login": _oidc} if settings.oidc_issuer is not None else {}
    found = await asyncio.gather(*(_bounded(what, look(settings)) for what, look in looks.items()))
    return [*chain.from_iterable(found)]


async def _bounded(what: str, look: AsyncIterator[Check]) -> list[Check]:
    try:
        async with asyncio.timeout(SECONDS_MAX):
            return [check async for check in look]
    except TimeoutError:
        return [Check(what, State.BROKEN, f"no answer within {SECONDS_MAX:.0f} seconds")]
    except CountersealError as error:
        return [Check(what, State.BROKEN, str(error))]


async def _database(settings: Settings) -> list[Check]:
    kind = "the embedded server" if settings.embedded else "PostgreSQL"
    try:
        async with storage.server(settings) as logins:
            url, head = logins.faces, storage.head_revision()
            found = await storage.schema_revision(logins.owner or url)
            well, tls = (
                Check("database", State.OK, f"{kind} answers"),
                _tls(*await storage.encryption(logins.owner or url)),
            )
            if found != head:
                words = f"at {found or 'nothing'}, needed is {head}; run `counterseal db upgrade`"
                return [well, tls, Check("schema", State.WARNING if settings.auto_migrate else State.BROKEN, words)]
            for kind, login in (("faces", url), ("engine", logins.engine)):
                if login is not None:
                    await storage.check_login(kind, login)
            async with Database(url, FACES_ROLE) as database:
                checks = [check async for check in of_server(settings.tenant, database)]
                definitions = Definitions(load_catalog())
                checks += [check async for check in of_tenant(settings.tenant, database, definitions)]
                checks += [check async for check in _declared(settings, database, definitions)]
                checks += [check async for check in _incoming(settings, database)]
            role = FACES_ROLE if logins.engine is None else ENGINE_ROLE
            async with Database(logins.engine or url, role, connections=1) as database:
                async for what, fine, words in rates.standing(settings, database):
                    checks.append(Check(what, State.OK if fine else State.WARNING, words))
            return [well, tls, Check("schema", State.OK, f"at {head}, the newest"), *checks]
    except CountersealError as error:
        return [Check("database", State.BROKEN, str(error))]


def _tls(encrypted: str | None, near: bool) -> Check:
    """Report if others on the network could read what goes to the database."""
    if encrypted is not None:
        return Check("database's TLS", State.OK, f"the connection is encrypted ({encrypted})")
    if near:
        return Check("database's TLS", State.OK, "not encrypted, and it does not leave this machine")
    words = (
        "not encrypted: end the addresses of the database with ?sslmode=verify-full (`require` checks no certificate)"
    )
    return Check("database's TLS", State.WARNING, words)


async def _declared(settings: Settings, database: Database, definitions: Definitions) -> AsyncIterator[Check]:
    """The published declarations: those that cannot be read, and those that do not fit their outside system."""
    async with database.transaction(settings.tenant) as connection:
        now = await definitions.published(connection, settings.tenant)
    for words in now.broken.values():
        yield Check("operations", State.BROKEN, words)
    async with aclosing(adapters.connectors_of(settings)) as connectors:
        for name, connector in connectors.items():
            own = [one for one in now.own.values() if one.connector == name]
            faults = await connector.faults(own) if own and isinstance(connector, Declared) else None
            if isinstance(faults, str):
                yield Check(f"operations of {name}", State.WARNING, f"not compared with their system: {faults}")
            elif faults is not None:
                words = " ".join(faults) or f"{len(own)} published declarations fit their system"
                yield Check(f"operations of {name}", State.BROKEN if faults else State.OK, words)


async def _incoming(settings: Settings, database: Database) -> AsyncIterator[Check]:
    """Read the secrets by which the tenant knows who calls: without one, every call of that endpoint is refused."""
    async with AsyncExitStack() as stack:
        async with database.transaction(settings.tenant) as connection:
            if await tenants.listed(connection):
                outside = await Outsides(settings, stack).of(connection, settings.tenant)
            else:
                return
        for place, secret in incoming_of(outside).items():
            try:
                await secret.value()
            except SecretError as error:
                yield Check(place, State.BROKEN, f"every request is refused like one of nobody's: {error}")


async def of_server(tenant: str, database: Database) -> AsyncIterator[Check]:
    """The setting of standbys: what a failover would lose, and if the database's clock has gone back."""
    async with database.transaction(tenant) as connection:
        found = await replication.of(connection)
        behind = await replication.behind(connection, tenant)
    words = f"{found.kind}: {found.why}"
    if found.kind in (Kind.ASYNCHRONOUS, Kind.UNKNOWN):
        lost = "a failover can lose what was acknowledged, and repeat effects; demand synchronous replication"
        yield Check("standby", State.WARNING, f"{words}. {lost}")
    else:
        yield Check("standby", State.MISSING if found.kind is Kind.NONE else State.OK, words)
    if behind:
        words = (
            f"it is {behind:.0f} s behind the newest line of an open run: it has gone back. Lines keep the later time"
        )
        yield Check("database's clock", State.WARNING, f"{words} until it has caught up")
    else:
        yield Check("database's clock", State.OK, "no open run is ahead of it")


def _policies(policies: PolicySet) -> Iterator[Check]:
    if not policies.members:
        yield Check("policy", State.MISSING, "none is in force, so every action is denied")
    for broken in policies.broken:
        scope = "every action" if broken.scope == EVERYTHING else "every action that it applies to"
        yield Check("policy", State.BROKEN, f"{scope} is denied: {broken.message}")
    for policy in policies.policies:
        yield Check("policy", State.OK, f"{policy.name} version {policy.version} is active")


async def of_tenant(tenant: str, database: Database, definitions: Definitions) -> AsyncIterator[Check]:
    """The state of a tenant: its evidence, questions, pauses, policies and workflows, by its own records alone."""
    async with database.transaction(tenant) as connection:
        found = await tenants.listed(connection)
        policies = await definitions.policies(connection, tenant, found[0]["policy_digests"] if found else ())
        stored = await documents.newest_workflows(connection, tenant)
        refused = await bundles.failures(connection, tenant)
        unstarted = await inbox.unstarted(connection, tenant)
        held = await pausing.listed(connection, tenant)
        unusable = await listed(connection, tenant)
        versions = await documents.workflow_versions(connection, tenant)
        lost = await unread(connection, tenant, await tenants.directory(connection, tenant))
        unshown = await approvals.undelivered(connection, tenant, RUNS_SHOWN)
        broken = await glass.unreviewed(connection, tenant)
        log = (await logs.checkpoint(connection, tenant), await logs.monitored(connection, tenant))
    if not found:
        words = f"there is no tenant {tenant!r}; `counterseal tenant create {tenant}` creates it"
        yield Check("tenant", State.BROKEN, words)
        return
    for check in (*_evidence(refused), *_log(*log)):
        yield check
    for check in _questions(lost, unshown):
        yield check
    if broken is not None:
        words = f"{broken.name} has broken it for the approval {broken.approval_id}, and nobody has reviewed that"
        yield Check("glass", State.WARNING, f"{words}; `counterseal approval review {broken.approval_id} --reason …`")
    for pause in held:
        command = f"counterseal resume {pause.what} {pause.name}".strip()
        yield Check("paused", State.WARNING, f"{pause}; `{command}`")
    for check in _policies(policies):
        yield check
    for newest in stored:
        name = f"workflow {newest.name}@{newest.version}"
        try:
            needed = definitions.compiled(newest).connectors
            yield Check(name, State.OK, f"needs {', '.join(needed) or 'no connector'}")
        except CountersealError as error:
            yield Check(name, State.BROKEN, str(error))
    startable = [one for one in versions if not one.waits_for and one.retired_at is None]
    for new in (one for one in versions if one.waits_for):
        passed = any(one.name == new.name and one.version > new.version for one in startable)
        if new.retired_at is None and not passed:
            named = f"{new.name}@{new.version}"
            words = f"of {new.published_by} waits for an admin, because {new.waits_for}"
            yield Check(f"workflow {named}", State.WARNING, f"{words}; `counterseal workflow activate {named}`")
    for one in unusable:
        yield Check(f"unavailable {one.kind} {one.name}".strip(), State.BROKEN, f"since the last start: {one.reason}")
    for workflow, number, reason, at in unstarted:
        words = f"version {number} could not be started by the event of {at:%Y-%m-%d %H:%M:%SZ}: {reason}"
        yield Check(f"trigger of {workflow}", State.WARNING, words)


def _questions(lost: Sequence[Unread], unshown: Sequence[tuple[UUID, UUID, str]]) -> Iterator[Check]:
    """Report open questions that wait in vain: nobody can decide them, or nobody was shown their card."""
    if not lost and not unshown:
        yield Check("questions", State.OK, "every open one can be decided, and no card of one was refused")
    for one in lost[:RUNS_SHOWN]:
        yield Check("questions", State.BROKEN, str(one))
    if more := len(lost[RUNS_SHOWN:]):
        yield Check("questions", State.BROKEN, f"and {more} more that nobody can decide")
    for approval_id, run_id, why in unshown:
        words = f"the card of the open question {approval_id} (run {run_id}) was not delivered: {why}"
        yield Check("cards", State.BROKEN, f"{words} `counterseal approval show {approval_id}` shows the question.")


def _evidence(refused: Sequence[tuple[UUID, str]]) -> Iterator[Check]:
    """Report runs whose evidence contradicts itself or could not be stored: a person must look at them."""
    if not refused:
        yield Check("evidence", State.OK, "no run has ended without it")
    for run_id, why in refused[:RUNS_SHOWN]:
        yield Check("evidence", State.BROKEN, f"run {run_id}: {NOT_STORED}: {why}. {remedy(run_id)}")
    if more := len(refused[RUNS_SHOWN:]):
        yield Check("evidence", State.BROKEN, f"and {more} more runs")


def _log(signed: bytes | None, compared: Mapping[str, Any] | None) -> Iterator[Check]:
    """Report who signs the tenant's log, and what its last comparison with database and store has found."""
    if signed is None:
        yield Check("log", State.MISSING, "nobody signs it; `counterseal log sign` does, in a process of its own")
    else:
        size = Note.parse(signed).text.split("\n")[1]
        yield Check("log", State.OK, f"signed up to leaf {size}")
    if compared is None:
        yield Check(
            "monitor", State.MISSING, "log, database and store were never compared; `counterseal evidence monitor`"
        )
    elif count := compared["data"]["problems"]:
        words = (
            f"at {compared['ts']} log, database and store differed in {count} places; `counterseal evidence monitor`"
        )
        yield Check("monitor", State.BROKEN, words)
    else:
        yield Check("monitor", State.OK, f"at {compared['ts']} log, database and store told the same")


def _key(settings: Settings) -> Check:
    path = settings.signing_key_path
    if not path.exists():
        return Check("signing key", State.MISSING, f"{path} is made at the first start")
    try:
        key_id = FileSigner.load(path).public_key.key_id
    except ConfigurationError as error:
        return Check("signing key", State.BROKEN, str(error))
    return Check("signing key", State.OK, f"{path} (mode {stat.S_IMODE(path.stat().st_mode):04o}), key {key_id[:16]}")


async def _queue(settings: Settings) -> AsyncIterator[Check]:
    if settings.sqs_queue_url is None:
        yield Check("queue", State.OK, "PostgreSQL (COUNTERSEAL_SQS_QUEUE_URL names none)")
        return
    await adapters.queue_depths(settings)
    yield Check("queue", State.OK, f"{settings.sqs_queue_url} answers")
    if settings.sqs_dlq_url is None:
        words = "COUNTERSEAL_SQS_DLQ_URL is not set, so nobody looks after the dead letters"
        yield Check("dead letters", State.WARNING, words)
    else:
        yield Check("dead letters", State.OK, f"{settings.sqs_dlq_url} answers")


async def _blobs(settings: Settings) -> AsyncIterator[Check]:
    if settings.s3_bucket is not None:
        await adapters.check_bucket(settings)
        yield Check("evidence store", State.OK, f"s3://{settings.s3_bucket} answers")
    elif _writable(settings.evidence_path):
        words = f"{settings.evidence_path} (COUNTERSEAL_S3_BUCKET names no bucket)"
        yield Check("evidence store", State.OK, words)
    else:
        yield Check("evidence store", State.BROKEN, f"{settings.evidence_path} cannot be written to")


def _writable(folder: Path) -> bool:
    """True if the folder is writable, or can be created in its nearest existing parent."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


async def _slack(settings: Settings) -> AsyncIterator[Check]:
    if settings.slack_bot_token is None:
        yield Check("slack cards", State.MISSING, "COUNTERSEAL_SLACK_BOT_TOKEN is not set")
        return
    async with adapters.slack_client_of(settings.slack_bot_token, settings.slack_api_url) as client:
        answer = await call(client.auth_test(), timeout_seconds=10)
        if not isinstance(answer, dict):
            yield Check("slack cards", State.BROKEN, answer.message)
            return
        known = await call(client.users_info(user=str(answer.get("user_id"))), timeout_seconds=10)
        token = settings.slack_app_token.get_secret_value() if settings.slack_app_token is not None else None
        opened = await call(client.apps_connections_open(app_token=token), timeout_seconds=10) if token else None
    home = f"{answer.get('team')} ({answer.get('team_id')})"  # whose members may click (approvals.slack.workspace)
    if answer.get("is_enterprise_install") is True:
        home = f"the organisation {answer.get('enterprise_id')}"
    yield Check("slack cards", State.OK, f"signed in as {answer.get('user')} of {home}")
    if not isinstance(known, dict):
        yield Check("slack clicks", State.BROKEN, f"every click is refused: {known.message}")
    if isinstance(opened, dict):
        yield Check("slack socket", State.OK, "Slack gives a connection: its clicks need no address of ours")
    elif opened is not None:
        words = f"{opened.message} Turn Socket Mode on, and give the app-level token the scope connections:write."
        yield Check("slack socket", State.BROKEN, words)
    if settings.slack_channel is None:
        yield Check("slack channel", State.WARNING, "COUNTERSEAL_SLACK_CHANNEL is not set, so no card is shown")
    if settings.slack_signing_secret is None:
        words = "COUNTERSEAL_SLACK_SIGNING_SECRET is not set, so clicks are refused"
        yield Check("slack clicks", State.WARNING, words)


async def _oidc(settings: Settings) -> AsyncIterator[Check]:
    from app.console.oidc import Provider

    try:
        found = await Provider(settings).metadata()
        yield Check("console login", State.OK, f"at {found.issuer}; register {settings.console_address}/oidc/callback")
    except TransportError as error:
        yield Check("console login", State.BROKEN, error.message)


async def _connectors(settings: Settings) -> AsyncIterator[Check]:
    async with aclosing(adapters.connectors_of(settings)) as connectors:
        answers = await connectors.check()
    for name, (well, words) in answers.items():
        yield Check(f"connector {name}", State.OK if well else State.BROKEN, words)
    for name, setting in SETTINGS.items():
        if name not in answers:
            yield Check(f"connector {name}", State.MISSING, f"{setting} is not set")
