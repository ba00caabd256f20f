"""What runs in a thread of its own ends whole, whatever hits the one that waits for it."""

import os
import signal
import threading

import pytest

from torchx._startup.uninterrupted import Uninterrupted


def test_the_error_of_the_call_is_raised_where_its_result_is_wanted():
    def fail():
        raise KeyError("why")

    with pytest.raises(KeyError, match="why"):
        Uninterrupted(fail).result()


def test_an_interruption_waits_for_the_end_of_the_call():
    go, seen = threading.Event(), []

    def call():
        os.kill(os.getpid(), signal.SIGINT)
        go.wait()
        seen.append("ended")

    running = Uninterrupted(call)
    with pytest.raises(KeyboardInterrupt):
        running.result()
    assert seen == []
    running.stop(go.set)
    assert seen == ["ended"]


def test_what_was_stopped_before_does_not_begin():
    seen = []
    running = Uninterrupted(lambda: seen.append("begun"))
    running.stop(lambda: None)
    running._run()  # as its thread would
    assert seen == []


def test_stopping_what_has_ended_returns():
    running = Uninterrupted(lambda: 1)
    assert running.result() == 1
    running.stop(lambda: None)
    running.stop(lambda: None)
