"""Cards and windows as a page for a browser, drawn like Slack's app on a phone: same width, sizes of type and gaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from approvals.slack.blocks import Block
from sandbox.slack_mrkdwn import mrkdwn

STYLE = """
* { box-sizing: border-box; margin: 0 } body { background: #fff }
.slack { --l: #ddd; --c: #a8144a; --g: #f6f5f6; --a: #1264a3; --s: #616061; --b: #fff; background: var(--b);
  color: #1d1c1d; padding: 12px 14px; border: 1px solid var(--l); border-radius: 10px; margin: 0;
  font: 16px/22px Roboto, "Liberation Sans", "DejaVu Sans Condensed", sans-serif }
.dark .slack { --l: #3c3f44; --c: #f0a4a8; --g: #25282d; --a: #6cb8f0; --s: #ababad; --b: #1a1d21; color: #e8e8e8 }
.msg { display: grid; grid-template-columns: 36px minmax(0, 1fr); gap: 10px } .av { width: 36px; height: 36px;
  border-radius: 8px; background: #14201f } .by { font-size: 15px; line-height: 18px; margin-bottom: 2px }
.header { font-weight: 750; font-size: 18px; line-height: 24px; margin: 2px 0 4px }
.section, .context, .actions, .input { margin: 4px 0; overflow-wrap: anywhere }
.context { font-size: 13px; line-height: 19px; color: var(--s) } .context strong { color: inherit }
a { color: var(--a) } code { font: 13px monospace; color: var(--c); background: var(--g); border: 1px solid var(--l);
  border-radius: 3px; padding: 0 3px; -webkit-box-decoration-break: clone; box-decoration-break: clone }
.actions { display: flex; flex-wrap: wrap; gap: 8px; margin-top: 8px } .btn { font-weight: 650; font-size: 15px;
  line-height: 20px; min-height: 36px; padding: 7px 11px; border: 1px solid var(--s); border-radius: 8px;
  background: var(--b); color: inherit; white-space: nowrap } .primary { background: #007a5a; color: #fff }
.danger { background: #c01343; color: #fff } .field { border: 1px solid var(--s); border-radius: 8px; min-height: 64px }
@media (min-width: 900px) { body { columns: 3; column-gap: 12px } .slack { break-inside: avoid; margin-bottom: 12px } }
.bar { display: flex; justify-content: space-between; align-items: center; border-bottom: 1px solid var(--l);
  padding-bottom: 8px; margin-bottom: 8px; font-weight: 700 } label { display: block; font-weight: 600 }
.option { font-weight: 400; padding: 6px 0 } .option::before { content: "○  " }
"""


def page(drawn: Iterable[str], *, dark: bool = False, fold: int = 0) -> str:
    """A page with these; windows end at the ``fold``, in pixels, if one is given."""
    folded = f".window {{ max-height: {fold}px; overflow: hidden }}" if fold else ""
    sheet = f"<meta charset=utf-8><meta name=viewport content='width=device-width'><style>{STYLE}{folded}</style>"
    return f"<!doctype html><html class={'dark' if dark else 'light'}>{sheet}<body>{''.join(drawn)}</body></html>"


def message(name: str, blocks: Iterable[Block]) -> str:
    """A message of the app."""
    told = "".join(map(_block, blocks))
    body = f"<div><p class=by><b>counterseal</b> APP</p>{told}</div>"
    return f"<div class=slack id={name}><div class=msg><span class=av></span>{body}</div></div>"


def window(name: str, view: Mapping[str, Any]) -> str:
    """A modal window."""
    submit = f"<span class='btn primary'>{escape(view['submit']['text'])}</span>" if "submit" in view else ""
    bar = f"<div class=bar><span>{escape(view['close']['text'])}</span>{escape(view['title']['text'])}{submit}</div>"
    return f"<div class='slack window' id={name}>{bar}{''.join(map(_block, view['blocks']))}</div>"


def _text(item: Mapping[str, Any]) -> str:
    return str(mrkdwn(item["text"], {})) if item["type"] == "mrkdwn" else escape(item["text"]).replace("\n", "<br>")


def _block(block: Block) -> str:
    kind = block["type"]
    if kind == "context":
        return "".join(f"<p class='context line'>{_text(item)}</p>" for item in block["elements"])
    if kind == "actions":
        told = (f"<span class='btn {item.get('style', '')}'>{_text(item['text'])}</span>" for item in block["elements"])
        return f"<div class=actions>{''.join(told)}</div>"
    if kind == "input":
        options = block["element"].get("options")
        inner = "".join(f"<div class=option>{_text(one['text'])}</div>" for one in options or ())
        return f"<div class=input><label>{_text(block['label'])}</label>{inner or '<div class=field></div>'}</div>"
    return f"<p class='{kind} line'>{_text(block['text'])}</p>"


# The lines of each element of text, as the browser broke them, and what leaves the card to its right.
MEASURE = """() => Object.fromEntries([...document.querySelectorAll('.slack')].map(card => {
  const lines = [...card.querySelectorAll('.line')].reduce((sum, one) =>
    sum + Math.round(one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)), 0)
  const rows = new Set([...card.querySelectorAll('.actions .btn')].map(one => one.offsetTop)).size
  const edge = card.getBoundingClientRect().right
  const out = [...card.querySelectorAll('*')].filter(one => one.getBoundingClientRect().right > edge).length
  const asks = [...card.querySelectorAll('.input')].map(one => one.getBoundingClientRect().bottom)
  return [card.id, {lines, rows, out, answer: asks.length ? asks[0] - card.getBoundingClientRect().top : 0}]
}))"""
