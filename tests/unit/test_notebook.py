"""Cells of notebooks as files, in a real IPython."""

import subprocess
import sys
from collections.abc import Iterator

import fsspec
import pytest

from torchx.notebook import get_workspace, workspacefile


@pytest.fixture(autouse=True)
def no_workspace() -> Iterator[None]:
    yield
    fs = fsspec.filesystem("memory")
    if fs.exists("/torchx-workspace"):
        fs.rm("/torchx-workspace", recursive=True)


def test_the_workspace_is_in_memory() -> None:
    assert get_workspace() == "memory://torchx-workspace/"


def test_a_cell_becomes_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    workspacefile("pkg/hello.py", "print('hi')\n")
    assert capsys.readouterr().out == "Added pkg/hello.py to workspace memory://torchx-workspace/\n"
    workspacefile("pkg/hello.py", "print('later')")
    with fsspec.open("memory://torchx-workspace/pkg/hello.py") as f:
        assert f.read() == b"print('later')"


@pytest.mark.parametrize("line", ["", "  ", "pkg/", ".", "./", "..", "pkg/.", "pkg/.."])
def test_a_cell_needs_a_name(line: str) -> None:
    with pytest.raises(IsADirectoryError, match="give the file a name"):
        workspacefile(line, "x")


def test_a_folder_is_not_replaced_by_a_cell() -> None:
    workspacefile("pkg/hello.py", "x")
    with pytest.raises(IsADirectoryError, match="`pkg` is a folder"):
        workspacefile("pkg", "x")
    workspacefile("..hidden", "y")
    assert fsspec.filesystem("memory").cat("/torchx-workspace/..hidden") == b"y"


@pytest.mark.parametrize("line", ["../x.py", "/etc/x", "a/../../x"])
def test_a_cell_stays_in_the_workspace(line: str) -> None:
    with pytest.raises(ValueError, match="inside of the workspace"):
        workspacefile(line, "x")


def test_outside_of_ipython_the_import_works() -> None:
    code = "import sys, torchx.notebook; assert 'IPython' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def run(cell):
    result = shell.run_cell(cell)
    result.raise_error()
run("import torchx.notebook")
run("%%workspacefile pkg/hello.py\\nprint('hi')\\n")
run("import fsspec; print(repr(fsspec.open('memory://torchx-workspace/pkg/hello.py').open().read()))")
run("%load_ext torchx.notebook")
try:
    run("%%workspacefile\\nprint('hi')\\n")
except IsADirectoryError as err:
    print("refused")
"""


def test_the_magic_works_in_ipython() -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CELLS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "Added pkg/hello.py to workspace memory://torchx-workspace/" in lines
    assert "b\"print('hi')\\n\"" in lines
    assert "refused" in lines
