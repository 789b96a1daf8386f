"""The demo's processes, which it stops at its end: the stand-ins, Counterseal (`up`), moto's thread if asked for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from app.postgres_cluster import free_port
from core.errors import ConfigurationError, DeadlineError, TransportError

START_SECONDS = 60.0
STOP_SECONDS = 20.0
CARDS_CHANNEL = "C0OPS"
ENDPOINT = "demo"


@dataclass(frozen=True)
class World:
    """The addresses of the demo's parts. ``environment`` holds the settings that Counterseal was started with."""

    servicenow: str
    slack: str
    app: str
    environment: Mapping[str, str] = field(repr=False)


@asynccontextmanager
async def demo_world(home: Path, *, aws: bool) -> AsyncIterator[World]:
    """Start everything, and end it again."""
    folder = home / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    # In hexadecimal: the stand-ins would read a secret that begins with a dash as an option.
    webhook_secret, signing_secret = secrets.token_hex(24), secrets.token_hex(24)
    app_url = f"http://127.0.0.1:{port}"
    sandbox_command = [
        sys.executable, "-P", "-m", "sandbox",
        "--webhook-url", f"{app_url}/webhooks/servicenow/{ENDPOINT}", "--webhook-secret", webhook_secret,
        "--interactivity-url", f"{app_url}/slack/events", "--signing-secret", signing_secret,
    ]  # fmt: skip
    async with _process(sandbox_command, os.environ, folder / "sandbox.log", talks=True) as sandbox:
        urls = await _first_line(sandbox, folder / "sandbox.log")
        stand_in: AbstractContextManager[dict[str, str]] = _aws() if aws else nullcontext({})
        with stand_in as aws_environment:
            environment = {
                "COUNTERSEAL_HOME": str(home),
                "COUNTERSEAL_PORT": str(port),
                "COUNTERSEAL_SLACK_BOT_TOKEN": "xoxb-sandbox",
                "COUNTERSEAL_SLACK_API_URL": urls["slack_api"],
                "COUNTERSEAL_SLACK_CHANNEL": CARDS_CHANNEL,
                "COUNTERSEAL_SLACK_SIGNING_SECRET": signing_secret,
                "COUNTERSEAL_SERVICENOW_URL": urls["servicenow"],
                "COUNTERSEAL_SERVICENOW_USERNAME": "counterseal.integration",
                "COUNTERSEAL_SERVICENOW_PASSWORD": "sandbox",
                "COUNTERSEAL_MODEL_URL": urls["model"],
                "COUNTERSEAL_MODEL_API_KEY": "sk-sandbox",
                "COUNTERSEAL_WEBHOOKS": json.dumps({ENDPOINT: {"secret": webhook_secret}}),
                **aws_environment,
            }
            command = [sys.executable, "-P", "-m", "app", "up"]
            async with _process(command, {**os.environ, **environment}, folder / "counterseal.log") as app:
                await _healthy(app, app_url, folder / "counterseal.log")
                yield World(urls["servicenow"], urls["slack"], app_url, environment)


@contextmanager
def _aws() -> Iterator[dict[str, str]]:
    """Run moto's SQS and S3, with a queue, its dead letters, and a bucket under Object Lock; yield the settings."""
    try:
        import boto3
        from moto.server import ThreadedMotoServer
    except ImportError:
        remedy = "Use `make demo AWS=moto`, which installs it."
        raise ConfigurationError("The demo against AWS needs moto.", remedy=remedy) from None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto's server would write every request to the terminal
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        keys = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_DEFAULT_REGION": "us-east-1"}
        os.environ.update(keys)
        session = {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"}
        sqs, s3 = boto3.client("sqs", **session), boto3.client("s3", **session)
        dead = sqs.create_queue(QueueName="counterseal-dead-letters")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "5"})
        queue = sqs.create_queue(QueueName="counterseal-steps", Attributes={"RedrivePolicy": redrive})["QueueUrl"]
        s3.create_bucket(Bucket="counterseal-evidence", ObjectLockEnabledForBucket=True)
        yield {
            **keys,
            "COUNTERSEAL_AWS_ENDPOINT_URL": session["endpoint_url"],
            "COUNTERSEAL_AWS_REGION": "us-east-1",
            "COUNTERSEAL_SQS_QUEUE_URL": queue,
            "COUNTERSEAL_SQS_DLQ_URL": dead,
            "COUNTERSEAL_S3_BUCKET": "counterseal-evidence",
            "COUNTERSEAL_S3_OBJECT_LOCK_MODE": "COMPLIANCE",
            "COUNTERSEAL_S3_OBJECT_LOCK_DAYS": "1",
        }
    finally:
        server.stop()


@asynccontextmanager
async def _process(
    command: list[str], environment: Mapping[str, str], log: Path, *, talks: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a child that writes to ``log``, or to a pipe to us if it ``talks``. At the end terminate it, then kill it."""
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(environment),
            stdout=asyncio.subprocess.PIPE if talks else file,
            stderr=file,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), STOP_SECONDS)
                except TimeoutError:
                    process.kill()
                    await process.wait()


async def _first_line(process: asyncio.subprocess.Process, log: Path) -> dict[str, str]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            urls: dict[str, str] = json.loads(await process.stdout.readline())
    except TimeoutError:
        raise DeadlineError("The stand-ins did not start.", remedy=f"See {log}.") from None
    except ValueError:
        raise TransportError("The stand-ins did not start.", remedy=f"See {log}.") from None
    return urls


async def _healthy(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    """Wait until Counterseal answers; if it ends instead, raise an error that names its log."""
    try:
        async with asyncio.timeout(START_SECONDS), httpx.AsyncClient() as client:
            while True:
                if process.returncode is not None:
                    raise TransportError(f"Counterseal ended with {process.returncode}.", remedy=f"See {log}.")
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"{url}/healthz")).status_code == httpx.codes.OK:
                        return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise DeadlineError("Counterseal did not answer in time.", remedy=f"See {log}.") from None
