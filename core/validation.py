"""Validates a document as a pydantic model, and turns pydantic's errors into problems that an author understands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Tag, ValidationError

from core.canonical import Json
from core.documents import Document
from core.errors import DefinitionError, Problem, nearest, path_text

Model = TypeVar("Model", bound=BaseModel)
_Location: TypeAlias = tuple[str | int, ...]
EMPTY = "the key is here and has no value"
EMPTY_REMEDY = "Write its value, or take the key out."
_Candidate: TypeAlias = tuple[str | None, type[BaseModel]]


def validate(document: Document, model: type[Model]) -> Model:
    """The document as ``model``, without conversions between types; ``DefinitionError`` with every problem found.

    A key without a value is refused if leaving it out would mean something: an author who writes ``when:`` does not
    mean "always".
    """
    try:
        content = model.model_validate_json(json.dumps(document.value), strict=True)
        problems = {
            document.problem(path, f"{path_text(path)}: {EMPTY}.", EMPTY_REMEDY) for path in empty_keys(content)
        }
        if not problems:
            return content
    except ValidationError as error:
        faults = error.errors(include_url=False)
        problems = {_problem(document, model, fault) for fault in faults if not _is_echo(fault, faults)}
    raise DefinitionError(
        tuple(sorted(problems, key=lambda found: (found.line, found.column, found.message, found.remedy)))
    )


def empty_keys(value: object, path: _Location = ()) -> Iterator[_Location]:
    """Yield the paths of keys without a value. A key of type ``Any`` may hold null."""
    if isinstance(value, BaseModel):
        for name in value.model_fields_set:
            info, item = type(value).model_fields[name], getattr(value, name)
            place = (*path, info.alias or name)
            if item is None and info.annotation is not Any:
                yield place
            yield from empty_keys(item, place)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from empty_keys(item, (*path, key))
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from empty_keys(item, (*path, number))


def _is_echo(fault: Mapping[str, Any], faults: Sequence[Mapping[str, Any]]) -> bool:
    """True if a list counts as too short only because its items are faulty; the items are reported already."""
    place = fault["loc"]
    inside = (other for other in faults if len(other["loc"]) > len(place) and other["loc"][: len(place)] == place)
    return fault["type"] == "too_short" and any(inside)


def _problem(document: Document, model: type[BaseModel], fault: Mapping[str, Any]) -> Problem:
    kind: str = fault["type"]
    location: _Location = tuple(part for part in fault["loc"] if part != "[key]")
    missing = kind == "missing"
    path = _resolve(document.value, location, missing=missing)
    message, remedy = _explain(kind, fault, model, location, path)
    return document.problem(path, message, remedy)


def _explain(
    kind: str, fault: Mapping[str, Any], model: type[BaseModel], location: _Location, path: _Location
) -> tuple[str, str]:
    name = path_text(path)
    prefix = f"{name}: " if name else ""
    context: Mapping[str, Any] = fault.get("ctx") or {}
    if kind == "missing":
        return f"{prefix}the key {location[-1]!r} is missing.", ""
    if kind == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        remedy = nearest(str(location[-1]), known, "Known keys")
        return f"{path_text(path[:-1])}: unknown key {location[-1]!r}.".removeprefix(": "), remedy
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        choices = str(context.get("expected") or context.get("expected_tags") or "").replace(" or ", ", ")
        names = [choice.strip().strip("'") for choice in choices.split(",")]
        shown = json.dumps(fault["input"], ensure_ascii=False)[:80]
        return f"{prefix}{shown} is not accepted.", f"One of {', '.join(names)}."
    if kind == "union_tag_not_found":
        tags = [tag for tag, _ in _candidates(model, location) if tag is not None]
        return f"{prefix}it cannot be told what this is.", f"One of {', '.join(tags)}." if tags else ""
    if kind in ("string_too_short", "string_pattern_mismatch") and not str(fault["input"]).strip():
        return f"{prefix}{EMPTY}.", EMPTY_REMEDY
    if kind == "too_short":
        return f"{prefix}holds {context['actual_length']} of at least {context['min_length']} items.", ""
    message = str(context["error"]) if kind == "value_error" and "error" in context else str(fault["msg"])
    return f"{prefix}{message[:1].lower()}{message[1:]}".removesuffix(".") + ".", ""


def _resolve(value: Json, location: _Location, *, missing: bool) -> _Location:
    """The document's path for a pydantic location, without the parts that name alternatives of a union.

    A part may name both an alternative and a key; the reading that reaches the location's end and drops the fewest
    parts wins. A missing key has no place, so the path of its parent is returned.
    """
    best: tuple[int, int, _Location] = (-1, 0, ())
    stack: list[tuple[Json, int, _Location, bool]] = [(value, 0, (), True)]
    while stack:
        at, index, path, reached = stack.pop()
        if index == len(location):
            best = max(best, (int(reached), len(path), path), key=lambda found: found[:2])
            continue
        part, last = location[index], index == len(location) - 1
        if missing and last:
            absent = isinstance(at, dict) and part not in at
            stack.append((at, index + 1, path, absent))
            continue
        if isinstance(part, int):  # always an element of a list, never an alternative
            if isinstance(at, list) and part < len(at):
                stack.append((at[part], index + 1, (*path, part), True))
            continue
        stack.append((at, index + 1, path, False))
        if isinstance(at, dict) and part in at:
            stack.append((at[part], index + 1, (*path, part), True))
    return best[2]


def _known_keys(model: type[BaseModel], location: _Location) -> list[str]:
    """The keys of the model at ``location``; of all alternatives, if the location fits several."""
    return sorted({key for _, cls in _candidates(model, location) for key in _keys(cls)})


def _candidates(model: type[BaseModel], location: _Location) -> list[_Candidate]:
    """The models that a value at ``location`` may be, with their tags in a union.

    A part that chooses an alternative is used up: the next one may be a key of the same name.
    """
    candidates: list[_Candidate] = [(None, model)]
    for part in location:
        if isinstance(part, int):
            continue
        inner = [found for _, cls in candidates for found in _field_models(cls, part)]
        named: list[_Candidate] = [(None, cls) for tag, cls in candidates if part in (tag, cls.__name__)]
        candidates = named or inner or candidates
    return candidates


def _keys(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def _field_models(model: type[BaseModel], key: str) -> list[_Candidate]:
    for name, info in model.model_fields.items():
        if key in (name, info.alias):
            annotation = info.annotation
            if "ForwardRef" in repr(annotation):  # a model that contains itself, through a list or a union
                annotation = get_type_hints(model, include_extras=True)[name]
            return list(_models_in(annotation, None))
    return []


def _models_in(annotation: Any, tag: str | None) -> Iterable[_Candidate]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield tag, annotation
        return
    if get_origin(annotation) is Annotated:
        tag = next((mark.tag for mark in annotation.__metadata__ if isinstance(mark, Tag)), tag)
        yield from _models_in(get_args(annotation)[0], tag)
        return
    for argument in get_args(annotation):
        yield from _models_in(argument, tag)
