"""Processes beside ours get the environment that they need: no secret of the settings, no credentials of AWS."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from app import adapters, environments
from app.helpers import Helpers
from app.settings import PREFIX, Settings, load_settings
from runtime.store import claims
from runtime.work.holding import claim_of

CANARY = "xapp-canary-canary-canary-canary-canary"
ADDRESS = f"postgresql://me:{CANARY}@db.example:5433/crm?sslmode=require&password={CANARY}"
# A value of each setting that holds a secret, whatever its shape.
SHAPES = {
    "database_url": ADDRESS,
    "engine_database_url": ADDRESS,
    "faces_database_url": ADDRESS,
    "sql_url": ADDRESS,
    "secrets": json.dumps({"default": {"crm": CANARY}}),
    "webhooks": json.dumps({"incidents": {"secret": CANARY}}),
    "otel_headers": json.dumps({"authorization": CANARY}),
    "mcp_servers": json.dumps({"crm": {"url": "https://mcp.example", "headers": {"authorization": CANARY}}}),
}
# What stands beside them, and has to reach whoever rehearses: the systems, and how long a lease is.
BESIDE = {
    "SERVICENOW_URL": "https://now.example",
    "SERVICENOW_USERNAME": "us",
    "SERVICENOW_CLIENT_ID": "id",
    "MODEL_URL": "https://model.example",
    "BPMN_URL": "https://bpmn.example",
    "BPMN_USERNAME": "us",
    "HTTP_HOSTS": "a.example,b.example:8443",
    "OTEL_ENDPOINT": "https://otel.example",
    "OIDC_ISSUER": "https://issuer.example",
    "OIDC_CLIENT_ID": "id",
    "CONSOLE_URL": "https://us.example",
    "LEASE_SECONDS": "77",
}
CREDENTIALS = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "HTTPS_PROXY",
    "COUNTERSEAL_UNKNOWN_TOKEN",
    "OPENAI_API_KEY",
)


def holds_secret(annotation: Any) -> bool:
    """By the words of the type, so that a secret in a new shape is seen here, too."""
    models = [one for one in BaseModel.__subclasses__() if one.__name__ in str(annotation)]
    inner = [str(member.annotation) for one in models for member in one.model_fields.values()]
    return SecretStr.__name__ in " ".join((str(annotation), *inner))


def told() -> Iterator[tuple[str, str]]:
    """An environment in which every setting that may hold a secret holds the canary."""
    for name, field in Settings.model_fields.items():
        if holds_secret(field.annotation):
            yield PREFIX + name.upper(), SHAPES.get(name, CANARY)
    yield from ((PREFIX + name, value) for name, value in BESIDE.items())
    yield from ((name, CANARY) for name in CREDENTIALS)


def of_helpers() -> list[str]:
    """The environments of the helpers that this process has now, as the system knows them."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = place.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and b"app.helper" in place.joinpath("cmdline").read_bytes():
                found.append(place.joinpath("environ").read_bytes().decode())
        except OSError:  # it has ended meanwhile
            continue
    return found


def test_whoever_rehearses_knows_the_systems_and_no_secret(clean_environment: pytest.MonkeyPatch) -> None:
    for name, value in told():
        clean_environment.setenv(name, value)
    whole, plain = environments.without_secrets(os.environ), environments.plain(os.environ)
    assert CANARY not in str(whole)
    assert not [name for name in plain if name.startswith((PREFIX, "AWS_", "PG"))]
    assert CANARY not in str(plain)
    before = load_settings()
    for name in set(os.environ) - whole.keys():
        clean_environment.delenv(name)
    for name, value in whole.items():
        clean_environment.setenv(name, value)
    after = load_settings()
    made, own = adapters.connectors_of(after), adapters.connectors_of(before)
    assert {name: one.target for name, one in made.items()} == {name: one.target for name, one in own.items()}
    assert {"servicenow", "slack", "model", "bpmn", "sql"} <= {*made}
    different = {name for name in Settings.model_fields if getattr(before, name) != getattr(after, name)}
    assert all(holds_secret(Settings.model_fields[name].annotation) for name in different), different


async def test_a_helper_has_no_secret_and_does_its_work(installation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = await installation.start("simple")
    async with installation.engine.connection() as connection:
        (record,) = await claims.claim_next(connection, "w", timedelta(seconds=60))
    for name, value in told():
        monkeypatch.setenv(name, value)
    async with aclosing(Closing()) as helpers:
        await helpers.read("default", "workflow", "workflow: x\n" + "# y\n" * 5_000, "long.yaml", {})
        (reads,) = of_helpers()
        claim, owner = claim_of(record)
        await helpers.rehearse(installation.engine.url, "default", run_id, claim, owner)
        both = of_helpers()
        assert len(both) == 2, "a helper that reads texts rehearses nothing"
        assert PREFIX not in reads
        assert CANARY not in str(both)
        assert f"{PREFIX}LEASE_SECONDS=77" in str(both)


class Closing(Helpers):
    """Helpers that end with their test."""

    async def aclose(self) -> None:
        await self.close()
