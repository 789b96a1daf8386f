"""ISO 8601 durations, as documents write them: ``PT8H``, ``P14D``, ``P1DT12H``."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from core.errors import InputError
from core.spans import PATTERN, format_duration, parse_duration

__all__ = ["Duration", "format_duration", "parse_duration"]


def _validate(value: object) -> timedelta:
    if not isinstance(value, str):
        raise ValueError("should be an ISO 8601 duration such as PT8H")
    try:
        return parse_duration(value)
    except InputError as error:
        raise ValueError(str(error)) from None


Duration = Annotated[
    timedelta,
    PlainValidator(_validate),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": PATTERN, "examples": ["PT30M", "PT8H", "P14D"]}),
]
"""A pydantic field that is written as an ISO 8601 duration."""
