"""The job of Counterseal written by hand: what an engine's user adds for a policy, intents, an audit, votes and a file.

Each effect is one step of the engine: judge, intend, perform, settle. An engine may repeat a step after a crash. A
repeated effect finds its intent in PostgreSQL and ends as in doubt; other repeated steps find what they wrote.

Not here, and in Counterseal: values that can be disclosed singly, replay, retries and answers to a doubt, stop,
fairness, tenants, caps, changes of the policy, versions of workflows, cards.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict

import asyncpg
import orjson
from cel_expr_python import cel
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ruamel.yaml import YAML

from benchmarks.documents import GROUP, OPERATION, PERSON, policy
from benchmarks.peers.drivers.harness import ASK_AFTER

REQUIREMENTS = "asyncpg", "cel-expr-python", "cryptography"
CONFIGURATION = (
    "one CEL program of the 50 rules, intent and outcome rows, a hash chain and votes in PostgreSQL (asyncpg), a signed"
    " file at the end of each run; one journaled step an effect"
)
RULES = 50
CONNECTIONS = 16
CONNECTOR = OPERATION.partition(".")[0]
SCHEMA = """
CREATE TABLE effects (
    run text, step text, operation text NOT NULL, input jsonb NOT NULL, approval text, output jsonb,
    intended_at timestamptz NOT NULL DEFAULT now(), settled_at timestamptz, PRIMARY KEY (run, step)
);
CREATE TABLE audit (run text, seq int, line bytea NOT NULL, hash bytea NOT NULL, PRIMARY KEY (run, seq));
CREATE TABLE approvals (
    id text PRIMARY KEY, run text NOT NULL, step text NOT NULL, action text NOT NULL, approvers jsonb NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE votes (
    approval text REFERENCES approvals, person text, approves bool NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (approval, person)
);
CREATE TABLE members (grp text, person text, PRIMARY KEY (grp, person));
"""
_LINES = (
    "INSERT INTO audit (run, seq, line, hash) "
    "SELECT $1, seq, line, hash FROM unnest($2::int[], $3::bytea[], $4::bytea[]) AS new (seq, line, hash)"
)
_AND_LINES = "WITH lines AS (" + _LINES + ") "
_INTEND = _AND_LINES + "INSERT INTO effects (run, step, operation, input, approval) VALUES ($1, $5, $6, $7, $8)"
_SETTLE = _AND_LINES + "UPDATE effects SET output = $6, settled_at = now() WHERE run = $1 AND step = $5"
_ASK = _AND_LINES + "INSERT INTO approvals (run, step, id, action, approvers) VALUES ($1, $5, $6, $7, $8)"
_LAST = "SELECT seq + 1 AS count, encode(hash, 'hex') AS digest FROM audit WHERE run = $1 ORDER BY seq DESC LIMIT 1"
_BOOK = "SELECT line FROM audit WHERE run = $1 ORDER BY seq"
_VOTE = (
    "INSERT INTO votes (approval, person, approves) VALUES ($1, $2, $3) "
    "ON CONFLICT (approval, person) DO UPDATE SET approves = excluded.approves, at = now()"
)
_MEMBER = "INSERT INTO members (grp, person) VALUES ($1, $2)"
_VOTES = (
    "SELECT person, approves, grp FROM votes JOIN members USING (person) JOIN approvals ON id = approval "
    "WHERE approval = $1 AND action = $2"
)
_T = cel.Type
FACTS = {
    "action.operation": _T.STRING,
    "action.reversible": _T.BOOL,
    "action.changed": _T.List(_T.STRING),
    "action.present": _T.List(_T.STRING),
    "action.risk": _T.STRING,
    "action.target": _T.STRING,
    "action.side_effects": _T.STRING,
    "action.fields.priority": _T.STRING,
    "action.fields.state": _T.STRING,
    "action.fields.category": _T.STRING,
    "run.workflow": _T.STRING,
    "run.version": _T.INT,
    "run.trigger": _T.STRING,
    "run.requested_by": _T.STRING,
    "actor.kind": _T.STRING,
    "tenant.workspace": _T.STRING,
    "counters.writes_in_run": _T.INT,
}


class Head(TypedDict):
    """The end of a run's chain, which the engine journals. ``asked`` means that the effect waits for votes."""

    count: int
    digest: str
    asked: bool


class RefusedError(Exception):
    """The effect must not happen: denied, not approved, or in doubt since an earlier attempt."""


@dataclass(frozen=True, slots=True)
class Action:
    """A proposed effect: the step at ``place`` (from 0) of a run, and its input."""

    workflow: str
    number: int
    place: int

    @property
    def run(self) -> str:
        return f"{self.workflow}-{self.number}"

    @property
    def step(self) -> str:
        return f"effect_{self.place + 1}"

    @property
    def inputs(self) -> dict[str, str]:
        found = {"name": f"INC{self.number:07}", "category": f"c{self.place + 1}", "note": f"Effect {self.place + 1}"}
        return found | ({"priority": "urgent"} if self.workflow == "w1" and self.place == ASK_AFTER else {})

    @property
    def digest(self) -> str:
        return hashlib.sha256(_canonical([OPERATION, self.inputs])).hexdigest()

    def facts(self) -> dict[str, Any]:
        """The facts that the rules may read."""
        inputs = self.inputs
        fields = {f"action.fields.{name}": value for name, value in inputs.items()}
        return {name: value for name, value in fields.items() if name in FACTS} | {
            "action.operation": OPERATION,
            "action.reversible": False,
            "action.changed": list(inputs),
            "action.present": list(inputs),
            "action.risk": "medium",
            "action.target": f"record/{inputs['name']}",
            "action.side_effects": "external_call",
            "run.workflow": self.workflow,
            "run.version": 1,
            "run.trigger": "bench",
            "run.requested_by": "requester",
            "actor.kind": "workflow",
            "tenant.workspace": "main",
            "counters.writes_in_run": self.place,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The ruling of the policy on an action, and the rules that fired."""

    outcome: str
    rules: list[str]
    approvers: list[dict[str, Any]]


class Policy:
    """The rules that match the operation, compiled into one program that gives a list of booleans."""

    def __init__(self, text: str) -> None:
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        rules = YAML(typ="safe").load(text)["rules"]
        self._rules = [rule for rule in rules if self._matches(**rule["match"])]
        self._environment = cel.NewEnv(variables=FACTS)
        self._program = self._environment.compile(f"[{', '.join(rule['when'] for rule in self._rules)}]")

    @staticmethod
    def _matches(operation: str = "*", connector: str = "*") -> bool:
        return fnmatchcase(OPERATION, operation) and fnmatchcase(CONNECTOR, connector)

    def judge(self, facts: dict[str, Any]) -> Verdict:
        """Deny outranks approval, which outranks allow. No rule, or a rule that fails, denies."""
        result = self._program.eval(self._environment.Activation(facts))
        if result.type() in (_T.ERROR, _T.UNKNOWN):
            return Verdict("deny", [], [])
        fired = [rule for rule, holds in zip(self._rules, result.plain_value(), strict=True) if holds]
        outcomes = {rule["outcome"] for rule in fired} or {"deny"}
        outcome = next(one for one in ("deny", "needs_approval", "allow") if one in outcomes)
        approvers = [group for rule in fired for group in rule.get("approvers", ())]
        return Verdict(outcome, [rule["id"] for rule in fired], approvers)


class Governed:
    """The bookkeeping around the steps of an engine. With ``folder``, each run ends with a signed file in it."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], folder: Path | None, policy_text: str) -> None:
        self.policy = Policy(policy_text)
        self.key = Ed25519PrivateKey.generate()
        self._pool = pool
        self.folder = folder

    async def effect(
        self, action: Action, head: Head | None, perform: Callable[[], dict[str, int]], question: str, *, approved: bool
    ) -> Head:
        """Take one effect from the judgement to its outcome, or ask ``question``; ``approved`` has the votes counted.

        Raises RefusedError. A crash after the intent leaves the effect in doubt: the next attempt finds the intent.
        """
        verdict = self.policy.judge(action.facts())
        lines: list[Any] = [["decided", action.step, action.digest, self.policy.digest, action.facts(), verdict.rules]]
        if verdict.outcome == "deny":
            await self._once(_LINES, action.run, head, [*lines, ["denied", action.step]])
            raise RefusedError(f"{action.run}, {action.step}: denied by {verdict.rules}")
        if verdict.outcome == "needs_approval" and not approved:
            lines.append(["asked", action.step, question, verdict.approvers])
            asking = action.step, question, action.digest, orjson.dumps(verdict.approvers).decode()
            return {**await self._once(_ASK, action.run, head, lines, *asking), "asked": True}
        if verdict.outcome == "needs_approval":
            lines.append(["approved", question, await self._counted(action, question, verdict.approvers)])
        lines.append(["intended", action.step])
        intent = action.step, OPERATION, orjson.dumps(action.inputs).decode(), question if approved else None
        try:
            head = await self._append(_INTEND, action.run, head, lines, *intent)
        except asyncpg.UniqueViolationError:
            raise RefusedError(
                f"{action.run}, {action.step}: in doubt since an earlier attempt; ask a person"
            ) from None
        output = perform()
        settled = [["succeeded", action.step, output]]
        return await self._append(_SETTLE, action.run, head, settled, action.step, orjson.dumps(output).decode())

    async def close(self, run: str, head: Head | None) -> Head:
        """End the chain of a run and sign its file. A repeated call signs the same lines."""
        head = await self._once(_LINES, run, head, [["closed"]])
        if self.folder is not None:
            lines = [row["line"].decode() for row in await self._pool.fetch(_BOOK, run)]
            body = orjson.dumps({"run": run, "digest": head["digest"], "lines": lines})
            said = {"bundle": base64.b64encode(body).decode(), "signature": self.key.sign(body).hex()}
            (self.folder / f"{run}.json").write_bytes(orjson.dumps(said))
        return head

    async def vote(self, question: str, person: str = PERSON, *, approves: bool = True) -> None:
        """Record the vote of a person. It counts when the effect is taken up again."""
        await self._pool.execute(_VOTE, question, person, approves)

    async def _counted(self, action: Action, question: str, approvers: Sequence[dict[str, Any]]) -> list[str]:
        """The people who approved this very action. The message that woke the run is not trusted: the votes are."""
        votes = [vote for vote in await self._pool.fetch(_VOTES, question, action.digest) if vote["approves"]]
        groups = Counter(vote["grp"] for vote in votes)
        if not approvers or any(groups[each["group"]] < each["of"] for each in approvers):
            raise RefusedError(f"{action.run}, {action.step}: too few approvals of {question}")
        return sorted({vote["person"] for vote in votes})

    async def _once(self, statement: str, run: str, head: Head | None, events: list[Any], *values: str) -> Head:
        """Append, or find that an earlier attempt of this step did: then the chain ends where that one left it."""
        try:
            return await self._append(statement, run, head, events, *values)
        except asyncpg.UniqueViolationError:
            row = await self._pool.fetchrow(_LAST, run)
            assert row is not None
            return {"count": row["count"], "digest": row["digest"], "asked": False}

    async def _append(
        self, statement: str, run: str, head: Head | None, events: list[Any], *values: str | None
    ) -> Head:
        """Chain the events to the head by their hashes, in one statement with the row that they tell of."""
        first, digest = (head["count"], head["digest"]) if head is not None else (0, "")
        lines, hashes = [], []
        for seq, event in enumerate(events, start=first):
            line = _canonical({"run": run, "seq": seq, "previous": digest, "at": time.time(), "event": event})
            digest = (link := hashlib.sha256(line)).hexdigest()
            lines.append(line)
            hashes.append(link.digest())
        count = first + len(events)
        await self._pool.execute(statement, run, list(range(first, count)), lines, hashes, *values)
        return {"count": count, "digest": digest, "asked": False}


def _canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


async def _unchanged(_: object) -> None:
    """Give a connection back without a reset, which is one more exchange: no statement here changes its session."""


@asynccontextmanager
async def governed(url: str, *, signs: bool = True) -> AsyncIterator[Governed]:
    """Create the tables in an empty database, with one voter. ``signs`` has each run end with a signed file."""
    with TemporaryDirectory(prefix="governed-") as folder:
        async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS, reset=_unchanged) as pool:
            await pool.execute(SCHEMA)
            await pool.execute(_MEMBER, GROUP, PERSON)
            yield Governed(pool, Path(folder) if signs else None, policy(RULES))
