"""Calls that are repeated, and errors that are not worth it."""

import pytest

from torchx._retry import with_retries
from torchx.errors import BackendUnavailable, CommandFailed, ProgramNotFound


def failing(*errors: Exception):  # a call that raises these, then gives 7
    left = [*errors]
    calls = []

    def call() -> int:
        calls.append(1)
        if left:
            raise left.pop(0)
        return 7

    return call, calls


def test_a_fault_that_passes_is_tried_again() -> None:
    call, calls = failing(BackendUnavailable("a"), BackendUnavailable("b"))
    assert with_retries(call, (0, 0, 0)) == 7
    assert len(calls) == 3


def test_the_last_error_is_raised_when_the_pauses_are_used_up() -> None:
    call, calls = failing(BackendUnavailable("a"), BackendUnavailable("b"), BackendUnavailable("c"))
    with pytest.raises(BackendUnavailable, match="b"):
        with_retries(call, (0,))
    assert len(calls) == 2


@pytest.mark.parametrize("err", [CommandFailed("x", 1, "no"), ProgramNotFound("x")])
def test_other_errors_are_raised_at_once(err: Exception) -> None:
    call, calls = failing(err)
    with pytest.raises(type(err)):
        with_retries(call, (0, 0))
    assert len(calls) == 1
