"""The description of the HTTP interface (OpenAPI): besides what FastAPI reads from the routes, every refusal."""

from __future__ import annotations

from collections.abc import Mapping
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
# The refusals by status, which routes refer to. ``STATUS`` says which errors of ours they stand for.
_REFUSALS: Mapping[int, str] = {
    400: "Not JSON that has one meaning, or a value or a query parameter that this path does not take",
    401: "No valid token, or not signed as it must be",
    403: "The token's roles, or the tenant's rules, do not allow it",
    404: "There is no such thing in the token's tenant",
    408: "The request did not arrive in time",
    409: "It is not as the request supposes: decided, changed, ended, or paused",
    413: "The body is too large",
    415: "The body is not `application/json`",
    422: "The request, or the document in it, is not acceptable",
    429: "A limit is reached: `limit` names it, and `Retry-After` says when it is not any more",
    431: "The headers are too large",
    500: "Something failed here; the log has the details",
    503: "Something that this needs is away",
    504: "Something that this needs did not answer in time",
}


class Api(FastAPI):
    """The application, whose description lists the problems too."""

    def openapi(self) -> dict[str, Any]:
        """The description; made once."""
        if self.openapi_schema is not None:
            return self.openapi_schema
        made = super().openapi()
        parts = made.setdefault("components", {})
        parts.setdefault("schemas", {})["Problem"] = _PROBLEM
        parts["responses"] = {
            str(status): {"description": words, "content": _CONTENT} for status, words in _REFUSALS.items()
        }
        for unused in ("HTTPValidationError", "ValidationError"):  # our problems say 422 as well
            parts["schemas"].pop(unused, None)
        for path in made["paths"].values():
            for method, operation in path.items():
                operation["responses"] = _answers(method, operation)
        return made


def _answers(method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    """The answers of an operation: its own, and every possible refusal as a problem."""
    responses = operation["responses"]
    answers = {
        status: one for status, one in responses.items() if status != "422" or _CONTENT_OF_FASTAPI not in str(one)
    }
    for status, one in answers.items():
        if status[0] in "45":
            answers[status] = {**one, "content": {**one.get("content", {}), **_CONTENT}}
    never: set[int] = set()
    if method == "get":  # whoever looks finds nothing changed; whoever names nothing misses nothing
        never = {409} if operation.get("parameters") else {404, 409}
    common = {str(one): {"$ref": f"#/components/responses/{one}"} for one in _REFUSALS if one not in never}
    return dict(sorted((common | answers).items()))


_CONTENT_OF_FASTAPI = "HTTPValidationError"
