"""The option `image_builder`, and the steps of a dry run and a submit."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workspace.fake_daemon import BASE_ID, BUILT_ID, FakeDaemon, running
from torchx.errors import BackendUnavailable, InvalidInput, UnsupportedRequest
from torchx.schedulers.docker_scheduler import create_scheduler
from torchx.specs.api import AppDef, Role, Workspace
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from .fake_registry import FakeRegistry, Fault, tar_of


class Builder(DockerWorkspaceMixin):
    """A backend that runs jobs elsewhere."""


@pytest.fixture(autouse=True)
def no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")  # nothing listens there


def app_of(*workspaces: Path, image: str) -> AppDef:
    roles = [
        Role(name=f"r{n}", image=image, workspace=Workspace({str(path): ""}))
        for n, path in enumerate(workspaces)
    ]
    return AppDef(name="app", roles=roles)


def build(app: AppDef, builder: DockerWorkspaceMixin | None = None, **cfg: Any) -> list[str]:
    (builder or Builder()).build_workspaces(app.roles, cfg)
    return [role.image for role in app.roles]


def test_a_dry_run_uploads_nothing_and_a_submit_all(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image()
    repo = f"{registry.host}/team/out"
    app, builder = app_of(workspace, image=f"{registry.host}/team/base:1"), Builder()
    (image,) = build(app, builder, image_repo=repo)
    assert image.startswith(f"{repo}@sha256:")
    images = builder.dryrun_push_images(app, {"image_repo": repo})
    assert app.roles[0].image == image
    assert {r.split()[0] for r in registry.requests} == {"HEAD", "GET"}
    builder.push_images(images)
    assert list(images) == [image]
    ((repository, tag),) = images.values()
    assert repository == repo
    assert registry.image("team/out", tag) == registry.image("team/out", image.partition("@")[2])


def test_another_process_can_push_what_one_has_built(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image()
    app = app_of(workspace, image=f"{registry.host}/team/base:1")
    (image,) = build(app, image_repo=f"{registry.host}/team/out")
    builder = Builder()
    builder.push_images(builder.dryrun_push_images(app, {}))
    registry.image("team/out", image.partition("@")[2])
    assert builder.dryrun_push_images(app, {}) == {}  # it is there


def test_an_image_that_nobody_here_built_is_left_alone(registry: FakeRegistry) -> None:
    image = f"{registry.host}/x@sha256:{'0' * 64}"
    app = AppDef(name="app", roles=[Role(name="r", image=image), Role(name="s", image="x:1")])
    assert Builder().dryrun_push_images(app, {"image_repo": "x"}) == {}
    assert app.roles[0].image == image
    with pytest.raises(InvalidInput, match="build it again"):
        Builder().push_images({image: ("x", "y")})


def test_equal_roles_are_built_once(registry: FakeRegistry, workspace: Path) -> None:
    registry.add_image()
    app = app_of(workspace, workspace, image=f"{registry.host}/team/base:1")
    first, second = build(app, image_repo=f"{registry.host}/team/out")
    assert first == second
    assert len(registry.did("HEAD", "manifests")) == 1


def test_the_default_dockerfile_is_in_the_image_as_with_docker(
    registry: FakeRegistry, workspace: Path
) -> None:
    """`COPY . .` takes it along, so it is there whoever builds."""
    registry.add_image()
    app, builder = app_of(workspace, image=f"{registry.host}/team/base:1"), Builder()
    (image,) = build(app, builder, image_repo=f"{registry.host}/team/out")
    builder.push_images(builder.dryrun_push_images(app, {}))
    with registry.top_layer("team/out", image.partition("@")[2]) as tar:
        assert tar.getnames()[0] == "Dockerfile.torchx"


@pytest.mark.parametrize(
    ("cfg", "dockerfile"),
    [
        ({}, False),
        ({"image_repo": "REPO"}, True),
        ({"image_repo": "REPO", "image_builder": "docker"}, False),
        ({"image_builder": "docker"}, False),
        ({"image_builder": "auto"}, False),
        ({"image_builder": None}, False),
    ],
)
def test_docker_builds_where_a_daemon_is_needed_or_asked_for(
    registry: FakeRegistry, workspace: Path, cfg: dict[str, Any], dockerfile: bool
) -> None:
    registry.add_image()
    if dockerfile:
        (workspace / "Dockerfile.torchx").write_text("FROM scratch")
    cfg = {k: v.replace("REPO", f"{registry.host}/team/out") if v else v for k, v in cfg.items()}
    with pytest.raises(BackendUnavailable, match=r"the Docker daemon at .* cannot be reached"):
        build(app_of(workspace, image=f"{registry.host}/team/base:1"), **cfg)
    assert not registry.requests


def test_a_backend_of_this_machine_builds_with_docker_unless_told_otherwise(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image()
    app = app_of(workspace, image=f"{registry.host}/team/base:1")
    repo = f"{registry.host}/team/out"
    local_docker = create_scheduler("test")
    with pytest.raises(BackendUnavailable, match="Docker daemon"):
        build(app, local_docker, image_repo=repo)
    assert not registry.requests
    build(app, local_docker, image_repo=repo, image_builder="registry")
    image = app.roles[0].image
    assert image.startswith(f"{repo}@sha256:")
    info = local_docker.submit_dryrun(app, {"image_repo": repo, "image_builder": "registry"})
    assert list(info.request.images_to_push) == [image]
    assert registry.requests
    assert all(r.startswith(("GET ", "HEAD ")) for r in registry.requests)


def test_a_local_image_is_built_on_with_docker(workspace: Path) -> None:
    app = app_of(workspace, image=f"sha256:{'0' * 64}")
    with pytest.raises(BackendUnavailable, match=r"the Docker daemon at .* cannot be reached"):
        build(app, image_repo="localhost:1/x")
    with pytest.raises(InvalidInput, match="id of an image of a local daemon"):
        build(app, image_repo="localhost:1/x", image_builder="registry")


def test_a_choice_that_is_not_possible_says_why(registry: FakeRegistry, workspace: Path) -> None:
    image = f"{registry.host}/team/base:1"
    with pytest.raises(InvalidInput, match="`auto`, `docker` or `registry`"):
        build(app_of(workspace, image=image), image_builder="podman")
    with pytest.raises(InvalidInput, match="needs the option `image_repo`"):
        build(app_of(workspace, image=image), image_builder="registry")
    repo = f"{registry.host}/team/out"
    with pytest.raises(InvalidInput, match="the role has no image"):
        build(app_of(workspace, image=""), image_builder="registry", image_repo=repo)
    (workspace / "Dockerfile.torchx").write_text("FROM scratch")
    with pytest.raises(InvalidInput, match=r"has a Dockerfile\.torchx"):
        build(app_of(workspace, image=image), image_builder="registry", image_repo=repo)
    assert not registry.requests


@pytest.mark.parametrize("choice", ["auto", "registry"])
def test_an_image_that_neither_has_is_the_registry_s_error(
    registry: FakeRegistry, workspace: Path, choice: str
) -> None:
    app = app_of(workspace, image=f"{registry.host}/team/base:1")
    with pytest.raises(InvalidInput, match="has no image"):
        build(app, image_repo=f"{registry.host}/team/out", image_builder=choice)


@pytest.mark.parametrize("tag", ["onbuild", "zstd"])
def test_what_only_a_builder_can_build_on_is_built_on_by_a_daemon_that_answers(
    registry: FakeRegistry, workspace: Path, monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    registry.add_image(tag="onbuild", settings={"OnBuild": ["RUN make"]})
    registry.add_image(tag="zstd", oci=True, compression="zstd")
    for name in ("zstandard", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    base, cfg = f"{registry.host}/team/base:{tag}", {"image_repo": f"{registry.host}/team/out"}
    daemon = FakeDaemon()
    daemon.pull = [{"status": "Pull complete", "id": "a"}]
    with running(daemon) as address:
        with monkeypatch.context() as there:
            there.setenv("DOCKER_HOST", address)
            builder = Builder()
            assert build(app_of(workspace, image=base), builder, **cfg) == [BUILT_ID]
            builder.close()
            with pytest.raises(UnsupportedRequest):
                build(app_of(workspace, image=base), image_builder="registry", **cfg)
        with pytest.raises(UnsupportedRequest, match="image_builder=docker"):
            build(app_of(workspace, image=base), **cfg)
    assert daemon.count("POST /build") == 1


def test_a_workspace_that_does_not_fit_is_not_given_to_a_daemon(
    registry: FakeRegistry, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add_image(layers=[tar_of({"pkg": "-> srv"})])
    base = f"{registry.host}/team/base:1"
    daemon = FakeDaemon()
    daemon.images[base] = BASE_ID
    with running(daemon) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        with pytest.raises(InvalidInput, match="has a link"):
            build(app_of(workspace, image=base), image_repo=f"{registry.host}/team/out")
    assert not daemon.requests


def test_the_option_is_offered_with_its_values() -> None:
    option = dict(Builder().workspace_opts())["image_builder"]
    assert option.default == "auto"
    for name in ("docker", "registry", "auto"):
        assert f"`{name}`" in option.help


def test_what_is_sent_is_said(
    registry: FakeRegistry, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry.add_image()
    caplog.set_level(logging.INFO)
    app, builder = app_of(workspace, image=f"{registry.host}/team/base:1"), Builder()
    build(app, builder, image_repo=f"{registry.host}/team/out")
    assert "packing 3 files" in caplog.text
    builder.push_images(builder.dryrun_push_images(app, {}))
    assert f"to `{registry.host}/team/out`" in caplog.text


def test_a_failed_push_can_be_repeated(registry: FakeRegistry, workspace: Path) -> None:
    registry.add_image()
    app, builder = app_of(workspace, image=f"{registry.host}/team/base:1"), Builder()
    (image,) = build(app, builder, image_repo=f"{registry.host}/team/out")
    images = builder.dryrun_push_images(app, {})
    registry.faults.append(Fault("PUT", "manifests", 403))
    with pytest.raises(InvalidInput, match="docker login"):
        builder.push_images(images)
    builder.push_images(images)
    registry.image("team/out", image.partition("@")[2])
