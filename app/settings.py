"""Every setting, from the environment: the only module that reads it. ``counterseal doctor`` lists them all.

Every variable is ``COUNTERSEAL_`` and the field's name in capitals; none is required. An empty variable counts as not
set. One ``ConfigurationError`` names every variable that is wrong, and never repeats a value.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from app.server_settings import Servers, web_address
from connectors.hosts import RATE_MAX, RATED, AllowedHost
from core.budgets import LIMITS, Kind
from core.db import address, check_tenant
from core.errors import ConfigurationError, InputError
from evidence.blobs import LockMode
from evidence.log.notes import check_name

# The folder in ``home`` with the keys that ``evidence verify`` trusts if no key is given.
TRUSTED = "trusted-keys"
PREFIX = "COUNTERSEAL_"
WEBHOOK_SECRET_CHARACTERS_MIN = 16
_REMEDY = "Run `counterseal doctor` when it is changed."
_ENDPOINT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
_KEY_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,127}(?:/[A-Za-z0-9_][A-Za-z0-9._=-]{0,127})*\Z", re.ASCII)
# Settings that must be set together.
_TOGETHER = (("bpmn_username", "bpmn_password"), ("servicenow_client_id", "servicenow_client_secret"))
# Pairs of settings: the second one needs the first one.
_NEEDED = (
    ("slack_bot_token", "slack_signing_secret"),
    ("slack_signing_secret", "slack_app_token"),
    ("oidc_client_id", "oidc_issuer"),
    ("oidc_issuer", "oidc_client_id"),
    ("console_url", "oidc_issuer"),
    ("oidc_client_id", "oidc_client_secret"),
    ("bpmn_url", "bpmn_callback_url"),
    ("model_api_key", "model_url"),
    ("faces_database_url", "engine_database_url"),
    ("sqs_queue_url", "sqs_dlq_url"),
    ("s3_bucket", "s3_object_lock_mode"),
    ("otel_endpoint", "otel_headers"),
)
# Variables that the tests and the Makefile read, and the product does not.
_OTHERS = frozenset({"TEST_DATABASE_URL", "REQUIRE_CHROMIUM", "REQUIRE_PGBOUNCER", "TEST_NODE_MODULES", "DEEP"})


# The effect of an invalid published definition: stop the start, or only make that definition unavailable.
DefinitionsMode: TypeAlias = Literal["strict", "warn"]
# Log lines for people, or for programs.
LogFormat: TypeAlias = Literal["console", "json"]
# The least severe log line that is written.
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


def _tenant(value: str) -> str:
    try:
        return check_tenant(value)
    except InputError as error:
        raise ValueError(f"is no name: {error.remedy[:1].lower()}{error.remedy[1:].rstrip('.')}") from None


def _key_prefix(value: str) -> str:
    value = value.strip("/")
    if value and not _KEY_PREFIX.match(value):
        raise ValueError("is not plain names separated by /")
    return value


def _app_token(value: SecretStr | None) -> SecretStr | None:
    if value is not None and not value.get_secret_value().startswith("xapp-"):
        raise ValueError("is no app-level token of Slack, which begins with xapp-")
    return value


def _issuer(value: str | None) -> str | None:
    parts = urlsplit(value or "")
    own = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")
    if value is not None and (
        not parts.hostname or parts.query or parts.fragment or not (parts.scheme == "https" or own)
    ):
        raise ValueError("is no https address without a query and a fragment")
    return value


def _postgres(value: SecretStr) -> SecretStr:
    try:
        address(value.get_secret_value())
    except InputError:
        raise ValueError("is not postgresql://user:password@host/name; there is no other database") from None
    return value


def _budgets(value: dict[str, int]) -> dict[str, int]:
    changeable = sorted(name for name, one in LIMITS.items() if one.kind is not Kind.SIZE)
    if unknown := sorted({*value} - {*changeable}):
        raise ValueError(f"names {', '.join(unknown)}, which it cannot set; it can set {', '.join(changeable)}")
    return value


def _origin(value: str) -> str:
    try:
        check_name(value)
    except InputError as error:
        raise ValueError(error.message) from None
    return value


def _hosts(value: object) -> object:
    return tuple(_host(item.strip()) for item in value.split(",")) if isinstance(value, str) else value


def _host(text: str) -> AllowedHost:
    """Read ``host`` or ``host:port``, either with ``/private`` for addresses inside one's own network."""
    if (found := AllowedHost.of(text)) is None:
        raise ValueError("is not a comma-separated list of host, host:port or host:port/private")
    return found


def _long_enough(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < WEBHOOK_SECRET_CHARACTERS_MIN:
        raise ValueError(f"is shorter than {WEBHOOK_SECRET_CHARACTERS_MIN} characters")
    return value


Name: TypeAlias = Annotated[str, AfterValidator(_tenant)]
Address: TypeAlias = Annotated[str, AfterValidator(web_address)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=3600)]
DatabaseUrl: TypeAlias = Annotated[SecretStr, AfterValidator(_postgres)]
# The roles that open a page of the console.
ConsoleRole: TypeAlias = Literal["admin", "operator", "approver", "auditor"]
Rates: TypeAlias = dict[Annotated[str, Field(pattern=RATED)], Annotated[int, Field(ge=1, le=RATE_MAX)]]
Hosts: TypeAlias = Annotated[tuple[AllowedHost, ...], NoDecode, BeforeValidator(_hosts)]


class WebhookEndpoint(BaseModel):
    """One address that ServiceNow calls: the secret that its signatures share, and the tenant whose runs it starts."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    secret: Annotated[SecretStr, AfterValidator(_long_enough)]
    tenant: Name | None = None
    workspace: Name | None = None


class Settings(BaseSettings):
    """Settings of this installation. Times are in seconds. Files go to ``home`` unless a setting says otherwise."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, hide_input_in_errors=True)

    home: Path = Path(".counterseal")
    database_url: DatabaseUrl | None = None
    engine_database_url: DatabaseUrl | None = None
    faces_database_url: DatabaseUrl | None = None
    auto_migrate: bool = True
    tenant: Name = "default"
    workspace: Name = "main"
    person: str = ""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    http_header_seconds: Seconds = 10.0
    http_body_seconds: Seconds = 10.0
    http_idle_seconds: Seconds = 5.0
    http_connections_max: Annotated[int, Field(ge=1, le=65535)] = 512
    http_client_header: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] = None
    budgets: Annotated[dict[str, Annotated[int, Field(ge=1)]], AfterValidator(_budgets)] = Field(default_factory=dict)
    console_url: Address | None = None

    sqs_queue_url: Address | None = None
    sqs_dlq_url: Address | None = None
    s3_bucket: str | None = None
    s3_prefix: Annotated[str, AfterValidator(_key_prefix)] = ""
    s3_object_lock_mode: LockMode | None = None
    s3_object_lock_days: Annotated[int, Field(ge=1, le=36500)] = 365
    aws_endpoint_url: Address | None = None
    aws_region: str | None = None

    slack_bot_token: SecretStr | None = None
    slack_signing_secret: SecretStr | None = None
    slack_app_token: Annotated[SecretStr | None, AfterValidator(_app_token)] = None
    slack_api_url: Address = "https://slack.com/api/"
    slack_channel: str | None = None
    slack_mentions: Annotated[int, Field(ge=0, le=50)] = 8

    oidc_issuer: Annotated[str | None, AfterValidator(_issuer)] = None
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = None
    oidc_email: bool = False
    oidc_roles: dict[ConsoleRole, tuple[str, ...]] = Field(default_factory=dict)

    servicenow_url: Address | None = None
    servicenow_username: str | None = None
    servicenow_password: SecretStr | None = None
    servicenow_client_id: str | None = None
    servicenow_client_secret: SecretStr | None = None
    servicenow_transaction_limit_seconds: Annotated[float, Field(ge=0, le=3600)] = 60.0

    http_hosts: Hosts = ()
    rates: Rates = Field(default_factory=dict)
    model_url: Address | None = None
    model_api_key: SecretStr | None = None
    model_provider: str = "openai"

    mcp_servers: Servers = Field(default_factory=dict)
    bpmn_url: Address | None = None
    bpmn_username: str | None = None
    bpmn_password: SecretStr | None = None
    bpmn_callback_url: Address | None = None
    bpmn_topic: Annotated[str, Field(min_length=1, max_length=200)] = "counterseal"
    bpmn_worker_id: Annotated[str, Field(min_length=1, max_length=200)] = "counterseal"

    sql_url: DatabaseUrl | None = None

    signing_key: Path | None = None
    log_key: Path | None = None
    log_memory: Path | None = None
    log_origin: Annotated[str, AfterValidator(_origin)] = "counterseal"
    secrets: dict[str, dict[str, SecretStr]] = Field(default_factory=dict)
    secrets_dir: Path | None = None
    vault_url: Address | None = None
    vault_mount: Annotated[str, AfterValidator(_key_prefix)] = "secret"
    vault_namespace: str | None = None
    vault_token: SecretStr | None = None
    vault_token_file: Path | None = None
    webhooks: dict[str, WebhookEndpoint] = Field(default_factory=dict)
    definitions_mode: DefinitionsMode = "warn"
    definitions_dir: Path | None = None

    lease_seconds: Annotated[float, Field(ge=1, le=3600)] = 30.0
    worker_concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    otel_endpoint: Address | None = None
    otel_headers: dict[str, SecretStr] = Field(default_factory=dict)
    otel_propagate: bool = False
    log_format: LogFormat = "console"
    log_level: LogLevel = "info"

    @field_validator("webhooks")
    @classmethod
    def _check_endpoints(cls, value: dict[str, WebhookEndpoint]) -> dict[str, WebhookEndpoint]:
        for name in value:
            if not _ENDPOINT.match(name):
                raise ValueError(f"the endpoint {name[:80]!r} is not lower-case letters, digits, - and _")
        return value

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        """Name every missing setting that another one needs."""

        def is_set(name: str) -> bool:
            return getattr(self, name) not in (None, "", {})

        pairs = _TOGETHER if is_set("servicenow_url") else _TOGETHER[:1]
        halves = [pair for pair in pairs if is_set(pair[0]) != is_set(pair[1])]
        problems = [f"{_variable(one)} and {_variable(other)} go together" for one, other in halves]
        lacking = [(missing, name) for missing, name in _NEEDED if is_set(name) and not is_set(missing)]
        problems += [f"{_variable(missing)} is not set, and {_variable(name)} is" for missing, name in lacking]
        if self.sqs_dlq_url and self.sqs_dlq_url == self.sqs_queue_url:
            problems.append("COUNTERSEAL_SQS_DLQ_URL names the queue for steps; dead letters need a queue of their own")
        basic = is_set("servicenow_username") and is_set("servicenow_password")
        oauth = is_set("servicenow_client_id") or is_set("servicenow_client_secret")
        if is_set("servicenow_url") and not basic and not oauth:
            problems.append(
                "COUNTERSEAL_SERVICENOW_URL needs COUNTERSEAL_SERVICENOW_USERNAME and COUNTERSEAL_SERVICENOW_PASSWORD, "
                "or COUNTERSEAL_SERVICENOW_CLIENT_ID and COUNTERSEAL_SERVICENOW_CLIENT_SECRET"
            )
        elif is_set("servicenow_url") and not is_set("servicenow_username"):
            problems.append("COUNTERSEAL_SERVICENOW_USERNAME is not set: events of our own writes are known by it")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def tenants(self) -> tuple[str, ...]:
        """Every tenant that the settings name. The process refuses to start unless each exists."""
        return tuple(sorted({self.tenant, *(item.tenant for item in self.webhooks.values() if item.tenant)}))

    @property
    def console_address(self) -> str:
        """The address of the console: below COUNTERSEAL_CONSOLE_URL, or where this process serves."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{(self.console_url or f'http://{host}:{self.port}').rstrip('/')}/console"

    @property
    def pages(self) -> str:
        """The address to which messages link; "" if none is set, because others may not reach our own address."""
        return self.console_address if self.console_url else ""

    @property
    def embedded(self) -> bool:
        """True if no setting names a database, so that an embedded one runs below ``home``."""
        return self.database_url is None and self.faces_database_url is None

    @property
    def faces_only(self) -> bool:
        """True if this process has no login of the engine, so that it can run only faces."""
        return self.faces_database_url is not None and self.engine_database_url is None

    @property
    def signing_key_path(self) -> Path:
        """The path of the key that signs evidence; a missing key is created there."""
        return self.signing_key or self.home / "keys" / "evidence.pem"

    @property
    def log_key_path(self) -> Path:
        """The path of the key that signs checkpoints of the tenants' logs; a missing key is created there."""
        return self.log_key or self.home / "keys" / "log.pem"

    @property
    def log_memory_path(self) -> Path:
        """The folder in which the signer remembers what it has signed."""
        return self.log_memory or self.home / "log-memory"

    @property
    def log_path(self) -> Path:
        """The folder in which each tenant's log is published as files."""
        return self.home / "log"

    @property
    def secrets_path(self) -> Path:
        """The folder of secrets: each tenant has a folder of its own in it."""
        return self.secrets_dir or self.home / "secrets"

    @property
    def evidence_path(self) -> Path:
        """The folder for bundles if no bucket is set."""
        return self.home / "evidence"

    @property
    def person_id(self) -> str:
        """The person that the command line acts as by default: COUNTERSEAL_PERSON, or the operating system's user."""
        return self.person or getpass.getuser()


def load_settings(**overrides: Any) -> Settings:
    """Read the environment; ``overrides`` win. ``ConfigurationError`` names every variable that is wrong."""
    try:
        return Settings(**overrides)
    except SettingsError as error:
        match = re.search(r'field "(\w+)"', str(error))
        name = _variable(match.group(1)) if match else PREFIX
        raise ConfigurationError(f"{name} is not valid JSON.", remedy=_REMEDY) from None
    except ValidationError as error:
        words = "; ".join(_problem(item) for item in error.errors(include_url=False, include_input=False))
        raise ConfigurationError(f"{words.rstrip('.')}.", remedy=_REMEDY) from None


def unknown_variables(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Variables with our prefix that nothing reads: most likely typing errors."""
    known = {_variable(name) for name in Settings.model_fields} | {PREFIX + name for name in _OTHERS}
    found = os.environ if environment is None else environment
    return tuple(sorted(name for name in found if name.startswith(PREFIX) and name not in known))


def _variable(field: str) -> str:
    return PREFIX + field.upper()


def _problem(item: Any) -> str:
    place = [str(part) for part in item["loc"]]
    message = str(item["msg"]).removeprefix("Value error, ")
    if not place:
        return message
    inside = "".join(f".{part}" for part in place[1:])
    return f"{_variable(place[0])}{inside}: {message[:1].lower()}{message[1:]}"


def trusted_keys(home: Path) -> list[Path]:
    """The keys that ``evidence trust`` has kept in ``home``."""
    return sorted((home / TRUSTED).glob("*.pem"))
