"""Reads the texts of a bundle as the runtime does, for ``evidence verify``."""

from __future__ import annotations

from core.canonical import Json, JsonObject
from core.documents import load_document
from core.errors import CountersealError, InputError
from runtime.definition.canonical import steps_of
from runtime.definition.workflow import load_workflow, thaw_operations


class Texts:
    """Compiles a workflow by the declarations that its bundle holds, and reads policies."""

    def steps(self, text: str, definition: JsonObject) -> JsonObject:
        """See ``evidence.judged.Compiler``."""
        operations = definition.get("operations")
        try:
            catalog = thaw_operations(operations if isinstance(operations, dict) else {}, "definition.json")
            return steps_of(load_workflow(text, "workflow", catalog).graph)
        except CountersealError as error:
            raise InputError(f"the workflow's text does not compile: {error}") from None

    def document(self, text: str) -> Json:
        """See ``evidence.judged.Compiler``."""
        try:
            return load_document(text, "policy").value
        except CountersealError as error:
            raise InputError(f"a policy cannot be read: {error}") from None
