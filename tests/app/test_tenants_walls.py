"""Walls between tenants: what leaves in a tenant's name is its own, and nobody inherits (promise 8).

The matrix: each kind of thing that leaves x both tenants x {own, the other's, not set}. The kinds come from the code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from app import outside as outsides
from app.access import Role
from app.delivering import KINDS
from app.settings import Settings
from connectors.port import SETTINGS
from core.errors import InputError
from runtime.definition.tenant import load_tenant
from runtime.requests import tenancy
from tests.support import two_tenants
from tests.support.two_tenants import CARDS, INCIDENT, OPERATOR, Walls

WORKFLOWS = """
workflow: write
version: 1
reference: ${{ run.id }}
steps:
  - {id: s, do: servicenow.incident.add_work_note, with: {sys_id: "${{ trigger.number }}", work_notes: hello}}
---
workflow: post
version: 1
reference: ${{ run.id }}
steps:
  - {id: s, do: slack.message.post, with: {channel: C0OPS, text: hello}}
---
workflow: call
version: 1
reference: ${{ run.id }}
steps:
  - {id: s, do: http.request.send, with: {method: POST, url: "${{ raw(trigger.number) }}", json: {a: 1}}}
---
workflow: ask
version: 1
reference: ${{ run.id }}
steps:
  - {id: s, do: model.chat.complete, with: {model: gpt-4o, messages: [{role: user, content: hi}]}}
"""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "tenants.md"
# Each connector of the settings, with the workflow that tries it, or why no call is made here.
CONNECTORS = {
    "servicenow": "write",
    "slack": "post",
    "http": "call",
    "model": "ask",
    "bpmn": "tests/app/test_tenants_matrix.py",
    "sql": "tests/app/test_tenants_matrix.py",
    "mcp": "tests/app/test_mcp_proxy.py",
}
# Each kind of message, with what carries it.
MESSAGES = {
    **dict.fromkeys(("card", "remind", "escalate", "voided", "proposal", "note", "task", "hold", "said"), "slack"),
    "glass": "slack",
    **dict.fromkeys(("told", "alarm", "alarmed", "asked"), "slack"),
    **dict.fromkeys(("gather", "webhook", "email"), "tell"),
    **dict.fromkeys(("cancel", "return", "shared"), "connectors"),
    "bundle": "evidence",
}


@pytest.fixture
async def walls(settings: Settings, serve: Any, tmp_path: Path) -> AsyncIterator[Walls]:
    async with two_tenants.walls(settings, serve, tmp_path, *WORKFLOWS.split("---")) as made:
        yield made


async def test_every_kind_of_thing_that_leaves_has_a_row(walls: Walls) -> None:
    assert set(CONNECTORS) == set(SETTINGS)
    unset = await walls.of("globex")
    for name in CONNECTORS:
        assert name == "http" or name not in unset.connectors
        words = str(unset.connectors.missing(name))
        assert f"the connector {name!r} is not set for the tenant globex. Set `{name}` in the tenant's" in words
    assert (unset.chat, unset.signer, unset.blobs, unset.slack_secret) == (None, None, None, None)
    assert set(MESSAGES) == set(KINDS)
    # A setting is the installation's, or owned by a tenant; a new one says which.
    installation = {
        *("home", "database_url", "engine_database_url", "faces_database_url", "auto_migrate", "tenant", "workspace"),
        *("person", "host", "port", "console_url", "sqs_queue_url", "sqs_dlq_url", "aws_endpoint_url", "aws_region"),
        *("http_header_seconds", "http_body_seconds", "http_idle_seconds", "http_connections_max"),
        *("http_client_header", "budgets"),
        *("oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_email", "oidc_roles"),
        *("log_key", "log_memory", "log_origin"),
        *("secrets", "secrets_dir", "vault_url", "vault_mount", "vault_namespace", "vault_token", "vault_token_file"),
        *("definitions_mode", "definitions_dir", "lease_seconds", "worker_concurrency", "log_format", "log_level"),
        *("otel_endpoint", "otel_headers", "otel_propagate"),
    }
    assert installation | outsides.OWNED == set(Settings.model_fields)
    assert not installation & outsides.OWNED


@pytest.mark.req("promise 8")
@pytest.mark.parametrize("tenant", ["default", "globex"])
async def test_own_and_the_other_s(walls: Walls, tenant: str) -> None:
    """Connector calls, cards, clicks, notes, bundles and signatures of each tenant reach its own world alone."""
    own, other = walls.sides(tenant)
    installation = walls.installation
    await two_tenants.apply(installation, walls.globex.document())
    run = await installation.parked("write", INCIDENT, tenant)
    question = await installation.books.approval(run=run)
    assert question.message_ts in [one.ts for one in own.world.slack.state.messages(CARDS)]
    # The other's app does not count for this question, and signs nothing for this tenant.
    for path, signer in (
        ("/slack/events", walls.globex), ("/slack/events/globex", walls.default),
        ("/slack/events/nobody", walls.globex),
    ):  # fmt: skip
        answer = await posted(installation, path, signer.secret("signing"), question)
        assert answer.status_code == 401, (path, answer.text)
    for path, signer in (("/slack/events", walls.default), ("/slack/events/globex", walls.globex)):
        if signer is other:
            answer = await posted(installation, path, signer.secret("signing"), question)
            assert answer.status_code == 400, "an app acts in its own tenant only"
    assert await installation.books.votes(approval=question.id) == []
    assert (await own.world.slack.people.click(CARDS, question.message_ts, "counterseal.approve", "U0ANA")).ok
    await installation.work()
    assert await installation.status(run) == "succeeded"
    assert await walls.ended("post", "1", tenant) == ("succeeded", "None")
    assert (await walls.ended("call", f"{own.echo.url}/in", tenant))[0] == "succeeded"
    status, words = await walls.ended("call", f"{other.echo.url}/in", tenant)
    assert (status, "is not among the allowed hosts" in words) == ("failed_terminal", True)
    assert ("http.hosts of the tenant globex" if tenant == "globex" else "COUNTERSEAL_HTTP_HOSTS") in words
    assert (await walls.ended("ask", "1", tenant))[0] == ("succeeded" if tenant == "globex" else "failed_terminal")
    bundle = await installation.books.bundle(run=run)
    signer, theirs = (await walls.of(tenant)).signer, (await walls.of(other.tenant)).signer
    await walls.globex_key()
    assert bundle.key_id == signer.public_key.key_id != theirs.public_key.key_id
    assert not [one for one in other.folder.rglob("*") if str(run) in str(one)]
    # Nothing of it reached the other's world, and nothing names the other.
    assert (other.seen.strip(), other.world.servicenow.state.writes("incident", INCIDENT, "counterseal")) == ("", [])
    assert other.tenant not in own.seen


async def posted(installation: Any, path: str, secret: str, question: Any) -> Any:
    """A click on a card, signed with this secret."""
    payload = installation.click(question.id, question.nonce, "U0ANA")
    payload["team"]["id"] = payload["user"]["team_id"] = "T0DEMO"
    return await installation.slack(payload, secret=secret, path=path)


UNSET = {
    "slack": ("write", "`slack` is not set for the tenant globex"),
    "servicenow": ("write", "the connector 'servicenow' is not set for the tenant globex"),
    "model": ("ask", "the connector 'model' is not set for the tenant globex"),
    "http": ("call", "http.hosts of the tenant globex"),
    "evidence": ("write", "`evidence` is not set for the tenant globex"),
}


@pytest.mark.req("promise 8")
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("part", UNSET)
async def test_what_is_not_set_is_an_error_that_names_it(walls: Walls, part: str, applied: bool) -> None:
    """A tenant with settings without this part, or with none at all, takes nothing of the environment instead."""
    installation, (workflow, words) = walls.installation, UNSET[part]
    if applied:
        await two_tenants.apply(installation, walls.globex.document(**{part: True}))
    elif part in ("slack", "evidence"):  # a run that comes so far needs the other parts
        return
    number = {"call": f"{walls.default.echo.url}/in", "write": INCIDENT}.get(workflow, "1")
    status, why = await walls.ended(workflow, number, "globex")
    if part == "slack":
        (question,) = await installation.books.approvals()
        status, why = await two_tenants.delivered(installation, question.id)
    if part == "evidence":
        question = await installation.books.approval()
        click = (CARDS, question.message_ts, "counterseal.approve", "U0ANA")
        assert (await walls.globex.world.slack.people.click(*click)).ok
        await installation.work()
        bundle = await installation.books.command(kind="bundle")
        status, why = bundle.status, bundle.last_error
    assert status in ("failed_terminal", "refused", "failed"), (status, why)
    assert words in why
    assert walls.default.seen.strip() == ""


async def test_new_settings_are_taken_at_once_and_a_suspended_tenant_stands_still(walls: Walls) -> None:
    installation, globex = walls.installation, walls.globex
    first = await two_tenants.apply(installation, globex.document(http=True))
    assert (first.version, first.changed) == (1, True)
    assert (await two_tenants.apply(installation, globex.document(http=True))).changed is False
    assert (await walls.ended("call", f"{globex.echo.url}/in", "globex"))[0] == "failed_terminal"
    assert (await two_tenants.apply(installation, globex.document())).version == 2
    assert (await walls.ended("call", f"{globex.echo.url}/in", "globex"))[0] == "succeeded"
    told = await installation.tenant_events("tenant.applied", "globex")
    assert [one["data"]["version"] for one in told] == [1, 2]
    assert (told[1]["actor"]["id"], told[1]["data"]["digest"]) == ("root", (await row_of(installation))["digest"])
    run = await installation.start("write", INCIDENT, tenant="globex")
    assert await tenancy.suspend(installation.engine, "globex", "unpaid", OPERATOR)
    await installation.work()
    assert globex.world.slack.state.messages(CARDS) == []
    assert await installation.status(run) == "waiting"
    client = await installation.client(Role.TRIGGER, Role.OPERATOR, tenant="globex")
    refused = await client.post("/v1/runs", json={"workflow": "post", "input": {"number": "1"}})
    assert (refused.status_code, "is suspended, so nothing starts in it: unpaid" in refused.text) == (409, True)
    lifted = await client.post("/v1/pauses/resume", json={"what": "suspended", "reason": "me"})
    assert lifted.status_code == 400, "no face ends it"
    assert (await walls.ended("call", f"{walls.default.echo.url}/in", "default"))[0] == "succeeded"
    assert await tenancy.suspend(installation.engine, "globex", "", OPERATOR, lift=True)
    await installation.app.sweeper().sweep()
    await installation.work()
    assert len(globex.world.slack.state.messages(CARDS)) == 1


async def test_accounts_name_their_workspace_and_the_page_is_true(walls: Walls) -> None:
    await two_tenants.apply(walls.installation, walls.globex.document())
    with pytest.raises(InputError, match=r"U0ANA of ana names no workspace, and globex has an app of its own"):
        await walls.installation.people(two_tenants.PEOPLE.replace("T0DEMO/", ""), "globex")
    page = PAGE.read_text()
    assert load_tenant(page.partition("```yaml\n")[2].partition("```")[0], "tenants.md").content.tenant == "globex"


async def row_of(installation: Any) -> Any:
    return await installation.one("SELECT * FROM tenant_settings ORDER BY version DESC LIMIT 1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("slack_bot: {from: environment, for: ['", "slack_bot: {from: environment, for: ['x"),
         "The secret slack_bot of the tenant globex is not for"),
        (lambda text: text.replace("for: [evidence]", "for: [incoming]"), "pem of the tenant globex is not for evide"),
        (lambda text: text.replace("secrets.crm }", "secrets.crn }"), "The tenant globex has no secret 'crn'"),
        (lambda text: text.replace("'${{ secrets.sn }}'", "'plain-password'"), "servicenow.password"),
        (lambda text: text.replace("name: evidence.pem", "name: ../default/evidence.pem"), "secrets.pem.name"),
        (lambda text: text.replace("tenant: globex", "tenant: nobody"), "There is no tenant 'nobody'"),
    ],
)  # fmt: skip
async def test_settings_that_cannot_be_are_refused(walls: Walls, change: Callable[[str], str], said: str) -> None:
    given = change(walls.globex.document())
    assert given != walls.globex.document()
    with pytest.raises(Exception, match=r".") as error:
        await two_tenants.apply(walls.installation, given)
    assert said in str(error.value)
    assert await row_of(walls.installation) is None
