"""Exit codes in words and in JSON."""

import json

import pytest

from torchx.schedulers._core.exits import (
    describe_exit,
    exception_json,
    failure_json,
    from_shell,
    one_line_json,
    with_extra,
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
    raised = json.loads(exception_json("ValueError: no", traceback, 1, None))["message"]
    assert (raised["message"], raised["errorCode"]) == ("ValueError: no", 1)
    assert raised["extraInfo"] == {"py_callstack": traceback, "timestamp": 0}
    of_rank = exception_json("ValueError: no", traceback, 1, None, rank=3)
    assert json.loads(of_rank)["message"]["extraInfo"]["rank"] == 3
    assert json.loads(with_extra(of_rank, "rank", 4))["message"]["extraInfo"]["rank"] == 4
    assert with_extra("no json", "rank", 4) == "no json"
    assert one_line_json('{\n"a": 1}') == '{"a": 1}'
    assert one_line_json("no json\n") == "no json\n"
