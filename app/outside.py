"""The systems and keys of each tenant: connectors, Slack, the key that signs, the place of evidence.

A tenant with settings of its own (``counterseal tenant apply``) has what they say, and nothing else. A tenant without
has what the environment says if COUNTERSEAL_TENANT names it, and nothing otherwise. So nobody inherits from anybody.

A new version of the settings moves the tenant's stop number, as a pause does: no intent goes out by older ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from pydantic import SecretStr
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from app import adapters, servers
from app.sending import senders_of
from app.servers import UNREAD
from app.settings import Settings
from approvals.ports import Membership, Messenger
from approvals.slack.messenger import SlackMessenger
from approvals.slack.workspace import SlackUserGroups, SlackWorkspace
from connectors.hosts import AllowedHost
from connectors.lending import Hosts, Lender, lending
from connectors.port import Connector, Connectors
from connectors.records.connector import Read
from core.errors import ConfigurationError, NotFoundError
from core.secret_values import SecretError, Use, Vault, named_in
from core.terms import GroupQuorum
from evidence.blobs import BlobStore
from evidence.files import FileBlobStore
from evidence.signing import FileSigner, PublicKey, Signer
from runtime.definition.tenant import Signed, TenantDocument, load_tenant, placed, target_of
from runtime.keep.pushing import Sender
from runtime.store import tenant_settings

if TYPE_CHECKING:
    from core.db import Connection

# The environment's settings about calls in a tenant's name. Only the tenant of the environment has them.
OWNED = frozenset(
    {"slack_bot_token", "slack_signing_secret", "slack_app_token", "slack_api_url", "slack_channel", "slack_mentions"}
    | {"servicenow_url", "servicenow_username", "servicenow_password", "servicenow_client_id"}
    | {"servicenow_client_secret", "servicenow_transaction_limit_seconds"}
    | {"http_hosts", "rates", "model_url", "model_api_key", "model_provider", "sql_url", "signing_key", "webhooks"}
    | {"bpmn_url", "bpmn_username", "bpmn_password", "bpmn_callback_url", "bpmn_topic", "bpmn_worker_id"}
    | {"s3_bucket", "s3_prefix", "s3_object_lock_mode", "s3_object_lock_days", "mcp_servers"}
)
REMEDY = "Set it in the tenant's settings: `counterseal tenant apply FILE`."


class SecretUnread(SlackClientError):
    """The token of the tenant's Slack app cannot be had now, so nothing was sent."""


class LendingSlack(AsyncWebClient):
    """Slack's Web API with a token that is read at each call."""

    def __init__(self, lender: Lender, reference: str, url: str, session: aiohttp.ClientSession) -> None:
        super().__init__("", base_url=url, session=session, retry_handlers=[])
        self._lender, self._reference = lender, reference
        self._target = target_of(url)

    async def read(self) -> str:
        """The token as it is now. ``SecretError`` if it cannot be had."""
        (value,) = (await self._lender.lend([(self._reference, self._target)])).values()
        return value.text.strip()

    async def api_call(self, api_method: str, **given: Any) -> AsyncSlackResponse:
        """Call a method as the tenant's app. ``SecretUnread`` if there is no token: then nothing was sent."""
        try:
            self.token = await self.read()
        except SecretError as error:
            raise SecretUnread(str(error)) from None
        return await super().api_call(api_method, **given)


@dataclass(frozen=True)
class Chat:
    """The Slack app of one tenant. ``channel`` is None if cards have no place."""

    client: AsyncWebClient
    messenger: Messenger
    workspace: SlackWorkspace
    groups: SlackUserGroups
    channel: str | None
    mentions: int
    token: Callable[[], Awaitable[str]]


@dataclass(frozen=True)
class Incoming:
    """A secret by which a tenant authenticates callers. ``reference`` is None for a value of the environment."""

    lender: Lender
    reference: str

    async def value(self) -> str:
        """The secret, as it is now. ``SecretError`` if it cannot be had."""
        (found,) = (await self.lender.lend([(self.reference, Use.INCOMING)])).values()
        return found.text


class TenantGroups:
    """The user groups of one tenant's own Slack. Without one, nobody is in a group of Slack."""

    def __init__(self, outside: Callable[[str], Awaitable[Outside]], tenant: str) -> None:
        self._outside, self._tenant = outside, tenant

    async def membership(self, user: str, wanted: Collection[GroupQuorum]) -> Membership:
        """See ``SlackGroups.membership``."""
        chat = (await self._outside(self._tenant)).chat
        if chat is None:
            return Membership(frozenset(), frozenset(group.key for group in wanted))
        return await chat.groups.membership(user, wanted)

    async def members(self, wanted: Collection[GroupQuorum]) -> Mapping[str, frozenset[str]] | None:
        """See ``SlackGroups.members``."""
        chat = (await self._outside(self._tenant)).chat
        return {} if chat is None else await chat.groups.members(wanted)


class LendingSigner:
    """Signs with a key that is read before each bundle."""

    def __init__(self, lender: Lender, reference: str) -> None:
        self._lender, self._reference = lender, reference
        self._signer: FileSigner | None = None

    async def read(self) -> None:
        """Read the key. ``SecretError`` or ``ConfigurationError`` if there is none, or if it is no key."""
        (value,) = (await self._lender.lend([(self._reference, Use.EVIDENCE)])).values()
        self._signer = FileSigner.of_pem(value.text.encode(), "evidence.signing_key")

    @property
    def public_key(self) -> PublicKey:
        """The key that verifies the signatures."""
        return self._ready.public_key

    def sign(self, data: bytes) -> bytes:
        """Sign ``data``."""
        return self._ready.sign(data)

    @property
    def _ready(self) -> FileSigner:
        if self._signer is None:
            raise ConfigurationError("the signing key was not read.")
        return self._signer


@dataclass(frozen=True)
class Outside:
    """The systems and keys of one tenant, by one version of its settings. A part that is None is not set."""

    tenant: str
    settings: Settings
    content: TenantDocument | None
    lender: Lender
    version: int | None
    suspended: bool
    connectors: Connectors
    chat: Chat | None
    signer: Signer | None
    blobs: BlobStore | None
    senders: Mapping[str, Sender] = field(default_factory=dict)

    def unset(self, what: str) -> ConfigurationError:
        """The error for something that the tenant has not set."""
        return ConfigurationError(f"`{what}` is not set for the tenant {self.tenant}.", remedy=REMEDY)

    @property
    def slack_secret(self) -> Incoming | str | None:
        """The secret with which Slack signs what it sends to this tenant's app."""
        if self.content is None:
            found = self.settings.slack_signing_secret
            return None if found is None or self.chat is None else found.get_secret_value()
        slack = self.content.slack
        return None if slack is None or not slack.signing_secret else Incoming(self.lender, slack.signing_secret)

    def webhook(self, name: str) -> tuple[Incoming, str | None, Signed] | None:
        """The secret of an endpoint of the tenant's own settings, its workspace, and how it signs."""
        found = self.content.webhooks.get(name) if self.content is not None else None
        return None if found is None else (Incoming(self.lender, found.secret), found.workspace, found.signed)


def incoming_of(outside: Outside) -> dict[str, Incoming]:
    """The secrets by which a tenant authenticates callers, by their place in its own settings."""
    content = outside.content
    found = {
        f"webhooks.{name}.secret": Incoming(outside.lender, one.secret)
        for name, one in (content.webhooks.items() if content is not None else ())
    }
    slack = outside.slack_secret
    return found | ({"slack.signing_secret": slack} if isinstance(slack, Incoming) else {})


@dataclass(frozen=True)
class Replacements:
    """Parts of a test or a benchmark, which replace those that the settings would build, for every tenant."""

    connectors: Connectors | None = None
    messenger: Messenger | None = None
    signer: Signer | None = None
    blobs: BlobStore | None = None


@dataclass
class _Known:
    stop: int
    outside: Outside


@dataclass
class Outsides:
    """The systems and keys of all tenants, by tenant. One object for a process; ``stack`` closes what it has built.

    ``read`` reads the tenants' records. ``signer`` has the key of the environment, which is its tenant's.
    """

    settings: Settings
    stack: AsyncExitStack
    given: Replacements = field(default_factory=Replacements)
    read: Read = adapters.nobody_reads
    signer: Signer | None = None
    vault: Vault | None = None
    _known: dict[str, _Known] = field(default_factory=dict)
    _session: aiohttp.ClientSession | None = None

    async def of(self, connection: Connection, tenant: str, stop: int | None = None) -> Outside:
        """The systems and keys of a tenant, by settings with this stop number or a later one if ``stop`` is given.

        ``NotFoundError`` if there is no such tenant.
        """
        known = self._known.get(tenant)
        if known is not None and stop is not None and known.stop >= stop:
            return known.outside
        standing = await tenant_settings.standing(connection, tenant)
        if standing is None:
            raise NotFoundError(f"There is no tenant {tenant!r}.", remedy=f"`counterseal tenant create {tenant}`.")
        same = known is not None and known.outside.version == standing.version
        if known is None or not same or known.outside.suspended != standing.suspended:
            stored = None if standing.version is None else await tenant_settings.in_force(connection, tenant)
            content = None if stored is None else load_tenant(stored.source, f"settings of the tenant {tenant}").content
            version = None if stored is None else stored.version
            known = _Known(standing.stop, await self._build(tenant, content, version, standing.suspended))
            self._known[tenant] = known
        known.stop = max(known.stop, standing.stop)
        return known.outside

    def known(self, tenant: str) -> Outside:
        """The systems and keys that ``of`` last returned for a tenant; ``NotFoundError`` if it was never called."""
        if (found := self._known.get(tenant)) is None:
            raise NotFoundError(f"The tenant {tenant!r} was not asked for yet.")
        return found.outside

    async def _build(
        self, tenant: str, content: TenantDocument | None, version: int | None, suspended: bool
    ) -> Outside:
        environment = content is None and tenant == self.settings.tenant
        settings = self.settings if environment else own_settings(self.settings, content)
        if self.vault is None:
            self.vault = adapters.keepers_of(self.settings)
        lender = Lender((content or TenantDocument(tenant=tenant)).secret, self.vault)
        connectors = self.given.connectors
        if connectors is None:
            made = adapters.connectors_of(settings, self.read, owner="" if environment else tenant)
            made = self._lending(tenant, content, made, lender)
            connectors = await self.stack.enter_async_context(aclosing(made))
        chat = await self._chat(settings, content, lender)
        signer, blobs = self._evidence(settings, content, lender, environment=environment)
        senders = {} if content is None else senders_of(content, lender)
        for sender in senders.values():
            await self.stack.enter_async_context(aclosing(sender))
        facts = (version, suspended, connectors, chat, signer, blobs, senders)
        return Outside(tenant, settings, content, lender, *facts)

    def _lending(self, tenant: str, content: TenantDocument | None, bare: Connectors, lender: Lender) -> Connectors:
        def make(name: str, values: Mapping[str, str]) -> Connector:
            settings = own_settings(self.settings, content, values)
            return adapters.connectors_of(settings, self.read, owner=tenant)[name]

        found: dict[str, Connector] = {}
        for name, connector in bare.items():
            own = [(text, target) for path, text, target in placed(content) if path[0] == name] if content else []
            if name == "http":
                found[name] = lending(connector, partial(_itself, connector), lender, hosts=_hosts(content))
            elif name == "mcp":
                found[name] = servers.lent(connector, content, make, lender)
            elif own:
                parts = [(text, target) for text, target in own if not isinstance(target, Use)]
                found[name] = lending(connector, partial(make, name), lender, parts)
            else:
                found[name] = connector
        return Connectors(found, owner=bare.owner, rates=bare.rates)

    async def _chat(self, settings: Settings, content: TenantDocument | None, lender: Lender) -> Chat | None:
        if settings.slack_bot_token is None and self.given.messenger is None:
            return None
        if self._session is None:
            self._session = await self.stack.enter_async_context(aiohttp.ClientSession())
        slack = None if content is None else content.slack
        client: AsyncWebClient
        if slack is not None:
            client = LendingSlack(lender, slack.bot_token, slack.api_url, self._session)
        else:
            token = settings.slack_bot_token.get_secret_value() if settings.slack_bot_token is not None else ""
            client = AsyncWebClient(token, base_url=settings.slack_api_url, session=self._session, retry_handlers=[])
        workspace = SlackWorkspace(client)
        messenger = self.given.messenger or SlackMessenger(client, pages=settings.pages)
        groups, place = SlackUserGroups(client, workspace), (settings.slack_channel, settings.slack_mentions)
        return Chat(client, messenger, workspace, groups, *place, partial(_token_of, client))

    def _evidence(
        self, settings: Settings, content: TenantDocument | None, lender: Lender, *, environment: bool
    ) -> tuple[Signer | None, BlobStore | None]:
        signer, blobs = self.given.signer, self.given.blobs
        if environment:
            return signer or self.signer, blobs or adapters.blobs_of(settings)
        declared = None if content is None else content.evidence
        if declared is None:
            return signer, blobs
        store = (
            FileBlobStore(Path(declared.directory)) if declared.directory is not None else adapters.blobs_of(settings)
        )
        return signer or LendingSigner(lender, declared.signing_key), blobs or store


async def _token_of(client: AsyncWebClient) -> str:
    return await client.read() if isinstance(client, LendingSlack) else client.token or ""


def _itself(connector: Connector, _: Mapping[str, str]) -> Connector:
    return connector


def _hosts(content: TenantDocument | None) -> Hosts:
    found: dict[tuple[str, int | None], Mapping[str, str]] = {}
    for one in content.http.hosts if content is not None and content.http is not None else ():
        allowed = AllowedHost.of(one.host)
        if allowed is not None and one.headers:
            found[allowed.host, allowed.port] = one.headers
    return Hosts(found)


def own_settings(base: Settings, content: TenantDocument | None, values: Mapping[str, str] | None = None) -> Settings:
    """The installation's settings with those of one tenant; ``values`` are the values of the secrets that were read.

    Settings that the tenant leaves out are not set, even if the environment has them.
    """
    made: dict[str, Any] = {name: Settings.model_fields[name].get_default(call_default_factory=True) for name in OWNED}
    if content is not None:
        made |= {"rates": dict(content.rates)} | _own(content, values or {})
    return base.model_copy(update=made)


def _own(content: TenantDocument, values: Mapping[str, str]) -> dict[str, Any]:
    def secret(reference: str | None) -> SecretStr | None:
        return None if reference is None else SecretStr(values.get(next(named_in(reference)), UNREAD))

    made: dict[str, Any] = {}
    if (slack := content.slack) is not None:
        made |= {"slack_bot_token": secret(slack.bot_token), "slack_api_url": slack.api_url}
        made |= {"slack_channel": slack.channel, "slack_mentions": slack.mentions}
    if (now := content.servicenow) is not None:
        made |= {"servicenow_url": now.url, "servicenow_username": now.username, "servicenow_client_id": now.client_id}
        made |= {"servicenow_password": secret(now.password), "servicenow_client_secret": secret(now.client_secret)}
        made["servicenow_transaction_limit_seconds"] = now.transaction_limit_seconds
    if (model := content.model) is not None:
        made |= {"model_url": model.url, "model_api_key": secret(model.api_key), "model_provider": model.provider}
    if content.http is not None:
        found = [AllowedHost.of(one.host) for one in content.http.hosts]
        made["http_hosts"] = tuple(one for one in found if one is not None)
    made["mcp_servers"] = servers.own(content, values)
    if (bpmn := content.bpmn) is not None:
        made |= {"bpmn_url": bpmn.url, "bpmn_username": bpmn.username, "bpmn_password": secret(bpmn.password)}
        made |= {"bpmn_callback_url": bpmn.callback_url, "bpmn_topic": bpmn.topic, "bpmn_worker_id": bpmn.worker_id}
    if (sql := content.sql) is not None:
        password = secret(sql.password)
        assert password is not None, "a database has a password"
        made["sql_url"] = SecretStr(_with_password(sql.url, password.get_secret_value()))
    if (evidence := content.evidence) is not None:
        made |= {"s3_bucket": evidence.bucket, "s3_prefix": evidence.prefix or "", "s3_object_lock_mode": evidence.lock}
        made["s3_object_lock_days"] = evidence.lock_days
    return made


def _with_password(url: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    user, _, place = rest.partition("@")
    return f"{scheme}://{user}:{quote(password, safe='')}@{place}"
