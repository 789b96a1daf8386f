"""Published texts and evidence as the store reads them: what is there already, and what no run starts with."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from core.errors import ConsistencyError, NotFoundError
from evidence.bundle import DocumentText
from evidence.chain import Actor
from runtime.engine.told import Diverged
from runtime.store import bundles, documents, inbox, retention, unavailable
from runtime.store.documents import Edition, Past, PublishedVersion, StoredWorkflow
from tests.support.asked import Asked, Row
from tests.support.rows import uid

NOON, LATER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)
ANN = Actor("person", "ann")
NOTHING: Any = None


async def refused(asking: Any) -> str:
    with pytest.raises((NotFoundError, ConsistencyError)) as caught:
        await asking
    return str(caught.value)


STORED = StoredWorkflow("w", 4, "d", "text", {"o": {}})
ROW = Row(name="w", version=4, digest="d", source="text", operations={"o": {}})


def version(number: int, retired: bool = False) -> Row:
    return Row(name="w", version=number, digest="d", published_by="ann", published_at=NOON,
               retired_at=LATER if retired else None, operations=["a", "b"], connectors=["c"])  # fmt: skip


async def test_a_version_is_read_without_its_text() -> None:
    connection: Any = Asked([version(4, retired=True)])
    wanted = PublishedVersion("w", 4, "d", "ann", NOON, LATER, ("a", "b"), ("c",))
    assert await documents.workflow_versions(connection, "acme", "w") == [wanted]
    assert connection.told == [(documents._VERSIONS, "acme", "w")]


@pytest.mark.parametrize(
    ("wanted", "known", "said"),
    [
        (None, [version(3, True), version(2, True)],
         "Every version of workflow 'w' is retired, so no run starts with it. Publish a new version."),
        (3, [version(3, True), version(2), version(1)],
         "Workflow 'w' version 3 is retired, so no run starts with it. New runs can have: 2, 1."),
        (9, [version(3, True), version(2)],
         "There is no workflow 'w' version 9. Published: 3 (retired), 2."),
        (9, [version(3)], "There is no workflow 'w' version 9. Published: 3."),
        (1, [version(3, True)], "There is no workflow 'w' version 1. Published: 3 (retired)."),
        (3, [version(3, True)], "Workflow 'w' version 3 is retired, so no run starts with it. Publish a new version."),
        (99, [version(n) for n in range(12, 0, -1)],
         "There is no workflow 'w' version 99. Published: 12, 11, 10, 9, 8, 7, 6, 5, 4, 3."),
    ],
)  # fmt: skip
async def test_a_version_that_no_run_starts_with_is_told_with_those_that_it_may(
    wanted: int | None, known: list[Row], said: str
) -> None:
    connection: Any = Asked([], known)
    assert await refused(documents.startable_workflow(connection, "acme", "w", wanted)) == said
    assert connection.told == [(documents._NEWEST, "acme", "w", wanted), (documents._VERSIONS, "acme", "w")]
    there: Any = Asked([ROW, "another"][:1])
    assert await documents.startable_workflow(there, "acme", "w", wanted) == STORED


@pytest.mark.parametrize(
    ("known", "result"), [(None, True), (ROW, False), (Row(**{**dict(ROW.items()), "digest": "other"}), None)]
)
async def test_a_version_is_published_once_and_never_with_another_text(known: Row | None, result: bool | None) -> None:
    connection: Any = Asked(Row() if known is None else None, known)
    publishing = documents.publish_workflow(connection, "acme", STORED, "ann")
    if result is None:
        words = "w version 4 is published with another text, and versions never change."
        assert await refused(publishing) == f"{words} Give this text a new number, such as version: 5."
    else:
        assert await publishing is result
    values: Any = ("acme", "w", 4, "d", "text", {"o": {}}, "ann")
    assert connection.told[0] == (documents._PUBLISH_WORKFLOW, *values)
    assert connection.told[1:] == ([] if known is None else [(documents._BY_DIGEST, "acme", "w", 4)])


@pytest.mark.parametrize(("known", "stored", "result"), [
    (None, Row(), True), ("d", None, False), ("other", None, None), ("d", Row(), True),
])  # fmt: skip
async def test_a_policy_is_stored_once_and_never_with_another_text(
    known: str | None, stored: Row | None, result: bool | None
) -> None:
    policy: Any = SimpleNamespace(name="p", version=4, digest="d")
    connection: Any = Asked(known, stored)
    storing = documents.store_policy(connection, "acme", policy, " text\n", "ann")
    if result is None:
        words = "Policy p version 4 is published with another text, and versions never change."
        assert await refused(storing) == f"{words} Give this text a new number, such as version: 5."
        assert len(connection.told) == 1
    else:
        assert await storing is result
        assert connection.told[1] == (documents._PUBLISH_POLICY, "acme", "d", "p", 4, " text\n", "ann", None)
    assert connection.told[0] == (documents._SAME_POLICY_VERSION, "acme", "p", 4)


@pytest.mark.req("V-4")
async def test_who_proposed_a_text_is_told_since_one_was_put_in_force() -> None:
    def line(kind: str, digest: str, by: str) -> Row:
        return Row(type=kind, line=orjson.dumps({"data": {"digest": digest, "by": by}}))

    rows = [line("proposed", "e", "bob"), line("proposed", "d", "ann"), line("proposed", "f", "bob"),
            line("proposed", "d", "cat"), line("settled", "d", "dan"), line("proposed", "d", "eve")]  # fmt: skip
    connection: Any = Asked(rows)
    assert await documents.proposers(connection, "acme", "proposed", ("settled", "other"), "d") == ["ann", "cat"]
    assert connection.told == [(documents._PROPOSED, "acme", ["proposed", "settled", "other"])]


GONE = "The workflow 'w' is unavailable since the last start: no such step."
UNUSABLE = [Row(kind="workflow", name="w", place="w.yaml", reason="no such step."),
            Row(kind="workflow", name="w", place="more.yaml", reason="other")]  # fmt: skip


@pytest.mark.parametrize(
    ("known", "unusable", "named", "said"),
    [
        ([version(3, True), version(1)], None, None, None),
        ([], UNUSABLE, None, f"{GONE} Repair w.yaml and start anew, or publish it."),
        ([], [], ["ww", "v"], "There is no workflow 'w'. Did you mean 'ww'?"),
        ([], [], ["alpha", "beta"], "There is no workflow 'w'. Published: alpha, beta."),
        ([], [], [], "There is no workflow 'w'. Nothing is published: see `counterseal workflow publish`."),
    ],
)  # fmt: skip
async def test_a_workflow_that_is_not_there_is_unavailable_or_like_another(
    known: list[Row], unusable: Any, named: Any, said: str | None
) -> None:
    """Published workflows are never unavailable. The others' names include those whose versions are retired."""
    others = [Row(**{**dict(version(n + 1, retired=True).items()), "name": name}) for n, name in enumerate(named or ())]
    connection: Any = Asked(known, *([] if unusable is None else [unusable]), others)
    asking = documents.known_versions(connection, "acme", "w")
    if said is None:
        assert [(one.version, one.retired_at) for one in await asking] == [(3, LATER), (1, None)]
    else:
        assert await refused(asking) == said
    unavailable_ = (unavailable._LIST, "acme", "workflow", "w")
    assert connection.told == [
        (documents._VERSIONS, "acme", "w"), *([] if unusable is None else [unavailable_]),
        *([] if named is None else [(documents._VERSIONS, "acme", None)]),
    ]  # fmt: skip


@pytest.mark.parametrize(("wanted", "found"), [(3, 3), (1, 1), (2, None), (0, None), (4, None)])
def test_a_number_is_that_of_one_version(wanted: int, found: int | None) -> None:
    known: Any = [SimpleNamespace(name="w", version=3, retired_at=None), SimpleNamespace(version=1, retired_at=NOON)]
    if found:
        assert documents.of_number(known, wanted).version == found
    else:
        with pytest.raises(NotFoundError) as caught:
            documents.of_number(known, wanted)
        words = f"There is no workflow 'w' version {wanted}. Published: 3, 1 (retired)."
        assert str(caught.value) == words


async def test_past_policies_tell_which_of_them_judge() -> None:
    rows = [Row(name="p", version=n, digest=f"d{n}", active=n == 2) for n in (1, 2)]
    one, two = Edition("p", 1, "d1"), Edition("p", 2, "d2")
    past = await documents.past_policies(Asked(rows), "acme")  # type: ignore[arg-type]
    assert past == Past((one, two), (two,))
    assert (past.used("p"), past.used("q"), str(two)) == (two, None, "p version 2 (d2)")


async def test_a_policy_s_version_that_is_not_there_names_the_nearest() -> None:
    connection: Any = Asked(None, [Row(name="pay", version=2, digest="d", active=True)])
    assert await refused(documents.policy_of(connection, "acme", "pay", 3)) == (
        "There is no policy pay@3. Did you mean 'pay@2'?"
    )
    found: Any = Asked(Row(digest="d", source="text", published_by="ann"))
    assert await documents.policy_of(found, "acme", "pay", 2) == ("d", "text", "ann")
    assert found.told == [(documents._POLICY_OF, "acme", "pay", 2)]


# -- evidence --------------------------------------------------------------------------------------------------------


async def test_a_bundle_holds_the_texts_of_its_run_and_is_remembered_where_it_is() -> None:
    row = {"tenant_id": "acme", "workflow": "w", "workflow_version": 4}
    book: Any = SimpleNamespace(row=row, run_id=uid(1), head=SimpleNamespace(count=12))
    rows = [Row(name=name, version=2, source=f"text of {name}") for name in ("q", "p")]
    connection: Any = Asked("the text", rows)
    found = await bundles.texts(connection, book, iter(["d", "e"]))
    policies = (DocumentText("q", 2, "text of q"), DocumentText("p", 2, "text of p"))
    assert found == (DocumentText("w", 4, "the text"), policies)
    assert connection.told == [(bundles._SOURCE, "acme", "w", 4), (bundles._POLICIES, "acme", ["d", "e"])]
    bundle: Any = SimpleNamespace(name="b", sha256="sha", bytes=b"12345")
    for version in ("v", None):  # files have none
        stored: Any = SimpleNamespace(uri="u", version_id=version)
        connection = Asked()
        await bundles.remember(connection, book, bundle, stored, "k")
        assert connection.told == [(bundles._REMEMBER, uid(1), "acme", 12, "b", "u", version, "sha", 5, "k")]


async def test_times_of_a_wait_are_its_own() -> None:
    connection: Any = Asked(Row(created_at=NOON, due_at=None, now=LATER))
    assert await inbox.times_of(connection, uid(1)) == (NOON, None, LATER)


async def test_what_retention_left_is_read_with_its_types() -> None:
    steps = [
        {"step_id": str(uid(1)), "key": "2026-01-01", "finished_at": NOON.isoformat(), "attempt": 2, "error": None}
    ]
    receipts = [{"receipt_id": str(uid(2)), "run_id": str(uid(3)), "intended_at": LATER.isoformat(), "late": ["x"],
                 "external_id": "e-1", "idempotency_key": str(uid(5)), "settled_at": None}]  # fmt: skip
    extensions = [{"number": 1, "at": "2026-01-01", "extended_at": NOON.isoformat(), "run_id": str(uid(4))}]
    connection: Any = Asked(Row(steps=steps, receipts=receipts, extensions=extensions))
    assert await retention.remains(connection, uid(9)) == (
        [{"step_id": uid(1), "key": "2026-01-01", "finished_at": NOON, "attempt": 2, "error": None}],
        [{"receipt_id": uid(2), "run_id": uid(3), "intended_at": LATER, "late": ["x"], "external_id": "e-1",
          "idempotency_key": str(uid(5)), "settled_at": None}],
        [{"number": 1, "at": "2026-01-01", "extended_at": NOON, "run_id": uid(4)}],
    )  # fmt: skip
    assert connection.told == [(retention._REMAINS, uid(9))]
    nothing: Any = Asked(Row(steps=[], receipts=[], extensions=[]), None)
    assert await retention.remains(nothing, uid(9)) == ([], [], [])
    with pytest.raises(Diverged) as caught:
        await retention.remains(nothing, uid(9))
    assert caught.value.check == "remains"
    assert str(caught.value).startswith(f"The row that retention kept of the run {uid(9)} is missing")
