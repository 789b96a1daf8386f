"""Each keeper of secrets: the tenant's own place alone, the version, and errors that name the secret and no value."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from connectors.keepers.aws import AwsSecrets
from connectors.keepers.local import Keepers
from connectors.keepers.vault import KvVault
from core.secret_values import Keeper, Secret, SecretError, Target, Use
from sandbox.server import LoopbackServer

VALUE, TOKEN = "v4lue-that-is-secret", "hvs.token"


class StrictVault:
    """Vault's key/value engine, version 2, by its API documentation (KV v2: read secret version; errors)."""

    def __init__(self) -> None:
        self.kept: dict[str, list[dict[str, Any] | None]] = {}
        self.sealed = False
        self.app = Starlette(routes=[Route("/v1/kv/data/{path:path}", self.read, methods=["GET"])])

    async def read(self, request: Request) -> Response:
        if self.sealed:
            return JSONResponse({"errors": ["Vault is sealed"]}, 503)
        if request.headers.get("x-vault-token") != TOKEN or request.headers.get("x-vault-namespace") != "ops":
            return JSONResponse({"errors": ["permission denied"]}, 403)
        versions = self.kept.get(request.path_params["path"], [])
        if not versions:
            return JSONResponse({"errors": []}, 404)
        about = {"created_time": "2026-01-01T00:00:00Z", "deletion_time": "", "destroyed": False}
        about |= {"version": len(versions), "custom_metadata": None}
        if versions[-1] is None:  # the newest version is deleted: 404, with its metadata
            data = {"data": None, "metadata": about | {"deletion_time": "2026-01-02T00:00:00Z"}}
            return JSONResponse({"request_id": "r", "data": data}, 404)
        return JSONResponse({"request_id": "r", "lease_id": "", "data": {"data": versions[-1], "metadata": about}})


@pytest.fixture
def aws() -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    yield boto3.client("secretsmanager", "eu-west-1", endpoint_url=f"http://{host}:{port}", **keys)
    server.stop()


@pytest.fixture
async def vault() -> AsyncIterator[tuple[StrictVault, KvVault]]:
    stand_in = StrictVault()
    async with LoopbackServer(stand_in.app) as server:
        client = KvVault(server.url, "/kv/", lambda: TOKEN, "ops")
        yield stand_in, client
        await client.aclose()


def secret(keeper: Keeper, key: str | None = None, tenant: str = "acme", place: str = "crm") -> Secret:
    return Secret(tenant, "crm_token", keeper, place, key, (Target("crm.example"),))


async def refused(keeper: Any, asked: Secret) -> tuple[str, bool]:
    with pytest.raises(SecretError) as error:
        await keeper.read(asked)
    assert VALUE not in str(error.value)
    assert "The secret crm_token of the tenant" in str(error.value)
    return str(error.value), error.value.again


async def test_vault(vault: tuple[StrictVault, KvVault]) -> None:
    stand_in, client = vault
    stand_in.kept["acme/crm"] = [{"token": "old"}, {"token": VALUE, "number": 7}]
    found = await client.read(secret(Keeper.VAULT, "token"))
    assert (found.text, found.version, VALUE in repr(found)) == (VALUE, "2", False)
    assert (await refused(client, secret(Keeper.VAULT)))[0].count("no text under 'value'") == 1
    assert "no text under 'number'" in (await refused(client, secret(Keeper.VAULT, "number")))[0]
    assert "there is none at this path" in (await refused(client, secret(Keeper.VAULT, "token", "globex")))[0]
    stand_in.kept["acme/crm"].append(None)
    assert "there is none at this path" in (await refused(client, secret(Keeper.VAULT, "token")))[0]
    stand_in.sealed = True
    assert (await refused(client, secret(Keeper.VAULT, "token")))[1], "a sealed Vault may open again"


async def test_aws_secrets_manager(aws: Any) -> None:
    client = AwsSecrets(aws)
    plain = aws.create_secret(Name="counterseal/acme/crm", SecretString=json.dumps({"token": VALUE}))
    found = await client.read(secret(Keeper.AWS, "token"))
    assert (found.text, found.version) == (VALUE, plain["VersionId"])
    newer = aws.put_secret_value(SecretId="counterseal/acme/crm", SecretString=f"whole {VALUE}")
    assert (await client.read(secret(Keeper.AWS))).text == f"whole {VALUE}"
    assert (await client.read(secret(Keeper.AWS))).version == newer["VersionId"] != plain["VersionId"]
    assert "holds no text under 'token'" in (await refused(client, secret(Keeper.AWS, "token")))[0]
    said, again = await refused(client, secret(Keeper.AWS, tenant="globex"))
    assert ("ResourceNotFoundException for counterseal/globex/crm" in said, again) == (True, False)


async def test_the_environment_and_files(tmp_path: Path) -> None:
    for tenant in ("acme", "globex"):
        (tmp_path / tenant).mkdir()
        (tmp_path / tenant / "crm").touch(mode=0o600)
        (tmp_path / tenant / "crm").write_text(f"{tenant}-{VALUE}\n")
    (tmp_path / "acme" / "led").symlink_to(tmp_path / "globex")
    (tmp_path / "acme" / "open").write_text(VALUE)
    (tmp_path / "acme" / "open").chmod(0o644)
    keepers = Keepers({"acme": {"crm": VALUE}}, tmp_path, {})
    found = await keepers.read(secret(Keeper.ENVIRONMENT))
    assert (found.text, found.version) == (VALUE, "environment")
    assert (await keepers.read(secret(Keeper.FILE))).text == f"acme-{VALUE}"
    cases = {
        secret(Keeper.ENVIRONMENT, tenant="globex"): "is not in the environment",
        secret(Keeper.FILE, place="led/crm"): "leads out of",
        secret(Keeper.FILE, place="open"): "no file that only its owner can read",
        secret(Keeper.FILE, place="none"): "cannot be read: No such file",
        secret(Keeper.VAULT): "is kept by vault, which is not set. Set COUNTERSEAL_VAULT_URL",
    }
    for asked, said in cases.items():
        assert said in (await refused(keepers, asked))[0]


@pytest.mark.parametrize(
    ("declared", "target", "fits"),
    [
        ("crm.example", Target("crm.example"), True),
        ("crm.example", Target("crm.example", 8443), False),
        ("crm.example:8443", Target("crm.example", 8443), True),
        ("CRM.example", Target("crm.example"), True),
        ("crm.example as robot", Target("crm.example", None, "robot"), True),
        ("crm.example as robot", Target("crm.example", None, "root"), False),
        ("crm.example as robot", Target("crm.example"), False),
        ("crm.example", Target("evil-crm.example"), False),
        ("crm.example", Target("crm.example.evil"), False),
        ("crm.example", Use.INCOMING, False),
    ],
)
def test_a_secret_is_for_the_targets_that_it_names(declared: str, target: Target | Use, fits: bool) -> None:
    one = Secret("acme", "s", Keeper.ENVIRONMENT, "s", None, (Target.of(declared),), (Use.EVIDENCE,))
    if fits:
        one.check(target)
        return
    with pytest.raises(SecretError, match="The secret s of the tenant acme is not for"):
        one.check(target)
