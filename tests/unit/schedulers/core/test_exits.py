"""Exit codes in words and in JSON, and the exception in what a program printed."""

import json

import pytest

from torchx.schedulers._core.exits import (
    cause_in,
    describe_exit,
    exception_json,
    failure_json,
    from_shell,
    one_line_json,
)


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (0, "", "exited with code 0"),
        (3, "", "exited with code 3"),
        (127, "", "exited with code 127 (command not found)"),
        (-9, "", "killed by SIGKILL"),
        (-9, "out of memory", "killed by SIGKILL (out of memory)"),
        (-63, "", "killed by signal 63"),
        (None, "", "failed"),
        (None, "node n1 is gone", "node n1 is gone"),
    ],
)
def test_words(code: int | None, reason: str, words: str) -> None:
    assert describe_exit(code, reason) == words


def test_codes_of_shells_above_128_are_signals() -> None:
    assert [from_shell(code) for code in (0, 128, 129, 192, 193, 255)] == [
        0,
        128,
        -1,
        -64,
        193,
        255,
    ]


def test_json_has_the_shape_of_error_files() -> None:
    plain = json.loads(failure_json("killed by SIGTERM", -15, 3_999_999_999))
    assert plain == {"message": "killed by SIGTERM", "errorCode": -15, "timestamp": 3}
    traceback = "Traceback (most recent call last):\n  File x\nValueError: no"
    raised = json.loads(exception_json(traceback, 1, None))["message"]
    assert (raised["message"], raised["errorCode"]) == ("ValueError: no", 1)
    assert raised["extraInfo"] == {"py_callstack": traceback, "timestamp": 0}
    assert one_line_json('{\n"a": 1}') == '{"a": 1}'
    assert one_line_json("no json\n") == "no json\n"


def test_the_cause_is_the_first_traceback_that_is_no_consequence() -> None:
    head = "Traceback (most recent call last):\n  File x\n"
    lost = f"{head}RuntimeError: Connection closed by peer"
    cause = f"{head}ValueError: no"
    assert cause_in(f"{lost}\nmore\n{cause}\n") == cause
    assert cause_in(f"{lost}\n") == lost
    assert cause_in("nothing") is None
