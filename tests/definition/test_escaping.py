"""Values in texts of another language: escaped unless raw text is asked for, and the author's own words are not."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.catalog import Source, load_catalog
from connectors.proposal import build_action
from core.errors import DefinitionError, ExpressionError
from runtime.definition.workflow import load_workflow
from sandbox.servicenow_query import select

ROOT = Path(__file__).resolve().parents[2]
CATALOG = load_catalog()
STEP = "workflow: w\nversion: 1\nreference: r\nsteps: [{{id: a, do: {operation}, with: {inputs}}}]\n"
RECORDS = [{"name": "Network"}, {"name": "Payroll", "active": "true"}, {"name": "a^b"}]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


def rendered(operation: str, inputs: str, catalog: Any = CATALOG, **trigger: object) -> Any:
    """The inputs of a step as they are proposed."""
    workflow = load_workflow(STEP.format(operation=operation, inputs=inputs), "w.yaml", catalog)
    node: Any = workflow.graph.leaves["a"]
    return node.inputs.render({"trigger": trigger})


def message(text: str, **trigger: object) -> str:
    made: str = rendered("slack.message.post", f'{{channel: C0123, text: "{text}"}}', **trigger)["text"]
    return made


def url(text: str, **trigger: object) -> str:
    made: str = rendered("http.request.send", f'{{method: GET, url: "{text}"}}', **trigger)["url"]
    return made


def query(text: str, **trigger: object) -> str:
    made: str = rendered("servicenow.record.query", f'{{table: sys_user, query: "{text}"}}', **trigger)["query"]
    return made


def test_a_message_mentions_nobody_and_links_nowhere_by_what_is_put_into_it() -> None:
    hostile = "<!channel> <https://evil.example|Approve> & <@U0BOSS>"
    safe = html.escape(hostile, quote=False)
    assert message("<!here> ${{ trigger.t }} & you", t=hostile) == f"<!here> {safe} & you"
    assert message("${{ trigger.t }}", t=hostile) == safe
    assert message("${{ raw(trigger.t) }}", t=hostile) == hostile
    assert message(" ${{ raw(trigger.t) }} ", t=hostile) == hostile, "blanks around one expression are none of its text"
    assert message("${{ raw(trigger.t) }}: ${{ trigger.t }}", t="<!channel>") == "<!channel>: &lt;!channel&gt;"


def test_blocks_are_escaped_at_every_depth_and_whole() -> None:
    blocks = '{channel: C0123, text: t, blocks: [{type: section, text: {type: mrkdwn, text: "*${{ trigger.t }}*"}}]}'
    made = rendered("slack.message.post", blocks, t="<!channel>")["blocks"]
    assert made[0]["text"]["text"] == "*&lt;!channel&gt;*"
    whole = rendered("slack.message.post", '{channel: C0123, text: t, blocks: "${{ trigger.b }}"}', b=made)["blocks"]
    assert whole[0]["text"]["text"] == "*&amp;lt;!channel&amp;gt;*"


def test_a_query_gets_no_condition_from_a_value() -> None:
    made = query("name=${{ trigger.n }}^ORDERBYname", n="x^ORactive=true")
    assert made == "name=x^^ORactive=true^ORDERBYname"
    assert select(RECORDS, made) == []
    assert select(RECORDS, query("name=${{ trigger.n }}", n="a^b")) == [RECORDS[2]]
    assert query("${{ raw(trigger.n) }}", n="a=1^b=2") == "a=1^b=2"


@pytest.mark.parametrize("word", ["javascript:gs.sleep(1)", "JavaScript :x", "java"])
def test_a_query_runs_no_script_that_a_value_brings(word: str) -> None:
    text = "name=${{ trigger.n }}${{ trigger.m }}"
    with pytest.raises(ExpressionError, match="a script that the instance would run"):
        query(text, n=word, m="script:x" if word == "java" else "")
    assert query("opened_at>javascript:gs.daysAgo(2)^name=${{ trigger.n }}", n="x").endswith("name=x")
    with pytest.raises(ExpressionError, match="a script that the instance would run"):
        query("${{ trigger.n }}", n="opened_at>javascript:gs.sleep(1)")


@pytest.mark.parametrize("value", ["../admin", "a/../../b", "x?y=1", "a#b", "a&b=c", "%2e%2e/x", "a b", "ü"])
def test_a_value_is_one_part_of_an_address(value: str) -> None:
    made = urlsplit(url("https://h.example/v1/${{ trigger.v }}/x?q=${{ trigger.v }}", v=value))
    assert unquote(made.path) == f"/v1/{value}/x"
    assert (made.path.count("/"), unquote(made.query), made.fragment) == (3, f"q={value}", "")


@pytest.mark.parametrize(("first", "second"), [("..", ""), (".", "."), (".", ""), ("", "..")])
def test_a_value_is_no_step_to_another_path(first: str, second: str) -> None:
    with pytest.raises(ExpressionError, match="a step to another path"):
        url("https://h.example/v1/${{ trigger.a }}${{ trigger.b }}/x", a=first, b=second)
    with pytest.raises(ExpressionError, match="a step to another path"):
        url("${{ trigger.a + trigger.b }}", a=first, b=second)


def test_a_whole_address_has_to_be_asked_for() -> None:
    address = "https://h.example/a?b=c"
    assert url("${{ raw(trigger.u) }}", u=address) == address
    assert url("${{ raw(trigger.u) }}/${{ trigger.v }}", u="https://h.example", v="a/b") == "https://h.example/a%2Fb"
    assert "://" not in url("${{ trigger.u }}", u=address)


def test_an_operation_of_ones_own_declares_its_languages() -> None:
    own = """
operations:
  - name: crm.page.put
    handler: crm:put
    side_effects: external_call
    risk: low
    in_doubt: ask
    summary: s
    target: t
    timeouts: {perform: PT5S}
    input_schema:
      type: object
      properties:
        page: {type: object, x-language: html, additionalProperties: {type: string}, properties: {n: {type: integer}}}
        plain: {type: string}
    output_schema: {type: object}
"""
    catalog = load_catalog([Source("own.yaml", own)])
    inputs = '{page: {a: "<b>${{ trigger.t }}</b>", n: "${{ trigger.n }}"}, plain: "${{ trigger.t }}"}'
    made = rendered("crm.page.put", inputs, catalog, t="<i>'\"&", n=7)
    assert made == {"page": {"a": "<b>&lt;i&gt;&#x27;&quot;&amp;</b>", "n": 7}, "plain": "<i>'\"&"}
    free = "{type: object, additionalProperties: {type: string, x-language: html}}"
    page = "{type: object, x-language: html, additionalProperties: {type: string}, properties: {n: {type: integer}}}"
    assert page in own
    whole = load_catalog([Source("own.yaml", own.replace(page, free))])
    made = rendered("crm.page.put", '{page: "${{ trigger.page }}"}', whole, page={"a": "<i>", "b": "c"})
    assert made == {"page": {"a": "&lt;i&gt;", "b": "c"}}, "a whole value, of which each text speaks"
    with pytest.raises(DefinitionError, match="x-language is 'klingon'"):
        load_catalog([Source("own.yaml", own.replace("html", "klingon"))])


def test_raw_where_nothing_is_escaped_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="raw"):
        rendered("slack.message.post", '{channel: "${{ raw(trigger.c) }}", text: t}', c="C0123")
    with pytest.raises(DefinitionError):
        message("${{ raw(trigger.a) + raw(trigger.b) }}", a="a", b="b")


def test_what_is_shown_and_bound_is_what_is_sent() -> None:
    operation = CATALOG.get("slack.message.post")
    inputs = rendered(operation.name, '{channel: C0123, text: "Hello ${{ trigger.t }}"}', t="<!channel>")
    action = build_action(operation, inputs)
    assert action.input["text"] == "Hello &lt;!channel&gt;"
    assert "Hello &lt;!channel&gt;" in action.summary


def test_the_examples_put_no_model_output_into_a_query_as_it_is() -> None:
    """M7: incident-triage asks for a group that a model names."""
    text = (ROOT / "examples" / "workflows" / "incident-triage.yaml").read_text()
    node: Any = load_workflow(text, "incident-triage.yaml", CATALOG).graph.leaves["group"]
    output = {"json": {"group": "x^ORnameISNOTEMPTY"}}
    made = node.inputs.render({"steps": {"classify": {"output": output}}, "steps.classify.output": output})
    assert made["query"] == "name=x^^ORnameISNOTEMPTY"


@given(TEXTS)
def test_no_text_leaves_its_place(text: str) -> None:
    safe = message("${{ trigger.t }}|", t=text)[:-1]
    assert html.unescape(safe) == text or "&" in text
    assert not {"<", ">"} & set(safe)
    assert unquote(url("https://h/a${{ trigger.t }}b", t=text)) == f"https://h/a{text}b"


def test_what_grows_by_its_escapes_has_a_limit() -> None:
    long = "&" * 60_000
    assert message("${{ raw(trigger.t) }}", t=long) == long
    for text in ("${{ trigger.t }}", "so: ${{ trigger.t }}"):
        with pytest.raises(ExpressionError, match="at most 262144 are accepted"):
            message(text, t=long)
    with pytest.raises(ExpressionError, match="at most 262144 are accepted"):
        rendered("slack.message.post", '{channel: C0123, text: t, blocks: "${{ trigger.b }}"}', b=[{"text": long}])
