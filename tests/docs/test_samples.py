"""Runs every code sample of README and docs, page by page, each in a directory of its own.

The blocks of a page run in order. One that begins with ``# file: NAME`` is written to that file. A
comment in front of a block may say ``needs torch``, or ``not run: REASON``.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_BY_CI = ("main command", "test command")
"""Marks of the two commands in README that `.ci/run` runs in fresh checkouts."""
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\S+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SHOWN_ONLY = ("text", "toml", "{toctree}", "{eval-rst}")


class Block(NamedTuple):
    mark: str
    language: str
    code: str

    @property
    def needs_torch(self) -> bool:
        return self.mark == "needs torch"


def blocks(page: Path) -> list[Block]:
    found = [
        Block(m["mark"] or "", m["language"], m["code"]) for m in BLOCK.finditer(page.read_text())
    ]
    for block in found:
        assert block.language in ("bash", "python", "ini", *SHOWN_ONLY), block
    return [b for b in found if b.language not in SHOWN_ONLY and b.mark not in RUN_BY_CI]


def run(found: list[Block], folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples")
    bin_dir = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}"}
    for block in found:
        if block.mark.startswith("not run: "):
            continue
        named = re.match(r"# file: (\S+)\n", block.code)
        if named:
            (folder / named[1]).write_text(block.code)
            continue
        code = block.code.replace(".venv/bin/", f"{bin_dir}/")
        program = (
            [sys.executable, "-"] if block.language == "python" else ["bash", "-euo", "pipefail"]
        )
        done = subprocess.run(
            program, input=code, cwd=folder, env=env, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, f"{block.code}\n---\n{done.stdout}\n---\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_samples_run(page: Path, tmp_path: Path) -> None:
    run([b for b in blocks(page) if not b.needs_torch], tmp_path)


@pytest.mark.torch
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: pip install torch"
)
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.needs_torch for b in blocks(p))], ids=lambda p: p.name
)
def test_samples_with_torch_run(page: Path, tmp_path: Path) -> None:
    run([b for b in blocks(page) if b.needs_torch], tmp_path)


def test_the_commands_that_ci_runs_are_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for mark in RUN_BY_CI:
        assert f"<!-- {mark} -->\n```bash\n" in readme
        assert f'readme_command "{mark}"' in (ROOT / ".ci/run").read_text()
