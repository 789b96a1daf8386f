"""Check of a policy for trust that an attacker can use.

A rule may trust a field that anyone may write, count words that merely occur in a request, or trace some arguments of
an operation and not the one that says on what it acts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from connectors.catalog import Catalog
from connectors.marks import Writer, writer_at
from core.documents import load_document
from core.validation import validate
from policy.model import PolicyDocument, Ruling

_FIELD = re.compile(r"""field:([a-z0-9_.]+)#([^'"\\]*)""")
_WEAK = re.compile(r"""['"](mentioned|spent)['"]""")
_PLACE = re.compile(r"\{([a-z0-9_]+)\}")
_DESIGNATED = "Count `requester`, which a value is only if the request designates it."
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
        for label in dict.fromkeys(_WEAK.findall(rule.when)):
            message = f"rule {rule.id} counts {label}, which one common word or a repeated call can have."
            found.append(str(document.problem(("rules", index, "when"), message, _DESIGNATED)))
        for operation, name in _untraced(rule.when, rule.match.operation, catalog):
            message = f"rule {rule.id} lets {operation} out, and nothing in it traces {name}, on which it acts."
            remedy = f"Let the rule also read `origin.{name}`, or `action.fields.{name}`."
            found.append(str(document.problem(("rules", index, "when"), message, remedy)))
    return found


def _untraced(condition: str, pattern: str | None, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """The operations that a rule about origins lets out, each with an argument of its target that it does not read."""
    if pattern is None or "origin." not in condition or "action.target" in condition:
        return
    for name, operation in sorted(catalog.operations.items()):
        if not operation.has_effect or not fnmatchcase(name, pattern):
            continue
        for argument in dict.fromkeys(_PLACE.findall(operation.target)):
            read = rf"(?:origin|action\.fields)\.{re.escape(argument)}\b"
            if argument in operation.arguments and not re.search(read, condition):
                yield name, argument


def _open_to_all(condition: str, catalog: Catalog) -> Iterator[str]:
    for label, name, pointer in dict.fromkeys((one[0], one[1], one[2]) for one in _FIELD.finditer(condition)):
        operation = catalog.operations.get(name)
        if operation is not None and writer_at(operation.output_schema, pointer) is Writer.ANYONE:
            yield label
