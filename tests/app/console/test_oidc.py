"""Login by OpenID Connect: at a real provider, and with answers that no good provider gives."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.doctor import State, outside
from app.settings import Settings, load_settings
from core.errors import ConfigurationError
from evidence.chain import Actor
from runtime.requests import policies
from sandbox.server import LoopbackServer
from tests.support.browsing import Browser

pytestmark = pytest.mark.req("promise 8")

# Where `npm install oidc-provider` has put it.
MODULES = os.environ.get("COUNTERSEAL_TEST_NODE_MODULES", "")
PEOPLE = """
directory: tests
people:
  - {id: ann, name: Ann, oidc: "ISSUER#ann"}
  - {id: bob, name: Bob, email: bob@example.com}
  - {id: eve, name: Eve, oidc: "ISSUER#eve", active: false}
  - {id: tess, name: Tess, oidc: "https://elsewhere.example#tess"}
groups: {leads: [ann, bob], operators: [ann]}
"""
STEP_UP = """
policy: tests
version: 2
rules:
  - id: dangers
    match: {operation: probe.danger.apply}
    outcome: needs_approval
    approvers: [{group: leads}]
    step_up: PT5M
"""


class Provider:
    """A strict stand-in, by the specification; ``claims`` and ``header`` change the ID tokens that it gives."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig"}, private=True)
        self.shown = [self.key]
        self.subject, self.alg = "ann", "RS256"
        self.claims: dict[str, Any] = {}
        self.signer: Any = None
        self.codes: dict[str, dict[str, str]] = {}
        self.url = self.calls_itself = ""
        routes = (
            ("/.well-known/openid-configuration", self._description, "GET"),
            ("/authorize", self._authorize, "GET"),
            ("/token", self._token, "POST"),
            ("/keys", self._keys, "GET"),
        )
        self.app = Starlette(routes=[Route(path, end, methods=[method]) for path, end, method in routes])

    async def _description(self, _: Request) -> Response:
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        told = {name: f"{self.url}/{path}" for name, path in places.items()}
        return JSONResponse({"issuer": self.calls_itself or self.url, **told})

    async def _keys(self, _: Request) -> Response:
        return JSONResponse(KeySet(self.shown).as_dict(private=False))

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"]
        code = f"code{len(self.codes)}"
        self.codes[code] = asked
        to = f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"
        return Response(status_code=303, headers={"location": to})

    async def _token(self, request: Request) -> Response:
        given = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        asked = self.codes.pop(given.get("code", ""), None)
        if asked is None or given.get("redirect_uri") != asked["redirect_uri"] or not _proves(given, asked):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.url, "sub": self.subject, "aud": "counterseal", "exp": now + 60, "iat": now}
        claims |= {"nonce": asked["nonce"], **self.claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        token = jwt.encode({"alg": self.alg, "kid": "k1"}, claims, self.signer or self.key, algorithms=[self.alg])
        return JSONResponse({"access_token": "a", "token_type": "Bearer", "id_token": token})


def _proves(given: dict[str, str], asked: dict[str, str]) -> bool:
    from authlib.oauth2.rfc7636 import create_s256_code_challenge

    return create_s256_code_challenge(given.get("code_verifier", "")) == asked["code_challenge"]


class Site:
    """An installation with a provider, and browsers at both."""

    def __init__(self, installation: Any, provider: Any, issuer: str) -> None:
        self.installation, self.provider, self.issuer = installation, provider, issuer

    async def people(self, text: str = PEOPLE) -> None:
        await self.installation.people(text.replace("ISSUER", self.issuer))

    async def browser(self) -> Browser:
        return await Browser.stranger(self.installation)

    async def goes(self, browser: Browser, path: str = "/oidc?next=/console/inbox") -> httpx.Response:
        """Go to the provider and back, as a browser does."""
        begun = await browser.get(path)
        assert begun.status_code == 303, begun.text
        async with httpx.AsyncClient(trust_env=False) as client:
            there = await client.get(begun.headers["location"])
        back = urlsplit(there.headers["location"])
        return await browser.client.get(f"{back.path}?{back.query}")


async def _site(serve: Any, settings: Settings, issuer: str, provider: Any, **more: Any) -> Site:
    port = more.pop("port")
    url = f"http://127.0.0.1:{port}"
    told = {"oidc_issuer": issuer, "oidc_client_id": "counterseal", "console_url": url, "port": port, **more}
    installation = await serve(settings.model_copy(update=told))
    await installation.publish()
    site = Site(installation, provider, issuer)
    await site.people()
    return site


@pytest.fixture
async def site(serve: Any, settings: Settings, unused_tcp_port: int) -> AsyncIterator[Site]:
    provider = Provider()
    async with LoopbackServer(provider.app) as server:
        provider.url = server.url
        more = {"oidc_roles": {"operator": ("operators",)}, "oidc_email": True, "port": unused_tcp_port}
        yield await _site(serve, settings, server.url, provider, **more)


async def test_who_comes_back_is_the_person_of_the_directory_in_a_new_session(site: Site) -> None:
    browser = await site.browser()
    assert "Log in with your account" in (await browser.get("/login")).text
    answer = await site.goes(browser)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/inbox"), answer.text
    first = browser.cookie
    page = await browser.get("/inbox")
    assert "Ann" in page.text
    assert "/console/health" in page.text, "operator, by a group of the directory"
    # A new login is a new session, and the one before is over.
    await site.goes(browser)
    assert browser.cookie != first
    old = await site.browser()
    old.client.cookies.set("counterseal", first)
    assert (await old.get("/inbox")).status_code == 303
    # The secrets are used up: the same answer logs in nobody.
    assert not [name for name in browser.client.cookies if name.endswith("-oidc")]
    left = await browser.post("/logout", await browser.form("/inbox"))
    assert left.headers["location"] == "/console/login?left"
    assert "&amp;fresh" in (await browser.get("/login?left")).text
    opened = [one["data"] for one in await site.installation.tenant_events("session.opened")]
    assert opened[0] | {"session": ""} == {
        "subject": "ann",
        "roles": ["approver", "operator"],
        "by": "oidc",
        "session": "",
    }


Change = Callable[[Provider], Any]
OTHER = RSAKey.generate_key(2048, {"kid": "k1"}, private=True)


def claims(**changed: Any) -> Change:
    return lambda provider: setattr(provider, "claims", changed)


def _secret(provider: Provider) -> None:
    provider.alg, provider.signer = "HS256", OctKey.import_key(json.dumps(provider.key.as_dict(private=False)))


REFUSED: dict[str, Change] = {
    "another issuer": claims(iss="https://elsewhere.example"),
    "another audience": claims(aud="somebody else"),
    "several audiences": claims(aud=["counterseal", "somebody else"], azp="counterseal"),
    "another nonce": claims(nonce="x"),
    "no nonce": claims(nonce=None),
    "no subject": claims(sub=None),
    "no end": claims(exp=None),
    "too old": claims(exp=int(time.time()) - 3600),
    "from the future": claims(iat=int(time.time()) + 3600),
    "another key": lambda provider: setattr(provider, "signer", OTHER),
    "a secret that everybody knows": _secret,
    "a stranger": lambda provider: setattr(provider, "subject", "mallory"),
    "a subject of another issuer": lambda provider: setattr(provider, "subject", "tess"),
    "a person's id": lambda provider: setattr(provider, "subject", "bob"),
    "somebody who is not active": lambda provider: setattr(provider, "subject", "eve"),
    "a subject in another form": lambda provider: setattr(provider, "subject", "\uff41nn"),
    "a subject with an end that nobody sees": lambda provider: setattr(provider, "subject", "ann\u200b"),
    "a subject with spaces": lambda provider: setattr(provider, "subject", " ann"),
    "another person's subject in another case": lambda provider: setattr(provider, "subject", "ANN"),
    "an e-mail that is not verified": claims(sub="x", email="bob@example.com", email_verified=False),
    "an e-mail that says to be verified": claims(sub="x", email="bob@example.com", email_verified="true"),
    "an e-mail of nobody": claims(sub="x", email="mallory@example.com", email_verified=True),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_no_other_token_logs_anybody_in(site: Site, name: str) -> None:
    REFUSED[name](site.provider)
    browser = await site.browser()
    answer = await site.goes(browser)
    assert (answer.status_code, "counterseal" in browser.client.cookies) == (401, False)
    assert "You are not logged in." in answer.text


async def test_a_login_anew_is_a_login_since_it_was_asked_for_by_the_same_person(site: Site) -> None:
    """Policy wants it for one question: the provider must say that it has just asked, and for whom."""
    installation = site.installation
    async with installation.app.faces.database.transaction("default") as connection:
        given = (connection, installation.app.faces.definitions, "default", STEP_UP, "policy", Actor("test", "tester"))
        await policies.publish_policy(*given)
    await site.people(PEOPLE)
    _, asked, _ = await installation.asked()
    (question_,) = await installation.books.approvals(id=asked)
    question = f"/oidc?approval={asked}&digest={question_.action_digest}"
    browser = await site.browser()
    await site.goes(browser)
    assert question.replace("&", "&amp;") in (await browser.get(f"/approvals/{asked}")).text
    there = parse_qs(urlsplit((await browser.get(question)).headers["location"]).query)
    assert (there["prompt"], there["max_age"]) == (["login"], ["0"])
    for name, told in {
        "no word of when": {},
        "a login of before": {"auth_time": int(time.time()) - 60},
        "a login to come": {"auth_time": int(time.time()) + 3600},
        "no time": {"auth_time": "now"},
        "somebody else": {
            "auth_time": int(time.time()),
            "sub": "x",
            "email": "bob@example.com",
            "email_verified": True,
        },
    }.items():
        site.provider.claims = told
        assert ((await site.goes(browser, question)).status_code, name) == (401, name)
    for forged in ({"since": 0.0}, {"since": 0.0, "anew": [str(asked), "0" * 64]}, {"state": "S" * 43, "since": 0.0}):
        begun = await browser.get(question)  # whoever sits at an open browser writes into its cookies what they like
        (cookie,) = [one for one in browser.client.cookies.jar if "oidc" in one.name]
        told = json.loads(bytes.fromhex(cookie.value or "")) | forged
        cookie.value = json.dumps(told).encode().hex()
        site.provider.claims = {"auth_time": int(time.time()) - 3600}
        silent = begun.headers["location"].replace("prompt=login", "x=y").replace("max_age=0", "y=x")
        async with httpx.AsyncClient(trust_env=False) as client:
            back = urlsplit((await client.get(silent)).headers["location"])
        query = parse_qs(back.query) | {"state": [told["state"]]}
        answer = await browser.client.get(f"{back.path}?{urlencode(query, doseq=True)}")
        assert (answer.status_code, forged) == (401, forged)
    assert await browser.vote(asked, question_.action_digest) == "step_up_required"
    assert (await (await site.browser()).get(question)).headers["location"].startswith("/console/login"), "nobody's"
    site.provider.claims = {"auth_time": int(time.time())}
    answer = await site.goes(browser, question)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/console/approvals/{asked}#decide"), answer.text
    form = await browser.form(f"/approvals/{asked}", choice="approve")
    assert (await browser.post(f"/approvals/{asked}", form)).status_code == 303
    (line,) = await installation.books.audit(type="approval.voted")
    assert line.data["identity"]["step_up"]["by"] == "oidc"


async def test_an_answer_that_this_browser_has_not_begun_logs_nobody_in(site: Site) -> None:
    browser, other = await site.browser(), await site.browser()
    begun = await browser.get("/oidc")
    async with httpx.AsyncClient(trust_env=False) as client:
        there = await client.get(begun.headers["location"])
    back = urlsplit(there.headers["location"])
    answers = {
        "without the cookie": (other, f"{back.path}?{back.query}"),
        "another state": (browser, f"{back.path}?code=code0&state=x"),
        "used up by that": (browser, f"{back.path}?{back.query}"),
    }
    for name, (who, path) in answers.items():
        assert ((await who.client.get(path)).status_code, name) == (401, name)
    for query in ("error=access_denied&state=", "code=x&iss=https://elsewhere.example&state=", "state="):
        begun = await browser.get("/oidc")
        state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
        assert (await browser.client.get(f"{back.path}?{query}{state}")).status_code == 401
    # A path elsewhere is none to go on to.
    assert (await site.goes(browser, "/oidc?next=//elsewhere.example")).headers["location"] == "/console"


async def test_a_verified_email_finds_a_person_only_if_the_settings_say_so(site: Site) -> None:
    site.provider.claims = {"sub": "x", "email": "bob@example.com", "email_verified": True}
    browser = await site.browser()
    assert (await site.goes(browser)).status_code == 303
    assert "Bob" in (await browser.get("/inbox")).text
    await site.people(PEOPLE.replace("name: Bob", "name: Bob, active: false"))
    assert (await browser.get("/inbox")).status_code == 303, "who is deactivated is logged out"


async def test_keys_may_change_and_another_provider_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await site.goes(await site.browser())).status_code == 303
    site.provider.key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig"}, private=True)
    site.provider.shown = [site.provider.key]
    assert (await site.goes(await site.browser())).status_code == 303
    settings = site.installation.settings
    for itself, state in {"": State.OK, "https://elsewhere.example": State.BROKEN}.items():
        site.provider.calls_itself = itself
        assert {one.what: one.state for one in await outside(settings)}["console login"] is state
    monkeypatch.setenv("COUNTERSEAL_OIDC_ISSUER", "http://id.example.com")
    with pytest.raises(ConfigurationError, match="COUNTERSEAL_OIDC_ISSUER"):
        load_settings()


@pytest.mark.skipif(not (MODULES and shutil.which("node")), reason="no node, or no npm package oidc-provider")
async def test_a_real_provider_logs_a_person_in(
    serve: Any, settings: Settings, unused_tcp_port_factory: Callable[[], int]
) -> None:
    port, own = unused_tcp_port_factory(), unused_tcp_port_factory()
    script, back = (
        Path(__file__).parents[2] / "support" / "oidc_provider.mjs",
        f"http://127.0.0.1:{own}/console/oidc/callback",
    )
    process = await asyncio.create_subprocess_exec(
        "node", str(script), MODULES, str(port), back, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while b"ready" not in await process.stdout.readline():
                pass
        more = {"oidc_client_secret": SecretStr("a secret of the client"), "oidc_email": True, "port": own}
        site = await _site(serve, settings, f"http://127.0.0.1:{port}", None, **more)
        for account, name in {"ann": "Ann", "bob~v": "Bob", "bob": "", "eve": ""}.items():
            browser = await site.browser()
            answer = await _through(browser, (await browser.get("/oidc")).headers["location"], account)
            assert (answer.status_code, account) == (303 if name else 401, account), answer.text
            if name:
                assert name in (await browser.get("/inbox")).text
    finally:
        process.terminate()
        await process.wait()


async def _through(browser: Browser, address: str, account: str) -> httpx.Response:
    """Log in at the provider's own pages, and agree; the answer of ours to what it leads back to."""
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
        answer = await client.get(address)
        for _ in range(12):
            if answer.is_redirect:
                following = httpx.URL(answer.request.url).join(answer.headers["location"])
                if following.path == "/console/oidc/callback":
                    return await browser.client.get(following.raw_path.decode())
                answer = await client.get(following)
                continue
            action = re.search(r'action="([^"]+)"', answer.text)
            prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
            assert action is not None
            assert prompt is not None, answer.text
            fields = {"prompt": prompt[1], "login": account, "password": "x"}
            answer = await client.post(httpx.URL(answer.request.url).join(action[1]), data=fields)
    raise AssertionError("the provider leads nowhere")
