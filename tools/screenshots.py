"""Draw every state of a card and every window as pictures for the documentation: ``make screenshots``.

The pictures come from the real builder and the scenes of the tests, drawn by Chromium like Slack's app: at 390 and 1280
px, light and dark. Each kind of card has a picture of its own, which docs/approvals.md shows.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from approvals.slack.cards import render
from tests.support import card_page
from tests.support.card_scenes import scenes, windows

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTHS = (390, 1280)
TOTAL_BYTES_MAX = 1_500_000


def main() -> int:
    """Write the pictures; 1 if there is no browser, or if they are too large together."""
    path = shutil.which(os.environ.get("CHROMIUM") or "chromium") or shutil.which("google-chrome")
    if path is None:
        print("There is no Chromium. Install one, or name it in CHROMIUM.")
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for width in WIDTHS:
            for dark in (False, True):
                _sheet(browser, width, dark=dark)
        _each(browser)
        browser.close()
    total = sum(file.stat().st_size for file in IMAGES.glob("card*.png"))
    print(f"{total} bytes of pictures in {IMAGES.name}/, at most {TOTAL_BYTES_MAX}")
    return 0 if total <= TOTAL_BYTES_MAX else 1


def _drawn() -> list[str]:
    cards = [card_page.message(name, render(view).blocks) for name, view in scenes().items()]
    return [*cards, *(card_page.window(name, view) for name, view in windows().items())]


def _sheet(browser: Browser, width: int, *, dark: bool) -> None:
    """One picture with all of them."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.set_content(card_page.page(_drawn(), dark=dark))
    page.screenshot(path=IMAGES / f"cards-{width}-{'dark' if dark else 'light'}.png", full_page=True)
    page.close()


def _each(browser: Browser) -> None:
    """A picture of each, on a phone in light."""
    page = browser.new_page(viewport={"width": WIDTHS[0], "height": 844})
    page.set_content(card_page.page(_drawn()))
    for name in (*scenes(), *windows()):
        page.locator(f"#{name}").screenshot(path=IMAGES / f"card-{name}.png")
    page.close()


if __name__ == "__main__":
    sys.exit(main())
