"""The Slack apps of tenants: each request is checked with the secret of one app, and acts in that app's tenant only."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult

from app.faces import Faces
from app.outside import Chat, Incoming
from app.slack import Interactions
from app.slack_desk import Desk
from app.slack_grants import GrantDesk
from app.slack_holds import HeldSteps
from app.slack_lists import ListDesk
from app.slack_talks import Talks
from approvals.slack.guard import SlackEndpoint
from approvals.slack.handlers import build_bolt
from core.db import check_tenant
from core.errors import InputError, NotFoundError, TransportError
from core.secret_values import SecretError

# Seconds for which a secret for incoming requests is cached: reading it for each one would let anybody cause reads.
FRESH_SECONDS = 30.0


@dataclass(frozen=True)
class _App:
    chat: Chat
    secret: str
    read_at: float
    endpoint: SlackEndpoint


class SlackApps:
    """Finds the endpoint of a tenant's app, by the settings in force. One for a process."""

    def __init__(self, faces: Faces, now: Callable[[], float] = time.monotonic) -> None:
        self._faces, self._now = faces, now
        self._apps: dict[str, _App] = {}

    @cached_property
    def _nobody(self) -> SlackEndpoint:
        """The stand-in for a missing app. No signature fits its secret, so nobody learns which apps exist."""
        unknown = secrets.token_hex(32)
        bolt = AsyncApp(signing_secret=unknown, token=unknown)
        return SlackEndpoint(bolt, signing_secret=unknown, now=self._faces.now)

    async def of(self, tenant: str) -> SlackEndpoint | None:
        """The endpoint of this tenant's app; None if the tenant has no app that can be called."""
        outside = await self._faces.outside(tenant)
        chat, secret, known = outside.chat, outside.slack_secret, self._apps.get(tenant)
        if chat is None or secret is None:
            return None
        if known is not None and known.chat is chat and self._now() - known.read_at < FRESH_SECONDS:
            return known.endpoint
        try:
            text = await secret.value() if isinstance(secret, Incoming) else secret
        except SecretError as error:
            self._faces.unread.note(tenant, "slack.signing_secret", str(error))
            raise TransportError(error.message, remedy=error.remedy) from None
        endpoint = known.endpoint if known is not None and (known.chat, known.secret) == (chat, text) else None
        made = endpoint or endpoint_of(self._faces, tenant, chat, text)
        self._apps[tenant] = _App(chat, text, self._now(), made)
        return made

    async def named(self, app: str) -> SlackEndpoint:
        """The endpoint of the app of the tenant of this name; one that refuses everybody if there is none.

        It also refuses everybody while the app's secret cannot be read: another answer would reveal that the app
        exists.
        """
        try:
            return await self.of(check_tenant(app)) or self._nobody
        except (InputError, NotFoundError, TransportError):
            return self._nobody

    def is_nobody(self, endpoint: SlackEndpoint) -> bool:
        """True for the stand-in for apps that do not exist."""
        return endpoint is self.__dict__.get("_nobody")  # making one only to compare would take 100 ms


def endpoint_of(faces: Faces, tenant: str, chat: Chat, secret: str) -> SlackEndpoint:
    """The endpoint of one app. All its requests act in this tenant."""

    async def authorize(**_: object) -> AuthorizeResult:
        # The signature has proved that Slack sent this for our app; Bolt need not call Slack to check it.
        try:
            token = await chat.token()
        except SecretError:
            token = ""  # the vote counts; only a window cannot be opened
        return AuthorizeResult(enterprise_id=None, team_id=None, bot_token=token)

    interactions = Interactions(faces, tenant, chat.workspace)
    bolt = build_bolt(
        signing_secret=secret,
        authorize=authorize,
        client=chat.client,
        service=interactions,
        tasks=interactions,
        desk=Desk(faces, interactions),
        lists=ListDesk(faces, interactions),
        holds=HeldSteps(faces, interactions),
        talks=Talks(faces, interactions),
        edits=Talks(faces, interactions),
        grants=GrantDesk(faces, interactions),
    )
    return SlackEndpoint(bolt, signing_secret=secret, now=faces.now)
