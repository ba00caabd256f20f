"""Suggestions for what was mistyped, and the words for yes and no."""

import subprocess
import sys

import pytest

from torchx._words import closest, did_you_mean, parse_bool

COMPONENTS = ["utils.echo", "utils.touch", "utils.copy", "utils.sh", "dist.ddp", "dist.spmd"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("utils.ehco", "utils.echo"),
        ("utils.cehoo", "utils.echo"),
        ("utlis.echo", "utils.echo"),
        ("Utils.Ecko", "utils.echo"),
        ("dist.dpd", "dist.ddp"),
        ("dist.ddpp", "dist.ddp"),
        ("nothing_like_it", None),
        ("", None),
    ],
)
def test_the_word_that_was_meant_is_found(word: str, meant: str | None) -> None:
    assert closest(word, COMPONENTS) == meant


def test_letters_that_changed_places_come_before_a_letter_that_is_missing() -> None:
    assert closest("ehco", ["eho", "echo", "ehcoo"]) == "echo"


def test_short_words_are_not_taken_for_any_other() -> None:
    assert closest("x", ["a", "b"]) is None
    assert closest("ab", ["cb"]) is None


def test_a_suggestion_is_a_sentence_to_append() -> None:
    assert did_you_mean("utils.ehco", COMPONENTS) == " Did you mean `utils.echo`?"
    assert did_you_mean("zzz", COMPONENTS) == ""


def test_one_edit_is_found_without_what_is_slow_to_import() -> None:
    script = (
        "import sys; from torchx._words import closest\n"
        "print(closest('ehco', ['echo']), 'difflib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert done.stdout.decode().split() == ["echo", "False"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TRUE", True),
        (" true", None),
        ("1", True),
        ("on", True),
        ("No", False),
        ("0", False),
        ("2", None),
    ],
)
def test_words_for_yes_and_no_are_understood_in_any_case(text: str, value: bool | None) -> None:
    assert parse_bool(text) is value
