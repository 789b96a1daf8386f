"""The instance's incidents as a web page, for people on this machine; it refreshes every two seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from sandbox.servicenow_state import Record, ServiceNowState

_STATES: Final = {"1": "New", "2": "In Progress", "3": "On Hold", "6": "Resolved", "7": "Closed", "8": "Canceled"}
_PRIORITIES: Final = {"1": "Critical", "2": "High", "3": "Moderate", "4": "Low", "5": "Planning"}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_routes(state: ServiceNowState) -> list[Route]:
    """The page ``/``: every incident, the newest first."""
    folder = Path(__file__).parent / "templates"
    environment = Environment(loader=FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.get_template("servicenow_page.html")

    def shown(record: Record) -> dict[str, str]:
        group = state.record("sys_user_group", record.get("assignment_group", "")) or {}
        return {
            "number": record.get("number", ""),
            "text": record.get("short_description", ""),
            "state": _labeled(record.get("state", ""), _STATES),
            "priority": record.get("priority", ""),
            "priority_words": _labeled(record.get("priority", ""), _PRIORITIES),
            "group": group.get("name", ""),
            "by": record.get("sys_updated_by", ""),
            "at": record.get("sys_updated_on", ""),
            "notes": record.get("work_notes", "").strip(),
        }

    async def incidents(_: Request) -> Response:
        records = sorted(state.tables.get("incident", {}).values(), key=lambda item: item.get("number", ""))
        return HTMLResponse(template.render(incidents=[shown(item) for item in reversed(records)]), headers=_HEADERS)

    return [Route("/", incidents, methods=["GET"])]


def _labeled(value: str, words: dict[str, str]) -> str:
    return f"{value} - {words[value]}" if value in words else value
