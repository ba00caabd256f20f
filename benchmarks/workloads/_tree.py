"""A workspace of 20,000 files, of which 2,000 are ignored."""

import random
from pathlib import Path

SENT, IGNORED = 18_000, 2_000
RULES = "data\nlogs\n*.tmp\nbuild/*\n.venv\n"  # they mean the same in all releases


def make_tree(root: Path) -> None:
    """Files of 0.1 to 8 KB in 180 folders, and ignored ones in 20."""
    choose = random.Random(0)
    for number in range(SENT + IGNORED):
        sent = number < SENT
        folder = root / (
            f"src/pkg{number % 18}/mod{number % 180}" if sent else f"data/{number % 20}"
        )
        if number < 180 or not sent:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}.py").write_bytes(choose.randbytes(choose.randint(100, 8000)))
    for name in (".torchxignore", ".dockerignore"):
        (root / name).write_text(RULES)
