"""A leased step with everything that the engine needs to decide about it, and the action that it proposes. Pure."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from connectors.masking import borrowed
from connectors.operation import Operation
from connectors.parts import KeyScope
from connectors.proposal import as_given, build_action, idempotency_key
from core.action import Action
from core.canonical import JsonObject, unfit
from core.errors import ExpressionError
from evidence.receipts import ReceiptStatus
from policy.sets import PolicySet
from runtime.engine.book import edits
from runtime.engine.book.contributors import whole
from runtime.engine.book.instructions import Known, Nonce
from runtime.engine.book.plan import CHECKPOINT, variables
from runtime.engine.life.outside import own_token
from runtime.engine.life.transition import Transition
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.agent_state import GIVEN, Agent
from runtime.engine.model.graph import HANDED_OUT, Graph, Leaf, OperationNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import ReceiptRow, StepRow
from runtime.engine.model.run import Run
from runtime.engine.model.workflow import Workflow

_OWN = frozenset({HANDED_OUT, GIVEN})


class Leased(Struct, frozen=True):
    """A step under a lease: its transition, its workflow, the policies, and the known facts about the step.

    ``known`` are facts from earlier leases and from the target. ``nonce`` makes the secrets that cards and tokens need.
    """

    transition: Transition
    step: StepRow
    workflow: Workflow
    policy: PolicySet
    nonce: Nonce
    known: Known = field(default_factory=Known)

    def knowing(self, known: Known) -> Leased:
        """The same step, with these known facts."""
        return replace(self, known=known)

    def performs(self) -> Leaf:
        """The leaf of the graph that this step performs; for a turn or a call of an agent, that of the turn or tool."""
        key = StepKey.of(self.step.key)
        return self.transition.leaf(self.step.key) if key.is_inner else self.transition.graph.leaves[key.node]

    @property
    def is_doubtful(self) -> bool:
        """True if an earlier lease left an intent without an outcome."""
        receipt = self.known.receipt
        return receipt is not None and receipt.status in (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)

    def owns(self, receipt: ReceiptRow) -> bool:
        """True if the receipt is this step's own. Another step may have used a key of wider scope."""
        return receipt.run_id == self.transition.view.run_id and receipt.step_key == self.step.key

    def proposal(self, leaf: OperationNode) -> Proposal:
        """The step as one that proposes an action."""
        known = (self.transition, self.step, self.workflow, self.policy, self.nonce, self.known)
        return Proposal(*known, leaf=leaf, operation=self.workflow.operations[leaf.operation])


class Proposal(Leased, frozen=True, kw_only=True):
    """A leased step that proposes an action of an operation."""

    leaf: OperationNode
    operation: Operation

    @property
    def may_be_shared(self) -> bool:
        """True if another run or step may perform the same effect under the same key."""
        return self.operation.has_effect and self.operation.idempotency.scope is not KeyScope.STEP

    def action(self) -> Proposed:
        """Build the action from the step's inputs. ``CountersealError`` if one has no value or no canonical form."""
        run, graph = self.transition.run, self.transition.graph
        seen = variables(graph, run.state, self.transition.view.constants, self.step.key)
        seen[CHECKPOINT] = run.superstep
        if _OWN & self.leaf.inputs.references:
            seen |= own_values(run, graph, self.step, self.leaf)
        inputs = self.leaf.inputs.render(seen)
        assert isinstance(inputs, dict)
        if self.step.key in run.edits:
            inputs = edits.edited(self.operation, inputs, edits.of_step(run, self.step.key))
        if problem := unfit(inputs, "What `with` gives"):
            raise ExpressionError(problem)
        secret = self.operation.takes_secrets
        if problem := borrowed(self.operation, inputs, self.leaf.inputs.word) if secret else "":
            raise ExpressionError(problem)
        action = build_action(self.operation, inputs, self.known.before)
        system = self.transition.systems.get(self.operation.connector, "")
        if system or run.state.shaped or action.subjects:
            action = whole(run.state, graph, self.step.key, action, system)
        key, given = self._key(action), as_given(self.operation, inputs, action)
        earlier = key if given is action else self._key(given)
        return Proposed(action, key, None if earlier == key else earlier)

    def _key(self, action: Action) -> str:
        view, run = self.transition.view, self.transition.run
        return idempotency_key(
            self.operation,
            action,
            tenant=view.tenant_id,
            workflow=view.workflow,
            run=str(view.run_id),
            step=self.step.key,
            reference=run.reference,
        )


class Proposed(Struct, frozen=True):
    """An action with its idempotency key. ``earlier`` is the key of release 0.2.0, if that was another one.

    Release 0.2.0 derived the key from the input as given, and not from its canonical form (promise 2).
    """

    action: Action
    key: str
    earlier: str | None = None


def own_values(run: Run, graph: Graph, step: StepRow, leaf: OperationNode) -> JsonObject:
    """The values that only this step's input may read: its waiting token, and the input that a model gave."""
    read = leaf.inputs.references
    found: JsonObject = {HANDED_OUT: own_token(run, step)} if HANDED_OUT in read else {}
    return {**found, GIVEN: _given_to(run, graph, step.key)} if GIVEN in read else found


def _given_to(run: Run, graph: Graph, key: str) -> JsonObject:
    """The input of a call as its model gave it; for a turn the input as judged, with a digest of the messages."""
    parsed = StepKey.of(key)
    if not parsed.is_turn:
        return run.spoken[key].input or {}
    agent = run.state.agents[parsed.agent]
    words = f"The messages of {agent.turn - agent.first} turns before, SHA-256 {agent.digest}"
    return {**settings(agent_node(graph, key), agent), "messages": [{"role": "user", "content": words}]}


def agent_node(graph: Graph, key: str) -> AgentNode:
    """The agent to which a turn or a call belongs."""
    node = graph.leaf(StepKey.of(key).agent)
    assert isinstance(node, AgentNode), "only an agent has turns"
    return node


def settings(node: AgentNode, agent: Agent) -> JsonObject:
    """The model of an agent and the tools that the model is offered; no tools once the agent has reached a limit."""
    offered = [] if agent.limit else [tool.tool.offer() for tool in node.tools.values()]
    found: JsonObject = {"model": node.model}
    return {**found, "tools": [*offered]} if offered else found
