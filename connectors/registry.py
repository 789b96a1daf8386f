"""The connectors of this installation, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from connectors.port import Connector
from core.errors import ConfigurationError

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "servicenow": "COUNTERSEAL_SERVICENOW_URL",
        "slack": "COUNTERSEAL_SLACK_BOT_TOKEN",
        "http": "COUNTERSEAL_HTTP_HOSTS",
        "model": "COUNTERSEAL_MODEL_URL",
        "bpmn": "COUNTERSEAL_BPMN_URL",
    }
)


@dataclass(frozen=True)
class Connectors:
    """Immutable: ``app`` builds it once from the settings."""

    by_name: Mapping[str, Connector]

    def get(self, name: str) -> Connector:
        """The connector of this name, or of this operation, whose name begins with it.

        ``ConfigurationError`` names the setting that would provide it.
        """
        name = name.partition(".")[0]
        found = self.by_name.get(name)
        if found is None:
            setting = SETTINGS.get(name)
            remedy = f"Set {setting}." if setting else f"Known connectors: {', '.join(sorted(SETTINGS))}."
            raise ConfigurationError(f"the connector {name!r} is not configured.", remedy=remedy)
        return found

    async def check(self) -> Mapping[str, tuple[bool, str]]:
        """Ask every connector how it is, all at once: ``counterseal doctor``."""
        answers = await asyncio.gather(*(connector.check() for connector in self.by_name.values()))
        return dict(zip(self.by_name, answers, strict=True))

    async def aclose(self) -> None:
        """Close every connector, also when one of them fails to; the failures are raised together afterwards."""
        results = await asyncio.gather(
            *(connector.aclose() for connector in self.by_name.values()), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise BaseExceptionGroup("connectors failed to close", failures)
