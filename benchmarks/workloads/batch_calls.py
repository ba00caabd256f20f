"""Jobs of AWS Batch on the stand-in for AWS: a list of 1,000, waiting for 100, following 50."""

import itertools
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from _shared import app, report
from tests.fake_aws.server import FakeAws

from torchx.runner import get_runner

NAME, CFG = "aws_batch", {"queue": "queue"}
LISTED, WAITED, FOLLOWED = 1000, 100, 50
INTERVAL_S, SECONDS = 1.0, 10


def job(replicas: int = 1):
    """An app that runs for long."""
    made = app("sleep", "600", replicas=replicas)
    made.roles[0].image = "i:1"
    return made


with FakeAws() as aws, get_runner() as runner:
    os.environ.update(aws.environment())
    tags = runner.dryrun(job(), NAME, CFG).request.job_def["tags"]
    aws.admin("batch/jobs", {"count": LISTED, "name": "old", "tags": tags})
    runner.list(NAME)  # which loads boto3
    aws.requests(forget=True)
    started = time.perf_counter()
    assert len(runner.list(NAME)) == LISTED
    list_s = time.perf_counter() - started
    list_calls = len(aws.calls())

    aws.reset()
    aws.admin("batch/settings", {"hold": True})  # jobs that wait for instances change nothing
    handles = [runner.run(job(), NAME, CFG) for _ in range(WAITED)]
    over = threading.Event()

    def wait(handle: str) -> None:
        """As `Runner.wait` does."""
        hook = runner._scheduler(NAME).wait_for_change
        while not over.is_set():
            runner.status(handle)
            hook(handle.rpartition("/")[2], INTERVAL_S)

    threads = [threading.Thread(target=wait, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    time.sleep(3 * INTERVAL_S)  # all have begun
    aws.requests(forget=True)
    time.sleep(SECONDS)
    wait_calls = len(aws.calls()) * INTERVAL_S / SECONDS
    over.set()
    for thread in threads:
        thread.join()

    aws.reset()
    handle = runner.run(job(FOLLOWED), NAME, CFG)
    while runner.status(handle).state.name != "RUNNING":
        time.sleep(0.1)
    lines = runner.log_blocks(handle, should_tail=True)
    threading.Thread(target=lambda: [*itertools.islice(lines, 1)], daemon=True).start()
    time.sleep(3)
    aws.requests(forget=True)
    time.sleep(SECONDS)
    follow_calls_per_s = len(aws.calls()) / SECONDS
    runner.cancel(handle)
report(
    list_s=list_s,
    list_calls=list_calls,
    wait_calls=wait_calls,
    follow_calls_per_s=follow_calls_per_s,
)
sys.stdout.flush()
os._exit(0)  # the follower would wait for logs that come late
