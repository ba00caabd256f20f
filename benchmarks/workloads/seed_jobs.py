"""Records 10,000 finished jobs: runs one and copies its record under other ids.

Prints the handle of one of them. Fails where local jobs are not recorded.
"""

import os
import shutil
import sys
from pathlib import Path

from _shared import app

from torchx.runner import get_runner

COUNT = 10_000

with get_runner() as runner:
    handle = runner.run(app("true"), "local_cwd")
    runner.wait(handle)
app_id = handle.rpartition("/")[2]
store = Path(os.environ["TORCHX_HOME"], "local")
first = store / "jobs" / app_id
if not first.is_dir():
    sys.exit("this version keeps no record of local jobs")
for i in range(1, COUNT):
    other = f"{app_id}{i:05}"
    target = store / "jobs" / other
    target.mkdir()
    for file in first.iterdir():
        if file.is_file():
            text = file.read_bytes().replace(app_id.encode(), other.encode())
            (target / file.name).write_bytes(text)
        elif not file.is_socket():
            shutil.copytree(file, target / file.name)
(store / "index").unlink(missing_ok=True)  # made anew from the records by the next list
sys.stdout.write(f"{handle}{COUNT // 2:05}\n")
