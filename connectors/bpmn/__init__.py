"""BPMN engines that speak the Camunda 7 REST API, such as Camunda 7 and Operaton."""

from __future__ import annotations

from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector

__all__ = ["BpmnConnector", "BpmnSettings"]
