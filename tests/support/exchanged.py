"""An outside system on a clock of its own, in place of exchanges over HTTP: what it is asked, and for how long."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from connectors.bpmn import client as bpmn_client
from connectors.bpmn import connector as bpmn_connector
from connectors.exchange import Answer
from connectors.model import connector as model_connector
from connectors.port import InDoubt, NotSent
from connectors.servicenow import client as servicenow_client


class Outside:
    """An outside system that takes a second and a half for each answer. What it is asked is noted with its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 100.0
        self.answers: list[Any] = []
        self.asked: list[tuple[str, str, bool, float]] = []
        self.most: list[int] = []
        self.bodies: list[Any] = []
        for module in (bpmn_client, model_connector, servicenow_client):
            monkeypatch.setattr(module, "exchange", self._exchange)
        for module in (bpmn_connector, servicenow_client):
            monkeypatch.setattr(module, "deadline_in", lambda seconds: self.passed + seconds)
            monkeypatch.setattr(module, "seconds_to", lambda deadline: deadline - self.passed)

    async def _exchange(
        self, _: Any, request: httpx.Request, *, effect: bool, timeout_seconds: float, body_bytes_max: int = 0
    ) -> Any:
        self.asked.append((request.method, request.url.raw_path.decode(), effect, timeout_seconds))
        self.most.append(body_bytes_max)
        text = request.content.decode()
        self.bodies.append(json.loads(text) if text.startswith("{") else text)
        self.passed += 1.5
        answer = self.answers.pop(0)
        if isinstance(answer, NotSent | InDoubt | Answer):
            return answer
        return Answer(200, httpx.Headers(), json.dumps(answer).encode(), False)
