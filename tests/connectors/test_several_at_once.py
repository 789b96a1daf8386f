"""Several documents, connectors, hosts and faults at once: each counts for itself, and none stands for another."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.catalog import Catalog, Source, catalog_of
from connectors.exchange import tls
from connectors.http import addresses
from connectors.http import connector as http_connector
from connectors.http.addresses import AllowedHost, destination
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.model import connector as model_connector
from connectors.port import Connectors, Done, NotSent, Refused, Usage
from connectors.prices import has_price
from connectors.proposal import action_digest, build_action, render, writes_of
from connectors.slack.connector import SlackConnector, SlackSettings, opaque
from connectors.transform.connector import TransformConnector
from core.canonical import digest
from core.errors import DefinitionError
from tests.connectors.test_declared_texts import own
from tests.connectors.test_operations import declaration
from tests.connectors.test_proposed_actions import READ, VALUES, declared
from tests.support.calls import Call

pytestmark = pytest.mark.req("V-2")


def document(*declarations: dict[str, Any]) -> str:
    return json.dumps({"operations": list(declarations)}, indent=1)


def told(*sources: Source, packaged: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """The file and the words of each fault of these documents."""
    try:
        catalog_of(sources, packaged=frozenset(packaged))
    except DefinitionError as error:
        return [(problem.file, problem.message) for problem in error.problems]
    return []


# Documents


def test_every_fault_of_one_document_is_told() -> None:
    wrong = document(declaration(risk="none", colour="red"), declaration(name="crm.ticket.put", kind="later"))
    found = told(Source("a.yaml", wrong))
    assert len(found) == 3
    for words in ("operations[0].risk", "colour", "operations[1].kind"):
        assert [words in message for _, message in found].count(True) == 1, words


def test_two_documents_of_one_name_are_two_documents() -> None:
    one, two = document(declaration()), document(declaration(name="crm.ticket.put"))
    assert set(catalog_of([Source("a.yaml", one), Source("a.yaml", two)]).operations) == {
        "crm.ticket.set",
        "crm.ticket.put",
    }


def test_packaged_is_what_is_named_as_packaged_and_not_what_is_called_so() -> None:
    """A file of an installation stays one, whatever its name, and its handlers are checked."""
    first = document(declaration(name="crm.ticket.get"))
    more = document(declaration(name="crm.ticket.other", handler="crm:other"))
    for name in ("connectors/crm/operations.yaml", "connectors/own.yaml", "own.yaml"):
        sources = (Source("p.yaml", first), Source(name, more))
        [(file, words)] = told(*sources, packaged=("p.yaml",))
        assert (file, words) == (name, "crm.ticket.other: there is no handler 'crm:other'.")
        assert catalog_of([Source(name, more)]).packaged == frozenset()
    both = catalog_of([Source("p.yaml", first), Source("q.yaml", more)], packaged=frozenset({"p.yaml", "q.yaml"}))
    assert both.packaged == {"crm.ticket.get", "crm.ticket.other"}


def test_a_reverse_that_does_not_exist_is_told_wherever_it_is_declared() -> None:
    reverse = {"operation": "crm.ticket.sett", "input": {}}
    text = document(declaration(name="crm.ticket.put"), declaration(reverse=reverse))
    for packaged in ((), ("p.yaml",)):
        [(file, words)] = told(Source("p.yaml", text), packaged=packaged)
        assert (file, words) == (
            "p.yaml",
            "crm.ticket.set is reversed by 'crm.ticket.sett', which does not exist.",
        )


def test_a_handler_is_that_of_the_connector_and_not_of_the_name(catalog: Catalog) -> None:
    post, get = "slack.message.post", "servicenow.incident.get"
    assert own(catalog, "crm.own.post", post, connector="slack", kind="durable") == [
        ("kind", "slack:post is sync.", "Declare `kind: sync`.")
    ]
    assert own(catalog, "slack.own.post", post, connector="crm", handler="crm:post") == []
    assert own(catalog, "servicenow.own.get", get, side_effects="none", kind="durable") == [
        ("kind", "servicenow:get is sync.", "Declare `kind: sync`.")
    ]


def test_a_schema_that_is_none_is_told_by_its_place() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "strng"}}}
    [(_, words)] = told(Source("a.yaml", document(declaration(input_schema=schema))))
    assert "operations[0].input_schema: is not a JSON Schema (2020-12): " in words
    assert words.endswith("at $.properties.id.type.")


def test_a_digest_is_of_the_whole_declaration() -> None:
    made = declared()
    assert made.digest == digest(made.model_dump(mode="json"))
    assert {"retry", "timeouts", "idempotency", "kind", "description"} <= made.model_dump(mode="json").keys()


# Actions


def test_what_is_empty_is_bound_as_what_it_is() -> None:
    """Nothing that was read, and a version that is empty, are not the same as nothing known."""
    action = build_action(declared(), VALUES, READ)
    empties: dict[str, Any] = {"before": {}, "target_version": ""}
    for name, empty in empties.items():
        unknown, nothing = (action_digest(replace(action, **{name: value})) for value in (None, empty))
        assert unknown != nothing, name


def test_keys_are_shown_in_their_own_order() -> None:
    assert render("{f} {g.z|f}", {"f": {"b": 1, "a": 2}, "g": {"z": {}}}) == "b, a ?"


@pytest.mark.parametrize(
    ("writes", "values", "written"),
    [
        (None, {"id": "7", "why": None}, {"id": "7", "why": None}),
        ([], {"id": "7"}, {}),
        (["why", "id"], {"id": "7", "why": None}, {"why": None, "id": "7"}),
        (["id", "why"], {"id": ""}, {"id": ""}),
        ("fields", {"id": "7"}, {}),
        ("fields", {"fields": {"level": None}}, {"level": None}),
    ],
)
def test_a_value_that_is_null_is_written(writes: Any, values: Any, written: Any) -> None:
    assert writes_of(declared(writes=writes), values) == written


# Connectors


class Named(TransformConnector):
    def __init__(self, name: str) -> None:
        self.name, self.asked = name, list[Any]()

    @property
    def target(self) -> str:
        return f"at {self.name}"

    async def check(self) -> tuple[bool, str]:
        for _ in range(len(self.name)):
            await asyncio.sleep(0)
        return self.name != "b", self.name

    def ready(self, operation: str, inputs: Any) -> Refused | None:
        self.asked.append((operation, inputs))
        return Refused("no", self.name) if self.name == "b" else None

    async def aclose(self) -> None:
        self.asked.append("closed")
        if self.name == "zzz":
            raise asyncio.CancelledError
        if self.name == "b":
            raise OSError(self.name)


async def test_each_connector_answers_for_itself() -> None:
    every = [Named(name) for name in ("zzz", "b", "mm")]
    connectors = Connectors({one.name: one for one in every} | {"transform": TransformConnector()})
    assert dict(connectors.targets) == {"zzz": "at zzz", "b": "at b", "mm": "at mm", "transform": ""}
    assert await connectors.check() == {
        "zzz": (True, "zzz"), "b": (False, "b"), "mm": (True, "mm"), "transform": (True, "works in process"),
    }  # fmt: skip
    assert connectors.ready("b", "b.x.y", {"a": 1}) == Refused("no", "b")
    assert connectors.ready("mm", "mm.x.y", {"a": 1}) is None
    assert connectors.ready("transform", "transform.data.apply", {}) is None
    assert [one.asked for one in every] == [[], [("b.x.y", {"a": 1})], [("mm.x.y", {"a": 1})]]
    with pytest.raises(BaseExceptionGroup) as caught:
        await connectors.aclose()
    assert [type(error) for error in caught.value.exceptions] == [asyncio.CancelledError, OSError]
    assert [one.asked[-1] for one in every] == ["closed"] * 3


def test_a_mark_of_a_call_is_the_beginning_of_its_key() -> None:
    key = "".join(f"{number:02x}" for number in range(32))
    assert opaque(key) == key[:32]


async def test_all_of_a_message_is_sent_and_its_key_is_not(closing: Callable[[Any], Any]) -> None:
    connector = closing(SlackConnector(SlackSettings("xoxb")))
    sent: list[Any] = []

    async def posted(**given: Any) -> Any:
        sent.append(given)
        raise ConnectionResetError("gone")

    connector._client.chat_postMessage = posted
    key = "".join(f"{number:02x}" for number in range(32))
    values: Any = {"channel": "C1", "text": "t", "thread_ts": "1.2", "blocks": [{"type": "divider"}], "more": 1}
    await connector.perform(Call("slack.message.post", values, key, 1.0))
    metadata = {"event_type": "counterseal_action", "event_payload": {"key": key[:32]}}
    assert sent == [{name: values[name] for name in values if name != "more"} | {"metadata": metadata}]


def test_a_price_that_cannot_be_told_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (LookupError("x"), ValueError("x")):

        def fail(*_: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr("connectors.prices.genai_prices.calc_price", fail)
        assert has_price("gpt-4o") is False


@pytest.mark.parametrize("value", [0, "", False, [], {}, None, "x"])
async def test_a_value_is_handed_back_as_it_is(value: Any) -> None:
    asked = Call("transform.data.apply", {"value": value}, "k", 1.0)
    done = await TransformConnector().perform(asked)
    assert done == Done({"value": value})
    assert isinstance(done, Done)
    assert type(done.output["value"]) is type(value)


def test_a_cost_is_that_of_the_provider_that_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of the same name may cost something else elsewhere, or have no price there."""
    asked: list[Any] = []

    def priced(tokens: Any, model: str, provider_id: str | None = None) -> Any:
        asked.append((tokens.input_tokens, tokens.output_tokens, tokens.cache_read_tokens, model, provider_id))
        if model == "m":
            raise LookupError(model) if provider_id == "p" else ValueError(model)
        if model == "n-2099":
            raise LookupError(model)
        return SimpleNamespace(total_price="0" if model == "free" else "0.0000001")

    monkeypatch.setattr("connectors.model.connector.genai_prices.calc_price", priced)
    counts: Any = {"prompt_tokens": 3, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}}
    assert model_connector._usage(counts, "p", "m", "n") == Usage("p", "m", 3, 5, "0.0000001")
    assert model_connector._usage(counts, "q", "m", "m") == Usage("q", "m", 3, 5, None)
    assert asked == [(3, 5, 2, "m", "p"), (3, 5, 2, "n", "p"), (3, 5, 2, "m", "q")]
    assert model_connector._usage(counts, "p", "n-2099", "n").cost_usd == "0.0000001"
    assert model_connector._usage(counts, "p", "free", "n").cost_usd == "0"


# Hosts


def test_certificates_are_verified_for_the_name_that_is_called() -> None:
    assert (tls().verify_mode, tls().check_hostname) == (ssl.CERT_REQUIRED, True)


HOSTS = (AllowedHost("a.example"), AllowedHost("inner.example", 8443, allow_private=True))


async def test_every_host_that_may_be_called_is_named(closing: Callable[[Any], Any]) -> None:
    connector = closing(HttpConnector(HttpSettings(HOSTS)))
    assert await connector.check() == (True, "may call a.example, inner.example")
    assert await closing(HttpConnector(HttpSettings())).check() == (
        True,
        "no host is allowed; set COUNTERSEAL_HTTP_HOSTS to allow some",
    )


def test_no_proxy_of_the_environment_comes_between(
    closing: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address was checked here; a proxy would look the name up again."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    client = closing(HttpConnector(HttpSettings(HOSTS)))._client
    assert (client.trust_env, client._mounts) == (False, {})


async def test_a_name_is_looked_up_in_the_time_of_the_call(
    closing: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    async def looked_up(url: Any, timeout_seconds: float) -> NotSent:
        given.append(timeout_seconds)
        return NotSent("nowhere")

    monkeypatch.setattr(addresses, "_resolve", looked_up)
    monkeypatch.setattr(http_connector, "deadline_in", lambda seconds: seconds)
    connector = closing(HttpConnector(HttpSettings(HOSTS)))
    for seconds in (0.25, 9.0):
        sent = Call("http.request.send", {"method": "GET", "url": "https://a.example/"}, "k", seconds)
        assert await connector.perform(sent) == NotSent("nowhere")
        assert await destination("https://a.example/", HOSTS, timeout_seconds=seconds) == NotSent("nowhere")
    assert given == [0.25, 0.25, 9.0, 9.0]


async def test_a_name_that_is_not_found_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", hang)
    found = await asyncio.wait_for(destination("https://a.example/", HOSTS, timeout_seconds=0.01), 5.0)
    assert found == NotSent("a.example was not resolved in time")
