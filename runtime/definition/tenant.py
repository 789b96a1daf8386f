"""The settings of a tenant as its operator writes them (tenant.yaml): its outside systems and keys.

Secrets are named by reference only. A key that is left out is not set: nothing is inherited from the installation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, Field

from connectors.headers import problem_of
from connectors.hosts import RATE_MAX, RATED, SERVER_PATTERN, AllowedHost
from core.canonical import sha256_hex
from core.documents import Document, Path, load_document
from core.errors import DefinitionError, InputError, Problem
from core.secret_values import REFERENCE, Keeper, Secret, SecretError, Target, Use
from core.validation import validate
from evidence.blobs import LockMode
from runtime.definition.model import DocumentPart

_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
_ServerName = Annotated[str, Field(pattern=SERVER_PATTERN)]
_SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
# The rest of a path; the keeper adds the tenant's own place in front of it.
_Place = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){0,7}$")]
_Reference = Annotated[str, Field(pattern=r"^\$\{\{\s*secrets\.[A-Za-z_][A-Za-z0-9_]{0,62}\s*\}\}$")]


def _split(text: str) -> str:
    """Parse an address. ``ValueError`` if a host in brackets is no IPv6 address, or if the port is not valid."""
    parts = urlsplit(text)
    if parts.port == 0:
        raise ValueError("has no port 0")
    return text


_Address = Annotated[str, Field(pattern=r"^https?://[^\s/@?#]+(/[^\s?#]*)?$", max_length=500), AfterValidator(_split)]
_Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^\S+( \S+)*$")]

_Rated = Annotated[str, Field(pattern=RATED)]
_Mailbox = Annotated[str, Field(pattern=r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+$", max_length=254)]


class SecretDocument(DocumentPart):
    """One secret: who keeps it, under which name, and the targets that may get it.

    Vault and AWS keep several values under one name; `key` tells which. `for` names hosts (`crm.example`,
    `crm.example:8443`, `crm.example as robot`), `incoming` or `evidence`.
    """

    keeper: Annotated[Literal["environment", "file", "vault", "aws"], Field(alias="from")]
    name: _Place | None = None
    key: _Place | None = None
    targets: Annotated[tuple[_Word, ...], Field(alias="for", min_length=1, max_length=50)]


class SlackDocument(DocumentPart):
    """The tenant's own Slack app. Its request URL is `/slack/events/TENANT`."""

    bot_token: _Reference
    signing_secret: _Reference | None = None
    channel: Annotated[str, Field(pattern=r"^[A-Z0-9]{2,20}$")] | None = None
    mentions: Annotated[int, Field(ge=0, le=50)] = 8
    api_url: _Address = "https://slack.com/api/"


class ServiceNowDocument(DocumentPart):
    """The tenant's own ServiceNow instance, with a password or with OAuth 2.0 client credentials."""

    url: _Address
    username: _Word
    password: _Reference | None = None
    client_id: _Word | None = None
    client_secret: _Reference | None = None
    transaction_limit_seconds: Annotated[float, Field(ge=0, le=3600)] = 60.0


class ModelDocument(DocumentPart):
    """The tenant's own model, and the key that pays for it."""

    url: _Address
    api_key: _Reference
    provider: _Word = "openai"


class HostDocument(DocumentPart):
    """One host that may be called, with headers that Counterseal adds to each call of it."""

    host: _Word
    headers: Annotated[dict[str, Annotated[str, Field(max_length=2000)]], Field(max_length=20)] = Field(
        default_factory=dict
    )


class HttpDocument(DocumentPart):
    """The hosts that the tenant's workflows may call."""

    hosts: Annotated[tuple[HostDocument, ...], Field(max_length=500)]


class BpmnDocument(DocumentPart):
    """The tenant's own BPMN engine."""

    url: _Address
    username: _Word | None = None
    password: _Reference | None = None
    callback_url: _Address | None = None
    topic: _Word = "counterseal"
    worker_id: _Word = "counterseal"


class SqlDocument(DocumentPart):
    """The tenant's own PostgreSQL database: `postgresql://user@host:port/name`, without a password."""

    url: Annotated[str, Field(pattern=r"^postgres(ql)?://[^\s:/@?#]+@[^\s@/?#]+/[^\s@/?#]+$", max_length=500)]
    password: _Reference


class McpServerDocument(DocumentPart):
    """One server of tools (MCP over streamable HTTP), with headers that Counterseal adds to each request to it."""

    url: _Address
    headers: Annotated[dict[str, Annotated[str, Field(max_length=2000)]], Field(max_length=20)] = Field(
        default_factory=dict
    )


class McpDocument(DocumentPart):
    """The servers whose tools the tenant has imported as operations, by name."""

    servers: Annotated[dict[_ServerName, McpServerDocument], Field(min_length=1, max_length=50)]


class Signed(StrEnum):
    """The way in which a caller signs: as our business rule for ServiceNow does, or as its own product does."""

    COUNTERSEAL = "counterseal"
    STANDARD = "standard"
    GITHUB = "github"
    PAGERDUTY = "pagerduty"


class WebhookDocument(DocumentPart):
    """One address that another system calls, and how it signs.

    The tenant's ServiceNow calls `/webhooks/servicenow/TENANT/NAME`, every other system `/webhooks/events/TENANT/NAME`.
    """

    secret: _Reference
    signed: Signed = Signed.COUNTERSEAL
    workspace: _Name | None = None


class EvidenceDocument(DocumentPart):
    """The key that signs the tenant's evidence, and where it is kept: a folder or an S3 bucket."""

    signing_key: _Reference
    directory: Annotated[str, Field(pattern=r"^/", max_length=500)] | None = None
    bucket: _Word | None = None
    prefix: _Place | None = None
    lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None = None
    lock_days: Annotated[int, Field(ge=1, le=36500)] = 365

    @property
    def lock(self) -> LockMode | None:
        """The mode of S3 Object Lock."""
        return None if self.lock_mode is None else LockMode(self.lock_mode)


class TellWebhookDocument(DocumentPart):
    """An address that is told, signed as Standard Webhooks does. The secret is `whsec_` and base64, for its host."""

    url: _Address
    secret: _Reference


class Submission(StrEnum):
    """The way in which a mail server begins TLS. Without TLS nothing is sent."""

    STARTTLS = "starttls"
    IMPLICIT = "implicit"


class TellEmailDocument(DocumentPart):
    """A mail server, `host` or `host:port` (587, with `tls: implicit` 465), and those who get a message each."""

    server: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?$", max_length=260)]
    sender: Annotated[_Mailbox, Field(alias="from")]
    to: Annotated[tuple[_Mailbox, ...], Field(min_length=1, max_length=20)]
    user: _Word | None = None
    password: _Reference | None = None
    tls: Submission = Submission.STARTTLS

    @property
    def target(self) -> Target:
        """The target that gets the password: the server as it is written, and the account."""
        host, _, port = self.server.lower().partition(":")
        return Target(host, int(port) if port else None, self.user)


class TellDocument(DocumentPart):
    """The systems and people that are told of failed and stuck runs, besides the operators in Slack."""

    webhook: TellWebhookDocument | None = None
    email: TellEmailDocument | None = None


class TenantDocument(DocumentPart):
    """Settings of one tenant: the systems and keys that are its own. Applying them replaces what was there."""

    tenant: _Name
    secrets: Annotated[dict[_SecretName, SecretDocument], Field(max_length=200)] = Field(default_factory=dict)
    slack: SlackDocument | None = None
    servicenow: ServiceNowDocument | None = None
    model: ModelDocument | None = None
    http: HttpDocument | None = None
    bpmn: BpmnDocument | None = None
    sql: SqlDocument | None = None
    mcp: McpDocument | None = None
    webhooks: Annotated[dict[_Name, WebhookDocument], Field(max_length=100)] = Field(default_factory=dict)
    evidence: EvidenceDocument | None = None
    tell: TellDocument | None = None
    rates: Annotated[dict[_Rated, Annotated[int, Field(ge=1, le=RATE_MAX)]], Field(max_length=200)] = Field(
        default_factory=dict
    )

    def secret(self, name: str) -> Secret:
        """The declaration of a secret. ``SecretError`` if there is none."""
        found = self.secrets.get(name)
        if found is None:
            words = f"The tenant {self.tenant} has no secret {name!r}."
            raise SecretError(words, remedy=f"Declare it under `secrets` in its settings: `secrets: {{{name}: …}}`.")
        uses = tuple(Use(one) for one in found.targets if one in set(Use))
        targets = tuple(Target.of(one) for one in found.targets if one not in set(Use))
        return Secret(self.tenant, name, Keeper(found.keeper), found.name or name, found.key, targets, uses)


# A place that refers to a secret: its path, the text, and what gets the value.
_Placed: TypeAlias = tuple[Path, str, Target | Use]


class TenantSettings(Struct, frozen=True):
    """Settings of a tenant in force: the document, its version and its digest."""

    content: TenantDocument
    version: int = 0
    digest: str = ""


def load_tenant(text: str, file: str) -> TenantSettings:
    """Read and check a tenant's settings. ``DefinitionError`` lists every problem with its place."""
    document = load_document(text, file)
    content = validate(document, TenantDocument)
    if problems := tuple(_problems(document, content)):
        raise DefinitionError(problems)
    return TenantSettings(content, digest=sha256_hex(text.encode()))


def target_of(address: str, account: str | None = None) -> Target:
    """The target at an address: its host, its port unless that is the scheme's own, and the account."""
    parts = urlsplit(address)
    port = None if parts.port in ({"https": 443, "http": 80}.get(parts.scheme), None) else parts.port
    return Target((parts.hostname or "").lower(), port, account)


def placed(content: TenantDocument) -> Iterator[_Placed]:
    """Yield every place that refers to a secret, with what gets its value."""
    if (slack := content.slack) is not None:
        yield ("slack", "bot_token"), slack.bot_token, target_of(slack.api_url)
        if slack.signing_secret is not None:
            yield ("slack", "signing_secret"), slack.signing_secret, Use.INCOMING
    for name in ("servicenow", "model", "bpmn", "sql"):
        part: BaseModel | None = getattr(content, name)
        url: str = getattr(part, "url", "")
        account = getattr(part, "username", None) or (urlsplit(url).username if name == "sql" else None)
        for key in ("password", "client_secret", "api_key"):
            text: Any = getattr(part, key, None)
            if text is not None:
                yield (name, key), text, target_of(url, account)
    for number, host in enumerate(content.http.hosts if content.http is not None else ()):
        allowed = AllowedHost.of(host.host)
        for header, text in host.headers.items():
            if allowed is not None:
                yield ("http", "hosts", number, "headers", header), text, Target(allowed.host, allowed.port)
    for name, server in content.mcp.servers.items() if content.mcp is not None else ():
        for header, text in server.headers.items():
            yield ("mcp", "servers", name, "headers", header), text, target_of(server.url)
    for name, webhook in content.webhooks.items():
        yield ("webhooks", name, "secret"), webhook.secret, Use.INCOMING
    if content.evidence is not None:
        yield ("evidence", "signing_key"), content.evidence.signing_key, Use.EVIDENCE
    if content.tell is not None and (hook := content.tell.webhook) is not None:
        yield ("tell", "webhook", "secret"), hook.secret, target_of(hook.url)
    if content.tell is not None and (mail := content.tell.email) is not None and mail.password is not None:
        yield ("tell", "email", "password"), mail.password, mail.target


def _problems(document: Document, content: TenantDocument) -> Iterator[Problem]:
    for name, secret in content.secrets.items():
        for number, text in enumerate(secret.targets):
            try:
                if text not in set(Use):
                    Target.of(text)
            except InputError as error:
                yield document.problem(("secrets", name, "for", number), error.message, error.remedy)
    yield from _hosts(document, content)
    yield from _halves(document, content)
    for path, text, target in placed(content):
        for match in REFERENCE.finditer(text):
            try:
                content.secret(match[1]).check(target)
            except InputError:
                continue  # a faulty `for` was reported above
            except SecretError as error:
                yield document.problem(path, error.message, error.remedy)


def _hosts(document: Document, content: TenantDocument) -> Iterator[Problem]:
    seen = set[tuple[str, int | None]]()
    for number, host in enumerate(content.http.hosts if content.http is not None else ()):
        path: Path = ("http", "hosts", number)
        allowed = AllowedHost.of(host.host)
        if allowed is None:
            remedy = "Write host, host:port or host/private."
            yield document.problem((*path, "host"), f"{host.host!r} is no host.", remedy)
        elif (allowed.host, allowed.port) in seen:
            yield document.problem((*path, "host"), f"{host.host!r} is here twice.", "Name it once.")
        seen |= set() if allowed is None else {(allowed.host, allowed.port)}
        yield from _headers(document, path, host.headers)
    for one, server in content.mcp.servers.items() if content.mcp is not None else ():
        yield from _headers(document, ("mcp", "servers", one), server.headers)


def _headers(document: Document, path: Path, headers: Mapping[str, str]) -> Iterator[Problem]:
    for name, text in headers.items():
        if (problem := problem_of(name)) is not None:
            yield document.problem((*path, "headers", name), f"{problem}.", "Take it out.")
        elif not text.isascii() or not text.isprintable():
            yield document.problem((*path, "headers", name), "It holds characters that a header cannot.", "")


def _halves(document: Document, content: TenantDocument) -> Iterator[Problem]:
    """Find keys that belong together, and of which one is missing."""
    if (now := content.servicenow) is not None:
        oauth = now.client_id is not None and now.client_secret is not None
        if (now.client_id is None) != (now.client_secret is None) or (now.password is None) == (not oauth):
            remedy = "Give `password`, or `client_id` and `client_secret`."
            yield document.problem(("servicenow",), "The account has no credentials, or two kinds of them.", remedy)
    if (bpmn := content.bpmn) is not None and (bpmn.username is None) != (bpmn.password is None):
        yield document.problem(("bpmn",), "`username` and `password` go together.", "Give both, or neither.")
    mail = content.tell.email if content.tell is not None else None
    if mail is not None and (mail.user is None) != (mail.password is None):
        yield document.problem(("tell", "email"), "`user` and `password` go together.", "Give both, or neither.")
    if mail is not None and (mail.target.port or 0) > 65535:
        yield document.problem(("tell", "email", "server"), f"{mail.server} has no such port.", "Write host:port.")
    if (store := content.evidence) is not None and (store.directory is None) == (store.bucket is None):
        yield document.problem(("evidence",), "Evidence is kept in one place.", "Give `directory` or `bucket`.")
