"""Logging: structlog on standard error, for people or for programs; no secret and no body is ever in a line."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import MutableMapping
from typing import Any

import structlog

from app.settings import LogFormat, LogLevel
from core.budgets import Meter

# These libraries log bodies, headers or tokens below WARNING.
_TALKATIVE = ("slack_bolt", "slack_sdk", "botocore", "boto3", "urllib3", "httpx", "httpcore", "aiohttp", "asyncio")
_QUIET = (*_TALKATIVE, "uvicorn", "alembic")
_SECRET_WORDS = ("secret", "token", "password", "authorization", "api_key", "signature", "cookie", "private_key")
HIDDEN = "[hidden]"
# The logger of recorded facts (``runtime.store.audit``), by name: importing it would slow down every command.
_FACTS = "counterseal.facts"


def configure(format_: LogFormat = "console", level: LogLevel = "info", *, facts: bool = True) -> None:
    """Set up structlog and the standard library's loggers for this process. May be called again.

    ``facts``: write the lines of recorded facts. Commands do not, because they print what they have done.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
        OfTenants(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    plain = structlog.dev.plain_traceback  # not the default one, which prints the values of local variables
    rendering: list[structlog.types.Processor] = [
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
    ]
    if format_ == "json":
        rendering = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    formatter = structlog.stdlib.ProcessorFormatter
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(foreign_pre_chain=shared, processors=[formatter.remove_processors_meta, *rendering]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("counterseal.slack.bolt").addFilter(_not_about_authorize)
    logging.getLogger(_FACTS).setLevel(logging.NOTSET if facts else logging.ERROR)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class OfTenants:
    """Drops log lines about a tenant with too many, and logs their number once a minute.

    The audit is not affected: only log lines are lost.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self._meter = meter or Meter()
        self._dropped: Counter[str] = Counter()

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Let a line pass, or drop it."""
        tenant = str(event.get("tenant", ""))
        if not tenant:
            return event
        if self._meter.wait("log_lines", tenant) > 0:
            self._dropped[tenant] += 1
            if self._meter.wait("log_warnings", tenant) > 0:
                raise structlog.DropEvent
            self._meter.used("log_warnings", tenant, amount=1)
            count, self._dropped[tenant] = self._dropped[tenant], 0
            notice = {"event": "lines about this tenant are left out", "limit": "log_lines", "count": count}
            return {name: event[name] for name in _KEPT if name in event} | notice
        self._meter.used("log_lines", tenant, amount=1)
        return event


_KEPT = ("tenant", "level", "logger", "timestamp", "_record", "_from_structlog")


def _not_about_authorize(record: logging.LogRecord) -> bool:
    """Drop Bolt's warning that `authorize` replaces the client's token: we want exactly that."""
    return "`authorize`" not in record.getMessage()


def hide_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the value of every member whose name says that it is a secret."""
    for name in event:
        if any(word in name.lower() for word in _SECRET_WORDS):
            event[name] = HIDDEN
    return event
