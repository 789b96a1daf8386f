"""Runs a witness: an HTTP server of its own, which needs no database and nothing else of an installation."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, mldsa

from core.errors import ConfigurationError
from evidence.blobs import write_new
from evidence.log.notes import Kind, NoteKey, Signs
from evidence.log.witness import BODY_BYTES_MAX, UNKNOWN, Answer, Witness

_SECONDS = 10.0
_PRIVATE = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def load_key(path: Path, name: str, kind: Kind) -> tuple[NoteKey, Signs]:
    """The witness's key in this file, which is created if missing. ``ConfigurationError`` for another kind of key."""
    try:
        if not path.exists():
            post_quantum = kind is Kind.COSIGNED_ML_DSA_44
            made = mldsa.MLDSA44PrivateKey.generate() if post_quantum else ed25519.Ed25519PrivateKey.generate()
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_new(path, made.private_bytes(*_PRIVATE))
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"the key {path} can be read by other users.", remedy=f"Run: chmod 600 {path}")
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ConfigurationError(f"the key {path} cannot be read or made: {error.strerror}.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigurationError(f"{path} is not an unencrypted PEM private key.") from None
    wanted = mldsa.MLDSA44PrivateKey if kind is Kind.COSIGNED_ML_DSA_44 else ed25519.Ed25519PrivateKey
    if not isinstance(key, ed25519.Ed25519PrivateKey | mldsa.MLDSA44PrivateKey) or not isinstance(key, wanted):
        raise ConfigurationError(f"the key {path} is of another kind.", remedy="Say which with --kind.")
    return NoteKey(name, kind, key.public_key().public_bytes_raw()), key


def server_of(witness: Witness, host: str, port: int) -> ThreadingHTTPServer:
    """The server of a witness. It listens when this returns, and answers in ``serve_forever``."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _SECONDS

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if self.path != "/add-checkpoint" or not length.isdigit() or int(length) > BODY_BYTES_MAX:
                self._answer(Answer(UNKNOWN, "there is only /add-checkpoint here\n"))
                return
            self._answer(witness.add_checkpoint(self.rfile.read(int(length)), int(time.time())))

        def do_GET(self) -> None:
            digest, _, rest = self.path.removeprefix("/").partition("/")
            found = witness.checkpoint(digest) if rest == "checkpoint" else None
            known = Answer(UNKNOWN, "no such log\n") if found is None else Answer(200, found.decode())
            self._answer(known)

        def _answer(self, answer: Answer) -> None:
            data = answer.text.encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return ThreadingHTTPServer((host, port), Handler)


def serve(witness: Witness, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve a witness until the process is told to stop."""
    server = server_of(witness, host, port)
    announce(f"http://{host}:{server.server_address[1]}")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
