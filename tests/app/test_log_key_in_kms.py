"""The key of the logs may stand in AWS KMS: it signs what a file's key signs, and whatever else KMS says is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app import adapters, logbook
from app.cli.outcome import Exit
from app.settings import load_settings
from core.errors import ConfigurationError, CountersealError, InputError, TransportError
from evidence.log.rings import Ring, Rotation
from evidence.log.signer import Memory, Remembered
from tests.support.kms import Kms, kms_serving


@pytest.fixture
def kms(clean_environment: Any) -> Iterator[Kms]:
    with kms_serving() as found:
        found.add("alias/log")
        given = {"AWS_ENDPOINT_URL": found.url, "AWS_REGION": "eu-central-1", "LOG_KEY": "aws-kms:alias/log"}
        for name, value in given.items():
            clean_environment.setenv(f"COUNTERSEAL_{name}", value)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            clean_environment.setenv(name, "x")
        yield found


def test_a_log_is_signed_verified_and_handed_on_by_keys_in_kms(
    command: Any, kms: Kms, work_off: Any, outside_world: Any, tmp_path: Path, clean_environment: Any
) -> None:
    policy, log = tmp_path / "policy.yaml", load_settings().log_path / "default"
    policy.write_text("policy: p\nversion: 1\nrules: [{id: no, match: {connector: records}, outcome: deny}]\n")
    command("policy", "publish", str(policy))
    command("log", "sign", "--once")
    first = command("log", "key").strip()
    assert command.json("log", "verify", str(log), "--log-key", first)["problems"] == []
    # An alias that points at another key is another key of the logs, to which nobody has handed them on.
    kms.add("alias/log")
    work_off(outside_world)
    command("log", "sign", "--once", exit_code=Exit.CONFIGURATION)
    assert "have had another key" in command.said
    assert command.json("log", "verify", str(log), "--log-key", first)["problems"] == []
    (arn, *_), kms.aliases["alias/next"] = kms.keys, kms.aliases["alias/log"]
    kms.aliases["alias/log"] = arn
    # The old key ends itself for the next one, and a reader who trusts it follows.
    note = command.json("log", "rotate", "aws-kms:alias/next")["note"]
    command("log", "sign", "--once", exit_code=Exit.CONFIGURATION)
    clean_environment.setenv("COUNTERSEAL_LOG_KEY", "aws-kms:alias/next")
    work_off(outside_world)
    command("log", "sign", "--once")
    assert command.json("log", "verify", str(log), "--log-key", first, "--rotation", note)["problems"] == []
    assert {one["MessageType"] for one in kms.asked if one["operation"] == "Sign"} == {"RAW"}


def answers(**named: Any) -> Callable[[Kms], None]:
    return lambda kms: setattr(kms, "wrong", lambda answer: answer.update(named))


NO_KEY = base64.b64encode(b"x" * 44).decode()
# What KMS says, what is raised, and a word of it.
FAULTS: dict[str, tuple[Callable[[Kms], object], type[CountersealError], str]] = {
    "no such key": (lambda kms: kms.aliases.clear(), ConfigurationError, "NotFoundException"),
    "disabled": (lambda kms: setattr(kms, "refuses", "DisabledException"), ConfigurationError, "DisabledException"),
    "not allowed": (lambda kms: setattr(kms, "refuses", "AccessDeniedException"), ConfigurationError, "AccessDenied"),
    "busy": (lambda kms: setattr(kms, "refuses", "KeyUnavailableException"), TransportError, "KeyUnavailable"),
    "another kind of key": (lambda kms: setattr(kms, "spec", "ECC_NIST_P256"), ConfigurationError, "ECC_NIST_P256"),
    "a key for something else": (answers(KeyUsage="KEY_AGREEMENT"), ConfigurationError, "KEY_AGREEMENT"),
    "only the prehashed kind": (answers(SigningAlgorithms=["ED25519_PH_SHA_512"]), ConfigurationError, "no log"),
    "no public key": (answers(PublicKey=NO_KEY), TransportError, "no Ed25519 key"),
    "another key's signature": (answers(Signature=base64.b64encode(b"x" * 64).decode()), TransportError, "is not of"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_kms_does_not_answer_as_it_should_signs_nothing(kms: Kms, name: str) -> None:
    fault, error, words = FAULTS[name]
    fault(kms)
    with pytest.raises(error, match=words):
        adapters.kms_signer_of(load_settings(), "alias/log").sign(b"a checkpoint")


def test_kms_that_is_away_and_a_message_that_is_too_long(kms: Kms, clean_environment: Any) -> None:
    signer = adapters.kms_signer_of(load_settings(), "alias/log")
    assert signer.public_key.verify(b"x" * 4096, signer.sign(b"x" * 4096))
    with pytest.raises(InputError, match="4096"):
        signer.sign(b"x" * 4097)
    clean_environment.setenv("COUNTERSEAL_AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(TransportError):
        adapters.kms_signer_of(load_settings(), "alias/log")


def test_the_end_of_a_key_of_many_logs_is_told_in_notes_that_kms_signs(kms: Kms, clean_environment: Any) -> None:
    """A reader who lacks one of the notes trusts the old key for none of its logs; a crash between two is made good."""
    kms.add("alias/next")
    settings = load_settings()
    sizes = {f"counterseal/tenant-{number:03}": number + 1 for number in range(300)}
    for origin, size in sizes.items():
        Memory(settings.log_memory_path).keep(Remembered(origin, size))
    settings.log_memory_path.mkdir(parents=True, exist_ok=True)
    paths, following = logbook.rotate(settings, Path("aws-kms:alias/next"))
    assert len(paths) > 1
    lost = paths.pop()
    gone = lost.read_bytes()
    lost.unlink()
    (again,), same = logbook.rotate(settings, Path("aws-kms:alias/next"))
    assert (again, same) == (lost, following)
    assert again.read_bytes().split(b"\n")[2:] != gone
    with pytest.raises(CountersealError, match="ended already"):
        logbook.rotate(settings, Path("aws-kms:alias/next"))
    old = logbook.note_key(settings, logbook.signer_of(settings, settings.log_key_path))
    notes = [Rotation.parse(path.read_bytes()) for path in (*paths, lost)]
    whole, part = Ring.of(old, notes), Ring.of(old, notes[:-1])
    assert whole.rotations[0].sizes == sizes
    last = max(sizes)
    assert (whole.holding(last, 300), part.holding(last, 300)) == (old.renamed(last), following.renamed(last))
    assert all(whole.holding(origin, size + 1) == following.renamed(origin) for origin, size in sizes.items())
