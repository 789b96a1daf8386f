"""The HTTP face."""  # noqa: A005  (it is app.http, never http)

from __future__ import annotations

from app.http.application import create_app

__all__ = ["create_app"]
