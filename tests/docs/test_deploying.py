"""The files of deploy/: what can be checked of an image, a composition and a stack without any of them running."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from app.settings import unknown_variables

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DOCKERFILE, COMPOSE, STACK = (DEPLOY / name for name in ("Dockerfile", "compose.yaml", "cloudformation.yaml"))
USER = "10001:10001"
# Our processes in compose.yaml; the first two end before the others start.
STEPS, PROCESSES = ("upgrade", "setup"), ("serve", "work", "keep")


def document(path: Path) -> Any:
    """The YAML of a file; a tag of CloudFormation is an object of one member, as in its JSON."""

    def tagged(loader: Any, suffix: str, node: Any) -> Any:
        if hasattr(node, "value") and isinstance(node.value, str):
            value: Any = node.value
        else:
            value = loader.construct_sequence(node, deep=True)
        return {suffix: value.split(".", 1) if suffix == "GetAtt" and isinstance(value, str) else value}

    yaml = YAML(typ="safe", pure=True)
    yaml.constructor.add_multi_constructor("!", tagged)
    return yaml.load(path.read_text(encoding="utf-8"))


def inner(value: Any) -> Iterator[Any]:
    """The value and everything in it."""
    yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from inner(one)


@pytest.mark.parametrize("path", [DOCKERFILE, COMPOSE, STACK], ids=lambda path: path.name)
def test_a_file_names_what_there_is_and_nothing_of_ours(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = dict.fromkeys(re.findall(r"\bCOUNTERSEAL_[A-Z0-9_]+", text), "")
    assert named
    assert unknown_variables(named) == ()
    assert not re.search(r"(?<![\w/])/(?:work|home|root|Users)/", text), "no path of a machine"
    assert not re.search(r"\b(?:docker\.io|ghcr\.io|quay\.io|[\w.-]+\.dkr\.ecr\.|pypi\.|registry\.)", text)
    assert not re.search(
        r"(?i)\b(?:password|secret|token|key)['\"]?\s*[:=]\s*['\"]?[A-Za-z0-9+/]{12,}['\"]?$", text, re.MULTILINE
    )


def test_the_image_is_small_and_nobody_in_it_is_root() -> None:
    text = re.sub(r"\\\n\s*", " ", DOCKERFILE.read_text(encoding="utf-8"))
    orders = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    bases = [rest.split()[0] for word, rest in orders if word == "FROM"]
    assert len(bases) == 2
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-[a-z-]+", base) for base in bases), "pinned by its tag"
    assert [rest for word, rest in orders if word == "USER"] == [USER]
    last = dict(orders[[word for word, _ in orders].index("FROM", 1) :])
    assert json.loads(last["VOLUME"]) == ["/var/lib/counterseal", "/tmp"]
    assert "/healthz" in last["HEALTHCHECK"]
    assert (json.loads(last["ENTRYPOINT"]), json.loads(last["CMD"])) == (["counterseal"], ["serve"])
    assert "--require-hashes" in text
    taken = {line[1:] for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((DEPLOY.parent / name).exists() for name in taken)
    packages = re.search(r"^packages = (\[.*\])$", (DEPLOY.parent / "pyproject.toml").read_text(), re.MULTILINE)
    assert packages is not None
    assert {*json.loads(packages[1]), "requirements.txt", "pyproject.toml"} <= taken


def test_the_composition_starts_processes_after_the_upgrade() -> None:
    found = document(COMPOSE)
    services = found["services"]
    assert {*services} == {"postgres", *STEPS, *PROCESSES}
    for name in (*STEPS, *PROCESSES):
        one = services[name]
        assert (one["user"], one["read_only"], one["cap_drop"]) == (USER, True, ["ALL"]), name
        assert "no-new-privileges:true" in one["security_opt"]
        knows = "COUNTERSEAL_DATABASE_URL" in one["environment"]
        assert knows == (name in STEPS), "only the steps connect as the owner"
        assert {volume.split(":")[0] for volume in one["volumes"]} <= {*found["volumes"]}
    after = {name: next(iter(services[name]["depends_on"].items())) for name in (*STEPS, *PROCESSES)}
    done = {"condition": "service_completed_successfully"}
    assert after["upgrade"] == ("postgres", {"condition": "service_healthy"})
    assert after["setup"] == ("upgrade", done)
    assert all(after[name] == ("setup", done) for name in PROCESSES)
    assert services["upgrade"]["command"] == ["db", "upgrade"]
    assert not any(volume.startswith("engine") for volume in services["serve"]["volumes"]), "serve is a face alone"


def test_the_stack_refers_to_what_it_has_and_permits_little() -> None:
    text, stack = STACK.read_text(encoding="utf-8"), document(STACK)
    resources, parameters = stack["Resources"], stack["Parameters"]
    assert not re.search(r"(?m)^[^#\"']*(?:: |- )[&*]\w|<<:", text), "CloudFormation reads no aliases and no merges"
    names = {*resources, *parameters}
    for one in inner(stack):
        if isinstance(one, dict) and (one.keys() & {"Ref", "GetAtt", "Sub"}):
            ((kind, value),) = one.items()
            wanted = {"Ref": [value], "GetAtt": value[:1], "Sub": re.findall(r"\$\{([\w:]+)", str(value))}[kind]
            assert all(name in names or name.startswith("AWS::") for name in wanted), one
    for name, role in resources.items():
        if role["Type"] == "AWS::IAM::Role":
            for policy in role["Properties"].get("Policies", []):
                for statement in policy["PolicyDocument"]["Statement"]:
                    assert "*" not in str(statement["Action"]), name
                    assert statement["Resource"] != "*", name
    wanted = json.loads((DEPLOY / "iam-policy.json").read_text())["Statement"]
    granted = resources["Processes"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    assert {one["Sid"]: one["Action"] for one in wanted}.items() <= {
        one["Sid"]: one["Action"] for one in granted
    }.items()
    tasks = {name: one for name, one in resources.items() if one["Type"] == "AWS::ECS::TaskDefinition"}
    assert {*tasks} == {"UpgradeTask", "ServeTask", "WorkTask", "KeepTask"}
    for name, task in tasks.items():
        (container,) = task["Properties"]["ContainerDefinitions"]
        assert (container["User"], container["ReadonlyRootFilesystem"]) == (USER, True), name
        secret = {one["Name"] for one in container["Secrets"]}
        assert ("COUNTERSEAL_ENGINE_DATABASE_URL" in secret) == (name in ("WorkTask", "KeepTask"))
        assert ("OWNER_PASSWORD" in secret) == (name == "UpgradeTask")
    assert "db upgrade" in str(tasks["UpgradeTask"])
    bucket, database = resources["Evidence"]["Properties"], resources["Database"]["Properties"]
    assert bucket["ObjectLockEnabled"] is True
    assert (database["StorageEncrypted"], database["PubliclyAccessible"]) == (True, False)
    assert resources["DatabaseParameters"]["Properties"]["Parameters"] == {"rds.force_ssl": "1"}
    assert "deadLetterTargetArn" in resources["Steps"]["Properties"]["RedrivePolicy"]


def test_the_linter_of_cloudformation_finds_nothing_in_the_stack() -> None:
    linter = Path(sys.executable).with_name("cfn-lint")
    done = subprocess.run([linter, STACK], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
