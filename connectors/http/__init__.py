"""HTTP requests to hosts that the installation allows."""  # noqa: A005  (it is connectors.http, never http)

from __future__ import annotations

from connectors.http.addresses import AllowedHost
from connectors.http.connector import HttpConnector, HttpSettings

__all__ = ["AllowedHost", "HttpConnector", "HttpSettings"]
