"""The demo's judgement and its words, by themselves: what counts as told, what the outside must say, what is said."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.demo import story
from app.demo.people import AGENT_STORY, STORIES, Incident, IncidentRun
from app.demo.view import View
from app.demo.world import World

RUNS = [{"run_id": f"r{number}", "status": "succeeded", "error": None} for number in range(4)]
RUNS[1] |= {"status": "failed_terminal", "error": {"code": "rejected"}}
RUNS[2] |= {"status": "failed_terminal", "error": {"code": "policy_denied"}}
TOLD = [
    IncidentRun(Incident(f"INC{number}", f"s{number}", each), run, Path(f"b{number}.zip"), f"h{number}", verified=True)
    for number, (each, run) in enumerate(zip((*STORIES, AGENT_STORY), RUNS, strict=True))
]


def test_a_run_ends_as_told_if_its_status_its_error_and_its_evidence_say_so() -> None:
    assert [one.ended_as_told for one in TOLD] == [True] * 4
    for number, one in enumerate(TOLD):
        other = RUNS[(number + 1) % 3]
        for changed in (
            replace(one, run=None),
            replace(one, bundle=None),
            replace(one, verified=False),
            replace(one, run={**RUNS[number], "status": "canceled"}),
            replace(one, run={**RUNS[number], "error": {"code": "timeout"}}),
            replace(one, run={**other}),
        ):
            assert not changed.ended_as_told


class Outside:
    """The stand-ins' records and announcements."""

    def __init__(self, records: list[dict[str, str]], texts: list[str]) -> None:
        self._records, self._texts = records, texts

    async def incident(self, incident: Incident) -> dict[str, str]:
        return self._records[int(incident.number[-1])]

    async def messages(self, channel: str) -> list[dict[str, str]]:
        assert channel == "C0INC"
        return [{"text": text} for text in self._texts]


@pytest.mark.parametrize("ended", [TOLD, [*TOLD[:3], replace(TOLD[3], verified=False)], [replace(TOLD[0], run=None)]])
@pytest.mark.parametrize("agrees", [True, False])
async def test_a_demo_succeeds_if_all_ended_as_told_and_the_outside_agrees(
    clean_environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    ended: list[IncidentRun],
    agrees: bool,
) -> None:
    """Give the demo a home of its own, and nothing of the settings of the installation."""
    asked: list[Any] = []

    @asynccontextmanager
    async def world(home: Path, *, aws: bool) -> AsyncIterator[World]:
        asked.append((home.name, aws, sorted(name for name in os.environ if name.startswith("COUNTERSEAL_"))))
        yield World("servicenow", "slack", "app", {"COUNTERSEAL_HOME": str(home), "COUNTERSEAL_TENANT": "shown"})

    @asynccontextmanager
    async def faces(settings: Any) -> AsyncIterator[str]:
        asked.append((settings.home.name, settings.tenant, settings.s3_bucket))
        yield "faces"

    async def play(_: Any, people: Any, examples: Path, view: Any, *, auto: bool) -> list[IncidentRun]:
        asked.append((people.world.slack, str(examples), auto))
        return ended

    async def outside(people: Any, told: Any) -> bool:
        assert told is ended
        return agrees

    for name, value in (("HOME", str(tmp_path / "ours")), ("S3_BUCKET", "ours"), ("TENANT", "ours"), ("PORT", "1")):
        clean_environment.setenv(f"COUNTERSEAL_{name}", value)
    clean_environment.chdir(tmp_path)
    (tmp_path / "examples" / "workflows").mkdir(parents=True)
    for name, stub in (("demo_world", world), ("build_faces", faces), ("_play", play), ("_outside_agrees", outside)):
        clean_environment.setattr(story, name, stub)
    clean_environment.setattr(os, "environ", dict(os.environ))
    clean_environment.setattr(View, "farewell", lambda *_: None)
    as_told, aws = all(one.ended_as_told for one in ended), not agrees
    assert await story.run_demo(auto=True, aws=aws) == (0 if as_told and agrees else 1)
    assert asked == [("ours-demo", aws, []), ("ours-demo", "shown", None), ("slack", "examples", True)]
    assert isinstance(json.loads(capsys.readouterr().out.splitlines()[-1]), dict)


GOOD = [{"priority": priority, "state": "1"} for priority in "1345"]


def changed(number: int, **more: str) -> list[dict[str, str]]:
    return [{**one, **(more if number == at else {})} for at, one in enumerate(GOOD)]


@pytest.mark.parametrize(
    ("records", "texts", "agrees"),
    [
        (GOOD, ["INC0 is on its way"], True),
        (GOOD, [], False),
        (GOOD, ["INC0", "INC0"], False),
        (GOOD, ["INC0", "INC3"], False),
        (changed(0, priority="2"), ["INC0"], False),
        (changed(1, priority="1"), ["INC0"], False),
        (changed(3, state="6"), ["INC0"], False),
        (changed(3, state="7"), ["INC0"], False),
        (changed(3, watch_list="x"), ["INC0"], False),
        (changed(3, comments="x"), ["INC0"], False),
    ],
)
async def test_the_outside_must_agree(records: list[dict[str, str]], texts: list[str], agrees: bool) -> None:
    outside: Any = Outside(records, texts)
    assert await story._outside_agrees(outside, TOLD) is agrees


def test_the_last_line_tells_each_run() -> None:
    bare = IncidentRun(TOLD[0].incident)
    assert story._report([TOLD[1], bare], 12.345) == {
        "runs": [
            {
                "run_id": "r1",
                "reference": "INC1",
                "status": "failed_terminal",
                "bundle": "b1.zip",
                "sha256": "h1",
                "verified": True,
            },
            {
                "run_id": None,
                "reference": "INC0",
                "status": None,
                "bundle": None,
                "sha256": None,
                "verified": False,
            },
        ],
        "seconds": 12.3,
    }


@pytest.mark.parametrize("auto", [True, False])
def test_the_words_of_the_demo_name_where_to_look(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, auto: bool
) -> None:
    monkeypatch.setattr("sys.argv", ["counterseal"])
    world = World("http://now", "http://slack", "http://app", {"COUNTERSEAL_HOME": "a b"})
    view = View(auto=auto)
    view.introduce(world, [one.incident for one in TOLD])
    for told in (
        [replace(one, run=None, bundle=None) for one in TOLD],
        [replace(one, bundle=None) for one in TOLD],
        [*TOLD[:3], replace(TOLD[3], verified=False)],
        TOLD[:3],
    ):
        view.show(told)
    view.farewell(world, TOLD)
    said = capsys.readouterr().out
    command = "COUNTERSEAL_HOME='a b' counterseal"
    for words in (
        "http://slack/c/C0OPS\n",
        "http://now/\n",
        "http://app (asks for a token)\n",
        *(f"INC{number} {one.incident.story.text}\n" for number, one in enumerate(TOLD)),
        *(f"INC{number}: not started\n" for number in range(4)),
        "INC0: succeeded\n",
        "INC1: failed_terminal: rejected\n",
        "INC2: failed_terminal: policy denied\n",
        "INC0: succeeded, evidence verified\n",
        "INC3: succeeded, evidence does not verify\n",
        f"{command} run show r0\n",
        f"{command} run show r3  # the agent, turn by turn\n",
        f"{command} evidence get r0 -o evidence.zip\n",
        f"{command} evidence verify b0.zip --key evidence.pub.pem\n",
        f"{command} run list\n",
    ):
        assert said.count(words) == 1, words
    asks = "Press Approve on the card of INC0 and Reject on that of INC1"
    assert ("Raj has asked an agent to look after INC3, where" in said) is not auto
    assert (asks in said, f"{command} approval list\n" in said) == (not auto, not auto)
    assert ("logs are in a b/demo. Ctrl-C ends it." in said) is not auto
    view.farewell(replace(world, environment={**world.environment, "COUNTERSEAL_S3_BUCKET": "b"}), TOLD)
    assert "evidence get" not in capsys.readouterr().out
