"""The table of `make bench`: what a figure says, how it is kept, and where it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.demo.view import View
from app.demo.world import World as Demo
from benchmarks import cold_start, figures, report, rivals
from benchmarks.__main__ import main
from benchmarks.curves import Curve, draw
from benchmarks.figures import Verdict
from benchmarks.parts import PARTS, UnknownPartError, chosen

ABOUT: dict[str, str | float] = {"date": "2026-01-02", "processors": 2.0}


def test_a_budget_is_kept_at_its_limit_and_not_beyond() -> None:
    assert figures.at_most("a", 8, 8, "ms").verdict is Verdict.WITHIN
    assert figures.at_most("a", 8, 8.01, "ms").verdict is Verdict.OVER
    assert figures.at_least("a", 0.9, 0.9, "of it").verdict is Verdict.WITHIN
    assert figures.at_least("a", 0.9, 0.89, "of it").verdict is Verdict.OVER


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    found = [
        figures.at_most("a", 2, 1.5, "ms", spread=figures.spread_of([1, 1.5, 1234]), runs=3),
        figures.unmeasured("b", "≥ 2"),
    ]
    figures.save(found, ABOUT, tmp_path / "new" / "latest.json")
    assert figures.read(tmp_path / "new" / "latest.json") == (found, ABOUT)
    assert found[0].spread == "1 to 1,234"


def test_the_table_goes_between_its_markers_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write([figures.at_most("a|b", 2, 1, "ms")], ABOUT, page)
    report.write([figures.at_most("a|b", 2, 1, "ms")], ABOUT, page)
    text = page.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n| what |")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text
    assert "| a\\|b | ≤ 2 ms | 1 ms |  | within |" in text
    assert "Measured on 2026-01-02, processors: 2." in text


def test_a_page_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"{report.END} {report.BEGIN}")
    with pytest.raises(report.MarkersMissingError, match="has no"):
        report.write([], ABOUT, page)
    assert page.read_text() == f"{report.END} {report.BEGIN}"


def test_a_page_that_is_not_there_is_begun(tmp_path: Path) -> None:
    report.write([], ABOUT, tmp_path / "new.md")
    assert report.BEGIN in (tmp_path / "new.md").read_text()


def test_parts_are_chosen_by_name() -> None:
    assert [part.name for part in chosen(["policy", "counted"])] == ["counted", "policy"]
    assert "scale" not in [part.name for part in chosen(None)]
    with pytest.raises(UnknownPartError, match=r"'nonsense', ''.*counted, run-size"):
        chosen(["nonsense", ""])


def test_nonsense_is_answered_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "nonsense"])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert all(part.name in said for part in PARTS)
    with pytest.raises(SystemExit):
        main(["--report", "--quick"])


def test_the_fastest_peer_sets_the_budget(tmp_path: Path) -> None:
    def engine(name: str, rates: list[float]) -> dict[str, object]:
        return {"name": name, "as_is": {"w1": {"runs_per_second": rates}, "w2": {"failure": "it fell over"}}}

    peers = tmp_path / "peers.json"
    engines = {
        "counterseal": engine("Ours", [900.0]),
        "a": engine("A", [100, 300, 200]),
        "b": engine("B", [150]),
        "c": engine("C", []),
    }
    peers.write_text(json.dumps({"about": {}, "engines": engines}))
    assert rivals.fastest("w1", peers) == rivals.Rival("A", 200)
    assert rivals.against("W1", 1.5, "w1", [299, 300, 301], "runs/s", peers).verdict is Verdict.WITHIN
    assert rivals.against("W1", 1.5, "w1", [299], "runs/s", peers).verdict is Verdict.OVER
    unknown = rivals.against("W2", 1.3, "w2", [1000], "steps/s", peers)
    assert (unknown.verdict, unknown.measured) == (Verdict.NOT_MEASURED, "1,000 steps/s")
    assert rivals.fastest("w1", tmp_path / "none.json") is None


def test_decisions_are_held_against_those_of_the_peer_that_wakes_fastest(tmp_path: Path) -> None:
    peers = tmp_path / "peers.json"
    latency = {"restate": [4.0, 5.0, 6.0], "dbos": [1.0]}
    engines = {key: {"name": key, "as_is": {"latency": {"p50_ms": found}}} for key, found in latency.items()}
    peers.write_text(json.dumps({"about": {}, "engines": engines}))
    found = rivals.as_quick("decision", 1.4, [7.0], peers)
    assert (found.verdict, found.budget, found.measured) == (Verdict.WITHIN, "≤ 1.4 times Restate's (5 ms)", "7 ms")
    assert rivals.as_quick("decision", 1.4, [7.1], peers).verdict is Verdict.OVER
    assert rivals.as_quick("decision", 1.4, [7.0], tmp_path / "none.json").verdict is Verdict.NOT_MEASURED


def test_a_curve_is_drawn_the_same_every_time(tmp_path: Path) -> None:
    curve = Curve("c", "Title", "steps", (10, 100), {"rows": {"one": [1, 2], "two": [2, 3]}, "ms": {"t": [1, 1]}}, True)
    first = draw(curve, tmp_path / "a").read_bytes()
    assert first == draw(curve, tmp_path / "b").read_bytes()
    assert b"Title" in first
    assert b"<svg" in first


def test_the_demo_says_where_its_slack_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The cold start is measured by it."""
    View(auto=True).introduce(Demo("http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", {}), [])
    found = cold_start.SLACK.search(capsys.readouterr().out)
    assert found is not None
    assert found.groups() == ("http://127.0.0.1:2", "C0OPS")
