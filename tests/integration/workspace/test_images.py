"""Images that a real daemon builds of a workspace."""

import logging
import os
from pathlib import Path

import pytest

from tests.unit.workspace.trees import ignore, make
from torchx.errors import InvalidInput, TorchXError
from torchx.specs import AppDef, Role, Workspace
from torchx.workspace.docker_workspace import DEFAULT_DOCKERFILE, DockerWorkspaceMixin

pytestmark = pytest.mark.docker


@pytest.fixture
def builder(daemon):
    builder = DockerWorkspaceMixin()
    yield builder
    builder.close()


@pytest.fixture
def build(builder, base, built):
    def build(*projects: Path, **cfg: object) -> str:
        role = Role("r", base, workspace=Workspace({str(p): "" for p in projects}))
        builder.build_workspaces([role], cfg)
        built.append(role.image)
        return role.image

    return build


def test_an_image_holds_the_workspace_with_modes_and_links(build, files_of, tmp_path: Path):
    source = make(tmp_path / "w", "a/f", "a/run.sh", "empty/", "n" * 99 + "/" + "m" * 99, "left")
    (source / "a/run.sh").chmod(0o755)
    (source / "a").chmod(0o750)
    (source / "link").symlink_to("a/f")
    (source / "abs").symlink_to(source / "a/run.sh")
    (source / "out").symlink_to("/etc/hostname")
    (source / "up").symlink_to("..")
    (source / os.fsdecode(b"\xff")).write_text("")
    ignore(source, "left\n.torchxignore")
    files = files_of(build(source))
    assert files.pop("Dockerfile.torchx") == ("file", 0o644, DEFAULT_DOCKERFILE)
    assert files.pop("n" * 99)[0] == "dir"
    assert files == {
        "a": ("dir", 0o750, ""),
        "a/f": ("file", 0o644, b"a/f"),
        "a/run.sh": ("file", 0o755, b"a/run.sh"),
        "empty": ("dir", 0o755, ""),
        "n" * 99 + "/" + "m" * 99: ("file", 0o644, ("n" * 99 + "/" + "m" * 99).encode()),
        "link": ("link", 0, "a/f"),
        "abs": ("link", 0, "a/run.sh"),
        "out": ("link", 0, "/etc/hostname"),
        "up": ("link", 0, str(tmp_path)),
        os.fsdecode(b"\xff"): ("file", 0o644, b""),
    }


def test_an_unchanged_workspace_makes_the_same_image(build, tmp_path: Path, caplog):
    source = make(tmp_path / "w", "f")
    caplog.set_level(logging.INFO)
    first = build(source)
    assert build(source) == first
    assert "Using cache" in caplog.text
    make(source, "g")
    assert build(source) != first


def test_projects_and_an_own_dockerfile_are_built(build, files_of, base, tmp_path: Path):
    a, b = make(tmp_path / "a", "x", "y"), make(tmp_path / "b", "z")
    (a / "Dockerfile.torchx").write_text(
        "ARG IMAGE\nFROM $IMAGE\nARG WORKSPACE\nCOPY x z ./\nLABEL image=$IMAGE from=$WORKSPACE\n"
    )
    image = build(a, b)
    assert sorted(files_of(image)) == ["x", "z"]


def test_a_build_that_fails_is_explained(build, base, tmp_path: Path, daemon):
    def left() -> list[str]:
        """Containers of steps of builds on the base of this test run alone."""
        return [c.id for c in daemon.containers.list(all=True, filters={"ancestor": base})]

    before = left()
    (make(tmp_path, "x") / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nCOPY no /\n")
    with pytest.raises(InvalidInput, match=r"Step 3/4 : COPY no /\).*no"):
        build(tmp_path)
    (tmp_path / "Dockerfile.torchx").write_text("NONSENSE\n")
    with pytest.raises(InvalidInput, match="unknown instruction: NONSENSE"):
        build(tmp_path)
    # the base image has no programs
    (tmp_path / "Dockerfile.torchx").write_text('ARG IMAGE\nFROM $IMAGE\nRUN ["/none"]\n')
    with pytest.raises(InvalidInput, match="RUN"):
        build(tmp_path)
    assert left() == before


def test_an_image_that_does_not_exist_is_explained(builder, tmp_path: Path):
    role = Role("r", "localhost:1/no/such:1", workspace=Workspace({str(tmp_path): ""}))
    with pytest.raises(InvalidInput, match="`localhost:1/no/such:1` is not on this machine"):
        builder.build_workspaces([role], {})


def test_a_pushed_image_runs_by_its_digest(
    build, builder, daemon, registry, files_of, built, tmp_path: Path, capsys
):
    local = build(make(tmp_path / "w", "f"))
    app = AppDef("a", [Role("r", local)])
    repository = f"{registry}/torchx-test/pushed"
    images = builder.dryrun_push_images(app, {"image_repo": repository})
    tagged = app.roles[0].image
    for _ in range(2):
        builder.push_images(images)
    pinned = builder.pushed_image(tagged)
    assert pinned.startswith(f"{repository}@sha256:")
    assert "docker push " in capsys.readouterr().err
    daemon.images.remove(local, force=True)
    assert daemon.images.pull(pinned).id == local
    built.append(pinned)
    assert files_of(pinned)["f"] == ("file", 0o644, b"f")


def test_a_registry_that_is_not_there_is_explained(build, builder, built, tmp_path: Path, caplog):
    app = AppDef("a", [Role("r", build(make(tmp_path / "w", "f")))])
    images = builder.dryrun_push_images(app, {"image_repo": "localhost:1/x"})
    built.append(app.roles[0].image)
    with pytest.raises(TorchXError, match=r"cannot push `localhost:1/x:.*refused"):
        builder.push_images(images)
    assert caplog.text.count("trying again") == 3
