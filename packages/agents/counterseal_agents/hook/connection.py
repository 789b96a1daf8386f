"""The connection to the server, by the standard library alone, because a hook starts for each call of a tool.

It reads no variable of the environment: no proxy and no certificates that the agent could have set.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from counterseal_agents import contract
from counterseal_agents.contract import Answer, Ended, Flow, Pause, Send, Unreachable, advance

T = TypeVar("T")
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Server:
    """The server's address, the agent's token, and a file of certificates if the system's are not meant."""

    url: str
    token: str = field(repr=False)
    certificates: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if not parts.hostname or parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("There is no usable address: give --url https://HOST.")
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
            raise ValueError(f"{self.url} would show the token to the network: use https.")
        if not self.token or not self.token.isascii() or not self.token.isprintable():
            raise ValueError("There is no usable token: give --token-file, or set COUNTERSEAL_AGENT_TOKEN.")


def drive(server: Server, flow: Flow[T]) -> T:
    """Send what the flow asks for, until it returns."""
    given: Answer | Unreachable | None = None
    while not isinstance(step := advance(flow, given), Ended):
        if isinstance(step, Pause):
            given = None
            time.sleep(step.seconds)
            continue
        try:
            given = _sent(server, step)
        except TimeoutError:
            given = Unreachable("it did not answer in time")
        except ConnectionRefusedError:
            given = Unreachable("it could not be reached")
        except (OSError, HTTPException, ValueError) as error:
            given = Unreachable(f"its answer did not come whole ({type(error).__name__})")
    return step.value


def _sent(server: Server, step: Send) -> Answer:
    until, parts = contract.now() + step.seconds, urlsplit(server.url)
    headers = {
        "Authorization": f"Bearer {server.token}", "Content-Type": "application/json", "Accept": "application/json",
        "Accept-Encoding": "identity", "Connection": "close",
    }  # fmt: skip
    if step.key is not None:
        headers["Idempotency-Key"] = step.key
    connection = _connection(server, parts.scheme, parts.hostname or "", parts.port, step.seconds)
    try:
        connection.request(step.method, parts.path.rstrip("/") + step.path, step.body, headers)
        response = connection.getresponse()
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise ValueError("the answer is encoded, which was not asked for")
        body = bytearray()
        while part := response.read1(_CHUNK):
            body += part
            if len(body) > contract.ANSWER_BYTES_MAX:
                raise ValueError("the answer is too large")
            if contract.now() > until:
                raise TimeoutError
        if response.length:
            raise ValueError("the answer was cut")
        return Answer(response.status, response.headers.get("Content-Type", ""), bytes(body))
    finally:
        connection.close()


def _connection(server: Server, scheme: str, host: str, port: int | None, seconds: float) -> HTTPConnection:
    if scheme == "https":
        return HTTPSConnection(host, port, timeout=seconds, context=_trusting(server.certificates))
    return HTTPConnection(host, port, timeout=seconds)


def _trusting(certificates: str | None) -> ssl.SSLContext:
    """A context that trusts this file, or what this machine trusts, whatever SSL_CERT_FILE says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    file = certificates or next((one for one in (paths.openssl_cafile,) if Path(one).is_file()), None)
    folder = paths.openssl_capath if certificates is None and Path(paths.openssl_capath).is_dir() else None
    if file is None and folder is None:
        import certifi

        file = certifi.where()
    context.load_verify_locations(file, folder)
    return context
