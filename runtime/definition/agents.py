"""Compiles agents: their texts, their closed list of tools, their limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from approvals.forms import check_form
from connectors.catalog import Catalog
from connectors.marks import Writer, writer_at
from connectors.operation import Operation
from connectors.prices import has_price
from connectors.schema import check_keywords, check_references, validator_of
from core.documents import load_document
from core.errors import InputError
from core.templates import Added, Languages
from core.validation import validate
from policy.model import PolicyDocument, Ruling
from runtime.definition.leaves import Entry, LeafCompiler, Path, named
from runtime.definition.model import AgentDocument, AskDocument, ToolDocument
from runtime.engine.model.agent_node import AgentNode, AgentTool, EscapedInput, Limits, ModelInput, Question, Remember
from runtime.engine.model.agent_state import CHAT
from runtime.engine.model.graph import ChildNode, OperationNode, TaskNode
from runtime.engine.model.tools import Tool, of_operation, of_people, of_workflow, problems


class AgentCompiler(LeafCompiler):
    """Compiles the agents of one document."""

    def _agent(self, entry: Entry) -> AgentNode | None:
        agent, scope = entry.step.agent, entry.scope
        assert agent is not None
        model = self._declared(CHAT, (*scope.path, "agent"))
        tools = dict(self._tools(entry, agent))
        for problem in problems([tool.tool for tool in tools.values()]):
            self.problem((*scope.path, "agent", "tools"), f"A tool of this agent: {problem}.")
        self._check(agent, (*scope.path, "agent"))
        if model is None:
            return None
        turn = OperationNode(id=f"{entry.id}/", index=entry.index, needs=(), operation=CHAT, inputs=ModelInput())
        return AgentNode(
            **self._common(entry, schema=agent.result),
            model=agent.model,
            instructions=self.template(scope, ("agent", "instructions"), agent.instructions),
            input=self.template(scope, ("agent", "input"), agent.input),
            turn=turn,
            tools={tool.tool.name: tool for tool in tools.values()},
            limits=Limits(**agent.limits.model_dump()),
            result=agent.result,
            fails_at_limit=agent.on_limit == "fail",
            fails_if_denied=agent.on_denied == "fail",
            timeout=entry.step.timeout,
            remember=None if agent.remember is None else Remember(**agent.remember.model_dump()),
        )

    def _check(self, agent: AgentDocument, path: Path) -> None:
        if agent.limits.cost is not None and not has_price(agent.model):
            words = f"The price of {agent.model!r} is not known, so its cost cannot be limited."
            self.problem((*path, "limits", "cost"), words, "Limit its tokens, or name a model with a known price.")
        if agent.result is not None:
            try:
                check_keywords(agent.result)
                check_references(agent.result)
                validator_of(agent.result)
            except ValueError as error:
                self.problem((*path, "result"), f"This is no JSON Schema that can be used: {error}")

    def _declared(self, name: str, path: Path) -> Operation | None:
        try:
            operation = self._catalog.get(name)
        except InputError as error:
            self.problem(path, error.message, error.remedy)
            return None
        self.operations[operation.name] = operation
        return operation

    def _tools(self, entry: Entry, agent: AgentDocument) -> Iterator[tuple[int, AgentTool]]:
        for number, given in enumerate(agent.tools):
            tool = ToolDocument.model_validate({"do": given}) if isinstance(given, str) else given
            compiled = self._tool(entry, tool, ("agent", "tools", number))
            if compiled is not None:
                yield number, compiled

    def _tool(self, entry: Entry, tool: ToolDocument, key: Path) -> AgentTool | None:
        if tool.ask is not None:
            return self._ask(entry, tool.ask, key)
        common: dict[str, Any] = {"id": f"{entry.id}/", "index": entry.index, "needs": ()}
        if tool.run is not None:
            fixed = self.value(entry.scope, (*key, "with"), tool.with_)
            offered = of_workflow(tool.run, "", None, fixed=tool.with_.keys(), name=tool.name)
            child = ChildNode(**common, **named(tool.run), inputs=ModelInput(), timeout=None, abandons=False)
            return AgentTool(offered, child, fixed)
        operation = self._declared(tool.do or "", (*entry.scope.path, *key))
        if operation is None:
            return None
        languages = self.languages(operation, entry.scope.path)
        fixed = self.value(entry.scope, (*key, "with"), tool.with_, languages)
        offered = of_operation(operation, fixed=tool.with_.keys(), name=tool.name)
        raw = self._raw(tool, languages, (*entry.scope.path, *key))
        leaf = OperationNode(
            **common, operation=operation.name, inputs=EscapedInput(languages, {*tool.with_, *raw}, fixed)
        )
        return AgentTool(offered, leaf, fixed, operation)

    def _raw(self, tool: ToolDocument, languages: Languages, path: Path) -> tuple[str, ...]:
        """The inputs that a model writes unescaped, in their own language; only a published workflow may allow that."""
        for number, name in enumerate(tool.raw):
            if not languages.within((name,)):
                words = f"{tool.do} has no input {name!r} with a language, so nothing in it is escaped."
                self.problem((*path, "raw", number), words, "Take it out.")
        return () if isinstance(languages, Added) else tool.raw

    def _ask(self, entry: Entry, ask: AskDocument, key: Path) -> AgentTool:
        for problem in check_form(ask.form):
            self.problem((*entry.scope.path, *key, "ask", "form", *problem.path), problem.message, problem.remedy)
        offered: Tool = of_people(ask.name, ask.title, ask.form)
        leaf = TaskNode(
            id=f"{entry.id}/",
            index=entry.index,
            needs=(),
            title=self.template(entry.scope, (*key, "ask", "title"), ask.title),
            description=Question(),
            form=ask.form,
            group=ask.assign.group,
            timeout=None,
        )
        return AgentTool(offered, leaf, self.value(entry.scope, (*key, "with"), {}))


_FIELD = re.compile(r"""field:([a-z0-9_.]+)#([^'"\\]*)""")
_WEAK = re.compile(r"""['"](mentioned|spent)['"]""")
_PLACE = re.compile(r"\{([a-z0-9_]+)\}")
_DESIGNATED = "Count `requester`, which a value is only if the request designates it."
_REMEDY = "Trust a field that only the system writes, or say in its declaration who writes it (`x-written-by`)."


def of_policy(text: str, file: str, catalog: Catalog) -> list[str]:
    """Warn about each rule that lets actions out by data that anyone may write, or by origins that prove too little."""
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
    """The operations that a rule about origins lets out without reading the origin of an argument in their target."""
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
