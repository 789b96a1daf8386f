"""Shaping data, in process."""

from __future__ import annotations

from connectors.transform.connector import TransformConnector

__all__ = ["TransformConnector"]
