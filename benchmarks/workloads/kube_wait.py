"""From the end of a pod to the return of `Runner.wait`; and what is asked while nothing happens."""

import threading
import time

from _kube import cluster
from _shared import app, percentile, report

from torchx.runner import get_runner
from torchx.specs import AppState

APPS = 20
IDLE_S = 5.0
RUNS = {"phase": "Running", "containerStatuses": [{"name": "w", "state": {"running": {}}}]}
ENDED = {
    "phase": "Succeeded",
    "containerStatuses": [{"name": "w", "state": {"terminated": {"exitCode": 0}}}],
}
latencies = []
idle = 0
with cluster("--no-kubelet") as fake, get_runner() as runner:
    for i in range(APPS):
        job = app("echo")
        job.roles[0].image = "any"
        handle = runner.run(job, "kubernetes", {"validate_spec": False})
        returned: list[float] = []

        def wait(handle: str = handle, returned: list[float] = returned) -> None:
            status = runner.wait(handle)
            returned.append(time.perf_counter())
            assert status is not None
            assert status.state is AppState.SUCCEEDED

        while not (pods := fake.pods()):
            time.sleep(0.01)
        fake.write_status("pods", pods[0], RUNS)
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        if i == 0:
            fake.asked()
            time.sleep(IDLE_S)
            idle = len(fake.asked())
        started = time.perf_counter()
        fake.write_status("pods", pods[0], ENDED)
        thread.join()
        latencies.append((returned[0] - started) * 1000)
        runner.delete(handle)
report(p50_ms=percentile(latencies, 50), p95_ms=percentile(latencies, 95), idle_requests=idle)
