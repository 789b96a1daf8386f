"""Documents: their content, the place of each part, and what is wrong with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from core.canonical import DEPTH_MAX
from core.documents import load_document
from core.durations import Duration, format_duration, parse_duration
from core.errors import DefinitionError, InputError
from core.validation import validate


class TestReading:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("a: yes\nb: no\nc: on\nd: off\non: y", {"a": "yes", "b": "no", "c": "on", "d": "off", "on": "y"}),
            ("a: true\nb: False\nc: null\nd: ~\ne:", {"a": True, "b": False, "c": None, "d": None, "e": None}),
            ("[0, -1, +3, 0o17, 0x1F, 010, 1_000, 1:30]", [0, -1, 3, 15, 31, 10, "1_000", "1:30"]),
            ("[1.5, -.5, 1e3, 1., '1', \"2\", 1.2.3]", [1.5, -0.5, 1000.0, 1.0, "1", "2", "1.2.3"]),
            (
                "[2026-11-21, 2026-11-21T09:00:00Z, P1D, =, 1kg]",
                ["2026-11-21", "2026-11-21T09:00:00Z", "P1D", "=", "1kg"],
            ),
            ("a: |\n  x\n  y\nb: >-\n  x\n  y\nc: >\n  x\n\n  y\n", {"a": "x\ny\n", "b": "x y", "c": "x\ny\n"}),
            ("a: &x {b: [1]}\nc: *x", {"a": {"b": [1]}, "c": {"b": [1]}}),
            ("a: '${{ x }}' # comment", {"a": "${{ x }}"}),
            ("text", "text"),
            ("[! 5, ! true, ! null, ! '7']", ["5", "true", "null", "7"]),
            ("%YAML 1.2\n---\na: é😀\n...\n", {"a": "é😀"}),
        ],
    )
    def test_values(self, text: str, value: object) -> None:
        assert load_document(text, "x.yaml").value == value

    @pytest.mark.parametrize(
        ("text", "place", "message"),
        [
            ("", (1, 1), "the document is empty"),
            ("# nothing", (1, 1), "the document is empty"),
            ("a: 1\nb: 2\na: 3", (3, 1), "'a' is here twice, first in line 1"),
            ("a: [1, 2", (1, 9), "not YAML"),
            ("\ta: b", (1, 1), "not YAML"),
            ("a: b: c", (1, 5), "not YAML"),
            ("a: 1\n---\nb: 2", (2, 1), "a second document"),
            ("a: !!set {b}", (1, 4), "the tag .* is not accepted"),
            ("a: !secret b", (1, 4), "the tag !secret is not accepted"),
            ("a: !!python/object/apply:os.system [ls]", (1, 4), "is not accepted"),
            ("&a [*a]", (1, 5), r"\*a has no anchor before it"),
            ("a: &x 1\n<<: *x", (2, 1), "merge keys"),
            ("1: a", (1, 1), "not a string. Quote it"),
            ("[a]: b", (1, 1), "not a string"),
            ("true: b", (1, 1), "not a string"),
            ("a: .nan", (1, 4), "not a number that JSON can hold"),
            ("a: -.inf", (1, 4), "not a number that JSON can hold"),
            ("a: 1e999", (1, 4), "too large"),
            ("a: 9007199254740993", (1, 4), "beyond 2\\^53"),
            ("a: -9007199254740992", (1, 4), "beyond 2\\^53"),
            ("a: -1e999", (1, 4), "too large"),
            ("a: 0x20000000000000", (1, 4), "beyond 2\\^53"),
            ("a: " + "9" * 10_000, (1, 4), "beyond 2\\^53"),
            ('a: "\\0"', (1, 4), "cannot be stored"),
            ('a: "\\ud800"', (1, 4), "cannot be stored"),
            ("a: \x07", (1, 1), "not YAML"),
            ("%YAML 1.1\n---\na: b", (2, 1), "not YAML 1.2"),
            ("[" * 40 + "]" * 40, (1, 34), "nested deeper than 32"),
            ("- " * 5_000 + "a", (1, 67), "nested deeper than 32"),
            ("a: " + "x" * 300_000, (1, 1), "at most 262144 are accepted"),
        ],
    )
    def test_what_is_not_accepted(self, text: str, place: tuple[int, int], message: str) -> None:
        with pytest.raises(DefinitionError, match=message) as caught:
            load_document(text, "x.yaml")
        (problem,) = caught.value.problems
        assert (problem.file, problem.line, problem.column) == ("x.yaml", *place)

    def test_an_alias_is_the_last_value_of_its_name_before_it(self) -> None:
        text = "a: &x 1\nb: *x\nc: &x {n: 2}\nd: *x\ne: &y [*x, &x 3, *x]\nf: [*x, *y]\n"
        two: Any = {"n": 2}
        inner: Any = [two, 3, 3]
        value = load_document(text, "f").value
        assert value == {"a": 1, "b": 1, "c": two, "d": two, "e": inner, "f": [3, inner]}

    def test_aliases_cannot_multiply_without_bound(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
        with pytest.raises(DefinitionError, match="more than 20000 values, aliases included"):
            load_document("\n".join(lines), "bomb.yaml")

    def test_aliases_cannot_nest_too_deep(self) -> None:
        lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, DEPTH_MAX + 2))]
        with pytest.raises(DefinitionError, match="nested deeper"):
            load_document("\n".join(lines), "deep.yaml")

    def test_aliases_nest_as_deep_as_lists_that_are_written_out(self) -> None:
        """The scalar stands two levels below the root in the first line, and one more in each that follows."""
        for more, fits in ((DEPTH_MAX - 2, True), (DEPTH_MAX - 1, False)):
            lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, more + 1))]
            if fits:
                assert load_document("\n".join(lines), "deep.yaml").value
                assert load_document(f"a: {'[' * (more + 1)}x{']' * (more + 1)}", "deep.yaml").value
                continue
            with pytest.raises(DefinitionError) as caught:
                load_document("\n".join(lines), "deep.yaml")
            assert str(caught.value).endswith(f": is nested deeper than {DEPTH_MAX} levels.")
            with pytest.raises(DefinitionError, match="nested deeper"):
                load_document(f"a: {'[' * (more + 1)}x{']' * (more + 1)}", "deep.yaml")

    def test_positions(self) -> None:
        document = load_document("steps:\n  - id: a\n    with:\n      x: [1, 22]\n  - id: b\n", "x.yaml")
        assert document.position(()) == (1, 1)
        assert document.position(("steps",)) == (1, 1)
        assert document.position(("steps", 0)) == (2, 5)
        assert document.position(("steps", 0, "with", "x")) == (4, 7)
        assert document.position(("steps", 0, "with", "x", 1)) == (4, 14)
        assert document.position(("steps", 1, "nope", "deeper")) == (5, 5)
        assert str(document.problem(("steps", 1, "id"), "is bad.", "Be good.")) == "x.yaml:5:5: is bad. Be good."

    @settings(max_examples=150, deadline=None)
    @given(text=st.text(alphabet=st.sampled_from("ab:- \n[]{}&*!|>'\"#%,?1.\t\\"), max_size=40))
    def test_no_text_is_a_surprise(self, text: str) -> None:
        try:
            load_document(text, "x.yaml")
        except DefinitionError as error:
            problems = error.problems
        else:
            return
        assert all(problem.line >= 1 and problem.column >= 1 for problem in problems)


BAD_DURATION = "'1h' is not an ISO 8601 duration. Write PT30M, PT8H or P14D."


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Do(Strict):
    id: str
    do: str
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    kind: Literal["sync", "durable"] = "sync"
    timeout: Duration | None = None


class Each(Strict):
    foreach: str
    steps: list[Step]


def _which(value: Any) -> str | None:
    return next((key for key in ("do", "foreach") if isinstance(value, dict) and key in value), None)


Step = Annotated[Annotated[Do, Tag("do")] | Annotated[Each, Tag("foreach")], Discriminator(_which)]


class Flow(Strict):
    workflow: str
    version: int
    ratio: float = 1.0
    steps: list[Step]
    labels: dict[Annotated[str, Field(max_length=3)], int] = Field(default_factory=dict)


class TestValidation:
    def check(self, text: str) -> list[str]:
        with pytest.raises(DefinitionError) as caught:
            validate(load_document(text, "f.yaml"), Flow)
        return [str(problem) for problem in caught.value.problems]

    def test_a_good_document(self) -> None:
        text = "workflow: w\nversion: 1\nratio: 2\nsteps: [{id: a, do: x, with: {y: 1}, timeout: PT5M}]"
        flow = validate(load_document(text, "f.yaml"), Flow)
        assert isinstance(flow.steps[0], Do)
        assert flow.steps[0].timeout == timedelta(minutes=5)
        assert flow.steps[0].with_ == {"y": 1}

    @pytest.mark.parametrize(
        ("steps", "problems"),
        [
            ("  - {id: a, do: x, wiht: {}}", ["f.yaml:4:20: steps[0]: unknown key 'wiht'. Did you mean 'with'?"]),
            (
                "  - {id: a, do: x, zzz: 1}",
                ["f.yaml:4:20: steps[0]: unknown key 'zzz'. Known keys: do, id, kind, timeout, with."],
            ),
            ("  - do: x", ["f.yaml:4:5: steps[0]: the key 'id' is missing."]),
            ("  - {id: a, do: 5}", ["f.yaml:4:13: steps[0].do: input should be a valid string."]),
            (
                "  - {id: a, do: x, kind: async}",
                ['f.yaml:4:20: steps[0].kind: "async" is not accepted. One of sync, durable.'],
            ),
            (
                "  - foreach: x\n    steps:\n      - {id: a, do: x, timeout: 1h}",
                [f"f.yaml:6:24: steps[0].steps[0].timeout: {BAD_DURATION}"],
            ),
            (
                "  - foreach: x\n    steps:\n      - {do: x, foreech: y}",
                [
                    "f.yaml:6:9: steps[0].steps[0]: the key 'id' is missing.",
                    "f.yaml:6:17: steps[0].steps[0]: unknown key 'foreech'. Known keys: do, id, kind, timeout, with.",
                ],
            ),
            ("  - {id: a}", ["f.yaml:4:5: steps[0]: it cannot be told what this is. One of do, foreach."]),
            ("  - 5", ["f.yaml:4:5: steps[0]: it cannot be told what this is. One of do, foreach."]),
            (
                "  - {id: a, do: x}\nlabels: {long: 1}",
                ["f.yaml:5:10: labels.long: string should have at most 3 characters."],
            ),
        ],
    )
    def test_problems_name_place_and_remedy(self, steps: str, problems: list[str]) -> None:
        assert self.check(f"workflow: w\nversion: 1\nsteps:\n{steps}") == problems

    def test_all_problems_at_once_and_no_conversions(self) -> None:
        assert self.check("workflow: 1\nversion: '2'\nstps: []") == [
            "f.yaml:1:1: the key 'steps' is missing.",
            "f.yaml:1:1: workflow: input should be a valid string.",
            "f.yaml:2:1: version: input should be a valid integer.",
            "f.yaml:3:1: unknown key 'stps'. Did you mean 'steps'?",
        ]
        assert self.check("workflow: w\nversion: true\nsteps: []") == [
            "f.yaml:2:1: version: input should be a valid integer."
        ]


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "duration"),
        [
            ("PT8H", timedelta(hours=8)),
            ("P14D", timedelta(days=14)),
            ("P2W", timedelta(weeks=2)),
            ("P1DT12H30M", timedelta(days=1, hours=12, minutes=30)),
            ("PT1.5S", timedelta(seconds=1.5)),
            ("PT90M", timedelta(minutes=90)),
        ],
    )
    def test_reading(self, text: str, duration: timedelta) -> None:
        assert parse_duration(text) == duration

    @pytest.mark.parametrize(
        "text",
        ["", "P", "PT", "P1DT", "8h", "P1Y", "P1M", "PT0S", "-PT1H", "PT1H ", "PT1H\n", "P1.5D", "pt1h", "PT٣H",
         "P9999999W", "PT" + "9" * 400 + "H"],
    )  # fmt: skip
    def test_what_is_refused(self, text: str) -> None:
        with pytest.raises(InputError):
            parse_duration(text)

    @given(seconds=st.integers(1, 3_600 * 24 * 3_000), microseconds=st.integers(0, 999_999))
    def test_what_is_written_reads_the_same(self, seconds: int, microseconds: int) -> None:
        duration = timedelta(seconds=seconds, microseconds=microseconds)
        assert abs(parse_duration(format_duration(duration)) - duration) <= timedelta(microseconds=1)

    @pytest.mark.parametrize(
        ("duration", "text"),
        [
            (timedelta(0), "PT0S"),
            (timedelta(days=1), "P1D"),
            (timedelta(hours=36), "P1DT12H"),
            (timedelta(seconds=61), "PT1M1S"),
            (timedelta(minutes=60), "PT1H"),
            (timedelta(milliseconds=500), "PT0.5S"),
        ],
    )
    def test_writing(self, duration: timedelta, text: str) -> None:
        assert format_duration(duration) == text
