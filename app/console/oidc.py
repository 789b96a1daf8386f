"""Login by OpenID Connect: authorization code, PKCE, state and nonce, against one provider that the settings name.

Whoever logs in is a person of the installation's own tenant, found by the principal `oidc:ISSUER#SUBJECT`. An e-mail
address finds nobody, unless the settings say so and the provider says that it has verified it: addresses are given to
others. What somebody may do follows from their groups in the directory, never from what the provider says.

State, nonce and verifier are in a cookie of this browser alone, for ten minutes, and are used once. So the answer to a
login that somebody else began logs nobody in here.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import Struct, ValidationError, convert
from msgspec.json import decode, encode

from app.access import Role
from app.settings import Settings
from core.canonical import clean
from core.errors import AuthenticationError, ConfigurationError, TransportError
from core.identity import Directory, Entry, Kind, principal

COOKIE, SECURE_COOKIE = "counterseal-oidc", "__Host-counterseal-oidc"
COOKIE_SECONDS = 600
# Algorithms whose key only the provider has. A shared secret, or no signature, proves nothing.
ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA", "RS384", "RS512", "ES384", "ES512", "PS384", "PS512")
_LEEWAY_SECONDS, _TIMEOUT_SECONDS = 60, 10.0
# The tolerance for the clocks of two machines that keep time.
_FRESH_LEEWAY_SECONDS = 5
_SUBJECT_MAX, _DOCUMENT_BYTES_MAX = 255, 256 * 1024
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_KINDS = frozenset({"RSA", "EC", "OKP"})
_AGAIN = "Log in again."


class Begun(Struct, frozen=True):
    """A login under way in one browser, as its cookie holds it.

    ``anew`` is the question and the digest of the action for which somebody who is logged in logs in again; "" for a
    first login. A browser could change it, so ``sessions.begin_step_up`` has recorded what was begun, and when.
    """

    state: str
    nonce: str
    verifier: str
    following: str
    anew: tuple[str, str] = ("", "")

    @classmethod
    def new(cls, following: str, anew: tuple[str, str] = ("", "")) -> Begun:
        """A new login, with secrets that nobody has seen."""
        made = (secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48))
        return cls(*made, following, anew)

    @classmethod
    def of(cls, cookie: str) -> Begun | None:
        """The login in a cookie; None if it holds none."""
        try:
            return decode(bytes.fromhex(cookie), type=cls)
        except (ValueError, ValidationError):
            return None

    @property
    def cookie(self) -> str:
        """The value of the cookie."""
        return encode(self).hex()


class Metadata(Struct, frozen=True):
    """Facts that a provider states of itself (OpenID Connect Discovery), as far as we need them."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    authorization_response_iss_parameter_supported: bool = False
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class Identity(Struct, frozen=True):
    """The account that the provider has logged in. ``email`` is "" unless the provider has verified it."""

    issuer: str
    subject: str
    email: str

    @property
    def account(self) -> str:
        """The account as a directory lists it."""
        return f"{self.issuer}#{self.subject}"


class Provider:
    """The provider that the settings name. Its documents are read once, and its keys again when one is unknown."""

    def __init__(self, settings: Settings) -> None:
        if settings.oidc_issuer is None or settings.oidc_client_id is None:
            raise ConfigurationError("No provider is set.", remedy="Set COUNTERSEAL_OIDC_ISSUER and its client id.")
        self.issuer, self._client_id = settings.oidc_issuer, settings.oidc_client_id
        secret = settings.oidc_client_secret
        self._secret = secret.get_secret_value() if secret is not None else None
        self._scope = "openid email" if settings.oidc_email else "openid"
        self._back = f"{settings.console_address}/oidc/callback"
        self._metadata: Metadata | None = None
        self._keys: KeySet | None = None

    async def metadata(self) -> Metadata:
        """Ask the provider for its facts; ``TransportError`` if it states nothing that can be used."""
        if self._metadata is None:
            document = await self._document(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            try:
                found = convert(document, Metadata)
            except ValidationError as error:
                raise _unusable(f"its description is wrong: {error}") from None
            if found.issuer != self.issuer:
                raise _unusable(f"it calls itself {clean(found.issuer, 200)}, not {self.issuer}")
            for address in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
                _check_address(address)
            self._metadata = found
        return self._metadata

    async def begin(self, begun: Begun, *, fresh: bool) -> str:
        """The address at which the person logs in. ``fresh``: a login that the provider remembers is not enough."""
        metadata = await self.metadata()
        async with self._client(metadata) as client:
            more = {"prompt": "login"} if fresh else {}
            more |= {"max_age": "0"} if begun.anew[0] else {}
            address, _ = client.create_authorization_url(
                metadata.authorization_endpoint,
                state=begun.state,
                nonce=begun.nonce,
                code_verifier=begun.verifier,
                **more,
            )
        return str(address)

    async def finish(self, begun: Begun, answer: Mapping[str, str], now: float, since: float | None = None) -> Identity:
        """The account that the provider has logged in, by its answer; ``AuthenticationError`` says why nobody is.

        ``now`` is in Unix seconds, for the token's age; the login must not be older than ``since``. After a crash
        nobody is logged in, and the person begins again.
        """
        metadata = await self.metadata()
        if not hmac.compare_digest(answer.get("state", "").encode(), begun.state.encode()):
            raise AuthenticationError("This answer belongs to another login.", remedy=_AGAIN)
        given = answer.get("iss")
        if given != self.issuer and (given is not None or metadata.authorization_response_iss_parameter_supported):
            raise AuthenticationError("This answer is of another provider.", remedy=_AGAIN)
        if "error" in answer or not answer.get("code"):
            problem = clean(answer.get("error_description") or answer.get("error") or "it sent no code", 200)
            raise AuthenticationError(f"The provider has logged nobody in: {problem}.", remedy=_AGAIN)
        try:
            async with self._client(metadata) as client:
                token = await client.fetch_token(
                    metadata.token_endpoint, code=answer["code"], code_verifier=begun.verifier
                )
        except (OAuthError, httpx.HTTPError, ValueError) as error:
            raise AuthenticationError(f"The provider took no code: {_words(error)}.", remedy=_AGAIN) from None
        return await self._identity(token, begun, now, since)

    async def _identity(self, token: Mapping[str, Any], begun: Begun, now: float, since: float | None) -> Identity:
        """The account that an ID token names, once its signature and every claim of it have been checked."""
        given = token.get("id_token")
        if not isinstance(given, str):
            raise AuthenticationError("The provider has sent no ID token.", remedy=_AGAIN)
        try:
            found = await self._verified(given)
            params = {"nonce": begun.nonce, "client_id": self._client_id, "access_token": token.get("access_token")}
            options = {"iss": {"essential": True, "value": self.issuer}, "sub": {"essential": True}}
            claims = CodeIDToken(found.claims, found.header, options, params)
            claims.validate(now=int(now), leeway=_LEEWAY_SECONDS)
        except (JoseError, ValueError, TypeError) as error:
            raise AuthenticationError(f"The ID token is not good: {_words(error)}.", remedy=_AGAIN) from None
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if claims["iss"] != self.issuer or audience != [self._client_id] or claims.get("nonce") != begun.nonce:
            raise AuthenticationError("The ID token is not for this login here.", remedy=_AGAIN)
        if since is not None:
            _check_fresh(claims.get("auth_time"), since, now)
        subject, email = claims["sub"], claims.get("email")
        verified = claims.get("email_verified") is True and isinstance(email, str) and email.isascii()
        if not isinstance(subject, str) or not _is_plain(subject):
            raise AuthenticationError("The provider names nobody in plain letters.", remedy="Ask its administrator.")
        return Identity(self.issuer, subject, str(email) if verified else "")

    async def _verified(self, token: str) -> jwt.Token:
        """The ID token with its signature checked. If no key of ours fits, the provider's keys are read once more."""
        if self._keys is not None:
            try:
                return jwt.decode(token, self._keys, algorithms=[*ALGORITHMS])
            except (JoseError, ValueError):
                self._keys = None
        metadata = await self.metadata()
        listed = (await self._document(metadata.jwks_uri)).get("keys")
        keys = [one for one in listed or () if isinstance(one, dict) and one.get("kty") in _KINDS]
        self._keys = KeySet.import_key_set({"keys": [one for one in keys if one.get("use", "sig") == "sig"]})
        return jwt.decode(token, self._keys, algorithms=[*ALGORITHMS])

    def _client(self, metadata: Metadata) -> AsyncOAuth2Client:
        basic = "client_secret_basic" in metadata.token_endpoint_auth_methods_supported
        method = "none" if self._secret is None else "client_secret_basic" if basic else "client_secret_post"
        return AsyncOAuth2Client(
            self._client_id,
            self._secret,
            token_endpoint_auth_method=method,
            scope=self._scope,
            redirect_uri=self._back,
            code_challenge_method="S256",
            timeout=_TIMEOUT_SECONDS,
            follow_redirects=False,
        )

    async def _document(self, address: str) -> dict[str, Any]:
        _check_address(address)
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, follow_redirects=False) as client:
                answer = await client.get(address, headers={"Accept": "application/json"})
        except httpx.HTTPError as error:
            raise _unusable(f"it cannot be reached: {type(error).__name__}") from None
        if answer.status_code != 200 or len(answer.content) > _DOCUMENT_BYTES_MAX:
            raise _unusable(f"it answered {answer.status_code}")
        try:
            document = json.loads(answer.content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise _unusable("its answer is no JSON object")
        return document


def person_of(people: Directory, who: Identity, *, by_email: bool) -> Entry:
    """The person of the directory; ``AuthenticationError`` if there is none, or only one who is not active."""
    entry = people.entry(principal(Kind.OIDC, who.account))
    if entry is None and by_email and who.email:
        entry = people.entry(principal(Kind.EMAIL, who.email))
    if entry is None:
        remedy = f"Ask an administrator to add 'oidc: {who.account}' to your entry in the directory."
        raise AuthenticationError("You are not in the directory.", remedy=remedy)
    return entry


def roles_of(entry: Entry, groups: Mapping[Role, tuple[str, ...]]) -> frozenset[Role]:
    """The roles of a person, by their groups in the directory. Everybody is an approver, unless the settings name
    groups for that role: a vote counts only if the question asks the voter.
    """
    named = {role for role, wanted in groups.items() if not entry.groups.isdisjoint(wanted)}
    return frozenset(named | ({Role.APPROVER} if Role.APPROVER not in groups else set()))


def _check_fresh(logged_in_at: object, since: float, now: float) -> None:
    """Refuse a login that the provider remembered: the person must have logged in after we asked."""
    fine = isinstance(logged_in_at, int | float) and not isinstance(logged_in_at, bool)
    if not fine or not since - _FRESH_LEEWAY_SECONDS <= float(str(logged_in_at)) <= now + _LEEWAY_SECONDS:
        raise AuthenticationError("The provider has not asked for your login anew.", remedy=_AGAIN)


def _is_plain(subject: str) -> bool:
    """True if normalising does not change a subject, so that no two subjects become equal."""
    short = 0 < len(subject) <= _SUBJECT_MAX and subject.isascii() and subject.isprintable()
    return short and " ".join(subject.split()) == subject


def _check_address(address: str) -> None:
    """Refuse an address at which somebody on the network path could answer."""
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise _unusable(f"{clean(address, 200)} is not an https address")


def _unusable(why: str) -> TransportError:
    return TransportError(f"The provider for logins cannot be used: {why}.", remedy="Log in by a token meanwhile.")


def _words(error: Exception) -> str:
    return clean(str(error) or type(error).__name__, 200).rstrip(".")
