"""People read what is there: nothing invisible, nothing disguised, nothing that changes the order around it."""

from __future__ import annotations

import re

import pytest

from app.cli.outcome import printable
from approvals.slack.blocks import SECTION_CHARACTERS_MAX, code, entry, pieces
from core.legible import bare, confusing, embedded, isolated, visible

ISOLATED = re.compile("\u2068[^\u2068\u2069]*\u2069")
# A value, and the characters of it that are marked.
DISGUISED: dict[str, tuple[str, str]] = {
    "a Cyrillic letter in a name": ("p\u0430ypal", "\u0430"),
    "a Latin letter in a Cyrillic name": ("\u041f\u0430vel", "\u041f\u0430"),
    "a Greek letter in a word": ("g\u03bfogle", "\u03bf"),
    "an Armenian letter": ("c\u0585st", "\u0585"),
    "a Cherokee letter": ("\u13aapple", "\u13aa"),
    "scripts without Latin": ("\u0430\u03b1\u0431", "\u03b1"),
    "with a digit": ("adm\u04561n", "\u0456"),
    "with a mark on it": ("p\u0430\u0301ypal", "\u0430"),
    "a whole name of look-alikes": ("\u0440\u0430\u0443\u0440\u0430\u04cf", "\u0440\u0430\u0443\u0440\u0430\u04cf"),
    "a host of look-alikes": ("\u0440\u0430\u0443.com \u041f\u0440\u0438\u0432\u0435\u0442", "\u0440\u0430\u0443"),
    "a number of look-alikes": ("\u0410\u0412-123", "\u0410\u0412"),
    "a Cyrillic letter as a digit": ("\u041700", "\u0417"),
    "a name with a joined part": ("service-n\u043ew.com", "\u043e"),
    "a name after an underline": ("user_\u0430dmin", "\u0430"),
    "Cherokee as a whole": ("\u13a0\u13a1", "\u13a0\u13a1"),
    "full-width digits": ("\uff11\uff10\uff10", "\uff11\uff10\uff10"),
    "full-width letters": ("\uff41dmin", "\uff41"),
    "mathematical letters": ("\U0001d41adm\U0001d422n", "\U0001d41a\U0001d422"),
    "mathematical digits": ("1\U0001d7ce0", "\U0001d7ce"),
    "a Roman numeral": ("\u2160", "\u2160"),
    "a ligature": ("\ufb01nance", "\ufb01"),
    "a long s": ("u\u017fer", "\u017f"),
    "a Kelvin sign": ("\u212aeep", "\u212a"),
    "a Greek question mark": ("a\u037eb", "\u037e"),
    "Bengali digits": ("\u09ea00", "\u09ea"),
    "digits of another system alone": ("\u0661\u0662", "\u0661\u0662"),
    "an ideographic full stop in a host": ("service-now\u3002com", "\u3002"),
    "a full-width full stop": ("service-now\uff0ecom", "\uff0e"),
    "a half-width full stop": ("service-now\uff61com", "\uff61"),
    "a division slash": ("a.example\u2215b", "\u2215"),
    "a fraction slash": ("a\u2044b", "\u2044"),
    "a leader": ("a\u2024b", "\u2024"),
    "two full-width slashes": ("http:\uff0f\uff0fevil.example", "\uff0f\uff0f"),
    "a full stop beside Chinese": ("now\u3002com\u4f60", "\u3002"),
    "a hyphen that is none": ("a\u2010b", "\u2010"),
    "a minus in a name": ("it\u2212ops", "\u2212"),
    "an IPA letter": ("\u0261oogle", "\u0261"),
    "a click for a bar": ("a\u01c0b", "\u01c0"),
    "a small capital": ("\u1d00dmin", "\u1d00"),
}
HONEST = (
    *(
        "J\u00fcrgen \u00dcnal",
        "\u041f\u0430\u0432\u0435\u043b",
        "\u041f\u0440\u0438\u0432\u0435\u0442 \u043e\u0442 \u0410\u043d\u043d\u044b",
        "Acme \u041f\u0430\u0432\u0435\u043b",
        "\u0394t"[:1] + " t",
    ),
    *(
        "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
        "\u6771\u4eac\u30bf\u30ef\u30fc",
        "API\u6771\u4eac",
        "don\u2019t \u2013 stop\u2026",
        "col\u00b7lecci\u00f3",
        "5 \u00b5s",
        "10 m\u00b2",
    ),
    *(
        "\u05e9\u05dc\u05d5\u05dd",
        "\u0645\u0631\u062d\u0628\u0627 \u0661\u0662",
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u0967",
        "\u00bd",
        "\u2122",
        "\U0001f600",
        "z\u0142oty",
        "I\u015f\u0131k",
        "\u0395\u03bb\u03bb\u03ac\u03b4\u03b1",
        "naïve café",
    ),
)
RIGHT_TO_LEFT = (
    "\u05e9\u05dc\u05d5\u05dd",
    "\u0645\u0631\u062d\u0628\u0627",
    "1 \u05d0",
    "a \u05d0 b",
    "\u0721",
    "\u07c1",
    "\u0661 \u0645",
    "\u05d0\n\u05d1",
    "\U0001e900",
)


@pytest.mark.parametrize("name", DISGUISED)
def test_a_letter_that_looks_like_another_is_marked_and_the_original_can_be_recovered(name: str) -> None:
    text, marked = DISGUISED[name]
    assert "".join(text[at] for at in sorted(confusing(text))) == marked
    shown = visible(text)
    assert re.sub("⟨U\\+([0-9A-F]{4,6})⟩", lambda found: chr(int(found[1], 16)), shown) == text
    for letter in marked:
        assert code(text).count(letter) == printable(text).count(letter) == text.count(letter) - marked.count(letter)
        assert f"⟨U+{ord(letter):04X}⟩" in bare(printable(text))


@pytest.mark.parametrize("text", HONEST)
def test_what_people_write_in_their_own_script_stays_as_it_is(text: str) -> None:
    assert confusing(text) == frozenset()
    assert bare(isolated(visible(text))) == text


@pytest.mark.parametrize("text", RIGHT_TO_LEFT)
def test_a_value_from_right_to_left_never_changes_the_order_around_it(text: str) -> None:
    """No letter of such a script stands outside an isolation, in no line of any face."""
    lines = [*entry("• Field", text), *entry("before", text, "after"), code(text), printable(text), embedded(text)]
    for line in (part for one in lines for part in one.split("\n")):
        outside = ISOLATED.sub("", line)
        assert isolated(outside) == outside, line
        assert "\u2068" not in outside
        assert "\u2069" not in outside


def test_before_and_after_keep_their_places() -> None:
    (line,) = entry("• Account", "\u05d0\u05d1", "\u05d2\u05d3")
    assert line == "• Account `\u2068\u05d0\u05d1\u2069` → `\u2068\u05d2\u05d3\u2069`"
    assert entry("• Account", "a", "b") == ["• Account `a` → `b`"], "what needs no isolation gets none"


def test_a_value_cannot_end_its_own_isolation() -> None:
    assert code("\u05d0\u2069 \u05d1\u202e") == "`\u2068\u05d0⟨U+2069⟩ \u05d1⟨U+202E⟩\u2069`"


def test_a_long_line_is_isolated_in_every_piece() -> None:
    line = code("\u05d0b " * 3000)
    found = pieces(line, SECTION_CHARACTERS_MAX)
    assert len(found) > 1
    assert all(len(one) <= SECTION_CHARACTERS_MAX for one in found)
    for one in found:
        assert isolated(ISOLATED.sub("", one)) == ISOLATED.sub("", one)
    assert "".join(bare(one[1:-1]) for one in found) == bare(line[1:-1])


def test_a_name_in_our_own_sentence_is_isolated_by_itself() -> None:
    assert embedded("Done by \u05d0\u05d1 \u05d2 at 12:00.") == "Done by \u2068\u05d0\u05d1 \u05d2\u2069 at 12:00."
    assert embedded("Done by Ana.") == "Done by Ana."
