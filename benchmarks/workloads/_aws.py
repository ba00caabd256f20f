"""Measures schedulers on AWS: a list, many jobs that are waited for, one that is followed."""

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from _shared import app, report
from tests.fake_aws.server import FakeAws

from torchx.runner import get_runner
from torchx.specs import AppDef

LISTED, WAITED = 1000, 100
INTERVAL_S, SECONDS = 1.0, 10


def job(replicas: int = 1) -> AppDef:
    """An app that runs for long."""
    made = app("sleep", "600", replicas=replicas)
    made.roles[0].image = "i:1"
    return made


def measure(
    name: str,
    cfg: dict[str, Any],
    followed: int,
    fill: Callable[[FakeAws, dict[str, Any], int], object],
    hold: Callable[[FakeAws], object],
) -> None:
    """Reports the figures of one scheduler, and ends the process.

    Args:
        followed: replicas of the app whose logs are followed.
        fill: makes so many jobs that have ended, like one of that request.
        hold: lets jobs wait for instances, so that nothing changes.
    """
    with FakeAws() as aws, get_runner() as runner:
        os.environ.update(aws.environment())
        fill(aws, runner.dryrun(job(), name, cfg).request.job_def, LISTED)
        runner.list(name)  # which loads boto3
        aws.requests(forget=True)
        started = time.perf_counter()
        assert len(runner.list(name)) == LISTED
        list_s = time.perf_counter() - started
        list_calls = len(aws.calls())
        aws.reset()
        hold(aws)
        wait_calls = calls_of_waiting(aws, runner, name, cfg)
        aws.reset()
        follow_calls_per_s = calls_of_following(aws, runner, name, cfg, followed)
    report(
        list_s=list_s,
        list_calls=list_calls,
        wait_calls=wait_calls,
        follow_calls_per_s=follow_calls_per_s,
    )
    sys.stdout.flush()
    os._exit(0)  # the follower would wait for logs that come late


def calls_of_waiting(aws: FakeAws, runner: Any, name: str, cfg: dict[str, Any]) -> float:
    """Calls in one interval, while many threads wait for a job each."""
    handles = [runner.run(job(), name, cfg) for _ in range(WAITED)]
    over = threading.Event()
    begun = set()

    def wait(handle: str) -> None:
        """As `Runner.wait` does."""
        hook = runner._scheduler(name).wait_for_change
        while not over.is_set():
            runner.status(handle)
            begun.add(handle)
            hook(handle.rpartition("/")[2], INTERVAL_S)

    threads = [threading.Thread(target=wait, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    while len(begun) < WAITED:  # each thread makes its own client of boto3 first
        time.sleep(0.1)
    time.sleep(2 * INTERVAL_S)
    aws.requests(forget=True)
    time.sleep(SECONDS)
    calls = len(aws.calls()) * INTERVAL_S / SECONDS
    over.set()
    for thread in threads:
        thread.join()
    return calls


def calls_of_following(
    aws: FakeAws, runner: Any, name: str, cfg: dict[str, Any], followed: int
) -> float:
    """Calls in a second, while the logs of an app that prints nothing are followed."""
    handle = runner.run(job(followed), name, cfg)
    while runner.status(handle).state.name != "RUNNING":
        time.sleep(0.1)
    lines = runner.log_blocks(handle, should_tail=True)
    threading.Thread(target=lambda: [*itertools.islice(lines, 1)], daemon=True).start()
    time.sleep(3)
    aws.requests(forget=True)
    time.sleep(SECONDS)
    calls = len(aws.calls()) / SECONDS
    runner.cancel(handle)
    return calls
