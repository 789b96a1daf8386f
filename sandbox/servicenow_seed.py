"""The initial records of the ServiceNow stand-in. Their ids are fixed, so that documents can name them."""

from __future__ import annotations

import hashlib

from sandbox.servicenow_access import INTEGRATION_USER
from sandbox.servicenow_state import ServiceNowState

USERS = {
    "ana.lee": "Ana Lee",
    "ben.ortiz": "Ben Ortiz",
    "cara.diaz": "Cara Diaz",
    "raj.quist": "Raj Quist",
    INTEGRATION_USER: "Counterseal Integration",
}
GROUPS = {
    "service-desk": "First line support",
    "network": "Network operations",
    "database": "Database operations",
    "it-leads": "IT leads",
}
CONFIGURATION_ITEMS = {
    "payroll-prod": ("cmdb_ci_service", "1 - most critical"),
    "vpn-gateway": ("cmdb_ci_netgear", "2 - somewhat critical"),
    "mail": ("cmdb_ci_service", "2 - somewhat critical"),
    "print-server": ("cmdb_ci_server", "4 - not critical"),
}

_LEVELS = {"1": "High", "2": "Medium", "3": "Low"}
# The columns of a task: the label, the table that is referred to, and the choices with their words.
COLUMNS: dict[str, tuple[str, str, dict[str, str]]] = {
    "priority": ("Priority", "", dict(zip("12345", ("Critical", "High", "Moderate", "Low", "Planning"), strict=True))),
    "impact": ("Impact", "", _LEVELS),
    "urgency": ("Urgency", "", _LEVELS),
    "state": ("State", "", {"1": "New", "2": "In Progress", "3": "On Hold", "6": "Resolved", "7": "Closed"}),
    "assigned_to": ("Assigned to", "sys_user", {}),
    "assignment_group": ("Assignment group", "sys_user_group", {}),
    "close_notes": ("Close notes", "", {}),
    "short_description": ("Short description", "", {}),
}


def seed_id(kind: str, name: str) -> str:
    """The sys_id (32 hex digits) of a seeded record."""
    return hashlib.sha256(f"{kind}:{name}".encode()).hexdigest()[:32]


def seed(state: ServiceNowState) -> None:
    for user_name, name in USERS.items():
        email = f"{user_name}@example.com"
        record = {"sys_id": seed_id("sys_user", user_name), "user_name": user_name, "name": name}
        state.seed("sys_user", record | {"email": email, "active": "true"})
    for name, description in GROUPS.items():
        record = {"sys_id": seed_id("sys_user_group", name), "name": name, "description": description}
        state.seed("sys_user_group", record | {"active": "true", "manager": seed_id("sys_user", "ana.lee")})
    for name, (item_class, criticality) in CONFIGURATION_ITEMS.items():
        record = {"sys_id": seed_id("cmdb_ci", name), "name": name, "sys_class_name": item_class}
        state.seed("cmdb_ci", record | {"busines_criticality": criticality, "operational_status": "1"})
    for element, (label, reference, choices) in COLUMNS.items():
        record = {"sys_id": seed_id("sys_dictionary", element), "name": "task", "element": element}
        state.seed("sys_dictionary", record | {"column_label": label, "reference": reference})
        for value, words in choices.items():
            record = {"sys_id": seed_id("sys_choice", f"{element}.{value}"), "name": "task", "element": element}
            state.seed("sys_choice", record | {"value": value, "label": words, "language": "en", "inactive": "false"})
    state.tables.setdefault("incident", {})
    state.tables.setdefault("change_request", {})
    state.tables.setdefault("problem", {})
