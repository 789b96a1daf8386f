"""Compiling agents: their words, their closed list of tools, their limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from approvals.forms import check_form
from connectors.operation import Operation
from connectors.prices import has_price
from connectors.schema import check_keywords, validator_of
from core.errors import InputError
from runtime.definition.leaves import Entry, LeafCompiler, Path, named
from runtime.definition.model import AgentDocument, AskDocument, ToolDocument
from runtime.engine.agent_node import AgentNode, AgentTool, Given, Limits, Question, Remember
from runtime.engine.agent_state import CHAT
from runtime.engine.graph import ChildNode, OperationNode, TaskNode
from runtime.engine.tools import Tool, of_operation, of_people, of_workflow, problems


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
        turn = OperationNode(id=f"{entry.id}/", index=entry.index, needs=(), operation=CHAT, inputs=Given())
        return AgentNode(
            **self._common(entry),
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
        fixed = self.value(entry.scope, (*key, "with"), tool.with_)
        common: dict[str, Any] = {"id": f"{entry.id}/", "index": entry.index, "needs": ()}
        if tool.run is not None:
            offered = of_workflow(tool.run, "", None, fixed=tool.with_.keys(), name=tool.name)
            child = ChildNode(**common, **named(tool.run), inputs=Given(), timeout=None, abandons=False)
            return AgentTool(offered, child, fixed)
        operation = self._declared(tool.do or "", (*entry.scope.path, *key))
        if operation is None:
            return None
        offered = of_operation(operation, fixed=tool.with_.keys(), name=tool.name)
        leaf = OperationNode(**common, operation=operation.name, inputs=Given())
        return AgentTool(offered, leaf, fixed, operation)

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
