"""Copies of tools that are classes: the methods by which a framework runs their bodies are replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# LangChain and CrewAI have tools override these.
_RUN, _ARUN = "_run", "_arun"


def with_bodies(tool: Any, base: type, asking: Callable[[Callable[..., Any]], Callable[..., Any]], **own: Any) -> Any:
    """A copy of the tool whose bodies are `asking(body)`. A body calls the tool as it was, so it asks once."""
    kind = type(tool)
    own["__module__"] = kind.__module__
    for name in (_RUN, _ARUN):
        if name == _RUN or getattr(kind, name) is not getattr(base, name):
            own[name] = staticmethod(asking(getattr(tool, name)))
    return as_kind(tool, own)


def as_kind(tool: Any, own: dict[str, Any]) -> Any:
    """A copy of the tool, of a subclass with these members."""
    made, kind = tool.model_copy(), type(tool)
    object.__setattr__(made, "__class__", type(kind.__name__, (kind,), own))
    return made
