"""Pictures of the console's pages, of an installation with the demo's incidents: two widths, two schemes."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import httpx
from PIL import Image
from playwright.async_api import Browser, async_playwright

from app.console.sessions import make_link
from app.demo import helper
from app.demo.people import AGENT_STORY, STORIES, People
from app.demo.story import ACTOR, ANA, ROLES, publish
from app.demo.world import demo_world
from app.faces import Faces, build_faces
from app.settings import PREFIX, load_settings
from runtime.store import console
from runtime.store.console import RunsFilter

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = (390, 1280)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
HEIGHT_MAX = 1500
COLOURS = 24
SECONDS = 120.0
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
NAMED = re.compile(r"images/console/([a-z0-9-]+\.png)")


async def _wait(faces: Faces, count: int, ended: int) -> list[Any]:
    """Wait until so many runs ask or have ended; return all runs, oldest first."""
    async with asyncio.timeout(SECONDS):
        while True:
            rows = await faces.ask(faces.settings.tenant, console.runs, RunsFilter(), 50)
            over = [row for row in rows if row["finished_at"]]
            if len([row for row in rows if row["approval_id"] or row["finished_at"]]) >= count and len(over) >= ended:
                return rows[::-1]
            await asyncio.sleep(0.2)


async def _play(faces: Faces, people: People) -> dict[str, str]:
    """Let the demo's incidents happen; the first is approved, the others wait or are denied. Return the pages."""
    await publish(faces, ROOT / "examples")
    incidents = [await people.report(story) for story in STORIES]
    last = await people.report(AGENT_STORY)
    await people.describe(last, helper.planted(last, incidents), helper.GUEST)
    await helper.ask_for_help(faces, last)
    await people.decide(incidents[0])
    rows = await _wait(faces, len(STORIES) + 1, 2)
    named = {(row["reference"], row["workflow"]): row for row in rows}
    first, second, denied, agent = (named[one.number, one.story.workflow] for one in (*incidents, last))
    return {
        "inbox": "/inbox",
        "approval": f"/approvals/{second['approval_id']}",
        "approval-agent": f"/approvals/{agent['approval_id']}",
        "run": f"/runs/{first['run_id']}",
        "run-denied": f"/runs/{denied['run_id']}",
        "runs": "/runs?view=all",
        "evidence": f"/evidence?ask=1&person={ANA}&part=approver",
        "bundle": f"/evidence/{first['run_id']}",
        "report": f"/evidence/{first['run_id']}/report",
        "policies": "/policies",
        "people": "/people",
        "health": "/health",
    }


async def _photograph(browser: Browser, url: str, link: str, pages: dict[str, str], folder: Path) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(link)
    for name, path in pages.items():
        for width in WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            await page.goto(f"{url}/console{path}")
            tall = await page.evaluate("document.documentElement.scrollHeight")
            # As tall as the page: what sticks to the bottom of a screen then stands at its end.
            await page.set_viewport_size({"width": width, "height": min(int(tall), HEIGHT_MAX)})
            for scheme in SCHEMES:
                await page.emulate_media(color_scheme=scheme)
                data = await page.screenshot()
                _save(data, folder / f"{name}-{width}-{scheme}.png")
    await context.close()


def _save(data: bytes, path: Path) -> None:
    """Save few colours: a page has hardly more, and the repository stays small."""
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def take(folder: Path, chromium: str) -> int:
    """Take all pictures anew into the folder; return their bytes. It starts and stops everything that it needs."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.png"):
        path.unlink()
    asyncio.run(_take(folder, chromium))
    shown = {name for page in PAGES for name in NAMED.findall(page.read_text(encoding="utf-8"))}
    for path in folder.glob("*.png"):
        if path.name not in shown:  # the repository keeps no picture that nobody sees
            path.unlink()
    taken = sorted(folder.glob("*.png"))
    total = sum(path.stat().st_size for path in taken)
    sys.stdout.write(f"{len(taken)} pictures of pages, {total // 1024} KB\n")
    return total


async def _take(folder: Path, chromium: str) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="counterseal-pictures-") as home:
        async with demo_world(Path(home), aws=False) as world, httpx.AsyncClient(timeout=30) as client:
            os.environ.update(world.environment)
            async with build_faces(load_settings()) as faces, async_playwright() as playwright:
                pages = await _play(faces, People(world, client))
                code, _ = await make_link(faces.database, faces.settings.tenant, ANA, ROLES, ACTOR)
                browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                await _photograph(browser, world.app, f"{world.app}/console/login/{code}", pages, folder)
                await browser.close()
