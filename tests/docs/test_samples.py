"""Runs every code sample of README and docs, page by page, each in a directory of its own.

The blocks of a page run in order. One that begins with ``# file: NAME`` is written to that file; a
``pyproject.toml`` that only has entry points is installed, as far as they go. A page that calls
``pip`` has a virtual environment of its own, into which packages are really installed. Blocks of
``ipython`` are the cells of one notebook. A comment in front of a block may say ``needs torch``,
``needs docker``, ``needs slurm`` or ``not run: REASON``, or that it is one of the commands that
`.ci/run` runs in an environment of its own.
"""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docker_engine import image_with_init
from tests.slurm_cluster import slurm_cluster, slurm_conf  # noqa: F401 - fixtures

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_BY_CI = ("main command", "test command", "install command")
MARKS = (*RUN_BY_CI, "needs torch", "needs docker", "needs slurm", "")
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\S+)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LANGUAGES = ("bash", "python", "ipython")
NO_CODE = re.compile(r"text|\{[\w-]+\}")
NOT_RUN = re.compile(r"not run: \S.+")
FILE = re.compile(r"# file: (\S+)\n")
ENTRY_POINTS = re.compile(r'\[project\.entry-points\."(\S+)"\]\n((?:.+ = .+\n)+)')


class Block(NamedTuple):
    mark: str
    language: str
    code: str

    @property
    def needs_torch(self) -> bool:
        return self.mark == "needs torch"

    @property
    def needs_docker(self) -> bool:
        return self.mark == "needs docker"

    @property
    def needs_slurm(self) -> bool:
        return self.mark == "needs slurm"

    @property
    def is_file(self) -> bool:
        return FILE.match(self.code) is not None


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = [Block(m["mark"] or "", m["language"], m["code"]) for m in BLOCK.finditer(text)]
    assert text.count("```") == 2 * len(found), f"a block of {page} is not understood"
    for block in found:
        assert block.mark in MARKS or NOT_RUN.fullmatch(block.mark), block
        assert block.language in LANGUAGES or block.is_file or NO_CODE.fullmatch(block.language), (
            block
        )
    return [
        b
        for b in found
        if (b.language in LANGUAGES or b.is_file)
        and b.mark not in RUN_BY_CI
        and not NOT_RUN.fullmatch(b.mark)
    ]


def wait_for_other_distributed_jobs() -> None:
    """Returns once no other job of this machine uses the default port of a rendezvous."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("localhost", 29500)) != 0:
                return
        time.sleep(0.5)


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(found: list[Block], folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples")
    bin_dir = Path(sys.executable).parent
    if any(b.language == "bash" and re.search("^pip ", b.code, re.MULTILINE) for b in found):
        bin_dir = make_environment(folder / ".environment")
    env = {**os.environ, "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}"}
    cells: list[str] = []
    for block in found:
        named = FILE.match(block.code)
        if named:
            write(folder / named[1], block.code)
            if named[1] == "pyproject.toml" and "[project]" not in block.code:
                install(folder, block.code)
                env["PYTHONPATH"] = str(folder)
            continue
        if block.language == "ipython":
            cells.append(block.code)
            continue
        code = block.code.replace(".venv/bin/", f"{bin_dir}/")
        program = [bin_dir / "python", "-"] if block.language == "python" else ["bash", *STRICT]
        check(program, code, folder, env)
    if cells:
        check([bin_dir / "python", "-", *cells], RUN_CELLS, folder, env)


STRICT = ("-euo", "pipefail")
RUN_CELLS = """
import sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in sys.argv[1:]:
    shell.run_cell(cell).raise_error()
"""


def check(program: list[str | Path], code: str, folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(
        program, input=code, cwd=folder, env=env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, f"{code}\n---\n{done.stdout}\n---\n{done.stderr}"


def make_environment(folder: Path) -> Path:
    """A virtual environment that sees what the tests run in; ``pip`` there needs no network."""
    venv.create(folder, with_pip=False, symlinks=True)
    programs = folder / "bin"
    python = programs / "python"
    site = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    # a plain path would leave out the .pth files there, by which editable packages are found
    ours = sysconfig.get_path("purelib")
    write(Path(site) / "tests.pth", f"import site; site.addsitedir({ours!r})\n")
    pip = "-m pip --disable-pip-version-check --no-input"
    options = "--no-deps --no-build-isolation --no-index"
    write(programs / "torchx", f'#!/bin/sh\nexec "{python}" -m torchx.cli.main "$@"\n')
    script = f'#!/bin/sh\nverb=$1\nshift\nexec "{python}" {pip} "$verb" {options} -q "$@"\n'
    write(programs / "pip", script)
    for name in ("torchx", "pip"):
        (programs / name).chmod(0o755)
    return programs


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def install(folder: Path, pyproject: str) -> None:
    """Leaves what an installer would, without one and thus without a network."""
    groups = ENTRY_POINTS.findall(pyproject)
    assert groups, pyproject
    text = "".join(f"[{group}]\n" + lines.replace('"', "") for group, lines in groups)
    write(folder / "sample-1.0.dist-info/entry_points.txt", text)
    write(folder / "sample-1.0.dist-info/METADATA", "Name: sample\nVersion: 1.0\n")


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_samples_run(page: Path, tmp_path: Path) -> None:
    special = ("needs torch", "needs docker", "needs slurm")
    run([b for b in blocks(page) if b.mark not in special], tmp_path)


@pytest.mark.slurm
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.needs_slurm for b in blocks(p))], ids=page_id
)
def test_samples_with_slurm_run(page: Path, tmp_path: Path, slurm_cluster: str) -> None:  # noqa: F811
    run([b for b in blocks(page) if b.needs_slurm or b.is_file], tmp_path)


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: pip install torch"
)
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.needs_torch for b in blocks(p))], ids=page_id
)
def test_samples_with_torch_run(page: Path, tmp_path: Path) -> None:
    wait_for_other_distributed_jobs()
    run([b for b in blocks(page) if b.needs_torch or b.is_file], tmp_path)


@pytest.mark.docker
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.needs_docker for b in blocks(p))], ids=page_id
)
def test_samples_with_docker_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import docker

    client = docker.from_env()
    try:
        monkeypatch.setenv("IMAGE", image_with_init(client))
        run([b for b in blocks(page) if b.needs_docker or b.is_file], tmp_path)
    finally:
        client.close()


def test_the_commands_that_ci_runs_are_on_the_pages() -> None:
    text = "".join(page.read_text() for page in PAGES)
    ci = (ROOT / ".ci/run").read_text()
    for mark in RUN_BY_CI:
        assert text.count(f"<!-- {mark} -->\n```bash\n") == 1
        assert f'command_of_page "{mark}"' in ci
