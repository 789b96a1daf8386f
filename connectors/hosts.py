"""The hosts that may be called, as settings name them."""

from __future__ import annotations

import re

from msgspec import Struct

# The pattern of an MCP server's name in the settings, which is a part of its operations' names.
SERVER_PATTERN = r"^[a-z][a-z0-9_]{0,40}$"
_HOST = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?(?P<private>/private)?\Z")


# A target with a rate (a connector's name, or a host with or without a port), and its most calls in a minute.
RATED, RATE_MAX = r"^[a-z0-9][a-z0-9.-]{0,252}(:[0-9]{1,5})?$", 6_000


class AllowedHost(Struct, frozen=True):
    """One host that may be called: exactly this name, at this port (None: the scheme's own port only).

    ``allow_private`` permits loopback, private and link-local addresses, for services inside one's own network.
    """

    host: str
    port: int | None = None
    allow_private: bool = False

    @classmethod
    def of(cls, text: str) -> AllowedHost | None:
        """Read ``host`` or ``host:port``, either with ``/private``; None if it is none of these."""
        match = _HOST.match(text)
        if match is None or int(match["port"] or 0) > 65535:
            return None
        port = int(match["port"]) if match["port"] else None
        return cls(match["host"].strip("[]").lower(), port, match["private"] is not None)
