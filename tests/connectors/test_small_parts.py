"""Small parts of connectors, whole: what each calls itself, foresees, refuses, and makes of a row that it finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog
from connectors.exchange import Answer
from connectors.http.addresses import AllowedHost
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.model.connector import ModelConnector, ModelSettings, _refusal
from connectors.port import Before, Call, Probe, ProbeVerdict, Refused
from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from connectors.slack.connector import SlackConnector, SlackSettings
from connectors.sql.connector import _judged
from connectors.sql.link import Link
from connectors.transform.connector import TransformConnector

HOSTS = (AllowedHost("a.example"), AllowedHost("B.Example", 8443), AllowedHost("[::1]", None, allow_private=True))
ASK = "add it to COUNTERSEAL_HTTP_HOSTS"
NOT_HTTP = "the URL must start with http:// or https:// and name a host"


@pytest.mark.req("Q-16")
async def test_a_target_is_named_by_address_and_account_and_without_a_secret(
    catalog: Catalog, closing: Callable[[Any], Any]
) -> None:
    basic, oauth = BasicAuth("svc", "secret"), ClientCredentials("cid", "secret")
    of_now: dict[str, ServiceNowSettings] = {
        "https://acme.example as svc": ServiceNowSettings("https://user:secret@acme.example/?q=secret", basic),
        "https://acme.example/x as cid": ServiceNowSettings("https://acme.example/x/", oauth),
        "https://acme.example as named": ServiceNowSettings("https://acme.example", oauth, "named"),
    }
    for named, settings in of_now.items():
        assert closing(ServiceNowConnector(settings)).target == named
    engine = "https://bpm.example:8443/engine-rest"
    assert closing(BpmnConnector(BpmnSettings(f"{engine}/"))).target == engine
    with_user = BpmnSettings(engine, username="u", password="secret")
    assert closing(BpmnConnector(with_user)).target == f"{engine} as u"
    assert closing(SlackConnector(SlackSettings("xoxb-secret"))).target == "https://slack.com/api"
    assert closing(ModelConnector(ModelSettings("https://m.example/v1/", "secret"))).target == "https://m.example/v1"
    assert closing(HttpConnector(HttpSettings(HOSTS))).target == ""
    assert TransformConnector().target == ""

    async def own() -> str:
        return "own"

    for url, named in (
        ("postgresql://u:secret@h:5433/d?x=secret", "postgresql://h:5433/d as u"),
        ("postgresql://h/d", "postgresql://h/d as nobody"),
    ):
        assert Link(url, own).target == named


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("https://a.example/x?y", None),
        ("http://A.EXAMPLE", None),
        ("https://b.example:8443/", None),
        ("http://[::1]/", None),
        ("https://a.example:443/", None),
        ("https://a.example:444/", ("host_not_allowed", f"a.example:444 is not among the allowed hosts; {ASK}")),
        ("https://b.example/", ("host_not_allowed", f"b.example is not among the allowed hosts; {ASK}")),
        ("https://c.a.example/", ("host_not_allowed", f"c.a.example is not among the allowed hosts; {ASK}")),
        ("https://a.example.evil/", ("host_not_allowed", f"a.example.evil is not among the allowed hosts; {ASK}")),
        ("ftp://a.example/", ("invalid_url", NOT_HTTP)),
        ("/x", ("invalid_url", NOT_HTTP)),
        ("https:///x", ("invalid_url", NOT_HTTP)),
        ("https://u:p@a.example/", ("invalid_url", "the URL must not hold a user name or password; use a header")),
        ("https://u@a.example/", ("invalid_url", "the URL must not hold a user name or password; use a header")),
        ("https://a.example:x/", ("invalid_url", "the URL cannot be read")),
    ],
)
async def test_a_host_that_no_setting_allows_is_foreseen(
    closing: Callable[[Any], Any], url: str, refused: tuple[str, str] | None
) -> None:
    found = closing(HttpConnector(HttpSettings(HOSTS))).ready("http.request.send", {"url": url})
    assert found == (None if refused is None else Refused(*refused))
    none = closing(HttpConnector(HttpSettings())).ready("http.request.send", {"url": url})
    assert isinstance(none, Refused), "with no host allowed, every request is refused"


@pytest.mark.parametrize(
    ("status", "body", "refusal"),
    [
        (400, b'{"error": {"message": "no"}}', Refused("invalid", "the model API answered 400: no")),
        (401, b"{}", Refused("unauthorized", "the model API answered 401: without an explanation")),
        (403, b"no JSON", Refused("forbidden", "the model API answered 403: without an explanation")),
        (404, b'{"error": {"message": "a", "detail": "b"}}', Refused("not_found", "the model API answered 404: a: b")),
        (422, b'{"error": "text"}', Refused("http_422", "the model API answered 422: without an explanation")),
    ],
)
def test_a_models_refusal_has_a_code_and_its_own_words(status: int, body: bytes, refusal: Refused) -> None:
    assert _refusal(Answer(status, httpx.Headers(), body, truncated=False)) == refusal


STILL, GONE = "the row still has the version 4", "the row is gone, and nothing in the database says by whom"
CHANGED = "the row has changed, and nothing in the database says by whom"


@pytest.mark.parametrize(
    ("before", "row", "early", "late"),
    [
        (None, None, "the row is not there yet", "the row is not there"),
        ("4", "4", STILL, f"{STILL}: nothing was written since"),
        ("4", "5", CHANGED, CHANGED),
        ("4", None, GONE, GONE),
        (None, "4", CHANGED, CHANGED),
    ],
)
def test_only_a_row_as_it_was_proves_that_nothing_was_written(
    before: str | None, row: str | None, early: str, late: str
) -> None:
    call = Call("o", {}, "0" * 64, 5.0, None if before is None else Before({}, before))
    found = None if row is None else ({}, row)
    for left in (7.0, 0.5, 0.0, -1.0):
        told = _judged(call, found, left)
        if early == late:
            assert told == Probe(ProbeVerdict.CANNOT_TELL, early)
        elif left > 0:
            assert told == Probe(ProbeVerdict.CANNOT_TELL, early, retry_after_seconds=left + 1)
        else:
            assert told == Probe(ProbeVerdict.NOT_APPLIED, late)
