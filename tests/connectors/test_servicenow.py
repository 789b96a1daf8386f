from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.catalog import Catalog
from connectors.exchange import Answer, deadline_in, json_of
from connectors.port import Before, Done, InDoubt, NotSent, ProbeVerdict, Refused
from connectors.servicenow import client
from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from core.errors import ConfigurationError
from tests.support.calls import Call

ID = "a" * 32
UPDATE = "servicenow.incident.update"
NOTE = "servicenow.incident.add_work_note"
BASIC = BasicAuth("svc.counterseal", "pw")
MARK = "[counterseal:0123456789abcdef]"
MakeCall = Callable[..., Call]
Build = Callable[..., ServiceNowConnector]


@pytest.fixture
def build(catalog: Catalog, closing: Callable[[Any], Any], servicenow: Any) -> Build:
    def make(auth: Any = BASIC, url: str | None = None, username: str | None = None) -> ServiceNowConnector:
        settings = ServiceNowSettings(url or servicenow.url, auth, username)
        connector: ServiceNowConnector = closing(ServiceNowConnector(settings))
        return connector

    return make


def update(make_call: MakeCall, fields: dict[str, str], before: Before | None = None, **more: Any) -> Call:
    return make_call(UPDATE, {"sys_id": ID, "fields": fields}, before, **more)


def patches(servicenow: Any) -> int:
    return sum(method == "PATCH" for method, _ in servicenow.app.requests)


async def test_get_is_the_flat_record(build: Build, make_call: MakeCall) -> None:
    outcome = await build().perform(make_call("servicenow.incident.get", {"sys_id": ID}))
    assert isinstance(outcome, Done)
    assert outcome.output["priority"] == "3"
    only = await build().perform(make_call("servicenow.incident.get", {"sys_id": ID, "fields": ["number"]}))
    assert only == Done({"number": "INC0010001"}, writers=("servicenow:ana.lee", "unknown"))


async def test_query_lists_records_of_any_table(build: Build, make_call: MakeCall) -> None:
    outcome = await build().perform(make_call("servicenow.incident.query", {"query": "priority=3^state=1"}))
    assert isinstance(outcome, Done)
    assert outcome.output["count"] == 1
    none = await build().perform(make_call("servicenow.record.query", {"table": "incident", "query": "priority=9"}))
    assert none == Done({"records": [], "count": 0, "truncated": False})


@pytest.mark.parametrize(("more", "count"), [({}, 1), ({"limit": 1}, 1), ({"offset": 0}, 1), ({"offset": 1}, 0)])
async def test_query_goes_on_where_the_page_before_ended(
    build: Build, make_call: MakeCall, more: dict[str, int], count: int
) -> None:
    outcome = await build().perform(make_call("servicenow.incident.query", {"query": "priority=3", **more}))
    assert isinstance(outcome, Done)
    assert outcome.output["count"] == count


async def test_read_before_has_the_diff_and_the_version(build: Build, make_call: MakeCall) -> None:
    before = await build().read_before(update(make_call, {"priority": "1", "work_notes": "x", "u_absent": "y"}))
    assert isinstance(before, Before)
    assert before.values == {"priority": "3"}
    assert before.version == "4"
    assert before.facts["number"] == "INC0010001"
    assert before.facts["sys_updated_by"] == "ana.lee"


@pytest.mark.req("Q-4")
async def test_an_update_reports_what_came_out(build: Build, make_call: MakeCall, servicenow: Any) -> None:
    servicenow.business_rule = {"urgency": "1"}
    outcome = await build().perform(update(make_call, {"priority": "1", "urgency": "2"}))
    assert isinstance(outcome, Done)
    assert outcome.after == {"priority": "1", "urgency": "1"}
    assert outcome.output["altered"] == ["urgency"]
    assert outcome.external_id == f"{ID}@5"


async def test_a_note_carries_the_mark_of_its_action(build: Build, make_call: MakeCall, servicenow: Any) -> None:
    outcome = await build().perform(make_call(NOTE, {"sys_id": ID, "work_notes": "looked at it"}))
    assert isinstance(outcome, Done)
    assert [entry["value"] for entry in servicenow.journal] == [f"looked at it\n{MARK}"]


@pytest.mark.req("Q-18")
@pytest.mark.parametrize(
    ("operation", "values", "code", "words"),
    [
        (UPDATE, {"sys_id": ID, "fields": {"priority": "invalid"}}, "invalid", "Invalid value: priority"),
        (UPDATE, {"sys_id": "b" * 32, "fields": {"priority": "1"}}, "not_found", "hidden from our user by an ACL"),
        ("servicenow.record.get", {"table": "sys_user", "sys_id": ID}, "forbidden", "Insufficient rights"),
    ],
)
async def test_a_refusal_is_final_and_in_their_words(
    build: Build, make_call: MakeCall, operation: str, values: Any, code: str, words: str
) -> None:
    outcome = await build().perform(make_call(operation, values))
    assert isinstance(outcome, Refused)
    assert outcome.code == code
    assert words in outcome.message


@pytest.mark.req("Q-18")
@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("kind", [408, 500, 503, "hang", "reset"])
async def test_a_write_that_ends_badly_is_in_doubt(
    build: Build, make_call: MakeCall, servicenow: Any, kind: Any, landed: bool
) -> None:
    servicenow.app.fail("/incident/", kind, landed=landed)
    timeout = 0.3 if kind == "hang" else 5.0
    outcome = await build().perform(update(make_call, {"priority": "1"}, timeout=timeout))
    assert isinstance(outcome, InDoubt)
    assert patches(servicenow) == 1
    assert servicenow.record["priority"] == ("1" if landed else "3")


@pytest.mark.req("Q-18")
@pytest.mark.parametrize("kind", [408, 500, "hang", "reset"])
async def test_a_read_that_ends_badly_may_be_repeated(
    build: Build, make_call: MakeCall, servicenow: Any, kind: Any
) -> None:
    servicenow.app.fail("/incident/", kind)
    timeout = 0.3 if kind == "hang" else 5.0
    call = make_call("servicenow.incident.get", {"sys_id": ID}, timeout=timeout)
    assert isinstance(await build().perform(call), NotSent)


async def test_a_page_instead_of_json_is_in_doubt(build: Build, make_call: MakeCall, servicenow: Any) -> None:
    servicenow.app.fail("/incident/", 200)
    assert isinstance(await build().perform(update(make_call, {"priority": "1"})), InDoubt)
    servicenow.app.fail("/incident/", 200)
    read = await build().perform(make_call("servicenow.incident.get", {"sys_id": ID}))
    assert isinstance(read, NotSent)


@pytest.mark.req("Q-18")
async def test_refused_connections_were_not_sent(build: Build, make_call: MakeCall, closed_url: str) -> None:
    outcome = await build(url=closed_url).perform(update(make_call, {"priority": "1"}))
    assert isinstance(outcome, NotSent)


@pytest.mark.req("Q-18")
async def test_a_long_rate_limit_is_handed_on(build: Build, make_call: MakeCall, servicenow: Any) -> None:
    servicenow.app.fail("/incident/", 429, Retry_After="120")
    outcome = await build().perform(update(make_call, {"priority": "1"}))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_seconds == 120
    assert patches(servicenow) == 1


async def test_a_short_rate_limit_is_waited_out(build: Build, make_call: MakeCall, servicenow: Any) -> None:
    servicenow.app.fail("/incident/", 429, Retry_After="0", times=2)
    assert isinstance(await build().perform(update(make_call, {"priority": "1"})), Done)
    assert patches(servicenow) == 3


async def test_a_redirect_is_not_followed(build: Build, make_call: MakeCall, servicenow: Any) -> None:
    servicenow.app.fail("/incident/", 302, Location="http://elsewhere.example/")
    outcome = await build().perform(update(make_call, {"priority": "1"}))
    assert isinstance(outcome, Refused)
    assert "check the instance's address" in outcome.message


async def test_oauth_fetches_one_token_and_a_new_one_when_it_is_refused(
    build: Build, make_call: MakeCall, servicenow: Any
) -> None:
    connector = build(ClientCredentials("cid", "secret"), username="svc.counterseal")
    get = make_call("servicenow.incident.get", {"sys_id": ID})
    assert isinstance(await connector.perform(get), Done)
    assert isinstance(await connector.perform(get), Done)
    assert servicenow.tokens_issued == 1
    servicenow.tokens.clear()
    assert isinstance(await connector.perform(update(make_call, {"priority": "1"})), Done)
    assert servicenow.tokens_issued == 2


async def test_a_token_is_replaced_before_its_life_ends(
    build: Build, make_call: MakeCall, servicenow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in's tokens live for 1799 seconds, and are not used in the last thirty."""
    passed = 0.0
    monkeypatch.setattr(client, "deadline_in", lambda seconds: deadline_in(seconds + passed))
    connector = build(ClientCredentials("cid", "secret"))
    for passed, issued in ((0.0, 1), (1760.0, 1), (1775.0, 2), (3500.0, 2), (3560.0, 3)):
        assert isinstance(await connector.perform(make_call("servicenow.incident.get", {"sys_id": ID})), Done)
        assert servicenow.tokens_issued == issued, passed


async def test_wrong_credentials_are_refused_not_retried(build: Build, make_call: MakeCall, servicenow: Any) -> None:
    call = update(make_call, {"priority": "1"})
    for auth in (BasicAuth("svc", "wrong"), ClientCredentials("cid", "wrong")):
        outcome = await build(auth).perform(call)
        assert isinstance(outcome, Refused)
        assert outcome.code == "unauthorized"
        assert (await build(auth).check())[0] is False
    assert servicenow.record["sys_mod_count"] == "4"


async def test_no_token_means_that_nothing_was_sent(build: Build, make_call: MakeCall, servicenow: Any) -> None:
    servicenow.app.fail("oauth_token", "reset")
    outcome = await build(ClientCredentials("cid", "secret")).perform(update(make_call, {"priority": "1"}))
    assert isinstance(outcome, NotSent)
    assert patches(servicenow) == 0


async def test_check_names_the_user(build: Build, servicenow: Any, closed_url: str) -> None:
    assert await build().check() == (True, "reachable and authorised as svc.counterseal")
    ok, words = await build(ClientCredentials("cid", "secret")).check()
    assert ok
    assert "name the integration user" in words
    assert (await build(url=closed_url).check())[0] is False


def test_secrets_are_not_printed() -> None:
    assert "hunter2" not in repr(BasicAuth("a", "hunter2")) + repr(ClientCredentials("a", "hunter2"))


def test_an_address_that_is_none_is_a_configuration_error(catalog: Catalog) -> None:
    with pytest.raises(ConfigurationError, match="COUNTERSEAL_SERVICENOW_URL"):
        ServiceNowConnector(ServiceNowSettings("example.service-now.com", BASIC))


# Probes. Each starts from the pre-read of the action, then something happens, then the target is asked.


@pytest.mark.parametrize("landed", [False, True])
async def test_probe_tells_applied_from_not_applied(
    build: Build, make_call: MakeCall, servicenow: Any, landed: bool
) -> None:
    connector = build()
    before = await connector.read_before(update(make_call, {"priority": "1"}))
    assert isinstance(before, Before)
    call = update(make_call, {"priority": "1"}, before)
    servicenow.app.fail("/incident/", 502, landed=landed)
    assert isinstance(await connector.perform(call), InDoubt)
    probe = await connector.probe(call, seconds_since_intent=61)
    assert probe.verdict is (ProbeVerdict.APPLIED if landed else ProbeVerdict.NOT_APPLIED)
    if landed:
        assert probe.done is not None
        assert probe.done.after == {"priority": "1"}
        assert "svc.counterseal" in probe.evidence
    else:
        assert "sys_mod_count is still 4" in probe.evidence


async def test_probe_waits_for_the_transaction_limit(build: Build, make_call: MakeCall) -> None:
    call = update(make_call, {"priority": "1"}, Before({"priority": "3"}, "4"))
    probe = await build().probe(call, seconds_since_intent=20)
    assert probe.verdict is ProbeVerdict.CANNOT_TELL
    assert probe.retry_after_seconds == pytest.approx(41)


@pytest.mark.parametrize(
    ("editor", "fields", "words"),
    [
        ("ana.lee", {"priority": "1"}, "we are svc.counterseal"),
        ("ana.lee", {"state": "2"}, "not as intended: priority"),
        ("svc.counterseal", {"state": "2"}, "not as intended: priority"),
    ],
)
async def test_probe_cannot_tell_when_others_wrote_too(
    build: Build, make_call: MakeCall, servicenow: Any, editor: str, fields: dict[str, str], words: str
) -> None:
    servicenow.touched_by(editor, **fields)
    call = update(make_call, {"priority": "1"}, Before({"priority": "3"}, "4"))
    probe = await build().probe(call, seconds_since_intent=3600)
    assert (probe.verdict, probe.retry_after_seconds) == (ProbeVerdict.CANNOT_TELL, None)
    assert words in probe.evidence


@pytest.mark.parametrize("fields", [{"priority": "1"}, {"priority": "3"}])
async def test_probe_cannot_tell_of_a_count_that_went_back(
    build: Build, make_call: MakeCall, fields: dict[str, str]
) -> None:
    """A record that somebody has restored, from a time before the read, says nothing about our write."""
    call = update(make_call, fields, Before({"priority": "3"}, "6"))
    probe = await build().probe(call, seconds_since_intent=3600)
    assert (probe.verdict, probe.retry_after_seconds) == (ProbeVerdict.CANNOT_TELL, None)
    assert "went from 6 to 4" in probe.evidence


async def test_probe_of_a_change_that_changes_nothing(build: Build, make_call: MakeCall) -> None:
    call = update(make_call, {"priority": "3"}, Before({"priority": "3"}, "4"))
    assert (await build().probe(call, seconds_since_intent=1)).verdict is ProbeVerdict.APPLIED


async def test_probe_without_our_name_or_a_pre_read_cannot_tell(
    build: Build, make_call: MakeCall, servicenow: Any
) -> None:
    servicenow.touched_by("svc.counterseal", priority="1")
    nameless = build(ClientCredentials("cid", "secret"))
    call = update(make_call, {"priority": "1"}, Before({"priority": "3"}, "4"))
    probe = await nameless.probe(call, seconds_since_intent=3600)
    assert probe.verdict is ProbeVerdict.CANNOT_TELL
    assert "not configured" in probe.evidence
    probe = await build().probe(update(make_call, {"priority": "1"}), seconds_since_intent=3600)
    assert probe.verdict is ProbeVerdict.CANNOT_TELL


@pytest.mark.parametrize("landed", [False, True])
async def test_probe_finds_a_note_by_its_mark(build: Build, make_call: MakeCall, servicenow: Any, landed: bool) -> None:
    connector = build()
    values = {"sys_id": ID, "work_notes": "looked at it"}
    before = await connector.read_before(make_call(NOTE, values))
    assert isinstance(before, Before)
    call = make_call(NOTE, values, before)
    servicenow.app.fail("/incident/", "reset", landed=landed)
    assert isinstance(await connector.perform(call), InDoubt)
    early = await connector.probe(call, seconds_since_intent=1)
    late = await connector.probe(call, seconds_since_intent=61)
    if landed:
        assert early.verdict is late.verdict is ProbeVerdict.APPLIED
    else:
        assert early.verdict is ProbeVerdict.CANNOT_TELL
        assert late.verdict is ProbeVerdict.NOT_APPLIED


async def test_a_hidden_journal_proves_nothing(build: Build, make_call: MakeCall, servicenow: Any) -> None:
    call = make_call(NOTE, {"sys_id": ID, "work_notes": "x"}, Before({}, "4"))
    servicenow.hide_journal = True
    assert isinstance(await build().perform(call), Done)
    probe = await build().probe(call, seconds_since_intent=3600)
    assert probe.verdict is ProbeVerdict.CANNOT_TELL
    assert "no journal entry that our user can see" in probe.evidence


@pytest.mark.parametrize("path", ["/incident/", "sys_journal_field"])
async def test_a_probe_that_cannot_read_asks_to_be_repeated(
    build: Build, make_call: MakeCall, servicenow: Any, path: str
) -> None:
    call = make_call(NOTE, {"sys_id": ID, "work_notes": "x"}, Before({}, "4"))
    servicenow.app.fail(path, 503, Retry_After="40")
    probe = await build().probe(call, seconds_since_intent=3600)
    assert (probe.verdict, probe.retry_after_seconds) == (ProbeVerdict.CANNOT_TELL, 40)
    gone = make_call(UPDATE, {"sys_id": "b" * 32, "fields": {"priority": "1"}}, Before({}, "4"))
    probe = await build().probe(gone, seconds_since_intent=3600)
    assert (probe.verdict, probe.retry_after_seconds) == (ProbeVerdict.CANNOT_TELL, None)


async def test_a_read_can_always_be_repeated(build: Build, make_call: MakeCall) -> None:
    probe = await build().probe(make_call("servicenow.incident.get", {"sys_id": ID}), seconds_since_intent=0)
    assert probe.verdict is ProbeVerdict.NOT_APPLIED


def test_an_answer_that_was_cut_is_in_doubt() -> None:
    """Cut an answer so that its rest is JSON still: the body that it is read from says so, and not the parser."""
    cut = Answer(200, httpx.Headers(), b'{"result": {}}', truncated=True)
    found = json_of(cut, "ServiceNow", lambda answer: Refused("no", str(answer.status)))
    assert isinstance(found, InDoubt)
    assert "is longer than" in found.message
