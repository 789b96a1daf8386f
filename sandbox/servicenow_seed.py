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
    state.tables.setdefault("incident", {})
    state.tables.setdefault("change_request", {})
    state.tables.setdefault("problem", {})
