"""Dockerfiles that only BuildKit understands: built by `docker buildx`, or refused by name."""

import os
import sys
from pathlib import Path

import pytest

from tests.unit.workspace.fake_daemon import FakeDaemon, running
from torchx.errors import InvalidInput
from torchx.specs import Role, Workspace
from torchx.workspace._buildx import feature_of_buildkit
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

PROGRAM = """\
#!{python} -IS
import os, sys, tarfile
if sys.argv[1:3] == ["buildx", "version"]:
    sys.exit(int(os.environ.get("NO_BUILDX", 0)))
names = tarfile.open(fileobj=sys.stdin.buffer, mode="r|").getnames()
with open(os.environ["BUILDX_CALL"], "w") as f:
    f.write("\\n".join([*sys.argv[1:], *sorted(names)]))
print("#1 building")
if "BUILDX_FAILS" in os.environ:
    sys.exit("ERROR: failed to solve: process did not complete")
path = next(a for a in sys.argv if a.startswith("--iidfile=")).partition("=")[2]
with open(path, "w") as f:
    f.write("sha256:" + 64 * "b")
"""
MOUNT = "FROM base\nRUN --mount=type=cache,target=/c true\n"


@pytest.fixture
def builder(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "docker"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("BUILDX_CALL", str(tmp_path / "call"))
    with running(FakeDaemon()) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        builder = DockerWorkspaceMixin()
        yield builder
        builder.close()


def build(builder, folder: Path, dockerfile: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile.torchx").write_text(dockerfile)
    (folder / "train.py").write_text("x")
    role = Role("r", "base", workspace=Workspace({str(folder): ""}))
    builder.build_workspaces([role], {})
    return role.image


def test_buildx_builds_what_needs_it(builder, tmp_path, caplog):
    caplog.set_level("INFO")
    assert build(builder, tmp_path / "ws", MOUNT) == "sha256:" + 64 * "b"
    call = (tmp_path / "call").read_text().split("\n")
    assert call[:3] == ["buildx", "build", "--load"]
    assert "--file=Dockerfile.torchx" in call
    assert "--build-arg=IMAGE=base" in call
    assert call[-3:] == ["-", "Dockerfile.torchx", "train.py"]
    assert "#1 building" in caplog.text


def test_a_failed_build_is_told_in_its_words(builder, tmp_path, monkeypatch):
    monkeypatch.setenv("BUILDX_FAILS", "1")
    with pytest.raises(InvalidInput, match=r"could not be built:\n.*\nERROR: failed to solve"):
        build(builder, tmp_path / "ws", MOUNT)


def test_without_buildx_the_step_is_named(builder, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_BUILDX", "1")
    with pytest.raises(InvalidInput, match=r"`RUN --mount` in line 2 .* needs BuildKit"):
        build(builder, tmp_path / "ws", MOUNT)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (MOUNT, "`RUN --mount` in line 2"),
        ("# syntax=docker/dockerfile:1\nFROM a\nCOPY --link x y", "`COPY --link` in line 3"),
        ("FROM a\nRUN <<EOF\napt update\nEOF", "`RUN <<` in line 2"),
        ("FROM a\ncopy <<'END' /x\nhi\nEND", "`COPY <<` in line 2"),
        ("FROM a\nRUN a \\\n  && b\nRUN \\\n  --mount=type=tmpfs x", "`RUN --mount` in line 4"),
        ("FROM a\nRUN tool --mountain x", None),
        ("FROM a\n# RUN --mount=x\nCOPY --chown=a . .", None),
        ("FROM a\nRUN echo $((1 << 2))", None),
        ("FROM a\nRUN cat <<EOF > x \\\n a \\\n EOF", None),
        ("", None),
    ],
)
def test_what_needs_buildkit_is_found(text, found):
    assert feature_of_buildkit(text) == found
