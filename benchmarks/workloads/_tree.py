"""A workspace of 20,000 files, of which 2,000 are ignored."""

import random
from pathlib import Path

SENT, IGNORED = 18_000, 2_000
RULES = "data\nlogs\n*.tmp\nbuild/*\n.venv\n"  # they mean the same in all releases


FILES_PER_FOLDER = 8  # as in the repositories of PyTorch and its libraries


def make_tree(root: Path) -> None:
    """Files of 0.1 to 8 KB, eight in a folder."""
    choose = random.Random(0)
    for number in range(SENT + IGNORED):
        part = number // FILES_PER_FOLDER
        folder = root / (
            f"src/pkg{part % 18}/mod{part % 180}/part{part}" if number < SENT else f"data/{part}"
        )
        if number % FILES_PER_FOLDER == 0 or number == SENT:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}.py").write_bytes(choose.randbytes(choose.randint(100, 8000)))
    for name in (".torchxignore", ".dockerignore"):
        (root / name).write_text(RULES)
