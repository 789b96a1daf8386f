"""A message posts only what shows something: nothing that people could press, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.catalog import Source, load_catalog
from connectors.port import Call, Refused
from connectors.proposal import build_action
from connectors.slack.connector import SlackConnector, SlackSettings
from core.errors import DefinitionError, InputError

POST = "slack.message.post"
TEXT = {"type": "mrkdwn", "text": "Team lunch on Friday?"}
BUTTON = {"type": "button", "text": {"type": "plain_text", "text": "Count me in"}, "action_id": "counterseal.approve"}
SECTION = {"type": "section", "text": TEXT}
OPTION = {"text": {"type": "plain_text", "text": "x"}, "value": "x"}
# Every element of Slack's Block Kit that people can press, choose or fill in.
ELEMENTS: dict[str, Any] = {
    name: {"type": name, "action_id": "counterseal.approve"}
    for name in (
        *("button", "checkboxes", "datepicker", "datetimepicker", "email_text_input", "feedback_buttons", "file_input"),
        *("icon_button", "multi_static_select", "multi_external_select", "multi_users_select", "number_input"),
        *("multi_conversations_select", "multi_channels_select", "overflow", "plain_text_input", "radio_buttons"),
        *("rich_text_input", "static_select", "external_select", "users_select", "conversations_select"),
        *("channels_select", "timepicker", "url_text_input", "workflow_button", "url_source", "never_seen"),
    )
}
RICH = {"type": "rich_text_section", "elements": [{"type": "text", "text": "hello", "style": {"bold": True}}]}
SHOWN: dict[str, Any] = {
    "nothing": [],
    "a section": [{**SECTION, "expand": True, "block_id": "b", "fields": [TEXT]}],
    "an image beside": [
        {**SECTION, "accessory": {"type": "image", "image_url": "https://x.example/a", "alt_text": "a"}}
    ],
    "a heading and a line": [{"type": "header", "text": {"type": "plain_text", "text": "h"}}, {"type": "divider"}],
    "small print": [{"type": "context", "elements": [TEXT, {"type": "plain_text", "text": "x", "emoji": False}]}],
    "an image": [
        {"type": "image", "slack_file": {"id": "F1"}, "alt_text": "a", "title": {"type": "plain_text", "text": "t"}}
    ],
    "rich text": [
        {"type": "rich_text", "elements": [RICH, {"type": "rich_text_list", "style": "bullet", "elements": [RICH]}]}
    ],
    "a table": [
        {"type": "table", "rows": [[{"type": "raw_text", "text": "a"}, {"type": "rich_text", "elements": [RICH]}]]}
    ],
}
PRESSED: dict[str, Any] = {
    **{f"{name} as an element": [{"type": "actions", "elements": [one]}] for name, one in ELEMENTS.items()},
    **{f"{name} beside a section": [{**SECTION, "accessory": one}] for name, one in ELEMENTS.items()},
    **{f"{name} as input": [{"type": "input", "label": TEXT, "element": one}] for name, one in ELEMENTS.items()},
    **{f"{name} in small print": [{"type": "context", "elements": [one]}] for name, one in ELEMENTS.items()},
    **{f"{name} as a block": [one] for name, one in ELEMENTS.items()},
    "context_actions": [{"type": "context_actions", "elements": [BUTTON]}],
    "a card": [{"type": "card", "actions": [BUTTON]}],
    "a carousel": [{"type": "carousel", "elements": [{"type": "card", "actions": [BUTTON]}]}],
    "a video": [{"type": "video", "video_url": "https://x.example", "alt_text": "a"}],
    "a call": [{"type": "call", "call_id": "R1"}],
    "no type": [{"elements": [BUTTON]}],
    "a type that is no text": [{"type": ["section"], "elements": [BUTTON]}],
    "a type in another case": [{"type": "Actions", "elements": [BUTTON]}],
    "elements of a section": [{**SECTION, "elements": [BUTTON]}],
    "an action's id": [{**SECTION, "action_id": "counterseal.approve"}],
    "an image with an action": [{**SECTION, "accessory": {"type": "image", "action_id": "counterseal.approve"}}],
    "in rich text": [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [BUTTON]}]}],
    "in a list": [{"type": "rich_text", "elements": [{"type": "rich_text_list", "elements": [BUTTON]}]}],
    "in a table": [{"type": "table", "rows": [[BUTTON]]}],
    "in a cell": [{"type": "table", "rows": [[{"type": "rich_text", "elements": [BUTTON]}]]}],
    "in columns": [{"type": "table", "rows": [], "column_settings": [BUTTON]}],
    "in a style": [{"type": "rich_text", "elements": [{**RICH, "elements": [{"type": "text", "style": BUTTON}]}]}],
    "as a text": [{"type": "section", "text": BUTTON}],
    "as a field": [{**SECTION, "fields": [BUTTON]}],
    "as a title": [{"type": "image", "title": BUTTON}],
    "in a list of lists": [[{"type": "actions", "elements": [BUTTON]}]],
    "the last of many": [SECTION] * 9 + [{"type": "actions", "elements": [BUTTON]}],
    "blocks as a text": '[{"type": "actions"}]',
    "one block": {"type": "actions", "elements": [BUTTON]},
}
DECLARED = """
operations:
  - name: slack.card.post
    handler: slack:post
    side_effects: external_call
    risk: low
    summary: Post
    target: channel
    in_doubt: probe
    params: {params}
    input_schema: {{type: object, required: [channel, text], properties: {{channel: {{}}, text: {{}}, blocks: {{}}}}}}
    output_schema: {{type: object}}
"""


def given(blocks: Any) -> dict[str, Any]:
    return {"channel": "C0OPS", "text": "Lunch?", "blocks": blocks}


@pytest.mark.parametrize("name", SHOWN)
def test_what_only_shows_something_is_posted(name: str) -> None:
    assert build_action(load_catalog().get(POST), given(SHOWN[name])).input["blocks"] == SHOWN[name]


@pytest.mark.req("Q-3")
@pytest.mark.parametrize("name", PRESSED)
async def test_what_people_could_press_is_refused_before_it_is_judged_and_before_it_is_sent(
    name: str, make_call: Callable[..., Call], slack: Any, closing: Callable[[Any], Any]
) -> None:
    """Refused under the packaged declaration, under one of an installation, and as an earlier release kept it."""
    blocks = PRESSED[name]
    with pytest.raises(InputError) as refused:
        build_action(load_catalog().get(POST), given(blocks))
    if isinstance(blocks, list) and not isinstance(blocks[0], list):
        assert refused.value.where.startswith("input.blocks["), refused.value.where
        assert "step `task:`" in refused.value.remedy
    own = load_catalog([Source("own.yaml", DECLARED.format(params="{}"))]).get("slack.card.post")
    with pytest.raises(InputError):
        build_action(own, given(blocks))
    connector = closing(SlackConnector(SlackSettings("xoxb-test", f"{slack.url}/api/")))
    outcome = await connector.perform(make_call(POST, given(blocks)))
    assert isinstance(outcome, Refused)
    assert outcome.code == "interactive"
    assert slack.messages == []


@pytest.mark.parametrize(
    "attachment",
    [
        {"blocks": [{"type": "actions", "elements": [BUTTON]}]},
        {"text": "x", "callback_id": "c", "actions": [{"type": "button", "name": "n", "text": "Count me in"}]},
        {"callback_id": "counterseal.approve"},
        "not an object",
    ],
)
async def test_attachments_are_none_of_its_inputs_and_hold_nothing_to_press(
    attachment: Any, make_call: Callable[..., Call], slack: Any, closing: Callable[[Any], Any]
) -> None:
    values = {"channel": "C0OPS", "text": "x", "attachments": [attachment]}
    with pytest.raises(InputError):
        build_action(load_catalog().get(POST), values)
    connector = closing(SlackConnector(SlackSettings("xoxb-test", f"{slack.url}/api/")))
    assert isinstance(await connector.perform(make_call(POST, values)), Refused)


def test_a_declaration_that_fixes_a_button_is_refused_when_it_is_loaded() -> None:
    params = '{blocks: [{type: actions, elements: [{type: button, action_id: "counterseal.approve"}]}]}'
    text = DECLARED.format(params=params).replace(", blocks: {}", "")
    with pytest.raises(DefinitionError, match=r"params.blocks\[0\] has the type 'actions'"):
        load_catalog([Source("own.yaml", text)])
