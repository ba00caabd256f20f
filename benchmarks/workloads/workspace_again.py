"""Copies a workspace of 20,000 files to where the copy of an earlier run was just removed."""

import logging
import os
import shutil
import time
from pathlib import Path

from _shared import report
from _tree import SENT, make_tree

from torchx.workspace.dir_workspace import _copy_to_dir

logging.disable()
root, copy = Path.cwd() / "workspace", Path.cwd() / "copy"
if not root.exists():
    make_tree(root)
for _ in range(2):
    if copy.exists():
        shutil.rmtree(copy)
    os.sync()  # what was written before must not slow the copy
    started = time.perf_counter()
    _copy_to_dir(str(root), str(copy))
    took = time.perf_counter() - started
assert sum(len(files) for _, _, files in os.walk(copy)) >= SENT
report(copy_s=took)
