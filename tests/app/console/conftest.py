"""The console of an installation, as a browser without script meets it: cookies, forms, redirects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import Any

import httpx
import pytest

from app.access import Role

APPROVER, OPERATOR, AUDITOR, ADMIN = Role.APPROVER, Role.OPERATOR, Role.AUDITOR, Role.ADMIN


@dataclass
class Browser:
    """A browser with its cookies, logged in or not."""

    client: httpx.AsyncClient

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

    @property
    def cookie(self) -> str:
        return str(self.client.cookies["counterseal"])


@dataclass
class Door:
    """Opens browsers at an installation."""

    installation: Any

    async def stranger(self) -> Browser:
        client = httpx.AsyncClient(base_url=self.installation.url, trust_env=False, verify=False)
        return Browser(await self.installation.stack.enter_async_context(client))

    async def enter(self, subject: str, *roles: Role, tenant: str = "default") -> Browser:
        """A browser whose person has logged in with a token of these roles."""
        return await self.with_token(await self.installation.token(*roles, subject=subject, tenant=tenant))

    async def with_token(self, token: str) -> Browser:
        browser = await self.stranger()
        answer = await browser.send("/login", token=token)
        assert answer.status_code == 303, answer.text
        return browser


@pytest.fixture
def door(installation: Any) -> Door:
    return Door(installation)
