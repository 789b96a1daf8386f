"""The examples that come with this release, and a folder of one's own that begins with them."""

from __future__ import annotations

import shutil
from pathlib import Path

from core.errors import InputError
from runtime.definition.schemas import SchemaName, schema_text

_HERE = Path(__file__).resolve().parent
# The examples in a new folder. Their other files are looked up when they are needed.
_BEGIN = ("directory.yaml", "workflows/incident-triage.yaml", "policies/it-operations.yaml")
_SETTINGS = """\
# The settings of this folder; `set -a; . ./counterseal.env; set +a` makes them those of your shell.
# `counterseal doctor` says what is missing. Without COUNTERSEAL_DATABASE_URL it runs a PostgreSQL of its own.
#COUNTERSEAL_SLACK_BOT_TOKEN=xoxb-...
#COUNTERSEAL_SLACK_SIGNING_SECRET=...
#COUNTERSEAL_SLACK_CHANNEL=C0123456789
#COUNTERSEAL_SERVICENOW_URL=https://example.service-now.com
#COUNTERSEAL_SERVICENOW_USERNAME=counterseal.integration
#COUNTERSEAL_SERVICENOW_PASSWORD=...
#COUNTERSEAL_WEBHOOKS={"incidents": {"secret": "at least 32 characters, drawn at random"}}
"""


def examples() -> Path:
    """The folder of the examples: in an installed release beside this module, in a clone at its top."""
    packaged = _HERE / "examples"
    return packaged if packaged.is_dir() else _HERE.parent / "examples"


def begin(folder: Path) -> list[Path]:
    """Write a workflow, its policy, a directory, the schemas and a file of settings into a new or empty folder.

    Returns what was written. ``InputError`` if something is there already: nothing is overwritten. A crash leaves a
    part of the files; remove the folder, and begin again.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder.", remedy="Name a new one: nothing is overwritten.")
    written = []
    for name in _BEGIN:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(examples() / name, folder / name)
        written.append(folder / name)
    (folder / "schemas").mkdir()
    for schema in SchemaName:
        written.append(folder / "schemas" / f"{schema}.schema.json")
        written[-1].write_text(schema_text(schema), encoding="utf-8")
    written.append(folder / "counterseal.env")
    written[-1].touch(mode=0o600)  # secrets will stand in it
    written[-1].write_text(_SETTINGS, encoding="utf-8")
    return written
