"""The same lines through what ``torchx log`` does, into a file."""

import re
import time

from _shared import app, report

from torchx.cli.cmd_log import get_logs
from torchx.runner import get_runner

LINES = 200_000

job = app("seq", "-f", "%099.0f", "1", str(LINES))
with get_runner() as runner, open("log.txt", "w") as file:
    started = time.perf_counter()
    handle = runner.run(job, "local_cwd")
    get_logs(file, handle, None, should_tail=True, runner=runner)
    file.flush()
    ended = time.perf_counter()
with open("log.txt") as file:
    lines = [re.sub("\x1b\\[[0-9;:]*m", "", line) for line in file]
whole = {int(line[4:]) for line in lines if re.fullmatch(r"w/0 \d{99}\n", line)}
broken = sum(len(line) != 104 for line in lines)
report(lines_per_s=LINES / (ended - started), broken=broken, lost=LINES - len(whole))
