"""The two halves of the hook: before a tool it asks and fetches the permit, after it it reports what ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from counterseal_agents import contract
from counterseal_agents.canonical import Json, as_json, canonical
from counterseal_agents.contract import Call, Flow, Permit, Terms, Unreachable
from counterseal_agents.errors import NotRun
from counterseal_agents.hook import events, hosted
from counterseal_agents.hook.connection import Server, drive
from counterseal_agents.hook.events import AFTER, BEFORE, Event, HookAnswer
from counterseal_agents.hook.permits import Place, Unkept, place


@dataclass(frozen=True)
class Setup:
    """The way a hook is set up: for which program, and what it leaves alone."""

    host: str
    folder: Path
    environment: Mapping[str, str]
    terms: Terms
    ungoverned: frozenset[str]
    harmless: frozenset[str]
    outputs: bool


def decide(setup: Setup, server: Server, event: Event) -> HookAnswer:
    """The answer to an event."""
    return drive(server, decided(setup, event))


def decided(setup: Setup, event: Event) -> Flow[HookAnswer]:
    """The answer to an event, as a flow for any driver."""
    if event.tool in setup.ungoverned:
        return events.nothing()
    where = place(setup.folder, setup.host, event.session, event.use)
    return (yield from (_before if event.name == BEFORE else _after)(setup, event, where))


def _before(setup: Setup, event: Event, where: Place) -> Flow[HookAnswer]:
    """The decision. A crash after the fetch leaves the action to its lease: nothing ran, and it is in doubt."""
    if tool := hosted.unseen(setup.host, setup.environment, setup.ungoverned):
        return events.no(
            setup.host, f"{event.tool} was not run: {tool} runs at the model's provider, where nothing asks. Switch it "
            f'off ({tool} = "disabled"), or set the hook up with --ungoverned {tool}.',
        )  # fmt: skip
    terms = replace(setup.terms, session=event.session)
    try:
        where.reserve()
        try:
            permit = yield from contract.obtain(Call(event.tool, event.arguments), terms)
        except NotRun as refusal:
            where.forget()
            return events.no(setup.host, str(refusal))
        if permit.over:
            yield from _report(setup, permit, "not_run", None, "The lease had ended before the tool began.")
            return events.no(setup.host, f"{event.tool} was not run: its permit came too late. Try again later.")
        where.keep(permit)
    except Unkept as problem:
        return events.no(setup.host, f"{event.tool} was not run: {problem}.")
    return events.yes(setup.host, permit.action)


def _after(setup: Setup, event: Event, where: Place) -> Flow[HookAnswer]:
    """The report. A crash before it leaves the action to its lease: it ran, and it is in doubt."""
    permit = where.kept()
    if permit is None:
        return events.trouble(
            f"{event.tool} has run, and this hook has no permit for that: it ran without a yes of Counterseal, or its "
            "permit was lost. Stop, and tell the people who are responsible for this agent."
        )
    outcome = "succeeded" if event.name == AFTER else "unknown"
    if event.name != AFTER and event.tool in setup.harmless and not event.interrupted:
        outcome = "failed"
    output, detail = _answer_sent(event, setup.outputs)
    try:
        ran = replace(permit, call=Call(event.tool, event.arguments))
    except NotRun:
        ran, outcome, detail = permit, "unknown", "It ran with an input that has no canonical form."
    try:
        yield from _report(setup, ran, outcome, output, detail)
    except Unreachable as problem:
        return events.trouble(
            f"{event.tool} has run, and what became of it could not be reported: {problem} (action {permit.action}). "
            "Do not repeat it: people find out what was done."
        )
    where.forget()
    if ran.call.digest != permit.call.digest:
        return events.trouble(
            f"{event.tool} has run with another input than was let out (action {permit.action}). Do not repeat it: "
            "people find out what was done."
        )
    return events.nothing()


def _report(setup: Setup, permit: Permit, outcome: str, output: Json, detail: str) -> Flow[None]:
    return contract.report(permit, outcome, setup.terms.timeout, setup.terms.pause, output, detail)


def _answer_sent(event: Event, outputs: bool) -> tuple[Json, str]:
    """The part of the tool's answer that is sent: an error's words alone, unless the hook is set up with --outputs."""
    if event.name != AFTER:
        return None, event.error
    if not outputs:
        return None, "What it gave back is not sent."
    try:
        output = as_json(event.response)
        if len(canonical(output)) <= contract.OUTPUT_BYTES_MAX:
            return output, ""
    except ValueError:
        return None, "Its result has no canonical form and is not shown."
    return None, "Its result is too large to be shown."
