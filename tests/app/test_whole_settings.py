"""Settings, whole: each default, both sides of each limit, what needs what, and the part that each one reaches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr

from app import adapters, processes, storage
from app.http import server as http_server
from app.http.connections import Limits
from app.logins import Logins
from app.processes import Duty
from app.settings import PREFIX, Settings, load_settings
from app.wiring import App, build
from connectors.bpmn.client import BpmnSettings
from connectors.http.addresses import AllowedHost
from connectors.http.connector import HttpSettings
from connectors.model.connector import ModelSettings
from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.slack.connector import SlackSettings
from core.errors import ConfigurationError, TransportError
from evidence.blobs import LockMode
from evidence.files import FileBlobStore
from evidence.s3 import Retention, S3BlobStore
from runtime.queue.postgres import PostgresQueue
from runtime.queue.sqs import SqsDeadLetters, SqsQueue
from runtime.work.holding import Tools

NOTHING = [
    *("database_url", "engine_database_url", "faces_database_url", "sqs_queue_url", "sqs_dlq_url", "s3_bucket"),
    *("s3_object_lock_mode", "aws_endpoint_url", "aws_region", "slack_bot_token", "slack_signing_secret"),
    *("slack_channel", "servicenow_url", "servicenow_username", "servicenow_password", "servicenow_client_id"),
    *("servicenow_client_secret", "model_url", "model_api_key", "bpmn_url", "bpmn_username", "bpmn_password"),
    *("bpmn_callback_url", "sql_url", "signing_key", "definitions_dir"),
]
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(NOTHING),
    "home": Path(".counterseal"),
    "auto_migrate": True,
    "tenant": "default",
    "workspace": "main",
    "person": "",
    "host": "127.0.0.1",
    "port": 8080,
    "http_header_seconds": 10.0,
    "http_body_seconds": 10.0,
    "http_idle_seconds": 5.0,
    "http_connections_max": 512,
    "s3_prefix": "",
    "s3_object_lock_days": 365,
    "slack_api_url": "https://slack.com/api/",
    "servicenow_transaction_limit_seconds": 60.0,
    "http_hosts": (),
    "model_provider": "openai",
    "bpmn_topic": "counterseal",
    "bpmn_worker_id": "counterseal",
    "webhooks": {},
    "definitions_mode": "warn",
    "lease_seconds": 30.0,
    "worker_concurrency": 8,
    "log_format": "console",
    "log_level": "info",
}


def hook(name: str, characters: int) -> str:
    """One endpoint, whose secret is so long."""
    return json.dumps({name: {"secret": "x" * characters}})


# A setting, values at its limits that are taken, and values just beyond them.
LIMITS: list[tuple[str, list[str], list[str]]] = [
    ("port", ["0", "65535"], ["-1", "65536"]),
    *((f"http_{part}_seconds", ["0.001", "3600"], ["0", "-1", "3600.1"]) for part in ("header", "body", "idle")),
    ("http_connections_max", ["1", "65535"], ["0", "65536"]),
    ("s3_object_lock_days", ["1", "36500"], ["0", "36501"]),
    ("servicenow_transaction_limit_seconds", ["0", "3600"], ["-0.1", "3600.1"]),
    ("bpmn_topic", ["x" * 200], ["x" * 201]),
    ("bpmn_worker_id", ["x" * 200], ["x" * 201]),
    ("lease_seconds", ["1", "3600"], ["0.9", "3600.1"]),
    ("worker_concurrency", ["1", "256"], ["0", "257"]),
    ("http_hosts", ["a:65535", "a:0", "10.0.0.1:1/private", "[::1]"], ["a:65536", "a:1/public", "a/private/", "a,,b"]),
    ("s3_prefix", ["/a/b=1/", "_", "a" * 128], ["a" * 129, "a//b", "a/.b", ".", "é"]),
    ("webhooks", [hook("a", 16)], [hook("a", 15)]),
    ("webhooks", [hook("a" * 63, 16)], [hook("a" * 64, 16)]),
    ("webhooks", [hook("0_-", 16)], [hook("_a", 16), hook("A", 16)]),
    ("database_url", ["postgresql://u:p@h/d"], [" postgresql://u:p@h/d", "mysql://u:p@h/d", "postgresql://u:p@h"]),
    ("slack_api_url", ["http://a", "https://a/b"], ["https://", "//a", "ws://a"]),
    ("definitions_mode", ["strict", "warn"], ["off"]),
    ("log_format", ["console", "json"], ["text"]),
    ("log_level", ["debug", "info", "warning", "error"], ["critical"]),
    ("auto_migrate", ["true", "0"], ["maybe"]),
]  # fmt: skip
SECRET = "s" * 20
SNOW = {"servicenow_url": "https://a.example"}
UNMET: list[tuple[dict[str, str], str]] = [
    ({"slack_signing_secret": SECRET}, "SLACK_BOT_TOKEN is not set, and COUNTERSEAL_SLACK_SIGNING_SECRET is."),
    ({"bpmn_callback_url": "https://a"}, "BPMN_URL is not set, and COUNTERSEAL_BPMN_CALLBACK_URL is."),
    ({"model_url": "https://a"}, "MODEL_API_KEY is not set, and COUNTERSEAL_MODEL_URL is."),
    ({"sqs_dlq_url": "https://a"}, "SQS_QUEUE_URL is not set, and COUNTERSEAL_SQS_DLQ_URL is."),
    (
        {"engine_database_url": "postgresql://u:p@h/d"},
        "FACES_DATABASE_URL is not set, and COUNTERSEAL_ENGINE_DATABASE_URL is.",
    ),
    ({"s3_object_lock_mode": "COMPLIANCE"}, "S3_BUCKET is not set, and COUNTERSEAL_S3_OBJECT_LOCK_MODE is."),
    ({"bpmn_username": "u"}, "BPMN_USERNAME and COUNTERSEAL_BPMN_PASSWORD go together."),
    ({"bpmn_password": "p"}, "BPMN_USERNAME and COUNTERSEAL_BPMN_PASSWORD go together."),
    (
        {**SNOW, "servicenow_client_id": "c"},
        "SERVICENOW_CLIENT_ID and COUNTERSEAL_SERVICENOW_CLIENT_SECRET go together.",
    ),
    (
        {**SNOW, "servicenow_username": "u"},
        (
            "SERVICENOW_URL needs COUNTERSEAL_SERVICENOW_USERNAME and COUNTERSEAL_SERVICENOW_PASSWORD, or "
            "COUNTERSEAL_SERVICENOW_CLIENT_ID and COUNTERSEAL_SERVICENOW_CLIENT_SECRET."
        ),
    ),
    (
        {"sqs_queue_url": "https://a", "sqs_dlq_url": "https://a"},
        "SQS_DLQ_URL names the queue for steps; dead letters need a queue of their own.",
    ),
]
# What has a sensible meaning without its neighbour.
MET: list[dict[str, str]] = [
    {"slack_bot_token": SECRET},
    {"model_api_key": "k"},
    {"servicenow_client_id": "c"},
    {"sqs_queue_url": "https://a"},
    {"faces_database_url": "postgresql://u:p@h/d"},
    {**SNOW, "servicenow_username": "u", "servicenow_password": "p"},
    {**SNOW, "servicenow_client_id": "c", "servicenow_client_secret": "p"},
    {"bpmn_url": "https://a"},
]


def test_each_setting_has_its_default(clean_environment: pytest.MonkeyPatch) -> None:
    clean_environment.delenv("COUNTERSEAL_HOME")
    assert {name: getattr(load_settings(), name) for name in Settings.model_fields} == DEFAULTS


@pytest.mark.parametrize(("name", "taken", "refused"), LIMITS, ids=[one[0] for one in LIMITS])
def test_each_limit_holds_on_both_sides(
    clean_environment: pytest.MonkeyPatch, name: str, taken: list[str], refused: list[str]
) -> None:
    for value in taken:
        clean_environment.setenv(PREFIX + name.upper(), value)
        load_settings()
    for value in refused:
        clean_environment.setenv(PREFIX + name.upper(), value)
        with pytest.raises(ConfigurationError, match=PREFIX + name.upper()):
            load_settings()


@pytest.mark.parametrize(("given", "words"), UNMET)
def test_what_needs_another_setting_says_so(
    clean_environment: pytest.MonkeyPatch, given: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(**given)
    assert refused.value.message == PREFIX + words


def test_everything_that_is_wrong_is_named_at_once(clean_environment: pytest.MonkeyPatch) -> None:
    wrong: dict[str, Any] = {"port": "x", "log_level": "loud", "worker_concurrency": "0", "tenant": "No"}
    with pytest.raises(ConfigurationError) as refused:
        load_settings(**wrong)
    named = [part.partition(":")[0] for part in refused.value.message.split("; ")]
    assert sorted(named) == sorted(f"COUNTERSEAL_{name.upper()}" for name in wrong)
    lacking = {
        "slack_signing_secret": SECRET,
        "bpmn_username": "u",
        "model_url": "https://a",
        "sqs_dlq_url": "https://a",
    }
    with pytest.raises(ConfigurationError) as refused:
        load_settings(**lacking)
    named = [part.rpartition("COUNTERSEAL_")[2].partition(" ")[0] for part in refused.value.message.split("; ")]
    assert sorted(named) == ["BPMN_PASSWORD", "MODEL_URL", "SLACK_SIGNING_SECRET", "SQS_DLQ_URL"]


@pytest.mark.parametrize("given", MET)
def test_what_needs_no_other_setting_stands_alone(clean_environment: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    load_settings(**given)


def test_what_follows_from_the_settings(clean_environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment.setenv("LOGNAME", "somebody")
    owner, faces, engine = (f"postgresql://{name}:p@h/d" for name in ("o", "f", "e"))
    for given, embedded, faces_only in (
        ({}, True, False),
        ({"database_url": owner}, False, False),
        ({"faces_database_url": faces}, False, True),
        ({"faces_database_url": faces, "engine_database_url": engine}, False, False),
    ):
        found = load_settings(**given)
        assert (found.embedded, found.faces_only) == (embedded, faces_only), given
    hooks = {"a": {"secret": SECRET, "tenant": "z"}, "b": {"secret": SECRET}, "c": {"secret": SECRET, "tenant": "z"}}
    found = load_settings(home=tmp_path, signing_key="key.pem", person="ann", tenant="m", webhooks=hooks)
    assert (found.signing_key_path, found.evidence_path) == (Path("key.pem"), tmp_path / "evidence")
    assert (found.person_id, found.tenants) == ("ann", ("m", "z"))
    assert load_settings().person_id == "somebody", "whoever the operating system says that it is"
    assert load_settings(home=tmp_path).signing_key_path == tmp_path / "keys" / "evidence.pem"


async def test_each_setting_of_a_connector_reaches_it(clean_environment: pytest.MonkeyPatch) -> None:
    password = {"servicenow_username": "su", "servicenow_password": "sp"}
    client = {"servicenow_client_id": "sc", "servicenow_client_secret": "ss", "servicenow_username": "su"}
    given: dict[str, Any] = {
        "http_hosts": "a.example:7", "slack_bot_token": "xoxb", "slack_api_url": "https://slack.example/",
        "model_url": "https://model.example", "model_api_key": "mk", "model_provider": "mp",
        "bpmn_url": "https://bpmn.example", "bpmn_username": "bu", "bpmn_password": "bp", "bpmn_topic": "bt",
        "bpmn_callback_url": "https://back.example", "bpmn_worker_id": "bw",
        "servicenow_url": "https://snow.example", "servicenow_transaction_limit_seconds": 7.5, **password,
        "sql_url": "postgresql://qu:qp@q.example/qd",
    }  # fmt: skip
    settings = load_settings(**given)
    connectors = adapters.connectors_of(settings, adapters.catalog_of(settings))
    found = {name: vars(one).get("_settings") for name, one in connectors.items()}
    link = vars(vars(connectors["sql"])["_link"])
    await connectors.aclose()
    snow = "https://snow.example"
    assert found == {
        "records": None,
        "transform": None,
        "http": HttpSettings((AllowedHost("a.example", 7),)),
        "servicenow": ServiceNowSettings(snow, BasicAuth("su", "sp"), "su", 7.5),
        "slack": SlackSettings("xoxb", "https://slack.example/"),
        "model": ModelSettings("https://model.example", "mk", "mp"),
        "bpmn": BpmnSettings("https://bpmn.example", "bu", "bp", "https://back.example", "bt", "bw"),
        "sql": None,
    }
    assert given["sql_url"] in link.values()
    bare = load_settings(servicenow_url=snow, **client)
    connectors = adapters.connectors_of(bare, adapters.catalog_of(bare))
    assert sorted(connectors) == ["http", "records", "servicenow", "transform"]
    assert vars(connectors["servicenow"])["_settings"] == ServiceNowSettings(
        snow, ClientCredentials("sc", "ss"), "su", 60.0
    )
    nameless = load_settings(servicenow_url=snow, servicenow_client_id="sc", servicenow_client_secret="ss")
    assert adapters._servicenow(nameless, snow) == ServiceNowSettings(snow, ClientCredentials("sc", "ss"), None, 60.0)
    both = load_settings(servicenow_url=snow, servicenow_password="sp", **client)
    assert adapters._servicenow(both, snow) == ServiceNowSettings(snow, ClientCredentials("sc", "ss"), "su", 60.0)
    await connectors.aclose()


# What makes a connector, and what does not suffice for it.
CONNECTED: list[tuple[dict[str, str], list[str]]] = [
    ({}, []),
    ({**SNOW, "servicenow_username": "u", "servicenow_password": "p"}, ["servicenow"]),
    ({"servicenow_username": "u", "servicenow_password": "p"}, []),
    ({"slack_bot_token": SECRET}, ["slack"]),
    ({"model_url": "https://a", "model_api_key": "k"}, ["model"]),
    ({"model_api_key": "k"}, []),
    ({"bpmn_url": "https://a"}, ["bpmn"]),
    ({"sql_url": "postgresql://u:p@h/d"}, ["sql"]),
    ({"database_url": "postgresql://u:p@h/d", "sqs_queue_url": "https://a", "s3_bucket": "b"}, []),
]


@pytest.mark.req("X-3")
@pytest.mark.parametrize(("given", "found"), CONNECTED)
async def test_each_connector_needs_its_settings_and_no_others(
    clean_environment: pytest.MonkeyPatch, given: dict[str, str], found: list[str]
) -> None:
    settings = load_settings(**given)
    connectors = adapters.connectors_of(settings, adapters.catalog_of(settings))
    assert sorted(connectors) == sorted([*found, "http", "records", "transform"])
    await connectors.aclose()


async def test_records_are_read_by_workers_alone(clean_environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="records are read by workers, and this process has none"):
        await adapters._nobody_reads("acme", "f", {})


def test_credentials_are_complete_or_nothing_is_opened() -> None:
    """The settings refuse halves; a connection would not be opened with them either."""
    halves: dict[str, Any] = {
        "servicenow_client_id": None, "servicenow_client_secret": None, "servicenow_username": None,
        "servicenow_password": None, "servicenow_transaction_limit_seconds": 7.0,
    }  # fmt: skip
    for one in ("servicenow_client_id", "servicenow_client_secret", "servicenow_username", "servicenow_password"):
        some: Any = SimpleNamespace(**{**halves, one: SecretStr("x")})
        with pytest.raises(ConfigurationError) as refused:
            adapters._servicenow(some, "https://a")
        assert str(refused.value) == "ServiceNow has no credentials. Set COUNTERSEAL_SERVICENOW_USERNAME."


@pytest.mark.parametrize("service", ["sqs", "s3"])
@pytest.mark.parametrize("error", [BotoCoreError(), ValueError("no region")])
def test_aws_that_cannot_be_used_is_a_setting_that_is_missing(
    clean_environment: pytest.MonkeyPatch, service: str, error: Exception
) -> None:
    asked: list[Any] = []

    def client(*given: Any, **named: Any) -> None:
        asked.append((given, named["endpoint_url"]))
        raise error

    clean_environment.setattr(boto3, "client", client)
    settings = load_settings(aws_region="eu-west-7", aws_endpoint_url="http://aws.example:1")
    with pytest.raises(ConfigurationError) as refused:
        adapters._aws_client(settings, service)
    assert asked == [((service, "eu-west-7"), "http://aws.example:1")]
    assert refused.value.message == f"{service} cannot be used: {error}."
    assert refused.value.remedy == "Set COUNTERSEAL_AWS_REGION, and credentials where AWS's clients look for them."


@pytest.mark.parametrize(
    "error", [None, BotoCoreError(), ClientError({"Error": {"Code": "404", "Message": "None."}}, "HeadBucket")]
)
async def test_a_bucket_is_asked_for_at_s3(clean_environment: pytest.MonkeyPatch, error: Exception | None) -> None:
    asked: list[Any] = []

    def client(settings: Settings, service: str) -> Any:
        def head_bucket(**named: Any) -> None:
            asked.append((service, named))
            if error is not None:
                raise error

        return SimpleNamespace(head_bucket=head_bucket)

    clean_environment.setattr(adapters, "_aws_client", client)
    settings = load_settings(s3_bucket="b")
    if error is None:
        await adapters.check_bucket(settings)
    else:
        with pytest.raises(TransportError) as away:
            await adapters.check_bucket(settings)
        assert away.value.message == f"{error}."
        assert away.value.remedy == "Check the name, the region and the credentials."
    assert asked == [("s3", {"Bucket": "b"})]


async def test_each_queue_at_sqs_is_counted_under_its_name(clean_environment: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Address:
        def __init__(self, client: Any, url: str, setting: str = "COUNTERSEAL_SQS_QUEUE_URL") -> None:
            made.append((client, url, setting))
            self._url = url

        async def depth(self) -> str:
            return f"depth of {self._url}"

    clean_environment.setattr(adapters, "SqsAddress", Address)
    clean_environment.setattr(adapters, "_aws_client", lambda settings, service: service)
    queue, letters = "https://sqs.example/q", "https://sqs.example/d"
    steps = ("sqs", queue, "COUNTERSEAL_SQS_QUEUE_URL")
    for given, counted, asked in (
        ({}, {}, []),
        ({"sqs_queue_url": queue}, {"steps": f"depth of {queue}"}, [steps]),
        (
            {"sqs_queue_url": queue, "sqs_dlq_url": letters},
            {"steps": f"depth of {queue}", "dead letters": f"depth of {letters}"},
            [steps, ("sqs", letters, "COUNTERSEAL_SQS_DLQ_URL")],
        ),
    ):
        found: Any = await adapters.queue_depths(load_settings(**cast("Any", given)))
        assert found == counted
        assert made == asked
        made.clear()


def test_each_setting_of_aws_reaches_its_client(clean_environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        clean_environment.setenv(name, "x")
    plain = load_settings(home=tmp_path)
    assert isinstance(adapters.queue_of(plain), PostgresQueue)
    assert adapters.dead_letters_of(plain) is None
    store = adapters.blobs_of(plain)
    assert isinstance(store, FileBlobStore)
    assert tmp_path / "evidence" in vars(store).values()
    settings = load_settings(
        sqs_queue_url="https://sqs.example/q", sqs_dlq_url="https://sqs.example/d", s3_bucket="b", s3_prefix="p/q",
        s3_object_lock_mode="GOVERNANCE", s3_object_lock_days=9, aws_region="eu-west-7",
        aws_endpoint_url="http://aws.example:1", worker_concurrency=20,
    )  # fmt: skip
    queue, letters, blobs = adapters.queue_of(settings), adapters.dead_letters_of(settings), adapters.blobs_of(settings)
    assert isinstance(queue, SqsQueue)
    assert isinstance(letters, SqsDeadLetters)
    assert isinstance(blobs, S3BlobStore)
    for one, url in ((queue, settings.sqs_queue_url), (letters, settings.sqs_dlq_url)):
        assert vars(one)["_address"].url == url
    kept = {name: vars(blobs)[name] for name in ("_bucket", "_folder", "_retention")}
    assert kept == {"_bucket": "b", "_folder": "p/q/", "_retention": Retention(LockMode.GOVERNANCE, 9)}
    for client, service in ((vars(queue)["_address"].client, "sqs"), (vars(blobs)["_client"], "s3")):
        meta = client.meta
        assert (meta.service_model.service_name, meta.region_name) == (service, "eu-west-7")
        assert meta.endpoint_url == "http://aws.example:1"
        config = meta.config
        assert (config.connect_timeout, config.read_timeout, config.max_pool_connections) == (5, 30, 40)
        assert (config.retries["mode"], config.retries["total_max_attempts"]) == ("standard", 4)


async def test_slack_s_client_has_its_token_and_never_retries(clean_environment: pytest.MonkeyPatch) -> None:
    settings = load_settings(slack_bot_token="xoxb", slack_api_url="https://slack.example/Proxy/api/")
    assert settings.slack_bot_token is not None
    async with adapters.slack_client_of(settings.slack_bot_token, settings.slack_api_url) as client:
        told = (client.token, client.base_url, client.retry_handlers)
    assert told == ("xoxb", "https://slack.example/Proxy/api/", [])


class Part:
    """A part of a process that notes that it ran."""

    def __init__(self, name: str, ran: list[str]) -> None:
        self._name = name
        self._ran = ran

    async def run(self, stop: asyncio.Event) -> None:
        self._ran.append(self._name)

    def wake(self) -> None:
        self._ran.append(f"wake {self._name}")


ALWAYS, WORK = ["schema"], ["worker"]
KEEP = ["completions", "dispatcher", "scheduler", "sweeper"]
SERVE = ["http", "refusals", "slack home"]


@pytest.mark.parametrize(
    ("duties", "sqs", "wanted"),
    [
        ({Duty.SERVE}, False, [*ALWAYS, *SERVE]),
        ({Duty.WORK}, False, [*ALWAYS, *WORK, "listens steps", "wake queue"]),
        ({Duty.KEEP}, False, [*ALWAYS, *KEEP, "listens messages", "wake dispatcher"]),
        (
            {Duty.KEEP},
            True,
            [*ALWAYS, *KEEP, "reconciler", "listens messages,steps", "wake dispatcher", "wake scheduler"],
        ),
        (
            set(Duty),
            False,
            [*ALWAYS, *WORK, *KEEP, *SERVE, "listens messages,steps", "wake dispatcher", "wake queue"],
        ),
    ],
)
async def test_a_process_runs_the_parts_of_its_duties(
    clean_environment: pytest.MonkeyPatch, duties: set[Duty], sqs: bool, wanted: list[str]
) -> None:
    ran: list[str] = []
    made: list[Any] = []

    class Server:
        url = "http://here:1"

        def __init__(self, application: Any, host: str, port: int, limits: Limits) -> None:
            made.append((application, host, port, limits))

        async def run(self, stop: asyncio.Event) -> None:
            ran.append("http")

    async def listen(database: Any, wakes: Any, stop: asyncio.Event) -> None:
        ran.append(f"listens {','.join(sorted(name.rpartition('_')[2] for name in wakes))}")
        for wake in (wake for all_ in wakes.values() for wake in all_):
            wake()

    async def keep_schema(settings: Settings, stop: asyncio.Event) -> None:
        ran.append("schema")

    async def home() -> None:
        ran.append("slack home")

    clean_environment.setattr(http_server, "HttpServer", Server)
    clean_environment.setattr("app.http.application.create_app", lambda faces: ("application", faces))
    clean_environment.setattr(processes, "listen", listen)
    clean_environment.setattr(storage, "keep_schema", keep_schema)
    settings = load_settings(
        database_url="postgresql://u:p@h/d", host="here", port=1, http_header_seconds=2, http_body_seconds=3,
        http_idle_seconds=4, http_connections_max=5,
    )  # fmt: skip
    queue = SimpleNamespace(needs_dispatch=sqs, **({} if sqs else {"wake": Part("queue", ran).wake}))
    faces = SimpleNamespace(workspace=SimpleNamespace(home=home), refusals=Part("refusals", ran))
    parts = {"worker": "worker", "dispatcher": "dispatcher", "scheduler": "scheduler", "sweeper": "sweeper"}
    verbs: dict[str, Any] = {verb: lambda name=name: Part(name, ran) for verb, name in parts.items()}
    verbs |= {"completing": lambda: Part("completions", ran)}
    verbs |= {"reconciler": lambda: Part("reconciler", ran) if sqs else None}
    app: Any = SimpleNamespace(settings=settings, queue=queue, faces=faces, database=None, **verbs)
    told: list[str | None] = []
    await processes.run(app, frozenset(duties), asyncio.Event(), told.append)
    assert sorted(ran) == sorted(wanted)
    serves = Duty.SERVE in duties
    assert told == ["http://here:1" if serves else None]
    assert made == ([(("application", faces), "here", 1, Limits(2, 3, 4, connections=5))] if serves else [])


class Begun(Exception):
    """Ends a start after its first step."""


@pytest.mark.parametrize("duties", [{Duty.SERVE}, {Duty.WORK}, {Duty.KEEP}, {Duty.SERVE, Duty.WORK}, set(Duty)])
async def test_only_a_process_of_all_parts_founds_the_first_tenant(
    clean_environment: pytest.MonkeyPatch, duties: set[Duty]
) -> None:
    begun: list[Any] = []

    def build(settings: Settings, *, first_run: bool) -> Any:
        begun.append((settings, first_run))
        raise Begun

    clean_environment.setattr(processes, "build", build)
    settings = load_settings(database_url="postgresql://u:p@h/d")
    with pytest.raises(Begun):
        await processes.run_settings(settings, frozenset(duties), lambda url: None)
    assert begun == [(settings, duties == set(Duty))]


@pytest.mark.parametrize(
    ("tenant", "hooks", "first", "founded"),
    [
        ("default", {}, True, True),
        ("default", {}, False, False),
        ("acme", {}, True, False),
        ("acme", {"a": {"secret": SECRET, "tenant": "default"}}, True, True),
    ],
)
async def test_the_first_tenant_is_founded_only_where_the_settings_name_it(
    clean_environment: pytest.MonkeyPatch, tenant: str, hooks: Any, first: bool, founded: bool
) -> None:
    done: list[Any] = []

    @asynccontextmanager
    async def ready(settings: Settings) -> AsyncIterator[Logins]:
        yield Logins("postgresql://f:p@h/d", None)

    async def found(database: Any) -> None:
        done.append("founded")

    async def require(database: Any, logins: Logins, names: Any) -> None:
        done.append(names)
        raise Begun

    for name, stub in (("ready_database", ready), ("found_default_tenant", found), ("require_tenants", require)):
        clean_environment.setattr(storage, name, stub)
    settings = load_settings(database_url="postgresql://u:p@h/d", tenant=tenant, webhooks=hooks)
    with pytest.raises(Begun):
        async with build(settings, first_run=first):
            raise AssertionError
    assert done == [*(["founded"] if founded else []), settings.tenants]


SHOWN = {"card", "remind", "escalate", "voided", "proposal", "note", "task"}
UNSET = {"definitions": "definitions", "slack_groups": None, "blobs": "blobs"}


def test_each_setting_of_the_engine_reaches_its_part() -> None:
    """The parts of the runtime that settings shape: leases, the crowd of a worker, the channel of cards."""
    settings = load_settings(lease_seconds=7, worker_concurrency=3, slack_channel="C1")
    faces: Any = SimpleNamespace(settings=settings, definitions="definitions", slack_groups="groups", blobs="blobs")
    parts: dict[str, Any] = {"database": "database", "connectors": {}, "queue": "queue", "signer": "signer"}
    posting: dict[str, Any] = {**parts, "messenger": "messenger", "owner": "me"}
    app = App(faces, **posting, dead_letters=cast("Any", "letters"))
    silent = App(faces, messenger=None, owner="me", **parts)
    sweeper, reconciler = cast("Any", app.sweeper()), cast("Any", app.reconciler())
    worker, tools = vars(app.worker()), cast("Any", Tools)
    lease = timedelta(seconds=7)
    assert (worker["_queue"], worker["_concurrency"]) == ("queue", 3)
    assert worker["_tools"] == tools("database", "definitions", {}, "me", lease, "groups")
    assert (sweeper.database, sweeper.definitions, sweeper.lease) == ("database", "definitions", lease)
    assert (reconciler.letters, reconciler.owner, silent.reconciler()) == ("letters", "me", None)
    posts, keeps = app.dispatcher().handlers, silent.dispatcher().handlers
    assert posts.keys() == keeps.keys() == {*SHOWN, "bundle", "cancel", "return", "shared"}
    card: Any = posts["card"]
    assert (card.__self__.messenger, card.__self__.channel, card.__self__.definitions) == (
        *("messenger", "C1", "definitions"),
    )
    assert {keeps[kind].__name__ for kind in SHOWN} == {"_shown_nowhere"}
    bundling: Any = posts["bundle"]
    assert (bundling.__self__.blobs, bundling.__self__.signer) == ("blobs", "signer")
    assert bundling.__self__.producer.startswith("counterseal ")
    unset: Any = SimpleNamespace(settings=load_settings(), **UNSET)
    assert App(unset, **posting).dispatcher().handlers["card"].__name__ == "_shown_nowhere"
