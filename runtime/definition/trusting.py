"""Check of a policy for trust in fields that anyone may write: whoever writes such a field can let an action out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from connectors.catalog import Catalog
from connectors.marks import Writer, writer_at
from core.documents import load_document
from core.validation import validate
from policy.model import PolicyDocument, Ruling

_FIELD = re.compile(r"""field:([a-z0-9_.]+)#([^'"\\]*)""")
_REMEDY = "Trust a field that only the system writes, or say in its declaration who writes it (`x-written-by`)."


def of_policy(text: str, file: str, catalog: Catalog) -> list[str]:
    """Warn of each rule that lets actions out and names such a field in its condition."""
    document = load_document(text, file)
    found = []
    for index, rule in enumerate(validate(document, PolicyDocument).rules):
        if rule.when is None or Ruling.ALLOW not in (rule.outcome, rule.otherwise):
            continue
        for label in _open_to_all(rule.when, catalog):
            message = f"rule {rule.id} lets an action out by {label}, which anyone may write outside."
            found.append(str(document.problem(("rules", index, "when"), message, _REMEDY)))
    return found


def _open_to_all(condition: str, catalog: Catalog) -> Iterator[str]:
    for label, name, pointer in dict.fromkeys((one[0], one[1], one[2]) for one in _FIELD.finditer(condition)):
        operation = catalog.operations.get(name)
        if operation is not None and writer_at(operation.output_schema, pointer) is Writer.ANYONE:
            yield label
