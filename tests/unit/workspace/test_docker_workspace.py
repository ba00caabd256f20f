"""The builder of images, with a daemon that is ours."""

import fcntl
import io
import json
import logging
import os
import re
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors
import pytest

from tests.unit.workspace.fake_daemon import BASE_ID, BUILT_ID, FakeDaemon, running
from tests.unit.workspace.trees import ignore, make
from torchx.errors import BackendUnavailable, InvalidInput, TorchXError
from torchx.runner import get_runner
from torchx.specs import AppDef, Role, Workspace
from torchx.version import __version__
from torchx.workspace.docker_workspace import (
    DEFAULT_DOCKERFILE,
    TORCHX_DOCKERFILE,
    DockerWorkspaceMixin,
    _build_context,
    print_push_events,
)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    daemon = FakeDaemon()
    with running(daemon) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        yield daemon


@pytest.fixture
def builder() -> Iterator[DockerWorkspaceMixin]:
    builder = DockerWorkspaceMixin()
    yield builder
    builder.close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


def role(*projects: Path, image: str = "base") -> Role:
    return Role("r", image, workspace=Workspace({str(p): "" for p in projects}))


def settled(root: Path) -> Path:
    """Makes files look as if they were written long ago; only the status change time is new."""
    for path in root.rglob("*"):
        os.utime(path, (1, 1))
    return root


def build(builder: DockerWorkspaceMixin, *roles: Role, **cfg: object) -> list[str]:
    builder.build_workspaces([*roles], cfg)
    return [role.image for role in roles]


# -- building --------------------------------------------------------------------------------------


def test_the_workspace_is_sent_with_a_default_dockerfile(daemon, builder, tmp_path: Path, caplog):
    source = make(tmp_path, "a/run.sh", "x", "left")
    (source / "a/run.sh").chmod(0o755)
    (source / "l").symlink_to("x")
    ignore(source, "left", ".dockerignore")
    caplog.set_level(logging.INFO)
    one = role(source)
    assert build(builder, one) == [BUILT_ID]
    assert one.workspace == Workspace({str(source): ""})
    assert sorted(daemon.context()) == [
        ".dockerignore", TORCHX_DOCKERFILE, "a", "a/run.sh", "l", "x"
    ]  # fmt: skip
    assert daemon.context()["a/run.sh"].mode == 0o755
    assert daemon.sent(TORCHX_DOCKERFILE) == DEFAULT_DOCKERFILE
    (sent,) = daemon.arguments
    assert json.loads(sent["buildargs"]) == {"IMAGE": "base", "WORKSPACE": str(source)}
    assert json.loads(sent["labels"]) == {"torchx.pytorch.org/version": __version__}
    assert sent["dockerfile"] == TORCHX_DOCKERFILE
    assert {key: sent.get(key) for key in ("pull", "rm", "forcerm", "nocache")} == {
        "pull": "False", "rm": "True", "forcerm": "True", "nocache": "False"
    }  # fmt: skip
    assert "POST /images/create" not in daemon.requests
    logged = [r.getMessage() for r in caplog.records if r.name.endswith("docker_workspace")]
    assert logged == ["Step 1/2 : FROM base", "Successfully built c"]


def test_output_of_a_quiet_build_is_not_logged(daemon, builder, tmp_path: Path, caplog):
    caplog.set_level(logging.INFO)
    build(builder, role(make(tmp_path, "x")), quiet=True)
    assert "Step 1/2" not in caplog.text
    assert "sending 1 file" in caplog.text


def test_the_workspaces_own_dockerfile_is_used(daemon, builder, tmp_path: Path):
    make(tmp_path, "Dockerfile.torchx", "x")
    ignore(tmp_path, "*")
    build(builder, role(tmp_path))
    assert sorted(daemon.context()) == [TORCHX_DOCKERFILE]
    assert daemon.sent(TORCHX_DOCKERFILE) == b"Dockerfile.torchx"


def test_roles_with_one_image_and_workspace_share_a_build(daemon, builder, tmp_path: Path):
    a, b = make(tmp_path / "a", "x"), make(tmp_path / "b", "y")
    daemon.images["other"] = BASE_ID
    roles = [role(a), role(a), role(b), role(a, image="other"), Role("none", "base")]
    assert build(builder, *roles) == [BUILT_ID] * 4 + ["base"]
    assert daemon.count("POST /build") == 3
    build(builder, role(a, b))
    assert sorted(daemon.context()) == [TORCHX_DOCKERFILE, "x", "y"]
    assert json.loads(daemon.arguments[-1]["buildargs"])["WORKSPACE"] == f"{a};{b}"


def test_an_unchanged_workspace_is_not_sent_again(
    daemon, builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = make(tmp_path / "w", "x")
    build(builder, role(source))
    assert build(builder, role(source)) == [BUILT_ID]
    assert daemon.count("POST /build") == 2  # the file was written a moment ago: it may be changing
    later = time.time_ns() + 60_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)
    for _ in range(3):
        assert build(builder, role(source)) == [BUILT_ID]
    assert daemon.count("POST /build") == 3
    for change in (
        lambda: (source / "x").chmod(0o700),
        lambda: (source / "x").write_text("y"),
        lambda: daemon.images.pop(BUILT_ID),
        lambda: daemon.images.update(base="sha256:" + "d" * 64),
        lambda: make(source, "Dockerfile.torchx"),
        lambda: None,  # what such a file does cannot be foreseen, the daemon has a cache of its own
    ):
        before = daemon.count("POST /build")
        change()
        assert build(builder, role(source)) == [BUILT_ID]
        assert daemon.count("POST /build") == before + 1


def test_a_missing_image_is_pulled_once(daemon, builder, tmp_path: Path, capsys):
    daemon.pull = [{"status": "Pulling", "id": "l1"}, {"status": "Done", "id": "l1"}]
    make(tmp_path, "x")
    for _ in range(2):
        build(builder, role(tmp_path, image="host.io:5/new"))
    assert daemon.count("POST /images/create") == 1 + 1 * ("host.io:5/new" not in daemon.images)
    assert "docker pull l1: Pulling\ndocker pull l1: Done\n" in capsys.readouterr().err
    build(builder, role(tmp_path, image="other"), quiet=True)
    assert capsys.readouterr().err == ""


def test_an_image_that_does_not_exist_is_said_before_anything_is_sent(
    daemon, builder, tmp_path: Path
):
    make(tmp_path, "x")
    with pytest.raises(InvalidInput, match="`nosuch` is not on this machine and cannot be pulled"):
        build(builder, role(tmp_path, image="nosuch"))
    daemon.pull = [{"error": "manifest unknown"}]
    with pytest.raises(InvalidInput, match="manifest unknown"):
        build(builder, role(tmp_path, image="nosuch"))
    with pytest.raises(InvalidInput, match="only names can be pulled"):
        build(builder, role(tmp_path, image="sha256:" + "e" * 64))
    with pytest.raises(InvalidInput, match="give the role an image"):
        build(builder, role(tmp_path, image=""))
    assert daemon.count("POST /build") == 0


def test_an_own_dockerfile_may_not_need_the_image(daemon, builder, tmp_path: Path, caplog):
    make(tmp_path, "Dockerfile.torchx")
    assert build(builder, role(tmp_path, image="nosuch")) == [BUILT_ID]
    assert "cannot pull image `nosuch`" in caplog.text
    assert build(builder, role(tmp_path, image="")) == [BUILT_ID]


def test_a_build_that_fails_says_where(daemon, builder, tmp_path: Path):
    daemon.build = [{"stream": "Step 2/3 : RUN false\n"}, {"error": "exit code 1\n"}]
    for kind in (InvalidInput, docker.errors.BuildError):
        with pytest.raises(kind, match=r"\(Step 2/3 : RUN false\): exit code 1"):
            build(builder, role(make(tmp_path, "x")))


@pytest.mark.parametrize("answer", [[{"stream": "nothing"}], [{"aux": {}}]])
def test_a_build_without_an_image_is_an_error(daemon, builder, tmp_path: Path, answer):
    daemon.build = answer
    for kind in (AssertionError, TorchXError):
        with pytest.raises(kind, match="docker build"):
            build(builder, role(make(tmp_path, "x")))


def test_a_daemon_that_refuses_or_fails_is_quoted(daemon, builder, tmp_path: Path):
    for status in (400, 500):
        daemon.build = (status, "dockerfile parse error")
        with pytest.raises(InvalidInput, match="could not be built: dockerfile parse error"):
            build(builder, role(make(tmp_path, "x")))
    daemon.build = []
    with pytest.raises(BackendUnavailable, match="cannot build the image"):
        build(builder, role(tmp_path))


def test_without_a_daemon_there_is_one_clear_line(builder, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(BackendUnavailable) as error:
        build(builder, role(make(tmp_path, "x")))
    text = str(error.value)
    assert f"Docker daemon at unix://{tmp_path}/none.sock cannot be reached: No such file" in text
    assert "\n" not in text


@pytest.mark.parametrize("host", ["tcp://localhost:port", "nothing://x"])
def test_an_address_that_is_none_is_named(builder, tmp_path: Path, monkeypatch, host):
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(BackendUnavailable, match=f"at {host} .*set DOCKER_HOST"):
        build(builder, role(make(tmp_path, "x")))


def test_without_the_sdk_the_extra_is_named(builder, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torchx\[docker\]'"):
        build(builder, role(make(tmp_path, "x")))


def test_a_file_that_cannot_be_read_ends_the_build(daemon, builder, tmp_path: Path):
    make(tmp_path, "x", large="1")
    entry = tmp_path / "large"

    class Breaks(DockerWorkspaceMixin):
        def _choose_builder(self, image, entries, cfg):
            entry.unlink()  # as if someone removed it after it was found
            return super()._choose_builder(image, entries, cfg)

    broken = Breaks()
    with pytest.raises(TorchXError, match=f"cannot read `{entry}`"):
        build(broken, role(tmp_path))
    broken.close()


def test_wrong_workspaces_do_not_reach_the_daemon(daemon, builder, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        build(builder, role(tmp_path / "gone"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="named pipe"):
        build(builder, role(tmp_path))
    assert daemon.requests == []


def test_a_client_may_be_given(daemon, tmp_path: Path):
    client = docker.from_env()
    builder = DockerWorkspaceMixin(docker_client=client)
    assert builder._docker_client is client
    single = Role("r", "base")
    builder.build_workspace_and_update_role(single, str(make(tmp_path, "x")), {})
    assert single.image == BUILT_ID
    builder.close()
    assert client.ping  # the caller closes it
    client.close()


def test_a_subclass_that_builds_single_directories_is_asked(tmp_path: Path):
    class Own(DockerWorkspaceMixin):
        def build_workspace_and_update_role(self, role, workspace, cfg):
            role.image = f"own {workspace}"

    assert build(Own(), role(tmp_path)) == [f"own {tmp_path}"]


def test_the_context_can_be_had_as_a_file(tmp_path: Path):
    import tarfile

    make(tmp_path, "x", "left")
    ignore(tmp_path, "left\n.*")
    with _build_context("base", str(tmp_path)) as file, tarfile.open(fileobj=file) as tar:
        assert tar.getnames() == ["x", TORCHX_DOCKERFILE]
    with pytest.raises(FileNotFoundError):
        _build_context("base", str(tmp_path / "gone"))


@pytest.mark.parametrize("name", ["local_docker", "slurm"])
@pytest.mark.parametrize(
    ("cfg", "said"),
    [
        ({"image_builder": "foo"}, "`auto`, `docker` or `registry`"),
        ({"image_repo": "BAD:x"}, "not the name of a repository"),
    ],
)
def test_wrong_options_are_refused_where_there_is_no_workspace(name, cfg, said):
    app = AppDef("a", [Role("r", "base:1", entrypoint="x")])
    with get_runner() as runner, pytest.raises(InvalidInput, match=said):
        runner.dryrun(app, name, cfg)


def test_help_says_what_builds():
    class Local(DockerWorkspaceMixin):
        _runs_elsewhere = False

    here, there = (dict(b.workspace_opts()) for b in (Local(), DockerWorkspaceMixin()))
    assert "`auto`: the first, as the daemon" in here["image_builder"].help
    assert "`auto`: the second, if `image_repo`" in there["image_builder"].help
    assert "`image_builder=registry` pushes" in here["image_repo"].help
    assert "needed by backends that run elsewhere" in there["image_repo"].help


def test_options_are_declared():
    opts = dict(DockerWorkspaceMixin().workspace_opts())
    assert {n: (o.opt_type, o.default) for n, o in opts.items()} == {
        "image_repo": (str, None),
        "image_builder": (str, "auto"),
        "quiet": (bool, False),
    }


# -- pushing ---------------------------------------------------------------------------------------


def test_local_images_get_the_names_they_are_pushed_as(builder):
    app = AppDef("a", [Role("r", BUILT_ID), Role("s", BUILT_ID), Role("t", "other:1")])
    images = builder.dryrun_push_images(app, {"image_repo": "example.com/team/img"})
    assert images == {BUILT_ID: ("example.com/team/img", "c" * 64)}
    remote = "example.com/team/img:" + "c" * 64
    assert [r.image for r in app.roles] == [remote, remote, "other:1"]
    assert builder.dryrun_push_images(app, {}) == {}


def test_a_local_image_needs_a_repository(builder):
    for kind in (KeyError, InvalidInput):
        with pytest.raises(kind, match="`image_repo`") as error:
            builder.dryrun_push_images(AppDef("a", [Role("r", BUILT_ID)]), {})
        assert not str(error.value).startswith('"')


@pytest.mark.parametrize("repo", ["a/B", "a:tag", "a@sha256:x", "http://a/b", "a b", "/a", "a/", 3])
def test_a_malformed_repository_is_refused_before_the_build(daemon, builder, tmp_path, repo):
    with pytest.raises(InvalidInput, match="which is not the name of a repository"):
        build(builder, role(make(tmp_path, "x")), image_repo=repo)
    assert daemon.requests == []


@pytest.mark.parametrize(
    "repo", ["a", "localhost:5000/a_b", "Host.io/a/b-c", "[::1]:5/x", "a.b__c"]
)
def test_a_repository_may_have_a_host(builder, repo):
    app = AppDef("a", [Role("r", BUILT_ID)])
    assert builder.dryrun_push_images(app, {"image_repo": repo})[BUILT_ID][0] == repo


def pushed(daemon: FakeDaemon, builder: DockerWorkspaceMixin) -> str:
    daemon.images[BUILT_ID] = BUILT_ID
    builder.push_images({BUILT_ID: ("h/i", "tag")})
    return builder.pushed_image("h/i:tag")


DIGEST = "sha256:" + "f" * 64
DONE = [{"status": "Pushed", "id": "l"}, {"aux": {"Tag": "tag", "Digest": DIGEST, "Size": 1}}]


def test_a_pushed_image_is_known_by_its_digest(daemon, builder, capsys):
    daemon.pushes = [DONE]
    assert pushed(daemon, builder) == f"h/i@{DIGEST}"
    assert builder.pushed_image("other:1") == "other:1"
    assert daemon.requests[-2:] == [
        f"POST /images/{BUILT_ID}/tag",
        "POST /images/h/i/push",
    ]
    assert capsys.readouterr().err == "docker push l: Pushed\n"


def test_a_quiet_push_shows_nothing(daemon, builder, capsys):
    app = AppDef("a", [Role("r", BUILT_ID)])
    for quiet in (True, False):
        cfg = {"image_repo": "h/i", "quiet": quiet}
        images = builder.dryrun_push_images(AppDef("a", [Role("r", BUILT_ID)]), cfg)
        daemon.images[BUILT_ID], daemon.pushes = BUILT_ID, [DONE]
        builder.push_images(images)
        assert (capsys.readouterr().err == "") is quiet
    assert builder.dryrun_push_images(app, {"image_repo": "h/i", "quiet": True})
    daemon.pushes = [[{"error": "denied"}]]
    with pytest.raises(RuntimeError, match="denied"):
        builder.push_images({BUILT_ID: ("h/i", "c" * 64)})


def test_nothing_to_push_needs_no_daemon(builder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    builder.push_images({})


@pytest.mark.parametrize("failure", [[{"error": "unexpected EOF"}], (503, "try later"), []])
def test_a_push_that_breaks_is_tried_again(daemon, builder, no_pauses, failure):
    daemon.pushes = [failure, failure, DONE]
    assert pushed(daemon, builder) == f"h/i@{DIGEST}"
    assert no_pauses == pytest.approx([1, 2], rel=0.2)


def test_a_push_that_keeps_breaking_is_given_up(daemon, builder, no_pauses):
    daemon.pushes = [[{"error": "unexpected EOF"}]] * 9
    with pytest.raises(RuntimeError, match="cannot push `h/i:tag`: unexpected EOF"):
        pushed(daemon, builder)
    assert len(daemon.pushes) == 5
    assert no_pauses == pytest.approx([1, 2, 4], rel=0.2)


def test_a_registry_that_refuses_is_not_asked_again(daemon, builder, no_pauses):
    daemon.pushes = [[{"error": "denied: requested access to the resource is denied"}]] * 2
    with pytest.raises(TorchXError, match="is denied; log in with `docker login`"):
        pushed(daemon, builder)
    assert no_pauses == []


def test_an_image_that_is_gone_cannot_be_pushed(daemon, builder):
    with pytest.raises(InvalidInput, match="No such image"):
        builder.push_images({"sha256:gone": ("h/i", "tag")})


# -- progress --------------------------------------------------------------------------------------

EVENTS = [
    {"status": "The push refers to [h/i]"},
    {"status": "Preparing", "progressDetail": {}, "id": "one"},
    {"status": "Preparing", "progressDetail": {}, "id": "two"},
    {"nothing": "here"},
    {"status": "Pushing", "progress": "[=> ] 1B/2B", "id": "one"},
    {"status": "Pushing", "progress": "[==>] 2B/2B", "id": "one"},
    {"status": "tag: digest: sha256:f size: 1"},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_layer_has_a_line_on_a_terminal():
    out = Terminal()
    print_push_events(EVENTS, out)
    head = "\033[34mdocker push \033[0m"
    assert out.getvalue() == (
        f"{head}The push refers to [h/i]\n{head}one: Preparing \n{head}two: Preparing \n"
        f"\033[2F\033[2K{head}one: Pushing [=> ] 1B/2B\033[2E"
        f"\033[2F\033[2K{head}one: Pushing [==>] 2B/2B\033[2E"
        f"{head}tag: digest: sha256:f size: 1\n"
    )


def test_lines_on_a_terminal_without_colours(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    print_push_events(EVENTS, out)
    assert "\033[2F\033[2Kdocker push one: Pushing" in out.getvalue()
    assert not re.search(r"\033\[[0-9;]*m", out.getvalue())


def test_a_terminal_that_cannot_move_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    print_push_events(EVENTS, out)
    assert "\033" not in out.getvalue()
    assert "docker push one: Pushing\n" in out.getvalue()


def test_a_line_never_wraps():
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
    with open(follower, "w") as out, open(leader, "rb", buffering=0) as screen:
        long = {"status": "Pushing", "progress": f"[{'=' * 40}>] 1B/2B", "id": "one"}
        print_push_events([long, {"status": "x" * 99}], out)
        seen = b""
        while seen.count(b"\n") < 2:  # the system hands lines over one by one
            seen += screen.read(10_000)
        lines = seen.decode().splitlines()
    shown = [re.sub(r"\x1b\[\d+m", "", line) for line in lines]
    assert shown == ["docker push one: Pushing 1B/2B", "docker push " + "x" * 27]


def test_states_are_plain_lines_elsewhere(capsys):
    print_push_events(EVENTS)
    assert capsys.readouterr().err == (
        "docker push The push refers to [h/i]\ndocker push one: Preparing\n"
        "docker push two: Preparing\ndocker push one: Pushing\n"
        "docker push tag: digest: sha256:f size: 1\n"
    )


def test_an_error_ends_the_progress():
    with pytest.raises(RuntimeError, match="broken"):
        print_push_events([{"error": "broken"}], io.StringIO())


def test_nothing_of_the_sdk_is_imported_with_the_module():
    import subprocess

    script = (
        "import sys, torchx.workspace.docker_workspace, torchx.workspace.dir_workspace\n"
        "slow = {'docker', 'requests', 'fsspec', 'tempfile', 'subprocess', 'yaml', 'tarfile'}\n"
        "print(slow & set(sys.modules))"
    )
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{script}"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert out == "set()\n"


def test_no_daemon_is_needed_to_look_at_the_seam(builder):
    assert builder._choose_builder("base", [], {}) == builder._build_with_docker
