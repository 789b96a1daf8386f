"""Pages x roles x tenants, sessions, forms: a page that is not yours is not there; no other site acts for you."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from fastapi.routing import APIRoute

from app.access import Role, revoke_token
from app.console import sessions
from app.console.application import CSP, ROUTERS
from core.canonical import sha256_hex
from evidence.chain import Actor
from runtime.store import sessions as stored
from runtime.store.sessions import SessionKind
from tests.support.browsing import Browser
from tests.support.people import add_person, deactivate, remove_person

TESTER = Actor("test", "tester")
EVERYBODY = {Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR}
ALL_RUNS = {Role.ADMIN, Role.OPERATOR, Role.AUDITOR}
# The pages that not every role of the console opens.
OPENED = {
    "inbox": {Role.ADMIN, Role.OPERATOR, Role.APPROVER},
    "several": {Role.ADMIN, Role.OPERATOR},
    "health": {Role.ADMIN, Role.OPERATOR},
    "people": ALL_RUNS,
    "activate": {Role.ADMIN},
    **{name: {Role.ADMIN, Role.AUDITOR} for name in ("evidence", "asked", "bundle", "report")},
    "nothing": set[Role](),
}
# Things of a tenant: the same paths lead nowhere for everybody of another one.
THINGS = (
    "pending",
    "rejected",
    "strange",
    "gate",
    "task",
    "run",
    "strange run",
    "several",
    "policy",
    "workflow",
    "bundle",
    "report",
)
BEGINNINGS = re.compile(r"<script(?![^>]* src=)|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE)


async def test_a_page_that_is_not_yours_is_not_there(stage: Any) -> None:
    seen, expected = {}, {}
    for role in EVERYBODY:
        # Eve is asked nothing; as an approver she sees no run, as anything else all of them.
        eve = await stage.door.enter("eve", role)
        for name, path in stage.pages.items():
            answer = await eve.get(path)
            seen[role, name] = answer.status_code
            roles = OPENED.get(name, ALL_RUNS if name.endswith("run") else EVERYBODY)
            expected[role, name] = 200 if role in roles else 404
            # The report stands alone, so its one stylesheet is in it, and is named by its hash.
            own = (
                r"default-src 'none'; style-src 'sha256-[\w+/=]{44}'; form-action 'none'.*" if name == "report" else ""
            )
            csp = answer.headers["content-security-policy"]
            assert csp == CSP or (own and re.fullmatch(own, csp)), name
            assert answer.headers["cache-control"] == "no-store"
            assert not BEGINNINGS.search(answer.text), (name, BEGINNINGS.search(answer.text))
    assert seen == expected
    ann = await stage.door.enter("ann", Role.APPROVER)
    assert (await ann.get(stage.pages["run"])).status_code == 200, "it asks a group of hers"
    tess = await stage.door.enter("tess", Role.APPROVER)
    assert (await tess.get(stage.pages["run"])).status_code == 200, "she asked for it"
    zoe = await stage.door.enter("zoe", *EVERYBODY, tenant="other")
    assert {(await zoe.get(stage.pages[name])).status_code for name in THINGS} == {404}
    other = await zoe.get("/runs?view=all")
    assert "INC1" not in other.text
    assert "PRB1" not in (await zoe.get("/inbox")).text


async def test_values_are_shown_to_those_who_are_asked(stage: Any) -> None:
    path, secret, value = stage.pages["pending"], "4711-secret", '<ins><span class="q">INC1</span></ins>'
    sees = {}
    for person, role in (("ann", Role.APPROVER), ("eve", Role.APPROVER), ("eve", Role.OPERATOR), ("eve", Role.AUDITOR)):
        text = (await (await stage.door.enter(person, role)).get(path)).text
        sees[person, role] = (secret in text, value in text)
    assert sees == {
        ("ann", Role.APPROVER): (True, True),
        ("eve", Role.APPROVER): (False, False),
        ("eve", Role.OPERATOR): (False, True),
        ("eve", Role.AUDITOR): (False, False),
    }
    run = stage.pages["branches run"]
    kept = {
        role: "a secret of the run" in (await (await stage.door.enter("eve", role)).get(run)).text for role in ALL_RUNS
    }
    assert kept == {Role.ADMIN: True, Role.OPERATOR: True, Role.AUDITOR: False}
    assert secret not in (await (await stage.door.enter("ann", Role.APPROVER)).get("/inbox")).text


async def test_what_came_from_outside_is_a_quotation(stage: Any) -> None:
    ann = await stage.door.enter("ann", Role.APPROVER, Role.OPERATOR)
    for name in ("strange", "strange run", "inbox", "runs"):
        text = (await ann.get(stage.pages[name])).text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "\u202e" not in text
        assert "\u0430" not in text
    text = (await ann.get(stage.pages["strange"])).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "⟨U+202E⟩evil⟨U+202C⟩ p⟨U+0430⟩ypal" in text


async def test_a_session_ends_with_what_it_stands_for(installation: Any, door: Any) -> None:
    database = installation.app.faces.database
    open_ = {}
    tokens = {who: await installation.token(Role.APPROVER, subject=who) for who in ("ann", "bob", "eve", "tess")}
    people = {who: await door.with_token(token) for who, token in tokens.items()}
    await revoke_token(database, "default", tokens["ann"], TESTER)
    await deactivate(installation.engine, "default", "bob")
    await remove_person(installation.engine, "default", "eve")
    kept = people["tess"].cookie
    assert (await people["tess"].get("/inbox")).status_code == 200
    assert (await people["tess"].send("/inbox")).status_code == 405
    assert (await people["tess"].post("/logout", await people["tess"].form("/inbox"))).status_code == 303
    people["tess"].client.cookies.set("counterseal", kept)
    for who, browser in people.items():
        answer = await browser.get("/inbox?after=x")
        open_[who] = (answer.status_code, answer.headers.get("location"))
    assert set(open_.values()) == {(303, "/console/login?next=%2Fconsole%2Finbox%3Fafter%3Dx")}
    # Neither a link nor a session that is over is a login; a region that refreshes itself leads to the login, too.
    async with database.transaction("default") as connection:
        for secret, kind, hours in (("link", SessionKind.LINK, 1), ("over", SessionKind.LOGIN, -1)):
            given = (sha256_hex(secret.encode()), "tess", ["approver"], kind, timedelta(hours=hours))
            await stored.create(connection, "default", *given)
    for secret in ("link", "over", "x", ""):
        people["tess"].client.cookies.set("counterseal", secret)
        answer = await people["tess"].get("/inbox", headers={"HX-Request": "true"})
        assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/console/login?next=%2Fconsole%2Finbox")
    told = [event["data"] for event in await installation.tenant_events("session.opened")]
    assert {(one["subject"], one["by"]) for one in told} == {(who, "token") for who in people}
    assert [one["data"]["subject"] for one in await installation.tenant_events("session.ended")] == ["tess"]


async def test_who_may_not_log_in_is_told_why(installation: Any, door: Any) -> None:
    async with installation.app.faces.database.transaction("default"):
        await add_person(installation.engine, "default", "trigger")
    refused = {
        "nonsense": "none of ours",
        await installation.token(Role.TRIGGER, subject="ann"): "none of the roles that open a page",
    }
    for token, words in refused.items():
        browser = await door.stranger()
        answer = await browser.send("/login", token=token)
        assert answer.status_code == 401
        assert words in answer.text
        assert "counterseal" not in browser.client.cookies
    browser = await door.stranger()
    answer = await browser.send("/login", token=await installation.token(Role.APPROVER, subject="ann"))
    flags = answer.headers["set-cookie"].lower()
    assert all(flag in flags for flag in ("httponly", "samesite=lax", "path=/", "max-age=43200"))
    assert "secure" not in flags, "this installation is reached without https"
    inside = {"//evil.example": "/console", "https://evil.example": "/console", "/console/runs": "/console/runs"}
    for following, there in inside.items():
        token = await installation.token(Role.APPROVER, subject="ann")
        answer = await (await door.stranger()).send("/login", token=token, next=following)
        assert answer.headers["location"] == there


async def test_behind_https_the_cookie_goes_over_https_alone(serve: Any, settings: Any) -> None:
    installation = await serve(settings.model_copy(update={"console_url": "https://counterseal.example/"}))
    await installation.publish()
    browser = await Browser.stranger(installation)
    form = await browser.form("/login", token=await installation.token(Role.APPROVER, subject="ann"))
    cookie = {"Cookie": f"counterseal-login={form['csrf']}", "Origin": "https://counterseal.example"}
    answer = await browser.post("/login", form, headers=cookie)
    kept = answer.headers["set-cookie"]
    assert kept.startswith("__Host-counterseal=")
    assert {"Secure", "HttpOnly", "Path=/"} <= {part.strip() for part in kept.split(";")}
    secret = kept.partition(";")[0]
    assert (await browser.get("/inbox", headers={"Cookie": secret})).status_code == 200
    assert (await browser.get("/inbox", headers={"Cookie": secret.removeprefix("__Host-")})).status_code == 303
    code, _ = await sessions.make_link(installation.app.faces.database, "default", "ann", frozenset(EVERYBODY), TESTER)
    ahead = await browser.get(f"/login/{code}", headers={"Sec-Purpose": "prefetch"})
    assert (ahead.status_code, (await browser.get(f"/login/{code}")).status_code) == (200, 303)


async def test_a_link_logs_in_once(installation: Any, door: Any) -> None:
    database, roles = installation.app.faces.database, frozenset({Role.OPERATOR})
    code, subject = await sessions.make_link(database, "default", "ann", roles, TESTER)
    assert subject == "ann"
    shy = await door.stranger()
    asked = await shy.get(f"/login/{code}", headers={"Sec-Fetch-Site": "cross-site"})
    assert (asked.status_code, "counterseal" in shy.client.cookies) == (200, False), "another site logs nobody in"
    assert (await shy.post(f"/login/{code}", {"csrf": "guessed"})).status_code == 403
    first, second = await door.stranger(), await door.stranger()
    assert (await first.get(f"/login/{code}")).status_code == 303
    assert (await first.get("/health")).status_code == 200
    assert (await second.get(f"/login/{code}")).status_code == 401
    asked_by_button, _ = await sessions.make_link(database, "default", "ann", roles, TESTER)
    await shy.get(f"/login/{asked_by_button}", headers={"Sec-Fetch-Site": "cross-site"})
    csrf = shy.client.cookies["counterseal-login"]
    assert (await shy.post(f"/login/{asked_by_button}", {"csrf": csrf})).status_code == 303
    for subject in ("nobody", "tests"):
        with pytest.raises(Exception, match="no such person"):
            await sessions.make_link(database, "default", subject, roles, TESTER)


def posts() -> list[str]:
    every = [route for part in ROUTERS for route in part.routes if isinstance(route, APIRoute)]
    return sorted(route.path for route in every if "POST" in route.methods)


async def test_no_form_is_taken_without_the_token_of_this_login(stage: Any) -> None:
    """Every form that there is, so that a new one is no exception."""
    installation, ids = stage.installation, stage.ids
    every = await stage.door.enter("ann", *EVERYBODY)
    other = await stage.door.enter("ann", *EVERYBODY)
    own, foreign = (await every.form("/inbox"))["csrf"], (await other.form("/inbox"))["csrf"]
    assert own != foreign
    names = {"{approval}": ids["pending"], "{task}": ids["task"], "{run}": ids["run"]}
    names |= {"{name}": "strangers", "{version}": "2"}
    assert len(posts()) >= 9
    before = await installation.books.events(ids["run"])
    for path in posts():
        for one, name in names.items():
            path = path.replace(one, str(name))
        path = path.replace("{do}", "cancel" if "runs" in path else "pause").replace("{code}", "x")
        fields = {"choice": "approve", "reason": "r", "digest": "0" * 64}
        fields |= {"do": "cancel", "run": str(ids["run"]), "what": "tenant"}
        tries: list[tuple[int, dict[str, Any], dict[str, str]]] = [
            (403, {}, {}),
            (403, {"csrf": ""}, {}),
            (403, {"csrf": foreign}, {}),
            (403, {"csrf": own}, {"Origin": "https://evil.example"}),
            (403, {"csrf": own}, {"Sec-Fetch-Site": "cross-site"}),
            (403, {"csrf": own}, {"Sec-Fetch-Site": "same-site"}),
            (415, {"csrf": own}, {"Content-Type": "text/plain"}),
        ]
        for status, more, headers in tries:
            answer = await every.post(path, {**fields, **more}, headers=headers)
            assert answer.status_code == status, (path, more, headers)
        stranger = await stage.door.stranger()
        answer = await stranger.post(path, {**fields, "csrf": own})
        assert answer.status_code in (401, 403), path
    assert len(await installation.books.events(ids["run"])) == len(before)
    assert (await installation.tenant_events("pause.set")) == []
    assert (await every.get("/inbox")).status_code == 200, "it is still logged in"
