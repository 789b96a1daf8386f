"""Slack messages as side effects of workflows (the approval cards live elsewhere)."""

from __future__ import annotations

from connectors.slack.connector import SlackConnector, SlackSettings

__all__ = ["SlackConnector", "SlackSettings"]
