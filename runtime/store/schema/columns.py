"""What all tables share: the metadata with its names for constraints, and the columns that recur."""

from __future__ import annotations

from sqlalchemy import Column, DateTime, ForeignKey, Integer, MetaData, Text, text
from sqlalchemy.dialects.postgresql import JSONB, UUID

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

_NOW = text("now()")


def text_column(name: str, *, null: bool = False, default: str | None = None) -> Column[str]:
    """Text; present unless ``null``."""
    return Column(name, Text, nullable=null, server_default=default)


def int_column(name: str, default: str | None = None) -> Column[int]:
    """A 32-bit number, always present."""
    return Column(name, Integer, nullable=False, server_default=default)


def uuid_column(name: str, *, null: bool = False) -> Column[object]:
    """An id; present unless ``null``."""
    return Column(name, UUID(as_uuid=True), nullable=null)


def json_column(name: str, *, null: bool = True) -> Column[object]:
    """jsonb; Python's None is SQL's NULL, never JSON's null."""
    return Column(name, JSONB(none_as_null=True), nullable=null)


def time_column(name: str, *, null: bool = True, now: bool = False) -> Column[object]:
    """A moment with its zone; ``now`` is the transaction's time by default."""
    return Column(name, DateTime(timezone=True), nullable=null, server_default=_NOW if now else None)


def tenant_column(*, key: bool = False) -> Column[str]:
    """Whose row it is."""
    return Column("tenant_id", Text, ForeignKey("tenants.tenant_id"), primary_key=key, nullable=False)


def owner_column() -> Column[str]:
    """Whose row it is, where the statement that writes it takes that from a row that is checked.

    A foreign key locks the row that it names. On the tenant's row all commits of a tenant would meet, and wait for
    every claim, which locks it to keep the tenants' shares.
    """
    return Column("tenant_id", Text, nullable=False)


def run_columns(*, key: bool = False) -> tuple[Column[object], Column[str]]:
    """Which run it belongs to, and whose that is: an append takes both from the row of the run that it guards.

    A foreign key would lock that row once more in each append.
    """
    run: Column[object] = Column("run_id", UUID(as_uuid=True), primary_key=key, nullable=False)
    return run, owner_column()
