"""Every page in a real browser: nothing for axe to find, nothing sideways, no error of a script, all by keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright, expect

from app.access import Role

AXE = (Path(__file__).parent / "axe.min.js").read_text(encoding="utf-8")
WIDTHS = (320, 390, 768, 1280)
RUN = """options => axe.run(document, {resultTypes: ['violations'], ...options})
  .then(result => result.violations.map(found => [found.id, found.nodes[0].html]))"""
# The dark scheme changes colours, and nothing else.
COLOURS = {"runOnly": ["color-contrast"]}
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def faults(page: Page, scheme: str = "light") -> list[Any]:
    """The faults that axe finds, and that the page reaches sideways."""
    found = await page.evaluate(RUN, COLOURS if scheme == "dark" else {})
    return [*found, *([["sideways", page.url]] if await page.evaluate(SIDEWAYS) > 0 else [])]


@pytest.mark.timeout(500)
async def test_axe_finds_nothing_on_any_page(stage: Any, chromium_path: str) -> None:
    token = await stage.installation.token(Role.ADMIN, Role.APPROVER, Role.AUDITOR, subject="ann")
    base, found, broken = f"{stage.installation.url}/console", [], []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])
        page = await browser.new_page()
        page.on("console", lambda said: broken.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: broken.append(str(error)))
        await page.goto(f"{base}/login")
        await page.evaluate(AXE)
        found += await faults(page)
        await page.get_by_role("textbox", name="Token").fill(token)
        await page.get_by_role("button", name="Log in").click()
        for name, path in stage.pages.items():
            await page.goto(f"{base}{path}")
            await page.evaluate(AXE)
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 900})
                for scheme in ("light", "dark"):
                    await page.emulate_media(color_scheme=scheme)
                    found += [(name, width, scheme, *one) for one in await faults(page, scheme)]
        await browser.close()
    assert found == [], "\n".join(map(str, found))
    assert [one for one in broken if "404" not in one] == []


STYLE = "getComputedStyle(document.activeElement)"
RING = f"{STYLE}.outlineStyle + parseInt({STYLE}.outlineWidth)"


async def test_a_person_decides_by_keyboard_and_pages_stay_true(stage: Any, chromium_path: str) -> None:
    token = await stage.installation.token(Role.APPROVER, subject="ann")
    base = f"{stage.installation.url}/console"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])
        page = await browser.new_page()
        await page.clock.install()
        await page.goto(f"{base}/login")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.className") == "skip"
        await page.get_by_role("textbox", name="Token").focus()
        await page.keyboard.type(token)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("5 questions wait for you")
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        assert "q-" in await page.evaluate("document.activeElement.id")
        await stage.installation.asked("INC7")
        await page.clock.run_for(11_000)
        await expect(page.get_by_role("heading", level=1)).to_have_text("6 questions wait for you")
        await page.goto(f"{base}{stage.pages['pending']}")
        await page.keyboard.press("d")
        seen = []
        for _ in range(3):
            await page.keyboard.press("Tab")
            seen.append(await page.evaluate(RING))
            if await page.evaluate("document.activeElement.id") == "reason":
                await page.keyboard.type("Not today: j, k and d are letters here.")
        assert seen == ["solid3"] * 3
        assert await page.evaluate("document.activeElement.value") == "reject"
        await page.clock.run_for(60_000)
        await expect(page.get_by_label("Reason")).to_have_value("Not today: j, k and d are letters here.")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Your answer was counted.")).to_be_visible()
        await browser.close()
    (vote,) = await stage.installation.books.votes(approval=stage.ids["pending"])
    assert (vote.choice, vote.reason) == ("reject", "Not today: j, k and d are letters here.")
