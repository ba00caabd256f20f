"""The exception that ended a replica, found in what its processes printed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torchx.schedulers._core.exits import exception_json, failure_json
from torchx.schedulers._core.tracebacks import (
    Raised,
    in_words,
    place_of,
    raised_by,
    raised_in,
    rank_in,
)

HEAD = "Traceback (most recent call last):\n"
LOST = f'{HEAD}  File "t.py", line 9, in <module>\nRuntimeError: Connection closed by peer'
CAUSE = f'{HEAD}  File "t.py", line 4, in step\n    check(x)\nValueError: no'
ROOT = """\
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2030-01-01_00:00:00
  host      : node
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: 9) {more}
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""


def prefixed(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def root(rank: int, local: int, code: int = 1, traceback: str = "To enable traceback see") -> str:
    return ROOT.format(rank=rank, local=local, code=code, traceback=traceback, more="")


def exception(text: str) -> str | None:
    found = raised_in(text)
    return None if found is None else found.exception


# -- one process -------------------------------------------------------------------------------


def test_text_without_an_exception_has_none() -> None:
    assert raised_in("") is None
    assert raised_in("Traceback (most recent call last): is what it would say\n") is None
    assert raised_in(f"{HEAD}no frame follows\n") is None


def test_an_exception_is_found_with_its_callstack() -> None:
    assert raised_in(f"before\n{CAUSE}\nbehind\n") == Raised("ValueError: no", CAUSE)


def test_the_last_exception_of_a_process_is_what_ended_it() -> None:
    handled = CAUSE.replace("ValueError: no", "KeyError: 'handled and logged'")
    assert exception(f"{handled}\ngoes on\n{CAUSE}\n") == "ValueError: no"


def test_an_exception_that_followed_from_another_is_the_one_that_was_raised() -> None:
    for sentence in (
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ):
        first = CAUSE.replace("ValueError: no", "KeyError: 'a'")
        found = raised_in(f"{first}\nmore of it\n\n{sentence}\n\n{CAUSE}\n")
        assert found is not None
        assert found.exception == "ValueError: no"
        assert "KeyError: 'a'" in found.callstack
        assert place_of(found.callstack) == "t.py:4 in step"


def test_a_message_of_several_lines_is_told_by_its_first() -> None:
    assert exception(f"{CAUSE}\n  more of the message\nand more\n") == "ValueError: no"


PROGRAMS = {
    "raise ValueError('no')": ("ValueError: no", "m.py:1"),
    "def f():\n    {}['a']\n\n\nf()": ("KeyError: 'a'", "m.py:2 in f"),
    "import json\n\njson.loads('x')": (
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "m.py:3",
    ),
    "def f(:\n    pass": ("SyntaxError: invalid syntax", "m.py:1"),
    "try:\n    1 / 0\nexcept ArithmeticError:\n    raise RuntimeError('second')": (
        "RuntimeError: second",
        "m.py:4",
    ),
    "def f(n):\n    return f(n)\n\n\nf(0)": (
        "RecursionError: maximum recursion depth exceeded",
        "m.py:2 in f",
    ),
    "import nosuchmodule": ("ModuleNotFoundError: No module named 'nosuchmodule'", "m.py:1"),
    "class E(Exception): ...\n\n\nraise E": ("E", "m.py:4"),
}


@pytest.mark.parametrize("source", PROGRAMS)
def test_what_python_prints_is_understood(source: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(source)
    command = [sys.executable, "m.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = raised_in(done.stderr)
    assert found is not None, done.stderr
    text, place = PROGRAMS[source]
    assert found.exception == text
    assert place_of(found.callstack).rpartition("/")[2] == place


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python has no exception groups")
def test_a_group_of_exceptions_is_one(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("raise ExceptionGroup('both', [ValueError(1), KeyError(2)])")
    command = [sys.executable, "m.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = raised_in(done.stderr)
    assert found is not None
    assert found.exception == "ExceptionGroup: both (2 sub-exceptions)"
    assert place_of(found.callstack).endswith("m.py:1")


def test_the_exception_of_another_process_in_a_message_is_the_cause() -> None:
    """As the loaders of data and the spawned processes of PyTorch tell it."""
    inner = CAUSE.removeprefix(HEAD)
    text = CAUSE.replace("ValueError: no", "RuntimeError: Caught ValueError in worker process 0.")
    assert exception(f"{text}\nOriginal {HEAD}{inner}\n") == "ValueError: no"
    assert exception(f"{text}\n\n-- Process 1 terminated:\n{CAUSE}\n") == "ValueError: no"


# -- ranks -------------------------------------------------------------------------------------


def test_the_first_process_counts_whose_exception_tells_of_no_other() -> None:
    lost, cause = prefixed("[0]:[rank4]: ", LOST), prefixed("[1]:[rank5]: ", CAUSE)
    for text in (lost + cause, cause + lost):
        assert raised_in(text) == Raised("ValueError: no", CAUSE, rank=5, local_rank=1)
    assert raised_in(lost) == Raised("RuntimeError: Connection closed by peer", LOST, 4, 0)


def test_lines_of_several_processes_may_alternate() -> None:
    lines = zip(
        prefixed("[0]:[rank0]: ", f"{LOST}\n").splitlines(),
        prefixed("[1]:[rank1]: ", f"{CAUSE}\n").splitlines(),
        strict=False,
    )
    text = "\n".join(line for pair in lines for line in pair) + "\n[1]:[rank1]: ValueError: no\n"
    assert raised_in(text) == Raised("ValueError: no", CAUSE, 1, 1)


def test_the_rank_that_torchrun_saw_first_counts() -> None:
    other = CAUSE.replace("ValueError: no", "OSError: a consequence of its own kind")
    text = prefixed("[0]:[rank0]: ", other) + prefixed("[1]:[rank1]: ", CAUSE) + root(1, 1)
    assert raised_in(text) == Raised("ValueError: no", CAUSE, 1, 1)
    assert rank_in(text, "ValueError: no") == 1
    assert rank_in(text, "ValueError: another") is None


def test_a_rank_that_lost_another_is_no_cause_though_torchrun_saw_both_at_once() -> None:
    lost, cause = prefixed("[0]:[rank0]: ", LOST), prefixed("[1]:[rank1]: ", CAUSE)
    for text in (lost + cause, cause + lost):
        assert raised_in(text + root(0, 0)) == Raised("ValueError: no", CAUSE, 1, 1)
    assert exception(lost + root(0, 0)) == "RuntimeError: Connection closed by peer"


def test_the_global_rank_comes_from_the_summary_of_torchrun() -> None:
    assert raised_in(prefixed("[trainer1]:", CAUSE) + root(9, 1)) == Raised(
        "ValueError: no", CAUSE, rank=9, local_rank=1
    )
    assert raised_in(f"{CAUSE}\n" + root(9, 1)) == Raised("ValueError: no", CAUSE, 9, 1)


def test_a_process_that_was_then_asked_to_end_has_raised_something_before() -> None:
    asked = LOST.replace("RuntimeError: Connection closed by peer", "KeyboardInterrupt")
    assert exception(f"{CAUSE}\n{asked}\n") == "ValueError: no"
    assert exception(f"{asked}\n") == "KeyboardInterrupt"


def test_the_last_summary_counts_where_torchrun_has_restarted() -> None:
    text = prefixed("[0]:", LOST) + root(0, 0) + prefixed("[1]:", CAUSE) + root(1, 1)
    assert exception(text) == "ValueError: no"


def test_a_rank_that_ended_without_a_word_is_told_with_its_exit() -> None:
    agent = CAUSE.replace("ValueError: no", "torch.distributed.elastic.errors.ChildFailedError:")
    assert raised_in(f"{agent}\n{root(3, 1, 7)}") == Raised("exited with code 7", "", 3, 1)
    assert exception(f"{agent}\n{root(3, 1, -9)}") == "killed by SIGKILL"


def test_a_traceback_that_the_summary_quotes_is_none_of_its_own() -> None:
    quoted = CAUSE.replace("\n", "\n  ")
    text = prefixed("[0]:", LOST) + root(1, 1, traceback=quoted)
    assert exception(text) == "exited with code 1"


# -- in words ----------------------------------------------------------------------------------


def test_the_place_is_the_innermost_one_of_the_user() -> None:
    frames = (
        '  File "/app/train.py", line 9, in <module>\n'
        '  File "/app/model.py", line 41, in forward\n'
        '  File "/venv/lib/python3.11/site-packages/torch/nn/f.py", line 3, in linear\n'
        '  File "<frozen runpy>", line 5, in _run\n'
    )
    assert place_of(frames) == "/app/model.py:41 in forward"
    assert place_of(frames.replace("/app", "/venv/lib/python3.11")) == "<frozen runpy>:5 in _run"
    assert place_of("") == ""


def test_an_error_in_words() -> None:
    error = exception_json("ValueError: no", CAUSE, 1, None, rank=3)
    assert in_words(error) == "rank 3: ValueError: no (t.py:4 in step)"
    assert raised_by(error) == Raised("ValueError: no", CAUSE, 3)
    recorded = json.loads(error)
    recorded["message"]["message"] = "ValueError: no\nand more"
    del recorded["message"]["extraInfo"]["rank"]
    assert in_words(json.dumps(recorded)) == "ValueError: no (t.py:4 in step)"


@pytest.mark.parametrize(
    "error", [None, "", "no json", "[]", "{}", '{"message": {}}', failure_json("failed", 1, None)]
)
def test_other_errors_have_no_words(error: str | None) -> None:
    assert in_words(error) == ""
    assert raised_by(error) is None


def test_a_long_message_is_cut() -> None:
    error = exception_json("ValueError: " + "x" * 10_000, CAUSE, 1, None)
    assert len(in_words(error)) < 600
