"""Fixtures of all tests: a migrated PostgreSQL database of their own, and a browser if there is one.

``database_url`` is a fresh clone of a database that was migrated once per session. The server is the embedded one, in
a temporary folder (in memory where there is room), unless COUNTERSEAL_TEST_DATABASE_URL names another (a role that
may create databases).

``chromium_path`` is an installed Chromium. Where there is none, the tests that ask for it are deselected and the
summary says so in one line; with COUNTERSEAL_REQUIRE_CHROMIUM=1 they fail instead. The login at a real provider needs
node and the npm package oidc-provider: COUNTERSEAL_TEST_NODE_MODULES says in which node_modules it is. Without node
verify.py takes the place of the verifier in JavaScript.

What a test records as its property ``summary`` is a line at the end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.support import memory
from tests.support.databases import Databases

# How long a test takes is no condition: the machine may be busy with something else.
settings.register_profile("counterseal", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("counterseal")

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_NO_CHROMIUM = "no Chromium (set CHROMIUM to its path, or install it)"
_deselected = pytest.StashKey[int]()


def _find_chromium() -> str | None:
    """Find the browser that CHROMIUM names, one on PATH, or the newest that `playwright install chromium` left."""
    for name in (os.environ.get("CHROMIUM", ""), *_BROWSERS):
        if found := shutil.which(name) if name else None:
            return found
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "~/.cache/ms-playwright")).expanduser()
    own = sorted(cache.glob("chromium-*/chrome-linux*/chrome")) + sorted(
        Path("~/Library/Caches/ms-playwright").expanduser().glob("chromium-*/chrome-mac*/*.app/Contents/MacOS/*")
    )
    return str(own[-1]) if own else None


# The garbage of collecting is little, and looking for it takes a third of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among what was collected, which stays until the end."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    browser = [item for item in items if "chromium_path" in getattr(item, "fixturenames", ())]
    if not browser or _find_chromium() or os.environ.get("COUNTERSEAL_REQUIRE_CHROMIUM") == "1":
        return
    config.hook.pytest_deselected(items=browser)
    config.stash[_deselected] = len(browser)
    items[:] = [item for item in items if item not in browser]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(_deselected, 0):
        terminalreporter.write_line(f"browser tests not run: {count}, because there is {_NO_CHROMIUM}.", yellow=True)
    for report in terminalreporter.stats.get("passed", ()):
        for line in (value for name, value in report.user_properties if name == "summary"):
            terminalreporter.write_line(str(line))


class _Impatient:
    """The module ``asyncio`` for uvicorn, which looks ten times a second whether it is to stop; here more often."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


@pytest.fixture(scope="session", autouse=True)
def servers_stop_soon() -> Iterator[None]:
    """Let the servers of this process stop without a tenth of a second of waiting."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uvicorn.server.asyncio", _Impatient())
        yield


@pytest.fixture(scope="session")
def chromium_path() -> str:
    found = _find_chromium()
    assert found, _NO_CHROMIUM
    return found


def _named(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server of this session; its database `postgres` is where databases are created and dropped."""
    if url := os.environ.get("COUNTERSEAL_TEST_DATABASE_URL"):
        yield _named(url, "postgres")
        return
    from app.embedded_postgres import EmbeddedPostgres

    with memory.folder() as folder:
        server = EmbeddedPostgres(folder or tmp_path_factory.mktemp("postgres"), durable=False)
        yield _named(server.start(), "postgres")
        server.stop()


@pytest.fixture(scope="session")
def databases(postgres_url: str) -> Iterator[Databases]:
    """The databases of the server, to make and to drop."""
    found = Databases(postgres_url)
    yield found
    found.close()


@pytest.fixture(scope="session")
def template_database(databases: Databases) -> Iterator[str]:
    """The name of a database with the schema at head, made once."""
    from app import logins, storage

    with databases.made("template") as url:
        asyncio.run(storage.upgrade(url))
        # One set of logins for every database of the session: processes that are given the owner's address use it.
        asyncio.run(storage.make_logins(url, logins.of_owner(url)))
        yield urlsplit(url).path[1:]


@pytest.fixture
def database_url(databases: Databases, template_database: str) -> Iterator[str]:
    """The DSN of a database that this test has to itself: a fresh copy of the migrated, empty one."""
    with databases.made("test", template_database) as url:
        yield url


@pytest.fixture(scope="session")
def _ports() -> Iterator[int]:
    """Ports below those that systems give to outgoing connections; every worker of xdist has a range of its own."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return iter(random.sample(range(12_000 + 1_000 * number, 13_000 + 1_000 * number), 1_000))


@pytest.fixture
def unused_tcp_port(_ports: Iterator[int]) -> int:
    """A port on which nobody listens, and which no outgoing connection is given in the meantime."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("there is no port left")


@pytest.fixture(autouse=True)
def logging_as_it_is_by_default() -> Iterator[None]:
    """Undo whatever a test, or the code under it, does to structlog and logging: a stream may be closed by then."""
    root = logging.getLogger()
    level = root.level
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    root.setLevel(level)
    # Those of pytest, which come and go by themselves, are of other types.
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose own time is hours away from UTC."""
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
