"""The comparison with other engines: what is said of each, and that nothing is said which was not measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.peers import reporting
from benchmarks.peers.engines import OURS, PEERS, UnknownEngineError, chosen
from benchmarks.peers.environments import HERE
from benchmarks.peers.results import AS_IS, SLOW, Cell, Comparison, Entry

RESTATE, ABSURD, LANGGRAPH, DBOS = PEERS
ABOUT = {
    "date": "2026-01-01",
    "machine": "a | machine",
    "processors": 2,
    "python": "3.11",
    "postgres": "18.4",
    "load_before": 0.5,
    "load_after": 1.5,
    "rounds": 3,
    "runs": 400,
    "latency_runs": 100,
    "in_flight": 50,
    "commit_delay_microseconds": 2000,
}


def rated(*runs_per_second: float) -> Cell:
    return Cell([{"runs_per_second": rate, "steps_per_second": 4 * rate} for rate in runs_per_second])


def compared() -> Comparison:
    ours = Entry(OURS, "1", "everything on", cells={(AS_IS, "w1"): rated(300, 330, 270), (SLOW, "w1"): rated(200)})
    restate = Entry(RESTATE, "2", "one server", cells={(AS_IS, "w1"): rated(100, 150, 200)})
    absurd = Entry(ABSURD, "3", "8 workers", cells={(AS_IS, "w1"): Cell([{"runs_per_second": 90.0}], "it broke")})
    return Comparison([ours, restate, absurd, Entry(LANGGRAPH, failure="could not be installed: no such thing")], ABOUT)


def row_of(found: Comparison, name: str, disk: str) -> dict[str, str]:
    (row,) = [row for row in reporting.rows(found) if row[:2] == (name, disk)]
    return {f"{place} {column}": cell for place, (column, cell) in enumerate(zip(reporting.COLUMNS, row, strict=True))}


def test_a_peer_is_held_against_our_median() -> None:
    row = row_of(compared(), "Restate", "as it is")
    assert row["2 W1 runs/s"] == "150 (100 to 200)"
    assert row["3 W1: ours / theirs"] == "2.00"
    assert row["7 W1 transactions/run"] == "none"


def test_a_slow_commit_says_nothing_of_an_engine_without_postgres() -> None:
    assert set(list(row_of(compared(), "Restate", "2 ms commit").values())[2:]) == {"not on PostgreSQL"}


def test_what_failed_in_one_round_has_no_figure_and_a_reason() -> None:
    found = compared()
    assert row_of(found, "Absurd", "as it is")["2 W1 runs/s"] == "failed"
    assert row_of(found, "Absurd", "as it is")["3 W1: ours / theirs"] == ""
    assert "Absurd, w1, disk as it is: failed: it broke." in reporting.notes(found)
    assert found.as_json()["engines"]["absurd"]["as_is"]["w1"] == {"failure": "it broke"}


def test_what_is_not_installed_says_why() -> None:
    found = compared()
    assert set(list(row_of(found, "LangGraph", "as it is").values())[2:]) == {"not installed"}
    assert "LangGraph: could not be installed: no such thing." in reporting.notes(found)


def test_the_json_has_every_round() -> None:
    engines = compared().as_json()["engines"]
    assert engines["counterseal"]["as_is"]["w1"]["runs_per_second"] == [300, 330, 270]
    assert engines["restate"]["slow_commit"]["w1"] == {}


def test_what_was_saved_makes_the_same_table_again(tmp_path: Path) -> None:
    reporting.save(compared(), tmp_path / "peers.json")
    again = reporting.read(tmp_path / "peers.json")
    assert reporting.markdown(again) == reporting.markdown(compared())


def test_the_table_takes_its_place_and_no_other(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"# Ours\n\n{reporting.BEGIN}\nold\n{reporting.END}\n\nThe end.\n", encoding="utf-8")
    reporting.write(compared(), document)
    once = document.read_text(encoding="utf-8")
    assert once.startswith("# Ours\n")
    assert once.endswith("\nThe end.\n")
    assert "| Restate | as it is | 150 (100 to 200) | 2.00 |" in once
    assert "\nold\n" not in once
    reporting.write(compared(), document)
    assert document.read_text(encoding="utf-8") == once


def test_a_document_that_is_not_there_is_begun(tmp_path: Path) -> None:
    reporting.write(compared(), tmp_path / "new.md")
    assert (
        (tmp_path / "new.md").read_text(encoding="utf-8").startswith(f"# Performance\n\n{reporting.BEGIN}\n| engine |")
    )


def test_a_document_without_the_markers_stays_as_it_is(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("# Ours\n", encoding="utf-8")
    with pytest.raises(reporting.MarkersMissingError, match="peers:begin"):
        reporting.write(compared(), document)
    assert document.read_text(encoding="utf-8") == "# Ours\n"


def test_peers_are_chosen_by_name() -> None:
    assert chosen(None) == PEERS
    assert chosen(["dbos", "restate"]) == (RESTATE, DBOS)
    with pytest.raises(UnknownEngineError, match=r"'temporal': no such engine. There are restate, absurd"):
        chosen(["dbos", "temporal"])


@pytest.mark.parametrize("key", [peer.key for peer in PEERS])
def test_every_peer_is_pinned_to_the_last_package(key: str) -> None:
    lines = (HERE / f"requirements-{key}.txt").read_text(encoding="ascii").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert any(pin.startswith("uvloop==") for pin in pins)
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []
