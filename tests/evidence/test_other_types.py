"""Values of other types: what Python holds equal is told apart, and no shape of a signed file breaks the verifier."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from core.canonical import canonical_bytes
from evidence.bundle import DocumentText
from evidence.chain import EventType
from evidence.verify import verify_unsigned
from tests.support.evidence_every_member import canceled, full, said, verified
from tests.support.second_format import BundleContent, assemble

pytestmark = pytest.mark.req("Q-21", "U-7")


def lookalikes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the value with one part replaced by what Python holds equal to it, or empty as well, with its place."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        for place, changed in lookalikes(part):
            other = value.copy()
            other[name] = changed
            yield f"{name}.{place}", other
    for other in (True, False, 1, 0, None, "", [], {}):
        if (value == other or not (value or other)) and type(value) is not type(other):
            yield repr(other), other


def contents(workshop: Any) -> tuple[BundleContent, BundleContent]:
    """A run that succeeded, whose bundle lists no attempts, and one that was canceled, whose bundle does."""
    return full(workshop).content(), canceled(workshop)


def test_a_value_that_only_looks_like_the_one_of_the_events_is_refused(workshop: Any) -> None:
    """Outputs and the last state are bound by the signature alone."""
    for content in contents(workshop):
        one = assemble(content, workshop.signer.public_key)
        files, statement, tried = dict(one.files), json.loads(one.statement), 0
        for name in sorted(name for name in files if name.endswith(".json")):
            for place, changed in lookalikes(json.loads(files[name])):
                tried += 1
                failed = verified({**files, name: json.dumps(changed).encode()}, statement)
                alone = (name, place.partition(".")[0]) in (("run.json", "outputs"), ("run.json", "state"))
                assert bool(failed) is not alone, (name, place, failed)
        for place, changed in lookalikes(statement):
            assert said(verify_unsigned(files, canonical_bytes(changed))), place
        assert tried > 40


SHAPES: tuple[Any, ...] = (5, "x", [5], [["x"]], [{}], {"x": 5})
# The signature alone binds these; the events of this story do not tell the workspace.
UNBOUND = {("run.json", name) for name in ("outputs", "state", "workspace")}


def test_no_shape_of_a_file_or_of_a_member_breaks_the_verifier(workshop: Any) -> None:
    one = assemble(canceled(workshop), workshop.signer.public_key)
    files, statement = dict(one.files), json.loads(one.statement)
    for name in sorted(name for name in files if name.endswith(".json")):
        was = json.loads(files[name])
        for shape in (None, True, "", [], {}, *SHAPES):
            if shape != was:
                assert verified({**files, name: json.dumps(shape).encode()}, statement), (name, shape)
        for member in was if isinstance(was, dict) else range(len(was)):
            for shape in SHAPES[2:]:
                changed = was.copy()
                changed[member] = shape
                failed = verified({**files, name: json.dumps(changed).encode()}, statement)
                assert bool(failed) is not ((name, member) in UNBOUND), (name, member, shape)


LISTED: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "its own": (lambda own: own, False),
    "in another order": (lambda own: own[::-1], False),
    "digests alone": (lambda own: [{"digest": each["digest"]} for each in own], False),
    "the first": (lambda own: own[:1], True),
    "the second": (lambda own: own[1:], True),
    "none": (lambda own: [], True),
    "null": (lambda own: None, True),
    "one": (lambda own: {"digest": own[0]["digest"]}, True),
    "a digest": (lambda own: own[0]["digest"], True),
    "a number": (lambda own: 5, True),
    "true": (lambda own: True, True),
    "digests": (lambda own: [each["digest"] for each in own], True),
    "another": (lambda own: [*own, {"name": "more", "version": 1, "digest": "0" * 64}], True),
    "no digest": (lambda own: [*own, {"name": "more", "version": 1}], True),
    "null as digest": (lambda own: [*own, {**own[0], "digest": None}], True),
    "empty digest": (lambda own: [*own, {**own[0], "digest": ""}], True),
    "nothing of it": (lambda own: [*own, {}], True),
    "a list as digest": (lambda own: [*own, {**own[0], "digest": []}], True),
    "what is no policy": (lambda own: [*own, "policy"], True),
    "a null beside them": (lambda own: [*own, None], True),
}


@pytest.mark.parametrize(("listed", "refused"), LISTED.values(), ids=LISTED)
def test_the_signed_policies_are_those_of_the_events_each_with_its_digest(
    workshop: Any, listed: Callable[[Any], Any], refused: bool
) -> None:
    story = full(workshop)
    second = DocumentText("more", 2, "policy: more\n")
    at = next(at for at, event in enumerate(story.events) if event.type is EventType.DECISION_MADE)
    data = story.events[at].data
    story.events[at] = replace(story.events[at], data={**data, "policies": [*data["policies"], story.named(second)]})
    content = story.content()
    one = assemble(replace(content, policies=(*content.policies, second)), workshop.signer.public_key)
    statement = json.loads(one.statement)
    assert len(statement["predicate"]["policies"]) == 2
    predicate = {**statement["predicate"], "policies": listed(statement["predicate"]["policies"])}
    failed = said(verify_unsigned(one.files, canonical_bytes({**statement, "predicate": predicate})))
    problem = "statement: statement: the policies differ between the signed statement and the events"
    assert failed[:1] == [problem] * refused
