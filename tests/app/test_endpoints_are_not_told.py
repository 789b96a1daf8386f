"""Webhooks tell nothing to whoever cannot sign: an endpoint that is not configured answers like any other."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from app import doctor
from app.settings import Settings
from tests.support import two_tenants

# Every address of a tenant's own settings that others call, and the place of its secret there.
PLACES = {
    "/webhooks/servicenow/globex/incidents": "webhooks.incidents.secret",
    "/webhooks/events/globex/pages": "webhooks.pages.secret",
    "/slack/events/globex": "slack.signing_secret",
}
EVENT = {"table": "incident", "event": "insert", "sys_id": "a" * 32}


@pytest.mark.parametrize("how", [{"secret": "w" * 40}, {"at": 0.0}, {"headers": {"X-Counterseal-Signature": ""}}, {}])
async def test_an_endpoint_that_there_is_not_answers_like_a_wrong_signature(installation: Any, how: Any) -> None:
    refused = {"secret": "w" * 40} | how
    there = await installation.webhook(EVENT, **refused)
    not_there = await installation.webhook(EVENT, endpoint="nowhere", **refused)
    assert there.status_code == not_there.status_code == 401
    assert there.content == not_there.content
    assert [*there.headers] == [*not_there.headers]


@pytest.mark.parametrize("path", PLACES)
async def test_an_endpoint_whose_secret_cannot_be_had_answers_like_one_that_there_is_not(
    settings: Settings, serve: Any, tmp_path: Path, path: str
) -> None:
    """Operators hear of it in a line and by `doctor`; whoever asks learns nothing."""
    async with two_tenants.walls(settings, serve, tmp_path) as walls:
        client, folder = await walls.installation.client(), tmp_path / "secrets" / "globex"
        (folder / "word").touch(0o600)
        (folder / "word").write_text("w" * 40)

        def document(**without: bool) -> str:
            kept = walls.globex.document(webhooks=True, **without) + (
                "\nwebhooks:\n  incidents: {secret: '${{ secrets.hook }}'}"
                "\n  pages: {secret: '${{ secrets.hook }}', signed: pagerduty}"
            )
            return re.sub("(hook|signing): {from: environment", r"\1: {from: file, name: word", kept)

        await two_tenants.apply(walls.installation, document())
        moment = str(int(time.time()))
        signed = {"X-Slack-Signature": "v0=00", "X-Slack-Request-Timestamp": moment, "Content-Type": "application/json"}
        signed |= {"X-Counterseal-Timestamp": moment, "X-Counterseal-Signature": "0" * 64}
        signed |= {"X-PagerDuty-Signature": "v1=" + "0" * 64}
        nowhere = await client.post(path.replace("globex", "nobody"), content=b"{}", headers=signed)
        there = await client.post(path, content=b"{}", headers=signed)
        (folder / "word").unlink()
        await two_tenants.apply(walls.installation, document(model=True))  # what Slack signs with is kept for a while
        with structlog.testing.capture_logs() as lines:
            unread = await client.post(path, content=b"{}", headers=signed)
            await client.post(path, content=b"{}", headers=signed)
        assert nowhere.status_code == there.status_code == unread.status_code == 401, unread.text
        assert nowhere.content == there.content == unread.content
        (line,) = [one for one in lines if one["event"] == "a secret of incoming requests cannot be had"]
        assert (line["tenant"], line["place"]) == ("globex", PLACES[path])
        found = await doctor.examine(walls.installation.settings.model_copy(update={"tenant": "globex"}))
        (check,) = [one for one in found if one.what == PLACES[path]]
        assert (check.state, "cannot be read" in check.detail) == (doctor.State.BROKEN, True)
