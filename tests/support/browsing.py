"""A browser without script at the console: cookies, forms, redirects that are not followed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import Any, Self

import httpx


@dataclass
class Browser:
    """A browser with its cookies, logged in or not."""

    client: httpx.AsyncClient

    @classmethod
    async def stranger(cls, installation: Any) -> Self:
        client = httpx.AsyncClient(base_url=installation.url, trust_env=False, verify=False)
        return cls(await installation.stack.enter_async_context(client))

    @classmethod
    async def logged_in(cls, installation: Any, token: str) -> Self:
        browser = await cls.stranger(installation)
        answer = await browser.send("/login", token=token)
        assert answer.status_code == 303, answer.text
        return browser

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.client.get(f"/console{path}", **more)

    async def form(self, path: str, **fields: Any) -> dict[str, Any]:
        """The hidden fields of the page's last form, and those given."""
        page = await self.get(path)
        found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page.text)
        return {**{name: unescape(value) for name, value in found}, **fields}

    async def post(self, path: str, fields: dict[str, Any], **more: Any) -> httpx.Response:
        return await self.client.post(f"/console{path}", data=fields, **more)

    async def send(self, path: str, **fields: Any) -> httpx.Response:
        """Look at the page, fill its form in, and send it."""
        return await self.post(path, await self.form(path, **fields))

    async def vote(self, approval: object, digest: str, **fields: Any) -> str:
        """Vote as a form would, whether the page offers one or not; the code of the answer that did not count."""
        page = await self.get("/inbox")
        csrf = re.findall(r'name="csrf" value="([^"]+)"', page.text) or [""]
        form = {"csrf": csrf[0], "digest": digest, "choice": "approve", **fields}
        answer = await self.post(f"/approvals/{approval}", form)
        assert answer.status_code >= 400, answer.text
        code = re.search(r'class="id code">([a-z_]+)<', answer.text)
        return code[1] if code else {401: "authentication", 404: "not_found"}[answer.status_code]

    @property
    def cookie(self) -> str:
        return str(self.client.cookies["counterseal"])
