"""Pydantic AI: a capability under which every tool asks before it runs.

    agent = Agent(model, tools=tools, capabilities=[Governed()])

Each toolset is replaced, in its place, by one whose tools spend the permit on the arguments that they get: after every
hook, and after every toolset that is wrapped around it. Where the agent can end with ``DeferredToolRequests`` it pauses
while people are to decide; what it is resumed with is no yes: the tool asks again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import ApprovalRequired, RunContext, ToolFailed
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from counterseal_agents.errors import NotRun, Pending, Ungoverned, Unreported
from counterseal_agents.gate import Gate, Raised
from counterseal_agents.govern import call_of

# A run that can pause waits so long for a yes before it does.
WAIT = 3.0


@dataclass
class Governed(AbstractCapability[Any]):
    """Every tool of the agent asks. Tools that run at the model's provider are refused, unless named ``ungoverned``.

    ``pausing``: the agent's ``output_type`` has ``DeferredToolRequests``, so it pauses while people are to decide.
    """

    gate: Gate = field(default_factory=Gate)
    pausing: bool = False
    ungoverned: Collection[str] = ()
    harmless: Raised = ()

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: a gate is made by a program, not by a file."""
        return None

    def get_ordering(self) -> CapabilityOrdering:
        """Outermost: what other capabilities put around toolsets is there before ours is put inside."""
        return CapabilityOrdering(position="outermost")

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """The same toolsets, with ours around each that has tools, and around those that wrappers add."""
        return _Around(toolset.visit_and_replace(lambda own: _Asking(own, self)), self)

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Refuse to begin with a tool that nobody here sees run."""
        for tool in request_context.model_request_parameters.native_tools:
            if tool.kind not in self.ungoverned:
                raise Ungoverned(
                    f"The tool {tool.kind} runs at the model's provider, where nothing asks. Leave it out, or name it: "
                    f"Governed(ungoverned=[{tool.kind!r}])."
                )
        return request_context


@dataclass
class _Asking(WrapperToolset[Any]):
    """A toolset whose tools ask."""

    governed: Governed

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools, which say that they ask."""
        return {name: replace(tool, toolset=self) for name, tool in (await super().get_tools(ctx)).items()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run the tool, if there is a yes to these arguments."""
        if name in self.governed.ungoverned:
            return await super().call_tool(name, tool_args, ctx, tool)
        gate, pausing = self.governed.gate, self.governed.pausing
        if pausing:
            gate = gate.waiting(min(WAIT, gate.terms.wait))
        try:
            call, own = call_of(name, tool_args)
            return await gate.arun(call, lambda: self.wrapped.call_tool(name, own, ctx, tool), self.governed.harmless)
        except (NotRun, Unreported) as error:
            if pausing and isinstance(error, Pending):
                raise ApprovalRequired({"counterseal_action": error.action, "message": str(error)}) from error
            raise ToolFailed(str(error)) from error


@dataclass
class _Around(_Asking):
    """All toolsets. A tool that a wrapper has added asks here, the others further inside."""

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools as they are."""
        tools: dict[str, ToolsetTool[Any]] = await self.wrapped.get_tools(ctx)
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Leave the asking to the tool's own toolset, if that is one of ours."""
        if isinstance(tool.toolset, _Asking):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        return await super().call_tool(name, tool_args, ctx, tool)
