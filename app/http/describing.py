"""The description of the HTTP interface (OpenAPI): besides what FastAPI reads from the routes, every refusal."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from app.http.problems import MEDIA_TYPE

# What a problem document has; some have more members (``where``, ``problems``, ``errors``).
_PROBLEM = {
    "title": "Problem",
    "type": "object",
    "description": "RFC 9457. `limit` names the limit that is reached.",
    "required": ["type", "title", "status", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "remedy": {"type": "string"},
        "limit": {"type": "string"},
    },
}
_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_REFUSALS = {
    "4XX": "Refused: the request, its signature or token, its rights, its size, or a limit (429, with `Retry-After`)",
    "5XX": "Something is away (503, 504), or failed here",
}


class Api(FastAPI):
    """The application whose description tells of problems."""

    def openapi(self) -> dict[str, Any]:
        """The description; made once."""
        if self.openapi_schema is not None:
            return self.openapi_schema
        made = super().openapi()
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        schemas["Problem"] = _PROBLEM
        for unused in ("HTTPValidationError", "ValidationError"):  # our problems say 422 as well
            schemas.pop(unused, None)
        for path in made["paths"].values():
            for operation in path.values():
                operation["responses"] = _answers(operation["responses"])
        return made


def _answers(told: dict[str, Any]) -> dict[str, Any]:
    """The answers of an operation, with problems for all refusals, also those that have words of their own."""
    answers = {status: one for status, one in told.items() if status != "422" or _CONTENT_OF_FASTAPI not in str(one)}
    for status, one in answers.items():
        if status[0] in "45":
            answers[status] = {**one, "content": _CONTENT}
    return answers | {status: {"description": words, "content": _CONTENT} for status, words in _REFUSALS.items()}


_CONTENT_OF_FASTAPI = "HTTPValidationError"
