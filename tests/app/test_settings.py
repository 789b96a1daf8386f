"""Settings: every problem names its variable, no value is ever repeated, and secrets stay hidden."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, get_args

import pytest
import structlog

from app import adapters, logs
from app.settings import LogFormat, Settings, load_settings, unknown_variables
from connectors.hosts import AllowedHost
from core.errors import ConfigurationError

LONG = "s3cr3t-value-that-must-not-be-shown"

WRONG: list[tuple[dict[str, str], str]] = [
    ({"PORT": "x"}, "PORT"),
    ({"PORT": "70000"}, "PORT"),
    ({"TENANT": "No Tenant"}, "TENANT"),
    ({"WORKSPACE": "a/b"}, "WORKSPACE"),
    ({"DATABASE_URL": f"mysql://u:{LONG}@h/d"}, "DATABASE_URL"),
    ({"DATABASE_URL": LONG}, "DATABASE_URL"),
    ({"DATABASE_URL": f"postgresql://u:{LONG}@h"}, "DATABASE_URL"),
    ({"SERVICENOW_URL": "ftp://x"}, "SERVICENOW_URL"),
    ({"SERVICENOW_URL": "https://x"}, "SERVICENOW_USERNAME"),
    ({"SERVICENOW_URL": "https://x", "SERVICENOW_CLIENT_ID": "c"}, "SERVICENOW_CLIENT_SECRET"),
    ({"SERVICENOW_URL": "https://x", "SERVICENOW_CLIENT_SECRET": LONG}, "SERVICENOW_CLIENT_ID"),
    ({"MODEL_URL": "https://x"}, "MODEL_API_KEY"),
    ({"BPMN_URL": "engine"}, "BPMN_URL"),
    ({"BPMN_URL": "https://x", "BPMN_USERNAME": "u"}, "BPMN_PASSWORD"),
    ({"BPMN_URL": "https://x", "BPMN_PASSWORD": LONG}, "BPMN_USERNAME"),
    ({"BPMN_CALLBACK_URL": "https://x"}, "BPMN_URL"),
    ({"BPMN_URL": "https://x", "BPMN_CALLBACK_URL": "x"}, "BPMN_CALLBACK_URL"),
    ({"SLACK_API_URL": "slack"}, "SLACK_API_URL"),
    ({"SLACK_SIGNING_SECRET": LONG}, "SLACK_BOT_TOKEN"),
    ({"SQS_QUEUE_URL": "queue"}, "SQS_QUEUE_URL"),
    ({"SQS_DLQ_URL": "https://x/dead"}, "SQS_QUEUE_URL"),
    ({"SQS_QUEUE_URL": "https://x/q", "SQS_DLQ_URL": "https://x/q"}, "SQS_DLQ_URL"),
    ({"S3_OBJECT_LOCK_MODE": "FOREVER"}, "S3_OBJECT_LOCK_MODE"),
    ({"S3_OBJECT_LOCK_MODE": "COMPLIANCE"}, "S3_BUCKET"),
    ({"S3_PREFIX": "../up"}, "S3_PREFIX"),
    ({"S3_OBJECT_LOCK_DAYS": "0"}, "S3_OBJECT_LOCK_DAYS"),
    ({"WEBHOOKS": "{"}, "WEBHOOKS"),
    ({"WEBHOOKS": "[]"}, "WEBHOOKS"),
    ({"WEBHOOKS": json.dumps({"a": {"secret": "short"}})}, "WEBHOOKS.a.secret"),
    ({"WEBHOOKS": json.dumps({"a": {"secret": LONG, "tenat": "x"}})}, "WEBHOOKS.a.tenat"),
    ({"WEBHOOKS": json.dumps({"A B": {"secret": LONG}})}, "WEBHOOKS"),
    ({"WEBHOOKS": json.dumps({"a": {"secret": LONG, "tenant": "No"}})}, "WEBHOOKS.a.tenant"),
    ({"HTTP_HOSTS": "a b"}, "HTTP_HOSTS"),
    ({"HTTP_HOSTS": "a:99999"}, "HTTP_HOSTS"),
    ({"HTTP_HOSTS": "https://a"}, "HTTP_HOSTS"),
    ({"DEFINITIONS_MODE": "lax"}, "DEFINITIONS_MODE"),
    ({"LEASE_SECONDS": "0"}, "LEASE_SECONDS"),
    ({"WORKER_CONCURRENCY": "-1"}, "WORKER_CONCURRENCY"),
    ({"LOG_LEVEL": "loud"}, "LOG_LEVEL"),
]


@pytest.mark.parametrize(("environment", "named"), WRONG, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_named_and_never_repeated(
    clean_environment: Any, environment: dict[str, str], named: str
) -> None:
    for name, value in environment.items():
        clean_environment.setenv(f"COUNTERSEAL_{name}", value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert f"COUNTERSEAL_{named}" in str(caught.value)
    assert LONG not in str(caught.value)
    assert LONG not in repr(caught.value.__context__)


def test_with_no_setting_at_all_it_works(clean_environment: Any) -> None:
    clean_environment.delenv("COUNTERSEAL_HOME")
    settings = load_settings()
    assert (settings.home, settings.tenant, settings.host, settings.port) == (
        Path(".counterseal"),
        "default",
        "127.0.0.1",
        8080,
    )
    assert settings.signing_key_path == Path(".counterseal/keys/evidence.pem")
    assert settings.tenants == ("default",)


def test_an_empty_variable_counts_as_not_set(clean_environment: Any) -> None:
    for name in ("DATABASE_URL", "PORT", "WEBHOOKS", "HTTP_HOSTS", "SLACK_BOT_TOKEN"):
        clean_environment.setenv(f"COUNTERSEAL_{name}", "")
    settings = load_settings()
    assert (settings.database_url, settings.port, settings.webhooks, settings.http_hosts) == (None, 8080, {}, ())


def test_hosts_are_read_as_they_are_written(clean_environment: Any) -> None:
    clean_environment.setenv("COUNTERSEAL_HTTP_HOSTS", "Api.Example.com, internal:8443/private,[::1]:80/private")
    assert load_settings().http_hosts == (
        AllowedHost("api.example.com"),
        AllowedHost("internal", 8443, allow_private=True),
        AllowedHost("::1", 80, allow_private=True),
    )


def test_secrets_are_not_in_any_text_of_the_settings(clean_environment: Any) -> None:
    for name in ("SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET", "MODEL_API_KEY", "SERVICENOW_PASSWORD", "BPMN_PASSWORD"):
        clean_environment.setenv(f"COUNTERSEAL_{name}", LONG)
    clean_environment.setenv("COUNTERSEAL_BPMN_USERNAME", "u")
    clean_environment.setenv("COUNTERSEAL_DATABASE_URL", f"postgresql://u:{LONG}@h/d")
    clean_environment.setenv("COUNTERSEAL_WEBHOOKS", json.dumps({"a": {"secret": LONG, "tenant": "acme"}}))
    settings = load_settings()
    assert LONG not in repr(settings)
    assert LONG not in settings.model_dump_json()
    assert settings.tenants == ("acme", "default")


def test_a_variable_that_nothing_reads_is_found() -> None:
    known = {f"COUNTERSEAL_{name.upper()}": "x" for name in Settings.model_fields}
    assert unknown_variables(known) == ()
    assert unknown_variables({**known, "COUNTERSEAL_SLACK_TOKEN": "x", "OTHER": "y"}) == ("COUNTERSEAL_SLACK_TOKEN",)


@pytest.mark.parametrize("format_", get_args(LogFormat))
def test_log_lines_hide_secrets_and_local_variables(
    format_: LogFormat, restored_logging: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(format_, "debug")
    hidden = LONG
    try:
        raise ValueError(len(hidden))
    except ValueError:
        structlog.get_logger("x").exception("failed", bot_token=hidden, Authorization=hidden, run="r1")
    logging.getLogger("slack_sdk.web").debug("body %s", hidden)
    printed = capsys.readouterr().err
    assert "r1" in printed
    assert "ValueError" in printed
    assert LONG not in printed
    if format_ == "json":
        assert [json.loads(line)["event"] for line in printed.splitlines()] == ["failed"]


@pytest.mark.parametrize(
    "given", [{"username": "svc", "password": "pw"}, {"username": "svc", "client_id": "c", "client_secret": "s"}]
)
async def test_what_is_set_of_servicenow_is_what_its_connector_works_with(given: dict[str, str]) -> None:
    named = {f"servicenow_{name}": value for name, value in given.items()}
    url, limit = "https://a.service-now.com", {"servicenow_transaction_limit_seconds": 7.5}
    settings = load_settings(servicenow_url=url, **named, **limit)
    connectors = adapters.connectors_of(settings)
    try:
        found = vars(connectors["servicenow"])["_settings"]
    finally:
        await connectors.aclose()
    assert (found.base_url, found.transaction_limit_seconds) == (url, 7.5)
    assert found.account == "svc"
