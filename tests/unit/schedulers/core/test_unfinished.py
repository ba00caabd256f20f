"""The beginning of a line, which is shown before its end comes."""

from hypothesis import given
from hypothesis import strategies as st

from torchx.schedulers._core.unfinished import Shown, unfinished_lines, wanted, whole_characters


@given(st.text("aé€😀"), st.integers(0, 20))
def test_characters_are_never_cut(text, cut):
    data = text.encode()[:cut]
    whole = whole_characters(data)
    assert data.startswith(whole)
    assert len(data) - len(whole) < 4
    assert text.startswith(whole.decode())


@given(st.lists(st.text("aé\r ", min_size=1), min_size=1), st.text("bc"))
def test_what_was_shown_is_not_given_again(parts, end):
    shown, line = Shown(), "".join(parts).encode()
    given = b"".join(shown.more("".join(parts[: k + 1]).encode()) for k in range(len(parts)))
    assert given == line
    assert shown.more(line) == b""
    assert shown.rest(line + end.encode() + b"\nnext\n") == end.encode() + b"\nnext\n"
    assert shown.rest(b"later\n") == b"later\n"


def test_another_line_in_between_gets_its_own():
    shown = Shown()
    assert shown.more(b"Enter") == b"Enter"
    assert shown.rest(b"warning\n") == b"\nwarning\n"
    assert shown.rest(b"Entered\n") == b"Entered\n"


def test_it_is_asked_for():
    with unfinished_lines():
        assert wanted()
        with unfinished_lines(False):
            assert not wanted()
    assert not wanted()
