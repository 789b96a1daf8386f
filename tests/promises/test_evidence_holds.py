"""Evidence is kept as the settings promise, and holds what a verifier needs to judge anew (promise 7)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest

from app import adapters
from app.settings import load_settings
from connectors.catalog import Source, load_catalog
from runtime.definition.workflow import load_workflow
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.origins.agent import matching_of
from tests.support.agents import agent
from tests.support.runtime_stage import OPERATIONS

BUCKET, REGION = "evidence-test", "us-east-1"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with warnings.catch_warnings():
        # botocore and moto, not we, use what Python is going to remove
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        from moto import mock_aws

        with mock_aws():
            client = boto3.client("s3", region_name=REGION)
            client.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
            yield client


@pytest.mark.req("P-9")
@pytest.mark.parametrize("prefix", ["", "kept"])
async def test_evidence_in_a_bucket_is_locked_if_the_settings_say_so(s3: Any, tmp_path: Path, prefix: str) -> None:
    settings = load_settings(
        home=tmp_path, s3_bucket=BUCKET, s3_prefix=prefix, aws_region=REGION,
        s3_object_lock_mode="COMPLIANCE", s3_object_lock_days=30,
    )  # fmt: skip
    data = b"a bundle"
    await adapters.blobs_of(settings).put("acme/run-1.zip", data, sha256(data).hexdigest())
    (stored,) = s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    assert s3.head_object(Bucket=BUCKET, Key=stored["Key"]).get("ObjectLockMode") == "COMPLIANCE"


@pytest.mark.req("P-14")
def test_a_verifier_is_told_the_kinds_of_arguments_also_of_fields_that_are_written() -> None:
    """Text and flags are matched otherwise than single values: without their kinds another origin would be found."""
    declared = OPERATIONS.replace(
        "properties: {priority: {type: string}", "properties: {priority: {type: string, x-argument: text}"
    )
    text = agent().replace("- probe.value.read", "- probe.record.update")
    node = load_workflow(text, "test.yaml", load_catalog([Source("probe.yaml", declared)])).graph.leaf("triage")
    assert isinstance(node, AgentNode)
    told: Any = matching_of(node)["probe_record_update"]
    assert told["kinds"] == {"fields/priority": "text"}
