"""E-mail about failed and stuck runs (``tell.email`` in a tenant's settings): one message for each recipient.

smtplib speaks in a thread of its own for each tenant, so a server that hangs holds up the e-mail of that tenant alone.
No message and no password is sent before TLS is set up and the server's name is verified.
"""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime

import httpx

from connectors.hosts import AllowedHost
from connectors.http.addresses import Destination, destination
from connectors.lending import Lender, masks
from connectors.port import Refused
from core.canonical import clean
from core.errors import ConfigurationError
from core.secret_values import SecretError
from runtime.definition.tenant import Submission, TellEmailDocument
from runtime.keep.dispatcher import Delivered, Later, Result, Undeliverable
from runtime.keep.pushing import Push

SECONDS = 10.0
ADDRESSES_MAX = 4
_HEADS = {"run.failed": "Failed", "action.in_doubt": "In doubt", "step.held": "Failed, and held"}
_LINES = ("tenant", "workflow", "reference", "run", "step", "operation", "code", "count", "since", "link")
_FOR_GOOD = (smtplib.SMTPNotSupportedError, ssl.SSLCertVerificationError)


class Email:
    """Sends by one mail server. The password is read before each attempt."""

    def __init__(self, mail: TellEmailDocument, lender: Lender, rule: AllowedHost, setting: str) -> None:
        self._mail, self._lender, self._rule, self._setting = mail, lender, rule, setting
        self._threads = ThreadPoolExecutor(1, "email")

    @property
    def recipients(self) -> tuple[str, ...]:
        """The recipients, each of whom gets a separate message."""
        return self._mail.to

    async def send(self, push: Push) -> Result:
        """Send the message. Each attempt has the same ``Message-ID`` and text, so mailboxes recognise a repetition."""
        mail, rule, password = self._mail, self._rule, ""
        try:
            values = await self._lender.lend([(mail.password, mail.target)] if mail.password is not None else [])
            password = next((value.text.strip() for value in values.values()), "")
        except ConfigurationError as error:
            return Later(str(error), counted=not (isinstance(error, SecretError) and error.again))
        url = httpx.URL(scheme="https", host=rule.host, port=rule.port)
        found = await destination(str(url), [rule], timeout_seconds=SECONDS, setting=self._setting)
        if isinstance(found, Refused):
            return Undeliverable(f"{found.code}: {found.message}")
        if not isinstance(found, Destination):
            return Later(found.message)
        talk = _Talk(mail, rule, [str(one) for one in found.addresses[:ADDRESSES_MAX]], password)
        try:
            await self._in_thread(talk, push)
        except OSError as error:  # SMTPException is one
            code = getattr(error, "smtp_code", 0) or _refusal(error)
            words = clean(masks(values).text(f"{rule.host}: {type(error).__name__}: {error}"))
            return Later(words, counted=code >= 500 or isinstance(error, _FOR_GOOD))
        return Delivered()

    async def _in_thread(self, talk: _Talk, push: Push) -> None:
        """Send in the thread. If the caller is canceled, the connection is closed, so that the thread becomes free."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, talk.speak, message_of(self._mail.sender, push), push.to)
        except asyncio.CancelledError:
            talk.end()
            raise

    async def aclose(self) -> None:
        """Let the thread end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def message_of(sender: str, push: Push) -> bytes:
    """The message: words of our own, then the facts, one a line. It is the same at each attempt."""
    data, made = push.data, EmailMessage(policy.SMTP.clone(cte_type="7bit"))
    head = _HEADS.get(push.type, "Counterseal")
    times = f" ({data['count']} times)" if data.get("count") not in (None, 1) else ""
    made["From"], made["To"] = sender, push.to
    made["Subject"] = _line(f"{head}: {data['workflow']} {data['reference']}") + times
    made["Date"] = format_datetime(datetime.fromisoformat(push.at))
    made["Message-ID"] = f"<{push.id}@{sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    facts = [f"{name}: {_line(str(data[name]))}" for name in _LINES if data.get(name)]
    made.set_content("\n".join([_line(str(data["sentence"])), "", *facts]) + "\n")
    return made.as_bytes()


def _line(text: str) -> str:
    """Text from outside as part of one line: nothing in it begins another line or header."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def _refusal(error: OSError) -> int:
    """The code by which the server has refused the recipient; 0 if it has not."""
    given = error.recipients.values() if isinstance(error, smtplib.SMTPRecipientsRefused) else ()
    return max((code for code, _ in given), default=0)


class _Talk:
    """A conversation with a mail server, at one of its checked addresses. Its certificate is verified for its name."""

    def __init__(self, mail: TellEmailDocument, rule: AllowedHost, addresses: Sequence[str], password: str) -> None:
        self._mail, self._rule, self._addresses, self._password = mail, rule, addresses, password
        self._session: smtplib.SMTP | None = None

    def speak(self, message: bytes, to: str) -> None:
        """Send one message. ``OSError`` tells what went wrong; the message may have arrived even then."""
        mail, tls = self._mail, httpx.create_ssl_context()
        implicit = mail.tls is Submission.IMPLICIT

        def connected(timeout: float) -> socket.socket:
            made = self._open(timeout)
            try:
                return tls.wrap_socket(made, server_hostname=self._rule.host) if implicit else made
            except OSError:
                made.close()
                raise

        session = self._session = _Session(self._rule, connected, mail.sender.rpartition("@")[2])
        try:
            session.begin()
            if not implicit:
                session.starttls(context=tls)
            if mail.user is not None:
                session.login(mail.user, self._password)
            session.sendmail(mail.sender, [to], message)
            with suppress(OSError):  # it is taken: how the server parts with us changes nothing
                session.quit()
        finally:
            session.close()

    def _open(self, timeout: float) -> socket.socket:
        """Connect to the first address that answers."""
        problem = OSError("no address was tried")
        for address in self._addresses:
            try:
                return socket.create_connection((address, self._rule.port or 0), timeout)
            except OSError as error:
                problem = error
        raise problem

    def end(self) -> None:
        """Close the connection: a thread that reads from it gets an error at once."""
        sock = self._session.sock if self._session is not None else None
        if sock is not None:
            with suppress(OSError):  # it is closed already
                sock.shutdown(socket.SHUT_RDWR)


class _Session(smtplib.SMTP):
    """A session over a connection that the caller opens. smtplib checks the certificate against ``host``."""

    def __init__(self, rule: AllowedHost, connected: Callable[[float], socket.socket], domain: str) -> None:
        self._connected, self._rule, self._begun = connected, rule, False
        super().__init__("", 0, local_hostname=domain, timeout=SECONDS)
        self._host = rule.host

    def begin(self) -> None:
        """Connect, and hear the server's greeting."""
        code, greeting = self.connect(self._rule.host, self._rule.port or 0)
        if code != 220:
            raise smtplib.SMTPConnectError(code, greeting)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._connected(timeout)
