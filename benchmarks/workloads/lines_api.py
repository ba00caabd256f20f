"""200,000 lines of 100 bytes, from ``run`` to read through ``log_lines``."""

import time

from _shared import app, report

from torchx.runner import get_runner

LINES = 200_000

job = app("seq", "-f", "%099.0f", "1", str(LINES))
with get_runner() as runner:
    started = time.perf_counter()
    handle = runner.run(job, "local_cwd")
    lines = list(runner.log_lines(handle, "w", 0, should_tail=True))
    ended = time.perf_counter()
whole = {int(line) for line in lines if len(line) == 100 and line[:-1].isdigit()}
broken = sum(len(line) != 100 for line in lines)
report(lines_per_s=LINES / (ended - started), broken=broken, lost=LINES - len(whole))
