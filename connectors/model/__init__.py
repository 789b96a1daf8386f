"""Language models behind an OpenAI-compatible API."""

from __future__ import annotations

from connectors.model.connector import ModelConnector, ModelSettings

__all__ = ["ModelConnector", "ModelSettings"]
