"""The senders of news about failed and stuck runs to a tenant's systems (``tell`` in its settings)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from app.mailing import Email
from connectors.hosts import AllowedHost
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.lending import Lender, masks
from connectors.port import Call, Done, InDoubt, NotSent, Refused
from core.canonical import JsonObject, plain_bytes
from core.errors import ConfigurationError
from core.secret_values import SecretError, Target
from core.standard_webhooks import key_of, signature
from runtime.definition.tenant import Submission, TellDocument, TellWebhookDocument, TenantDocument, target_of
from runtime.keep import pushing
from runtime.keep.dispatcher import Delivered, Later, Result, Undeliverable
from runtime.keep.pushing import Push

SECONDS = 20.0
# Refusals that are final. With 410 the receiver says that it wants no more messages (Standard Webhooks).
_FOR_GOOD = frozenset({"http_410", "private_address", "invalid_url", "host_not_allowed"})


class Closing(pushing.Sender, Protocol):
    """A sender with resources to close."""

    async def aclose(self) -> None:
        """Release connections."""


class Webhook:
    """Posts to one address, signed as Standard Webhooks says. The secret is read before each attempt."""

    recipients = ("",)

    def __init__(self, hook: TellWebhookDocument, lender: Lender, hosts: HttpSettings) -> None:
        self._hook, self._lender = hook, lender
        self._http = HttpConnector(hosts)

    async def send(self, push: Push) -> Result:
        """Post the message. Each attempt has the same ``webhook-id`` and body, but its own time and signature."""
        url, id_, now = self._hook.url, str(push.id), str(int(time.time()))
        body = plain_bytes({"type": push.type, "timestamp": push.at, "data": push.data})
        try:
            values = await self._lender.lend([(self._hook.secret, target_of(url))])
            (value,) = values.values()
            made = signature(key_of(value.text), id_, now, body)
        except ConfigurationError as error:
            return Later(str(error), counted=not (isinstance(error, SecretError) and error.again))
        headers: JsonObject = {"webhook-id": id_, "webhook-timestamp": now, "webhook-signature": f"v1,{made}"}
        headers["content-type"] = "application/json"
        given: JsonObject = {"method": "POST", "url": url, "headers": headers, "body": body.decode()}
        outcome = masks(values).outcome(await self._http.perform(Call("http.request.send", given, id_, SECONDS)))
        match outcome:
            case Done():
                return Delivered()
            case NotSent(text, seconds):
                return Later(text, seconds)
            case Refused(code, text):
                return Undeliverable(f"{code}: {text}") if code in _FOR_GOOD else Later(text, counted=True)
            case InDoubt(text):
                return Later(text)
            case _:
                return Later("The request has no outcome yet.")

    async def aclose(self) -> None:
        """Release connections."""
        await self._http.aclose()


def senders_of(content: TenantDocument, lender: Lender) -> Mapping[str, Closing]:
    """The senders that the tenant's settings name, by the kind of their messages."""
    found: dict[str, Closing] = {}
    tell, setting = content.tell or TellDocument(), f"http.hosts of the tenant {content.tenant}"
    if (hook := tell.webhook) is not None:
        rule = _rule(content, target_of(hook.url))
        found[pushing.WEBHOOK] = Webhook(hook, lender, HttpSettings((rule,), setting=setting))
    if (mail := tell.email) is not None:
        rule = _rule(content, mail.target)
        port = rule.port or (465 if mail.tls is Submission.IMPLICIT else 587)
        found[pushing.EMAIL] = Email(mail, lender, AllowedHost(rule.host, port, rule.allow_private), setting)
    return found


def _rule(content: TenantDocument, target: Target) -> AllowedHost:
    """The rule for a receiver's host. It may have a private address only if ``http.hosts`` allows it."""
    listed = [AllowedHost.of(one.host) for one in content.http.hosts] if content.http is not None else []
    own = [one for one in listed if one is not None and (one.host, one.port) == (target.host, target.port)]
    return own[0] if own else AllowedHost(target.host, target.port)
