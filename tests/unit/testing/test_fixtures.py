"""The test case with a directory of its own."""

import os
import stat
import subprocess
import sys
import unittest
from pathlib import Path

import pytest

import torchx.test.fixtures
import torchx.testing.fixtures as fixtures
from torchx.testing.distributed import DistributedTestCase


@pytest.fixture
def case():
    class MyCase(fixtures.TestWithTmpDir):
        def runTest(self):
            pass

    case = MyCase()
    case.setUp()
    yield case
    case.tearDown()


def test_the_directory_is_named_after_the_class_and_goes_away(case):
    assert case.tmpdir.is_dir()
    assert case.tmpdir.name.startswith("torchx-MyCase-")
    case.write("a/b", "text")
    case.tearDown()
    assert not case.tmpdir.exists()


def test_every_test_method_has_a_directory_of_its_own():
    seen = []

    class Two(fixtures.TestWithTmpDir):
        def test_a(self):
            seen.append(self.tmpdir)

        def test_b(self):
            seen.append(self.tmpdir)

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Two).run(result)
    assert result.wasSuccessful()
    assert len(set(seen)) == 2
    assert not any(path.exists() for path in seen)


def test_files_and_directories_are_made_with_their_parents(case):
    assert case.touch("a/b/c.txt") == case.tmpdir / "a/b/c.txt"
    assert case.read("a/b/c.txt") == []
    assert case.mkdir("d/e").is_dir()
    assert case.mkdir("d/e") == case.tmpdir / "d/e"


def test_what_is_written_is_read_line_by_line(case):
    assert case.write("x/f", ["one\n", "two", "three\n"]) == case.tmpdir / "x/f"
    assert case.read("x/f") == ["one\n", "twothree\n"]
    case.write("g", "as is")
    assert case.read(case.tmpdir / "g") == ["as is"]


def test_a_shell_script_can_be_executed(case, tmp_path):
    script = case.write_shell_script("hi.sh", ["echo hi $1"])
    assert script == case.tmpdir / "hi.sh"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert subprocess.run([script, "you"], capture_output=True, check=True).stdout == b"hi you\n"
    path = fixtures.write_shell_script(tmp_path, "a.sh", ["true", "false"])
    assert path == os.path.join(tmp_path, "a.sh")
    assert Path(path).read_text() == "#! /bin/bash\ntrue\nfalse\n\n"
    with pytest.raises(FileNotFoundError):
        case.write_shell_script("none/hi.sh", [])


def test_a_tree_is_built_and_recognised(case):
    tree = {"a": "1", "empty": "", "dir": {"b": " text \n", "sub": {}}}
    root = case.create_dir_tree("root", tree)
    assert root == case.tmpdir / "root"
    case.assertDirTree("root", tree)
    case.assertDirTree(root, {"a": "", "empty": "", "dir": {"b": "text", "sub": {}}})
    case.assertDirIsEmpty("root/dir/sub")


@pytest.mark.parametrize(
    "tree",
    [
        {"a": "other", "dir": {}},
        {"a": "1"},
        {"a": "1", "dir": {}, "more": ""},
        {"a": {}, "dir": {}},
        {"a": "1", "dir": ""},
        {"a": "1", "dir": {"b": ""}},
    ],
)
def test_a_tree_that_differs_fails(case, tree):
    case.create_dir_tree("root", {"a": "1", "dir": {}})
    with pytest.raises(AssertionError):
        case.assertDirTree("root", tree)


@pytest.mark.parametrize("path", ["full", "full/file", "missing"])
def test_only_an_empty_directory_is_empty(case, path):
    case.touch("full/file")
    with pytest.raises(AssertionError):
        case.assertDirIsEmpty(path)


@pytest.mark.parametrize(
    ("value", "is_ci"), [("true", True), ("TRUE", True), ("1", False), (None, False)]
)
def test_a_ci_run_is_told_by_its_variable(monkeypatch, value, is_ci):
    monkeypatch.delenv("CI", raising=False)
    if value is not None:
        monkeypatch.setenv("CI", value)
    command = "import torchx.testing.fixtures as f; print(f.IS_CI, f.IS_MACOS)"
    out = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True).stdout
    assert out.decode().split() == [str(is_ci), str(sys.platform == "darwin")]


def test_the_names_of_release_0_7_are_kept():
    assert torchx.test.fixtures.TestWithTmpDir is fixtures.TestWithTmpDir
    assert torchx.test.fixtures.IS_CI is fixtures.IS_CI


def test_fixtures_load_neither_pytest_nor_torch():
    command = (
        "import sys, torchx.testing.fixtures, torchx.testing.distributed;"
        "print({'pytest', 'torch'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True).stdout
    assert out.decode().strip() == "set()"


def test_the_package_needs_nothing_but_itself():
    source = str(Path(torchx.testing.__file__).parents[2])
    command = (
        f"import sys; sys.path.insert(0, {source!r})\n"
        "import torchx.testing.fixtures, torchx.testing.distributed\n"
        "print([m for m in sys.modules if 'site-packages' in (getattr(sys.modules[m], '__file__', "
        "None) or '') and not m.startswith('torchx')])"
    )
    # neither this directory nor any installed package can be imported
    program = [sys.executable, "-I", "-S", "-c", command]
    assert subprocess.run(program, capture_output=True, check=True).stdout == b"[]\n"


def rank_and_sum(value: int) -> tuple[int, int]:
    """Runs in the ranks: its rank, and the sum of the value over all."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        total = torch.tensor(value + dist.get_rank())
        dist.all_reduce(total)
        return dist.get_rank(), int(total)
    finally:
        dist.destroy_process_group()


def fail_on_rank_1() -> None:
    """Runs in the ranks: the second one raises."""
    if os.environ["RANK"] == "1":
        raise ValueError("rank 1 is bad")


@pytest.fixture
def ddp():
    case = DistributedTestCase()
    case.setUp()
    yield case
    case.tearDown()


@pytest.mark.torch
def test_a_function_runs_in_every_rank(ddp):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert ddp.run_ddp(2, rank_and_sum)(10) == {0: (0, 21), 1: (1, 21)}


@pytest.mark.torch
def test_a_rank_that_fails_raises(ddp):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(Exception, match="fail_on_rank_1 FAILED"):
        ddp.run_ddp(2, fail_on_rank_1)()


def test_without_pytorch_it_says_how_to_install_it():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from torchx.testing.distributed import DistributedTestCase\n"
        "DistributedTestCase().run_ddp(2, print)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "install it with: pip install torch" in done.stderr
