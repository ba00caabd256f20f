"""What goes into a job's image is what ``docker build`` would have sent of the same folder."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.unit.workspace.trees import ignore, make, on_disk
from torchx.specs import Workspace

# one after the other: each removes its images, and with them what the daemon caches for the next
pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker-builds")]

TREE = (
    "data/a", "data/c.yaml", "data/sub/z", "x.csv", "sub/y.csv", "sub/data/z", "keep.py", "a b",
    "a[1]", "#x", "!x", ".hidden/f", "dir1/f", "dir/f", "empty/", "deep/er/and/er/f.py",
)  # fmt: skip

CASES = [
    "", "data", "data/", "/data", "./data", "data/*", "data/**", "**/data", "**/data/**", "*.csv",
    "**/*.csv", "*/*.csv", "*", "**", "data\n!data/c.yaml", "data/*\n!data/c.yaml",
    "data\n!data/sub", "*\n!keep.py", "*\n!sub", "*\n!sub/data\nsub/data/z", "sub\n!sub\nsub/data",
    "sub/data\nsub\n!sub", "data\n!data\ndata", "dir?", "dir[0-9]", "dir[^0-9]", r"a\[1\]",
    "a[[]1]", "a ?", "  a b  ", "#x", r"\#x", r"\!x", "!x", "# all\n\n.\n/\nkeep.py # no comment",
    "../data", "sub/../data", "d*/a", "d**/z", "deep/**/f.py", "deep/**/er/*", "**/er/**/f.py",
    "*\n!deep/er/and", "empty", ".*", "**/f\n!dir/f", "\ufeffdata",
    "data\r\nsub\r\n",
]  # fmt: skip


def random_case(seed: int) -> str:
    """Some lines of the parts that paths of the tree have, or look like."""
    choose = random.Random(seed)
    parts = [
        "data",
        "sub",
        "a",
        "z",
        "f*",
        "deep",
        "er",
        "*",
        "**",
        "?*",
        "*.csv",
        "d[a-e]*",
        "c.yaml",
    ]
    lines = []
    for _ in range(choose.randint(1, 5)):
        line = "/".join(choose.choices(parts, k=choose.randint(1, 3)))
        # Docker 20.10 does not look for what a `!` with a pattern in front takes in again
        exact = not set(line.partition("/")[0]) & set("*?[")
        lines.append("!" * (exact and choose.random() < 0.4) + line)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def dockerfile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dockerfile") / "Dockerfile"
    path.write_text("FROM scratch\nWORKDIR /app\nCOPY . .\nCMD x\n")
    return path


@pytest.mark.parametrize("case", [*CASES, *map(random_case, range(8))], ids=repr)
def test_the_same_files_are_sent(daemon, built, files_of, dockerfile, tmp_path: Path, case):
    source = make(tmp_path / "src", *TREE)
    (source / "link").symlink_to("data/a")
    ignore(source, case, ".dockerignore")
    command = ["docker", "build", "-q", "-f", str(dockerfile), str(source)]
    env = {**os.environ, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    image = done.stdout.strip().splitlines()[-1]
    built.append(image)
    Workspace({str(source): ""}).merge_into(tmp_path / "out")
    ours = on_disk(tmp_path / "out")
    assert sorted(ours) == sorted(files_of(image))


@pytest.mark.parametrize("case", ["*\n!**/f.py", "*\n!deep/*/and/er/f.py"], ids=repr)
def test_patterns_take_in_below_ignored_folders_as_documented(tmp_path: Path, case):
    """The daemon's own builder does not look into such folders, BuildKit does since Docker 23."""
    source = make(tmp_path / "src", *TREE)
    ignore(source, case, ".dockerignore")
    Workspace({str(source): ""}).merge_into(tmp_path / "out")
    files = [path for path, what in on_disk(tmp_path / "out").items() if isinstance(what, tuple)]
    assert files == ["deep/er/and/er/f.py"]
