"""The long-running parts in one process: serving HTTP, working on steps, keeping the outbox and the clock.

``serve``, ``work`` and ``keep`` may run in any number of processes each; ``up`` is all three in one. SIGTERM or SIGINT
stops them gracefully: work under way is finished, and the process exits with 0. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from enum import StrEnum

import structlog

from app import definitions, file_locks, storage
from app.faces import version
from app.settings import Settings
from app.wiring import App, build
from core import tracing
from core.budgets import most
from core.clock import repeat, unless
from core.db import Database
from core.errors import ConfigurationError
from core.memory import keep_for_good, share_arenas
from runtime.keep.dispatcher import KIND_MAX
from runtime.store.commits import MESSAGES_CHANNEL, STEPS_CHANNEL

log = structlog.get_logger(__name__)

RECONNECT_SECONDS = 1.0
# The interval of the checks of the event loop, and the most processor time that it may take in between.
LOOK_SECONDS, STUCK_SECONDS = 1.0, most("loop_seconds")
# The switch interval of threads; Python's default is five times as long.
TURN_SECONDS = 0.001


class Duty(StrEnum):
    """A part of Counterseal that a process runs."""

    SERVE = "serve"
    WORK = "work"
    KEEP = "keep"


async def run_settings(settings: Settings, duties: frozenset[Duty], announce: Callable[[str | None], None]) -> None:
    """Build, run the parts until a signal comes, and close everything. ``announce`` as for ``run``."""
    share_arenas()
    # While a thread computes, the event loop waits this long each time it continues, which is some tens of times for a
    # click.
    sys.setswitchinterval(TURN_SECONDS)
    # S3 and SQS calls block threads. With twice the maximum of a kind, one kind that hangs leaves threads to others.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * KIND_MAX))
    stop = asyncio.Event()
    _stop_at_signals(stop)
    async with AsyncExitStack() as stack:
        if settings.embedded:
            stack.enter_context(file_locks.installation(settings.home))
        if settings.faces_only and duties != {Duty.SERVE}:
            words = "COUNTERSEAL_ENGINE_DATABASE_URL is not set, and this process works for the engine."
            raise ConfigurationError(words, remedy="`counterseal db setup` makes it; only `serve` does without.")
        app = await stack.enter_async_context(build(settings, first_run=duties == frozenset(Duty)))
        await definitions.prepare(app.faces, (await app.faces.outside(settings.tenant)).connectors)

        def started(url: str | None) -> None:
            keep_for_good()
            announce(url)

        watching = asyncio.create_task(end_if_stuck(), name="watchdog")
        try:
            await run(app, duties, stop, started)
        finally:
            watching.cancel()


async def run(app: App, duties: frozenset[Duty], stop: asyncio.Event, announce: Callable[[str | None], None]) -> None:
    """Run the parts until ``stop`` is set. If one of them fails, the others are canceled and the failure is raised.

    Once they run, ``announce`` gets the URL where HTTP is served, or None without HTTP.
    """
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        if Duty.SERVE in duties:  # others have nobody who could ask for figures
            stack.enter_context(tracing.watched(app.faces.metrics))
        if app.settings.embedded:
            group.create_task(storage.watch(app.settings, stop), name="postgres")
        group.create_task(storage.keep_schema(app.settings, stop), name="schema")
        wakes: dict[str, list[Callable[[], None]]] = defaultdict(list)
        if Duty.WORK in duties:
            group.create_task(app.worker().run(stop), name="worker")
            if (wake := getattr(app.queue, "wake", None)) is not None:
                wakes[STEPS_CHANNEL].append(wake)
        if Duty.KEEP in duties:
            dispatcher, scheduler = app.dispatcher(), app.scheduler()
            group.create_task(dispatcher.run(stop), name="dispatcher")
            group.create_task(scheduler.run(stop), name="scheduler")
            group.create_task(app.sweeper().run(stop), name="sweeper")
            group.create_task(app.completions().run(stop), name="completions")
            if (reconciler := app.reconciler()) is not None:
                group.create_task(reconciler.run(stop), name="reconciler")
            wakes[MESSAGES_CHANNEL].append(dispatcher.wake)
            if app.queue.needs_dispatch:
                wakes[STEPS_CHANNEL].append(scheduler.wake)
        if wakes:
            group.create_task(listen(app.database, wakes, stop), name="listener")
        url = await _serve(app, group, stop) if Duty.SERVE in duties else None
        log.info("started", version=version(), parts=sorted(duties), url=url)
        announce(url)


async def _serve(app: App, group: asyncio.TaskGroup, stop: asyncio.Event) -> str:
    from app.http.application import create_app
    from app.http.connections import Limits
    from app.http.server import HttpServer
    from app.http.signed import sockets_of

    settings = app.settings
    seconds = (settings.http_header_seconds, settings.http_body_seconds, settings.http_idle_seconds)
    limits = Limits(*seconds, connections=settings.http_connections_max, client_header=settings.http_client_header)
    application = create_app(app.faces)
    server = HttpServer(application, settings.host, settings.port, limits)
    group.create_task(server.run(stop), name="http")
    if (sockets := await sockets_of(app.faces, application.state.slack)) is not None:
        group.create_task(sockets.run(stop), name="slack sockets")
    if (chat := (await app.faces.outside(settings.tenant)).chat) is not None:
        # Ask Slack now, so that the first click need not wait. If this fails, the click asks again.
        group.create_task(chat.workspace.home(), name="slack workspace")
    group.create_task(app.faces.refusals.run(stop), name="refusals")
    group.create_task(app.faces.waiting.until(stop), name="waiting")
    group.create_task(app.faces.budgets.run(stop), name="budgets")
    return server.url


async def listen(database: Database, wakes: Mapping[str, list[Callable[[], None]]], stop: asyncio.Event) -> None:
    """Pass NOTIFY on until ``stop``. After a reconnect, wake everybody: notifications may have been missed."""

    def notify(channel: str, _: str = "") -> None:
        for wake in wakes[channel]:
            wake()

    async def turn() -> None:
        async with database.listening(tuple(wakes), notify) as lost:
            for channel in wakes:
                notify(channel)
            await unless(stop, asyncio.wait({lost}))

    await repeat(stop, turn, RECONNECT_SECONDS, "not listening to the database; polling goes on")


async def end_if_stuck() -> None:
    """Let the system end this process if one task blocks the loop for too much processor time; write a traceback first.

    A step or a text that does this stops only one process: its lease runs out, and the worker that leases the step next
    rehearses it in a helper. Only processor time counts: a process that was suspended goes on.
    """
    faulthandler.register(signal.SIGPROF, chain=True)
    try:
        while True:
            signal.setitimer(signal.ITIMER_PROF, STUCK_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.unregister(signal.SIGPROF)


def _stop_at_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    assert main is not None

    def received() -> None:
        if stop.is_set():
            log.warning("stopping at once")
            main.cancel()
        else:
            log.info("stopping: finishing what is under way")
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: a closed terminal is no reason to stop
        loop.add_signal_handler(signal.SIGHUP, received)
