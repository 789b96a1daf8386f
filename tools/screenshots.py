"""Draw every state of a card and every window as pictures for the documentation: ``make screenshots``.

The pictures come from the real builder and the scenes of the tests, drawn by Chromium like Slack's app: at 390 and 1280
px, light and dark. Each kind of card has a picture of its own, which docs/approvals.md shows. They are written with 256
colours, so that all of them together stay small.
"""

from __future__ import annotations

import base64
import os
import shutil
import struct
import sys
import zlib
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from approvals.slack.cards import render
from tests.support import card_page
from tests.support.card_scenes import scenes, windows
from tools import screenshots_pages

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTHS = (390, 1280)
# A window is drawn as far as a phone shows it before anybody scrolls.
FOLD = 560
TOTAL_BYTES_MAX = 1_500_000
# The pixels of a picture as numbers of at most 256 colours, and these colours.
_PIXELS = """async data => {
  const image = await createImageBitmap(await (await fetch('data:image/png;base64,' + data)).blob())
  const canvas = new OffscreenCanvas(image.width, image.height), drawing = canvas.getContext('2d')
  drawing.drawImage(image, 0, 0)
  const raw = drawing.getImageData(0, 0, image.width, image.height).data, counts = new Map(), keys = []
  for (let at = 0; at < raw.length; at += 4) {
    const key = (raw[at] >> 3) << 10 | (raw[at + 1] >> 3) << 5 | raw[at + 2] >> 3
    keys.push(key); const seen = counts.get(key)
    if (seen) seen.count++; else counts.set(key, {count: 1, colour: [raw[at], raw[at + 1], raw[at + 2]]})
  }
  const kept = [...counts.entries()].sort((a, b) => b[1].count - a[1].count).slice(0, 256)
  const near = new Map(kept.map(([key], number) => [key, number]))
  for (const [key, {colour}] of counts) if (!near.has(key)) {
    let best = 0, least = Infinity
    kept.forEach(([, one], number) => {
      const far = one.colour.reduce((sum, value, at) => sum + (value - colour[at]) ** 2, 0)
      if (far < least) { least = far; best = number }
    })
    near.set(key, best)
  }
  let text = ''
  for (const key of keys) text += String.fromCharCode(near.get(key))
  return {width: image.width, height: image.height, pixels: btoa(text), colours: kept.map(([, one]) => one.colour)}
}"""


def main() -> int:
    """Write the pictures; 1 if there is no browser, or if they are too large together."""
    path = shutil.which(os.environ.get("CHROMIUM") or "chromium") or shutil.which("google-chrome")
    if path is None:
        sys.stderr.write("There is no Chromium. Install one, or name it in CHROMIUM.\n")
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-lcd-text"])
        for width in WIDTHS:
            for dark in (False, True):
                _sheet(browser, width, dark=dark)
        _each(browser)
        browser.close()
    screenshots_pages.take(IMAGES / "console", path)
    total = sum(file.stat().st_size for file in IMAGES.glob("card*.png"))
    sys.stdout.write(f"{total} bytes of pictures in docs/images, at most {TOTAL_BYTES_MAX}\n")
    return 0 if total <= TOTAL_BYTES_MAX else 1


def _drawn() -> list[str]:
    cards = [card_page.message(name, render(view).blocks) for name, view in scenes().items()]
    return [*cards, *(card_page.window(name, view) for name, view in windows().items())]


def _sheet(browser: Browser, width: int, *, dark: bool) -> None:
    """One picture with all of them."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.set_content(card_page.page(_drawn(), dark=dark, fold=FOLD))
    _write(page, f"cards-{width}-{'dark' if dark else 'light'}", page.screenshot(full_page=True))
    page.close()


def _each(browser: Browser) -> None:
    """A picture of each, on a phone in light."""
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": 844})
    page.set_content(card_page.page(_drawn(), fold=FOLD))
    for name in (*scenes(), *windows()):
        _write(page, f"card-{name}", page.locator(f"#{name}").screenshot())
    page.close()


def _write(page: Page, name: str, picture: bytes) -> None:
    """Write a picture as an indexed PNG."""
    told = page.evaluate(_PIXELS, base64.b64encode(picture).decode())
    width, height, pixels = told["width"], told["height"], base64.b64decode(told["pixels"])
    rows = b"".join(b"\0" + pixels[at * width : (at + 1) * width] for at in range(height))
    colours = bytes(value for colour in told["colours"] for value in colour)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", colours), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    (IMAGES / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


if __name__ == "__main__":
    sys.exit(main())
