"""Calls tools of MCP servers (``mcp:call``), each only if its server still describes it as it was frozen.

A person has reviewed a tool by the words and schemas of its server. Before each call these are read anew. If anything
differs, nothing is called. Between that look and the call nothing holds the server to its words: it can answer the look
with the old ones and do something else. Nobody outside the server can close that gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connectors.exchange import Answer, Reply
from connectors.frozen import CONTENT, DEFINITION, PARAMS, SERVER, STRUCTURED, TOOL, URL, differing
from connectors.mcp import messages
from connectors.mcp.client import Client, Conversation, Server, refusal
from connectors.mcp.messages import RpcResponse
from connectors.operation import Operation
from connectors.port import (
    SOMEBODY,
    Call,
    Checkable,
    Connector,
    Done,
    InDoubt,
    NothingBefore,
    NotSent,
    Outcome,
    Probe,
    ProbeVerdict,
    Refused,
)
from connectors.readback import ASKED, FOUND
from connectors.schema import misfit, validator_of
from core.canonical import Json, JsonObject
from core.unkept import marker

CHECK_SECONDS = 10.0
WORDS_MAX = 500
# Less time than this is not enough to call anything: the answer would be missed.
SECONDS_MIN = 0.5
CHANGED = "tool_changed"
FAILED = "tool_failed"
_SAME = (
    "The approval is void. Look at the difference: `counterseal operation compare mcp {}`. "
    "If it is meant, import and publish it anew."
)
# Errors of JSON-RPC by which a server says that it has not understood the request, so no tool has begun.
_NOT_BEGUN = frozenset(
    {messages.PARSE_ERROR, messages.INVALID_REQUEST, messages.METHOD_NOT_FOUND}
    | {messages.HEADER_MISMATCH, messages.MISSING_CAPABILITY, messages.UNSUPPORTED_VERSION}
)


class McpConnector(NothingBefore):
    """The tools of one server."""

    def __init__(self, server: Server) -> None:
        self._client = Client(server)
        self._secrets = self._client.secrets

    @property
    def url(self) -> str:
        """Its address."""
        return self._client.server.url

    async def perform(self, call: Call) -> Outcome:
        """Read the tool as its server tells it now, and call it once if that is what was frozen."""
        refused = self.ready(call.operation, call.input)
        if refused is not None:
            return refused
        async with self._client.conversation(call.timeout_seconds) as held:
            if not isinstance(held, Conversation):
                return self._secrets.failure(held)
            return self._secrets.outcome(await self._performed(held, call))

    async def _performed(self, held: Conversation, call: Call) -> Outcome:
        name, declared, server = str(call.input[TOOL]), call.declaration, self._client.server.name
        now = await held.tool(name)
        if isinstance(now, Refused | NotSent):
            if not isinstance(now, Refused) or now.code != CHANGED:
                return now
            return Refused(CHANGED, f"{now.message}. Nothing was called. {_SAME.format(server)}", void=True)
        if now.digest != call.input[DEFINITION]:
            parts = ", ".join(differing(declared.tool or {}, now.definition)) or "the declaration itself"
            words = f"the MCP server {server} describes {name} otherwise than it was frozen ({parts})."
            return Refused(CHANGED, f"{words} Nothing was called. {_SAME.format(server)}", void=True)
        if held.seconds_left < SECONDS_MIN:
            return NotSent(f"the MCP server {server} took all the time to tell its tools; nothing was called")
        arguments: JsonObject = {key: value for key, value in call.input.items() if key not in PARAMS}
        reply, response = await held.call(name, arguments, call.idempotency_key, effect=declared.has_effect)
        outcome = _outcome(reply, response, f"the tool {name} of {server}", declared)
        if isinstance(outcome, InDoubt) and not declared.has_effect:
            return NotSent(outcome.message, outcome.retry_after_seconds)
        return outcome

    def ready(self, operation: str, inputs: JsonObject) -> Refused | None:
        """Refuse a tool that was imported from another address than the settings name. Calls nothing."""
        server, url = self._client.server, inputs.get(URL)
        if url == server.url:
            return None
        words = f"{operation} was imported from {url}, and {server.setting} names {server.url}"
        return Refused("server_moved", f"{words}. Import it again: `counterseal operation import mcp {server.name}`.")

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Answer *cannot tell*: the protocol has no way to ask what became of a call."""
        return Probe(ProbeVerdict.CANNOT_TELL, "MCP has no way to ask whether a call took effect")

    async def listed(self, timeout_seconds: float = 60.0) -> list[Json] | Refused | NotSent:
        """The server's list of tools, as it is. ``Refused`` if it holds a value of our credentials."""
        async with self._client.conversation(timeout_seconds) as held:
            if not isinstance(held, Conversation):
                return held
            found = await held.listed()
        if isinstance(found, list) and self._secrets.json(found) != found:
            return Refused("credentials_shown", f"the MCP server {self._client.server.name} shows our credentials")
        return found

    async def check(self) -> tuple[bool, str]:
        """Count the tools."""
        found = await self.listed(CHECK_SECONDS)
        name = self._client.server.name
        if isinstance(found, list):
            return True, f"{name} has {len(found)} tools"
        return False, f"{name}: {self._secrets.text(found.message)}"

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()


class McpServers(NothingBefore):
    """Every server of one tenant, by name: the connector ``mcp``."""

    def __init__(self, servers: Mapping[str, Connector], setting: str) -> None:
        self.servers, self._setting = dict(servers), setting

    def each(self, made: Callable[[str, Connector], Connector]) -> McpServers:
        """The same servers, each as it is made of its name and itself."""
        return McpServers({name: made(name, one) for name, one in self.servers.items()}, self._setting)

    async def perform(self, call: Call) -> Outcome:
        """Perform the call at the server that its declaration names."""
        found = self._of(call.operation, call.input)
        return found if isinstance(found, Refused) else await found.perform(call)

    def ready(self, operation: str, inputs: JsonObject) -> Refused | None:
        """The refusal by the settings alone: a server that is not set, or has another address."""
        found = self._of(operation, inputs)
        if isinstance(found, Refused):
            return found
        return found.ready(operation, inputs) if isinstance(found, Checkable) else None

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """See ``McpConnector.probe``."""
        return Probe(ProbeVerdict.CANNOT_TELL, "MCP has no way to ask whether a call took effect")

    async def check(self) -> tuple[bool, str]:
        """Check each server."""
        found = [await one.check() for one in self.servers.values()]
        return all(well for well, _ in found), "; ".join(words for _, words in found)

    async def aclose(self) -> None:
        """Release the connections of every server."""
        for one in self.servers.values():
            await one.aclose()

    def _of(self, operation: str, inputs: JsonObject) -> Connector | Refused:
        name = str(inputs.get(SERVER))
        if (found := self.servers.get(name)) is not None:
            return found
        words = f"{operation} is a tool of the MCP server {name!r}, which is not set. Add it to {self._setting}."
        return Refused("not_configured", words)


def _outcome(reply: Reply, response: RpcResponse | None, what: str, declared: Operation) -> Outcome:
    """The outcome of a call by its answer. Only what certainly began nothing is a refusal without an effect."""
    if not isinstance(reply, Answer) or response is None:
        assert not isinstance(reply, Answer)
        return reply
    if response.code is not None:
        if response.code in _NOT_BEGUN:
            return Refused("mcp_error", f"{what} was not called: {response.message[:WORDS_MAX]} ({response.code})")
        if response.code == messages.INTERNAL_ERROR or -32099 <= response.code <= -32000:
            return InDoubt(f"{what}: its server failed: {response.message[:WORDS_MAX]} ({response.code})")
        return _failed(what, f"{response.message[:WORDS_MAX]} ({response.code})")
    if not reply.ok:
        return refusal(reply, what) or InDoubt(f"{what}: the server answered {reply.status}")
    result = response.result
    if result is None:
        return InDoubt(f"{what}: {response.problem}")
    if result.get("resultType", "complete") != "complete":
        return InDoubt(f"{what} is not through, and asks for what nobody gives it: {str(result['resultType'])[:60]}")
    content = result.get("content", [])
    if not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
        return InDoubt(f"{what}: the result has no blocks of content")
    if result.get("isError", False) is not False:
        return _failed(what, messages.text_of(content)[:WORDS_MAX] or "without a word")
    return _done(content, result, declared)


def _failed(what: str, words: str) -> Refused:
    """The failure of a tool that was called: it may have done something before, and the words say so."""
    return Refused(FAILED, f"{what} says that it failed, and may have had an effect: {words}", sent=True)


def _done(content: list[Json], result: JsonObject, declared: Operation) -> Done:
    """The result as data. What does not fit the declared output is named: the effect happened, and the step fails."""
    output: JsonObject = {CONTENT: content}
    if result.get("structuredContent") is not None:
        output[STRUCTURED] = result["structuredContent"]
    validator = validator_of(declared.output_schema)
    try:
        fault = None if validator.is_valid(output) else str(misfit(validator, output, where="output"))
    except ValueError as error:
        fault = f"it is no JSON: {error}"
    if fault is None:
        return Done(output, writers=SOMEBODY)
    if STRUCTURED in output:
        output[STRUCTURED] = marker(output[STRUCTURED], f"It is not as the declaration says: {fault}")
    difference: JsonObject = {ASKED: "as output_schema says", FOUND: fault[:WORDS_MAX]}
    return Done(output, altered={STRUCTURED: difference}, writers=SOMEBODY)
