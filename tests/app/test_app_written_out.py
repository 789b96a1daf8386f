"""Every number, word and pattern of the application that has a name, and every default, written out once more."""

from __future__ import annotations

import importlib
from dataclasses import is_dataclass
from pathlib import Path

import msgspec
from pydantic import BaseModel
from pydantic_settings import BaseSettings

from app.http.models import In
from app.settings import Settings, WebhookEndpoint
from tests.support.whole import as_it_was
from tests.support.written_out import names_below, of_modules

EXPECTED = Path(__file__).with_name("whole_written_out.json")
# A window counts.
CHANGING = {"app.refusals._Window"}


def test_what_has_a_name_in_the_application_is_what_it_was() -> None:
    as_it_was(EXPECTED, of_modules(names_below("app")))


def test_values_do_not_change() -> None:
    found, frozen = set[str](), set[str]()
    for name in names_below("app"):
        for kind in vars(importlib.import_module(name)).values():
            if not isinstance(kind, type) or kind.__module__ != name:
                continue
            if is_dataclass(kind):
                found.add(f"{name}.{kind.__name__}")
                frozen |= {f"{name}.{kind.__name__}"} if vars(kind)["__dataclass_params__"].frozen else set()
            elif issubclass(kind, msgspec.Struct):
                assert kind.__struct_config__.frozen, kind
            elif issubclass(kind, BaseModel) and not issubclass(kind, BaseSettings):
                strict = issubclass(kind, In) or kind is WebhookEndpoint
                assert kind.model_config.get("extra") == ("forbid" if strict else None), kind
    assert found - frozen == CHANGING
    secret = {"frozen": True, "hide_input_in_errors": True}
    for settings in (Settings, WebhookEndpoint):
        assert {name: settings.model_config.get(name) for name in secret} == secret
