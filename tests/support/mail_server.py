"""A mail server on loopback: it speaks as much SMTP as clients need, takes mail over TLS alone, and fails on demand."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PASSWORD = "mail-password-c4n4ry"


@dataclass
class Mailbox:
    """The mails that were delivered, oldest first, with their recipients. ``faults`` go wrong next."""

    context: ssl.SSLContext
    place: str = ""
    faults: list[str] = field(default_factory=list)
    mails: list[tuple[str, EmailMessage]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self.faults[0] if self.faults else ""
        try:
            await self._speak(reader, writer, fault)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: str) -> None:
        secure, known, to = False, False, ""
        writer.write(b"220 mailbox\r\n")
        while line := (await reader.readline()).decode().strip():
            verb = line.split()[0].upper()
            if verb == "EHLO":
                words = "250 AUTH PLAIN" if secure else "250 HELP" if fault == "no tls" else "250 STARTTLS"
                writer.write(f"250-mailbox\r\n{words}\r\n".encode())
            elif verb == "STARTTLS":
                writer.write(b"220 go\r\n")
                await writer.start_tls(self.context)
                secure = True
            elif verb == "AUTH":
                _, user, password = base64.b64decode(line.split()[-1]).decode().split("\0")
                known = secure and (user, password) == ("robot", PASSWORD) and not self._taken(fault == "wrong")
                writer.write(b"235 hello\r\n" if known else f"535 {line} is wrong\r\n".encode())
            elif verb == "RCPT":
                to = line.partition("<")[2].partition(">")[0]
                writer.write(b"550 nobody\r\n" if self._taken(fault == "refused") else b"250 ok\r\n")
            elif verb == "DATA" and known:
                writer.write(b"354 go\r\n")
                body = await reader.readuntil(b"\r\n.\r\n")
                if self._taken(fault in ("busy", "lost")):
                    if fault == "lost":
                        return
                    writer.write(b"451 later\r\n")
                    continue
                self.mails.append((to, message_from_bytes(body[:-5], policy=policy.default)))
                if self._taken(fault == "landed"):
                    return
                writer.write(b"250 taken\r\n")
            else:
                writer.write(b"221 bye\r\n" if verb == "QUIT" else b"250 ok\r\n")

    def _taken(self, hit: bool) -> bool:
        if hit:
            self.faults.pop(0)
        return hit


@asynccontextmanager
async def mailbox(folder: Path, monkeypatch: Any) -> AsyncIterator[Mailbox]:
    """A mail server whose certificate clients trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mailbox")])
    start = datetime(2020, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + timedelta(days=36500))
    own = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    pem = builder.add_extension(own, critical=False).sign(key, hashes.SHA256())
    secret = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "mailbox.pem"
    file.write_bytes(pem.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*secret))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    made = Mailbox(context)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made
