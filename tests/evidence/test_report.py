"""The report of a bundle: a page that stands alone, says only what was verified, and quotes what came from outside."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from msgspec.structs import replace

from core.errors import ConsistencyError
from evidence.commitments import commit, disclosure, path_of
from evidence.pins import Pins
from evidence.report.rendering import render_report
from evidence.verify import main as verify

# Tags, an attribute's end, a style, a template's braces, a right-to-left override, a letter of another script.
HOSTILE = "</style><script>alert(1)</script>\"'><img src=//x.example> {{ 7*7 }} \u202eevil\u202c p\u0430ypal"
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "header",
        "section",
        "div",
        "p",
        "span",
        "b",
        "i",
        "h1",
    ),
    *("h2", "h3", "table", "thead", "tbody", "tr", "th", "td", "br", "a", "ol", "li", "dl", "dt", "dd", "pre", "svg"),
    *("symbol", "circle", "path", "polygon", "rect", "use", "defs", "marker", "text", "desc", "figure", "figcaption"),
    *("blockquote", "del", "ins"),
}


class Page(HTMLParser):
    """The tags and attributes of a page, and its text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(workshop: Any) -> Any:
    """A story in which everything that can come from outside is hostile."""
    story, key = workshop.tell(), workshop.run_key
    change = dict.fromkeys(("field", "before", "after", "label", "before_label", "after_label"), HOSTILE)
    card = dict.fromkeys(("title", "question", "target", "reference", "summary", "asker", "link"), HOSTILE)
    card |= {"changes": [change, {**change, "after_label": ""}], "inputs": [{"field": HOSTILE, "value": [HOSTILE]}]}
    group = {"group": HOSTILE, "of": 1, "source": "group"}
    shaped = [{"person": None, "principal": HOSTILE, "role": "requester"}, {"principal": HOSTILE, "role": HOSTILE}]
    terms = {"approvers": [group], "escalate": {"to": group}, "expires_seconds": 60}
    asked = {"kind": "action", "requester": HOSTILE, "terms": terms, "contributors": shaped}
    card_path, asked_path = path_of("approval", "a1", "card"), path_of("approval", "a1", "asked")
    for at, event in enumerate(story.events):
        data = dict(event.data)
        if "card" in data:
            data |= {"card": commit(key, card_path, card), "committed": [[asked_path, commit(key, asked_path, asked)]]}
            data |= {"kind": "action"}
        if "rules" in data:
            data["rules"] = [HOSTILE]
        if data.get("choice"):
            data |= {"channel": HOSTILE, "groups": [f"group:{HOSTILE}"], "identity": {"slack": {"user": HOSTILE}}}
        actor = replace(event.actor, id=HOSTILE) if event.actor.kind == "person" else event.actor
        story.events[at] = replace(event, data=data, actor=actor, step=event.step and HOSTILE)
    (one,) = story.approvals
    vote = replace(one.votes[0], voter=HOSTILE, channel=HOSTILE)
    opened = {"card_disclosure": disclosure(key, card_path, card), "asked": disclosure(key, asked_path, asked)}
    story.approvals = [replace(one, card_commitment=commit(key, card_path, card), votes=(vote,), **opened)]
    return story


def test_what_comes_from_outside_is_quoted_and_the_page_refers_to_nothing(workshop: Any) -> None:
    path = workshop.save(workshop.build(hostile(workshop)))
    (drawn, _), (again, _) = render_report(path), render_report(path)
    page, text = Page(drawn.page), drawn.page.decode()
    assert drawn == again
    assert page.tags <= TAGS, page.tags - TAGS
    assert text.count("&lt;script&gt;") > 10
    assert text.count("⟨U+202E⟩") > 10
    assert "\u202e" not in text
    assert "{{ 7*7 }}" in page.text
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "style", "srcset", "action", "target")
        assert name not in ("href", "xlink:href") or value.startswith("#"), value
    targets = {value for name, value in page.attributes if name == "id"}
    links = {value[1:] for name, value in page.attributes if name == "href"}
    assert links <= targets
    assert {f"e{number}" for number in range(14)} <= targets
    assert not re.search(r"@import|url\((?!#)", text)
    assert "default-src 'none'" in dict(page.attributes).get("content", "") or "default-src 'none'" in text


@pytest.mark.parametrize("directory", [False, True])
def test_the_page_says_on_its_face_what_is_not_known_and_tells_what_was_done(workshop: Any, directory: bool) -> None:
    data = workshop.build()
    path = workshop.extract(data) if directory else workshop.save(data)
    unknown, found = render_report(path)
    known, trusted = render_report(path, pins=Pins.of([workshop.key]))
    said = "Nobody has said that the signing key is to be trusted"
    assert (said in unknown.page.decode(), said in known.page.decode()) == (True, False)
    assert (found.exit_code, trusted.exit_code) == (6, 0)
    text = re.sub(r"\s+", " ", Page(known.page).text)
    for words in (
        "Raise the priority of INC0010001", "maria approved at 10:30:07", "Approved by maria", "Allowed by r1",
        "exactly as it had been shown", "incident/9d385017c611228701d22104cc95c371", "Withheld: not disclosed",
        "no proof from a log", "m1, 1 call, 12 tokens",
    ):  # fmt: skip
        assert words in text, words
    for row in trusted.rows:
        assert " ".join(row.detail.split()) in text, row


def test_there_is_no_report_of_a_bundle_that_does_not_verify(workshop: Any, capsys: Any) -> None:
    files = workshop.unzip(workshop.build())
    changed = {**files, "costs.json": files["costs.json"].replace(b"0.0012", b"0.0011")}
    for bad in (workshop.pack(changed), workshop.pack(workshop.resign(changed, workshop.signer))):
        assert verify([str(bad)]) == 1
        with pytest.raises(ConsistencyError, match="does not verify, so there is no report"):
            render_report(bad, pins=Pins.of([workshop.key]))
    good = workshop.save(workshop.build())
    with pytest.raises(ConsistencyError, match="signature"):
        render_report(good, pins=Pins(fingerprints=("0" * 64,)))
