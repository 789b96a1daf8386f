"""The adapters that the settings ask for. No package but ``app`` constructs adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError
from msgspec import structs
from pydantic import SecretStr
from slack_sdk.web.async_client import AsyncWebClient

from app import own_database, servers
from app.settings import Settings
from connectors.agent.connector import AgentConnector
from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog, Source, load_catalog
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.keepers.aws import AwsSecrets
from connectors.keepers.local import Keepers
from connectors.keepers.vault import KvVault
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.port import Connector, Connectors
from connectors.records.connector import Read, RecordsConnector
from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from connectors.slack.connector import SlackConnector, SlackSettings
from connectors.sql.connector import SqlConnector, SqlSettings
from connectors.transform.connector import TransformConnector
from core.canonical import JsonObject
from core.errors import ConfigurationError, TransportError
from core.secret_values import Keeper, Secret, SecretError, Value, Vault
from evidence.blobs import BlobStore
from evidence.files import FileBlobStore
from evidence.kms import KmsSigner
from evidence.s3 import Retention, S3BlobStore
from runtime.queue.port import DeadLetters, Depth, WorkQueue
from runtime.queue.postgres import PostgresQueue
from runtime.queue.sqs import SqsAddress, SqsDeadLetters, SqsQueue

DOCUMENT_BYTES_MAX = 1024 * 1024


def catalog_of(settings: Settings) -> Catalog:
    """The packaged operations, and those of ``operations/*.yaml`` in the definitions' directory, for checks of files.

    Published documents are compiled against published declarations alone.
    """
    return load_catalog(declarations_in(settings))


def declarations_in(settings: Settings) -> Sequence[Source]:
    """The documents of ``operations/*.yaml`` in the definitions' directory; none without one."""
    return () if settings.definitions_dir is None else documents_in(settings.definitions_dir / "operations")


def documents_in(folder: Path, names: str = "*.yaml") -> Sequence[Source]:
    """Every document in a folder whose name matches ``names``, in order of name; none if the folder is missing.

    ``ConfigurationError`` for a document that cannot be read, is not UTF-8 or is too large.
    """
    found = []
    for path in sorted(folder.glob(names)):
        try:
            data = path.read_bytes()
            if len(data) > DOCUMENT_BYTES_MAX:
                raise ConfigurationError(f"{path} is larger than {DOCUMENT_BYTES_MAX} bytes.")
            found.append(Source(str(path), data.decode()))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"{path} is not UTF-8.") from None
    return found


async def nobody_reads(tenant: str, function: str, values: JsonObject) -> JsonObject:
    """Refuse to read records: the reader of a process without workers."""
    raise ConfigurationError("records are read by workers, and this process has none.")


def connectors_of(settings: Settings, read: Read = nobody_reads, *, owner: str = "") -> Connectors:
    """A connector for every configured system. For any other system, the registry names the missing setting.

    ``read`` reads the tenants' records. ``owner`` is the tenant whose own settings these are, "" for the environment's.
    """
    hosts = HttpSettings(settings.http_hosts)
    if owner:
        hosts = structs.replace(hosts, setting=f"http.hosts of the tenant {owner}")
    found: dict[str, Connector] = {
        "records": RecordsConnector(read),
        "transform": TransformConnector(),
        "agent": AgentConnector(),
        "http": HttpConnector(hosts),
    }
    if settings.servicenow_url is not None:
        found["servicenow"] = ServiceNowConnector(servicenow_of(settings, settings.servicenow_url))
    if settings.slack_bot_token is not None:
        token = settings.slack_bot_token.get_secret_value()
        found["slack"] = SlackConnector(SlackSettings(token, settings.slack_api_url))
    if settings.model_url is not None and settings.model_api_key is not None:
        key = settings.model_api_key.get_secret_value()
        found["model"] = ModelConnector(ModelSettings(settings.model_url, key, settings.model_provider))
    if settings.bpmn_url is not None:
        password = settings.bpmn_password.get_secret_value() if settings.bpmn_password is not None else None
        topic, worker, back = settings.bpmn_topic, settings.bpmn_worker_id, settings.bpmn_callback_url
        bpmn = BpmnSettings(settings.bpmn_url, settings.bpmn_username, password, back, topic=topic, worker_id=worker)
        found["bpmn"] = BpmnConnector(bpmn)
    if settings.sql_url is not None:
        sql = SqlSettings(settings.sql_url.get_secret_value(), partial(own_database.identity, settings))
        found["sql"] = SqlConnector(sql)
    if settings.mcp_servers:
        found["mcp"] = servers.connector_of(settings.mcp_servers, settings.http_hosts, owner)
    return Connectors(found, owner=owner, rates=settings.rates)


def keepers_of(settings: Settings) -> Keepers:
    """The keepers of secrets that the settings name."""
    given = {
        tenant: {name: value.get_secret_value() for name, value in of_tenant.items()}
        for tenant, of_tenant in settings.secrets.items()
    }
    others: dict[Keeper, Vault] = {Keeper.AWS: _LateAws(settings)}
    if settings.vault_url is not None:
        token = partial(_vault_token, settings)
        others[Keeper.VAULT] = KvVault(settings.vault_url, settings.vault_mount, token, settings.vault_namespace)
    return Keepers(given, settings.secrets_path, others)


def _vault_token(settings: Settings) -> str:
    """The token for Vault: read from its file now, or as the setting has it."""
    if settings.vault_token_file is not None:
        try:
            return settings.vault_token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            words = f"the token for Vault cannot be read: {error.strerror}."
            raise SecretError(words, remedy="Look at COUNTERSEAL_VAULT_TOKEN_FILE.", again=True) from None
    if settings.vault_token is None:
        raise SecretError("There is no token for Vault.", remedy="Set COUNTERSEAL_VAULT_TOKEN_FILE.")
    return settings.vault_token.get_secret_value()


class _LateAws:
    """AWS Secrets Manager. Its client is made at the first call, because that takes long and is seldom needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: AwsSecrets | None = None

    async def read(self, secret: Secret) -> Value:
        """See ``AwsSecrets.read``."""
        if self._made is None:
            try:
                self._made = AwsSecrets(_aws_client(self._settings, "secretsmanager"))
            except ConfigurationError as error:
                raise SecretError(error.message, remedy=error.remedy) from None
        return await self._made.read(secret)


def servicenow_of(settings: Settings, url: str) -> ServiceNowSettings:
    """The address of ServiceNow with our credentials. ``ConfigurationError`` without credentials."""
    auth: BasicAuth | ClientCredentials
    if settings.servicenow_client_id is not None and settings.servicenow_client_secret is not None:
        auth = ClientCredentials(settings.servicenow_client_id, settings.servicenow_client_secret.get_secret_value())
    elif settings.servicenow_username is not None and settings.servicenow_password is not None:
        auth = BasicAuth(settings.servicenow_username, settings.servicenow_password.get_secret_value())
    else:  # unreachable while the settings are checked; without credentials no connection may be opened
        raise ConfigurationError("ServiceNow has no credentials.", remedy="Set COUNTERSEAL_SERVICENOW_USERNAME.")
    return ServiceNowSettings(url, auth, settings.servicenow_username, settings.servicenow_transaction_limit_seconds)


@asynccontextmanager
async def slack_client_of(token: SecretStr, url: str) -> AsyncIterator[AsyncWebClient]:
    """Slack's Web API for cards, groups and modals. It never retries by itself: a repeated post would be two cards."""
    async with aiohttp.ClientSession() as session:
        yield AsyncWebClient(token.get_secret_value(), base_url=url, session=session, retry_handlers=[])


def queue_of(settings: Settings) -> WorkQueue:
    """SQS if a queue is named, otherwise PostgreSQL."""
    if settings.sqs_queue_url is None:
        return PostgresQueue()
    return SqsQueue(_aws_client(settings, "sqs"), settings.sqs_queue_url)


def dead_letters_of(settings: Settings) -> DeadLetters | None:
    """The SQS queue of dead letters; None if no such queue is named."""
    if settings.sqs_dlq_url is None:
        return None
    return SqsDeadLetters(_aws_client(settings, "sqs"), settings.sqs_dlq_url)


async def queue_depths(settings: Settings) -> dict[str, Depth]:
    """The number of messages in each configured SQS queue; ``TransportError`` if SQS does not answer."""
    if settings.sqs_queue_url is None:
        return {}
    client = _aws_client(settings, "sqs")
    found = {"steps": await SqsAddress(client, settings.sqs_queue_url).depth()}
    if settings.sqs_dlq_url is not None:
        found["dead letters"] = await SqsAddress(client, settings.sqs_dlq_url, "COUNTERSEAL_SQS_DLQ_URL").depth()
    return found


def blobs_of(settings: Settings) -> BlobStore:
    """S3 if a bucket is named, otherwise a directory."""
    if settings.s3_bucket is None:
        return FileBlobStore(settings.evidence_path)
    retention = None
    if settings.s3_object_lock_mode is not None:
        retention = Retention(settings.s3_object_lock_mode, settings.s3_object_lock_days)
    return S3BlobStore(_aws_client(settings, "s3"), settings.s3_bucket, settings.s3_prefix, retention=retention)


def _aws_client(settings: Settings, service: str) -> Any:
    """A boto3 client; its credentials come from AWS's own chain (environment, profile, role)."""
    import boto3  # takes long
    from botocore.config import Config

    retries = {"mode": "standard", "max_attempts": 3}
    connections = max(10, settings.worker_concurrency * 2)
    config = Config(connect_timeout=5, read_timeout=30, retries=retries, max_pool_connections=connections)
    try:
        return boto3.client(service, settings.aws_region, endpoint_url=settings.aws_endpoint_url, config=config)
    except (BotoCoreError, ValueError) as error:
        remedy = "Set COUNTERSEAL_AWS_REGION, and credentials where AWS's clients look for them."
        raise ConfigurationError(f"{service} cannot be used: {error}.", remedy=remedy) from None


def kms_signer_of(settings: Settings, key: str) -> KmsSigner:
    """The signer with this key of AWS KMS. Errors as for ``KmsSigner.load``."""
    return KmsSigner.load(_aws_client(settings, "kms"), key)


async def check_bucket(settings: Settings) -> None:
    """Check that S3 answers for the bucket; ``TransportError`` otherwise."""
    try:
        await asyncio.to_thread(_aws_client(settings, "s3").head_bucket, Bucket=settings.s3_bucket)
    except (BotoCoreError, ClientError) as error:
        raise TransportError(f"{error}.", remedy="Check the name, the region and the credentials.") from None
