"""ServiceNow through the Table API."""

from __future__ import annotations

from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector

__all__ = ["BasicAuth", "ClientCredentials", "ServiceNowConnector", "ServiceNowSettings"]
