"""Only what stands literally in the published workflow is its author's: all other words are escaped for their language.

A table over every argument with a language of every operation, and over who wrote it.
"""

from __future__ import annotations

import html
import json
from typing import Any

import pytest

from connectors.catalog import Catalog, Source, load_catalog
from connectors.languages import InputLanguages
from core.errors import DefinitionError, ExpressionError
from core.escaping import Language
from runtime.definition.workflow import extended, load_workflow
from runtime.engine.model.agent_state import GIVEN
from runtime.engine.model.rows import MutationRow

PAGE = """
operations:
  - name: web.page.put
    connector: http
    handler: http:send
    params: {method: PUT}
    side_effects: external_call
    in_doubt: ask
    risk: low
    summary: Put a page
    target: "{url}"
    input_schema:
      type: object
      required: [url, body]
      properties: {url: {type: string}, body: {type: string, x-language: html}}
      additionalProperties: false
    output_schema: {type: object}
"""
CATALOG: Catalog = load_catalog([Source("page.yaml", PAGE)])
HOSTILE = {
    Language.MRKDWN: "<!channel> <https://evil.example|https://good.example> & <@U0BOSS>",
    Language.HTML: "<script>alert('&')</script>",
    Language.ENCODED_QUERY: "active=true^NQsys_idISNOTEMPTY^ORa=b",
    Language.URL_PART: "a/../b?c=d&e#f",
}
SAFE = {
    Language.MRKDWN: html.escape(HOSTILE[Language.MRKDWN], quote=False),
    Language.HTML: html.escape(HOSTILE[Language.HTML]),
    Language.ENCODED_QUERY: HOSTILE[Language.ENCODED_QUERY].replace("^", "^^"),
    Language.URL_PART: "a%2F..%2Fb%3Fc%3Dd%26e%23f",
}
GOOD: dict[str, Any] = {
    "url": "https://api.example/x", "method": "GET", "channel": "C0OPS", "text": "t", "table": "incident",
    "query": "a=b",
    "body": "b", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "t"}}],
}  # fmt: skip


def arguments() -> list[tuple[str, str, Language]]:
    """Every argument that has a language, or has texts that have one."""
    found = []
    for name, operation in CATALOG.operations.items():
        languages = InputLanguages(operation.input_schema)
        for argument in operation.input_schema["properties"]:
            if languages.within((argument,)):
                language = languages.at((argument,))
                assert language is not None
                found.append((name, argument, language))
    return found


def test_the_table_has_every_language() -> None:
    assert {language for *_, language in arguments()} == {*Language} == {*HOSTILE}


def value_of(argument: str, text: str) -> Any:
    """The argument with this text in it, as deep as its type wants."""
    return [{"type": "section", "text": {"type": "mrkdwn", "text": text}}] if argument == "blocks" else text


def given(operation: str, argument: str, value: Any) -> dict[str, Any]:
    takes = CATALOG.get(operation)
    needed = [name for name in takes.input_schema.get("required", ()) if name not in takes.params]
    return {name: GOOD[name] for name in needed} | {argument: value}


def compiled(*steps: dict[str, Any]) -> Any:
    return load_workflow(json.dumps({"workflow": "w", "version": 1, "reference": "r", "steps": [*steps]}), "w", CATALOG)


def step(operation: str, inputs: dict[str, Any], name: str = "a") -> dict[str, Any]:
    return {"id": name, "do": operation, "with": inputs}


SEEN = {"trigger": {"t": "", "blocks": []}, "state": {}}


def rendered(workflow: Any, argument: str, text: str, name: str = "a") -> Any:
    seen = {"trigger": {"t": text, "blocks": value_of("blocks", text)}}
    return workflow.graph.leaves[name].inputs.render(seen)[argument]


def added(operation: str, inputs: dict[str, Any]) -> Any:
    base = compiled({"id": "first", "do": "transform.data.apply", "with": {"value": 1}})
    source: dict[str, Any] = {"steps": [step(operation, inputs)]}
    return extended(base, [MutationRow(1, "who", source, {}, ())], CATALOG)


def agent(operation: str, **tool: Any) -> dict[str, Any]:
    said = {"model": "m", "instructions": "i", "input": "x", "tools": [{"do": operation, **tool}]}
    return {"id": "triage", "agent": said}


def called(workflow: Any, values: dict[str, Any]) -> Any:
    [tool] = workflow.graph.leaves["triage"].tools.values()
    return tool.leaf.inputs.render({GIVEN: values})


WHO = (
    "author",
    "template",
    "whole",
    "agent",
    "agent raw",
    "fixed by the author",
    "fixed",
    "added",
    "added raw",
    "added whole",
)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(("operation", "argument", "language"), arguments())
def test_words_are_escaped_unless_an_author_wrote_them(
    operation: str, argument: str, language: Language, who: str
) -> None:
    hostile, safe = HOSTILE[language], SAFE[language]
    if language is Language.URL_PART:
        return  # addresses have a test of their own: the author's words around a value are its scheme and host
    whole = "${{ trigger.blocks }}" if argument == "blocks" else "${{ trigger.t }}"
    literal = given(operation, argument, value_of(argument, hostile))
    made: Any
    match who:
        case "author":
            assert rendered(compiled(step(operation, literal)), argument, "") == value_of(argument, hostile)
            return
        case "template":
            made = rendered(
                compiled(step(operation, given(operation, argument, value_of(argument, "x ${{ trigger.t }}")))),
                argument,
                hostile,
            )
            assert made == value_of(argument, f"x {safe}")
            return
        case "whole":
            made = rendered(compiled(step(operation, given(operation, argument, whole))), argument, hostile)
        case "agent":
            made = called(compiled(agent(operation)), literal)[argument]
        case "agent raw":
            made = called(compiled(agent(operation, raw=[argument])), literal)[argument]
            assert made == value_of(argument, hostile), "the author lets the model write in this language"
            return
        case "fixed by the author" | "fixed":
            by_author = who != "fixed"
            fixed = value_of(argument, hostile) if by_author else whole
            [tool] = compiled(agent(operation, **{"with": {argument: fixed}})).graph.leaves["triage"].tools.values()
            first = tool.fixed.render({"trigger": {"t": hostile, "blocks": value_of("blocks", hostile)}})
            made = tool.leaf.inputs.render({GIVEN: {**given(operation, argument, None), **first}})[argument]
            if by_author:
                assert made == value_of(argument, hostile)
                return
        case "added":
            made = rendered(added(operation, literal), argument, "")
        case "added raw":
            source = "${{ raw(trigger.blocks) }}" if argument == "blocks" else "${{ raw(trigger.t) }}"
            made = rendered(added(operation, given(operation, argument, source)), argument, hostile)
        case "added whole":
            made = rendered(added(operation, given(operation, argument, whole)), argument, hostile)
    assert made == value_of(argument, safe)


@pytest.mark.parametrize("url", ["https://h/public/../admin", "https://h/%2e%2e/admin", "https://h/a/..?b"])
def test_an_address_that_no_author_wrote_steps_to_no_other_path(url: str) -> None:
    """An address as a whole is not escaped, because no author's words stand around it. Its canonical form is judged."""
    values = {"method": "GET", "url": url}
    with pytest.raises(ExpressionError):
        called(compiled(agent("http.request.send")), values)
    with pytest.raises(ExpressionError):
        rendered(added("http.request.send", values), "url", "")
    fine = {"method": "GET", "url": "https://h/a?b=c&d"}
    assert called(compiled(agent("http.request.send")), fine) == fine
    assert rendered(added("http.request.send", fine), "url", "") == fine["url"]
    part = {"method": "GET", "url": "https://h/a/${{ trigger.t }}"}
    for workflow in (compiled(step("http.request.send", part)), added("http.request.send", part)):
        assert rendered(workflow, "url", "x/../y?z") == "https://h/a/x%2F..%2Fy%3Fz"


def rich(element: dict[str, Any]) -> dict[str, Any]:
    """A block with one element of rich text."""
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [element]}]}


@pytest.mark.parametrize(
    "block",
    [
        rich({"type": "broadcast", "range": "channel"}),
        rich({"type": "user", "user_id": "U0BOSS"}),
        rich({"type": "link", "url": "https://evil.example", "text": "https://good.example"}),
    ],
)
def test_blocks_that_no_author_wrote_mention_nobody_and_hide_no_address(block: dict[str, Any]) -> None:
    values = {"channel": "C0OPS", "text": "t", "blocks": [block]}
    with pytest.raises(ExpressionError):
        called(compiled(agent("slack.message.post")), values)
    with pytest.raises(ExpressionError):
        added("slack.message.post", values).graph.leaves["a"].inputs.render({"trigger": {}})
    whole = compiled(step("slack.message.post", {**values, "blocks": "${{ trigger.blocks }}"}))
    with pytest.raises(ExpressionError):
        whole.graph.leaves["a"].inputs.render({"trigger": {"blocks": [block]}})


def test_a_model_writes_in_a_language_only_where_there_is_one() -> None:
    with pytest.raises(DefinitionError, match="nothing in it is escaped"):
        compiled(agent("slack.message.post", raw=["channel"]))
