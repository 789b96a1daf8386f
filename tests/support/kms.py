"""A stand-in for AWS KMS that is as strict as its documentation, because moto has no Ed25519.

It speaks the JSON protocol of KMS to a real boto3 client, knows `GetPublicKey` and `Sign`, and refuses whatever the
documentation of these two does not allow for a key of the spec ECC_NIST_EDWARDS25519.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_ARN = "arn:aws:kms:eu-central-1:111122223333:key/"
SPEC = "ECC_NIST_EDWARDS25519"


class RefusedError(Exception):
    """The answer of KMS to what it does not do: the error's name."""


class Kms:
    """The keys of an account by alias. ``wrong`` changes an answer before it is sent."""

    def __init__(self) -> None:
        self.url = ""
        self.aliases: dict[str, str] = {}
        self.keys: dict[str, ed25519.Ed25519PrivateKey] = {}
        self.asked: list[dict[str, Any]] = []
        self.spec, self.refuses = SPEC, ""
        self.wrong: Callable[[dict[str, Any]], object] = lambda answer: None

    def add(self, alias: str) -> None:
        """A new key, to which this alias points from now on."""
        arn = f"{_ARN}{len(self.keys):08x}-0000-4000-8000-000000000000"
        self.keys[arn], self.aliases[alias] = ed25519.Ed25519PrivateKey.generate(), arn

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        self.asked.append({"operation": operation, **given})
        if self.refuses:
            raise RefusedError(self.refuses)
        arn = self.aliases.get(given["KeyId"], given["KeyId"])
        if arn not in self.keys:
            raise RefusedError("NotFoundException")
        found = self._signed(arn, given) if operation == "Sign" else self._public(arn)
        self.wrong(found)
        return found

    def _public(self, arn: str) -> dict[str, Any]:
        der = self.keys[arn].public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return {
            "KeyId": arn, "PublicKey": base64.b64encode(der).decode(), "KeySpec": self.spec,
            "CustomerMasterKeySpec": self.spec, "KeyUsage": "SIGN_VERIFY",
            "SigningAlgorithms": ["ED25519_SHA_512", "ED25519_PH_SHA_512"],
        }  # fmt: skip

    def _signed(self, arn: str, given: dict[str, Any]) -> dict[str, Any]:
        message = base64.b64decode(given["Message"])
        if {*given} - {"KeyId", "Message", "MessageType", "SigningAlgorithm"} or not 1 <= len(message) <= 4096:
            raise RefusedError("ValidationException")
        # ED25519_SHA_512 needs RAW; the other algorithm of this key hashes first, which no note does.
        if (given["SigningAlgorithm"], given.get("MessageType", "RAW")) != ("ED25519_SHA_512", "RAW"):
            raise RefusedError("ValidationException")
        signature = base64.b64encode(self.keys[arn].sign(message)).decode()
        return {"KeyId": arn, "Signature": signature, "SigningAlgorithm": "ED25519_SHA_512"}


@contextmanager
def kms_serving() -> Iterator[Kms]:
    """KMS at ``url`` until the end."""
    kms = Kms()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service, _, operation = self.headers["X-Amz-Target"].partition(".")
            assert (service, self.headers["Content-Type"]) == ("TrentService", "application/x-amz-json-1.1")
            assert "AWS4-HMAC-SHA256" in self.headers["Authorization"]
            try:
                status, said = 200, kms.answer(operation, given)
            except RefusedError as error:
                status, said = 400, {"__type": str(error), "message": "refused"}
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kms.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield kms
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
