"""A workspace is added to an image in the registry."""

import gzip
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.registry_images import append_workspace
from torchx._projects.tree import scan
from torchx.errors import (
    BackendUnavailable,
    InvalidInput,
    TorchXError,
    UnexpectedReply,
    UnsupportedRequest,
)
from torchx.version import __version__
from torchx.workspace._registry._base import this_platform
from torchx.workspace._registry._build import (
    find_base,
    plan_image,
    push_image,
)
from torchx.workspace._registry._plan import Plan, find_plan

from .conftest import AT_ONCE
from .fake_registry import (
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    FakeRegistry,
    Fault,
    digest_of,
    tar_of,
)


def append(fake: FakeRegistry, workspace: Path, base: str = "team/base:1") -> str:
    """Gives the digest of the new image."""
    out = f"{fake.host}/team/out"
    image = append_workspace(f"{fake.host}/{base}", str(workspace), out, AT_ONCE)
    repository, _, digest = image.partition("@")
    assert repository == f"{fake.host}/team/out"
    return digest


@pytest.mark.parametrize("oci", [False, True])
def test_the_workspace_becomes_the_last_layer(
    registry: FakeRegistry, workspace: Path, oci: bool
) -> None:
    env = ["A=1", "PATH=/bin"]
    base = registry.add_image(oci=oci, settings={"Env": env, "Labels": {"x": "y"}})
    digest = append(registry, workspace)
    before, config_before = registry.image("team/base", base)
    after, config = registry.image("team/out", digest)
    assert after["layers"][:-1] == before["layers"]
    assert after["mediaType"] == before["mediaType"]
    assert after["config"]["mediaType"] == before["config"]["mediaType"]
    assert after["layers"][-1]["mediaType"] == (
        "application/vnd.oci.image.layer.v1.tar+gzip"
        if oci
        else "application/vnd.docker.image.rootfs.diff.tar.gzip"
    )
    assert config["config"] == {
        "Env": env,
        "Labels": {"x": "y", "torchx.pytorch.org/version": __version__},
    }
    assert config["history"][:-1] == config_before["history"]
    assert config["history"][-1]["created"] == config_before["created"]
    with registry.top_layer("team/out", digest) as tar:
        names = tar.getnames()
    assert names == ["main.py", "pkg", "pkg/data.txt", "pkg/empty", "pkg/link"]


def test_the_tag_is_the_image_id(registry: FakeRegistry, workspace: Path) -> None:
    registry.add_image()
    digest = append(registry, workspace)
    manifest, _ = registry.image("team/out", digest)
    tag = manifest["config"]["digest"].removeprefix("sha256:")
    assert registry.manifests["team/out", tag] == registry.manifests["team/out", digest]


def test_an_unchanged_workspace_is_asked_for_and_not_sent(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image()
    first = append(registry, workspace)
    registry.requests.clear()
    assert append(registry, workspace) == first
    assert [r.split()[0] for r in registry.requests] == ["HEAD", "HEAD"]


def test_a_changed_file_sends_the_layer_and_the_configuration_only(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image(layers=[tar_of({"a": b"1"}), tar_of({"b": b"2"})])
    append(registry, workspace)
    registry.requests.clear()
    (workspace / "main.py").write_text("changed")
    append(registry, workspace)
    assert len(registry.did("PUT", "/blobs/uploads/")) == 2
    assert len(registry.did("PUT", "/manifests/")) == 1
    assert len(registry.did("GET")) == 0


def test_the_manifest_goes_last_and_nothing_is_tagged_before(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image()
    registry.faults.append(Fault("PUT", "uploads", 403, times=100))
    with pytest.raises(InvalidInput):
        append(registry, workspace)
    assert not [key for key in registry.manifests if key[0] == "team/out"]
    assert not registry.did("PUT", "manifests")
    registry.faults.clear()
    append(registry, workspace)
    assert registry.requests[-1].startswith("PUT /v2/team/out/manifests/")


@pytest.mark.parametrize("mounts", [True, False])
def test_the_base_s_layers_are_mounted_or_copied(
    registry: FakeRegistry, workspace: Path, mounts: bool
) -> None:
    layers = [tar_of({f"f{n}": os.urandom(1000)}) for n in range(6)]
    registry.add_image(layers=layers)
    registry.mounts = mounts
    digest = append(registry, workspace)
    registry.image("team/out", digest)
    assert len(registry.did("POST", "mount=")) == 6
    assert len(registry.did("PUT", "uploads")) == (2 if mounts else 8)


def test_a_base_of_the_same_repository_needs_neither(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image("team/out")
    digest = append(registry, workspace, "team/out:1")
    registry.image("team/out", digest)
    assert not registry.did("POST", "mount=")
    assert len(registry.did("POST")) == 2


def test_a_base_of_another_registry_is_copied(registry: FakeRegistry, workspace: Path) -> None:
    other = FakeRegistry()
    stop = other.serve()
    try:
        other.add_image("lib/base", layers=[tar_of({"big": os.urandom(3 << 20)}), tar_of({})])
        registry.faults.append(Fault("PATCH", "uploads", after=500_000))
        other.faults.append(Fault("GET", "blobs", cut_reply=700_000, then=3))
        image = append_workspace(
            f"{other.host}/lib/base:1", str(workspace), f"{registry.host}/team/out", AT_ONCE
        )
    finally:
        stop()
    registry.image("team/out", image.partition("@")[2])
    assert not registry.did("POST", "mount=")


def test_layers_that_are_fetched_from_elsewhere_stay_there(
    registry: FakeRegistry, workspace: Path
) -> None:
    digest = registry.add_image()
    manifest = json.loads(registry.manifests["team/base", digest][1])
    foreign = {
        "mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "digest": digest_of(b"elsewhere"),
        "size": 9,
        "urls": ["https://example.com/layer"],
    }
    manifest["layers"].insert(0, foreign)
    registry.add_manifest("team/base", "2", DOCKER_MANIFEST, manifest)
    out = append(registry, workspace, "team/base:2")
    assert json.loads(registry.manifests["team/out", out][1])["layers"][0] == foreign


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_base_layers_of_any_compression_are_read_and_left_alone(
    registry: FakeRegistry, workspace: Path, compression: str
) -> None:
    layers = [tar_of({"srv/": 0o755}), tar_of({"srv/": (0o700, 5, 6), "srv/f": os.urandom(3000)})]
    base = registry.add_image(
        oci=True, layers=layers, compression=compression, settings={"WorkingDir": "/srv"}
    )
    digest = append(registry, workspace)
    with registry.top_layer("team/out", digest) as tar:
        srv = tar.getmember("srv")
    assert (srv.mode, srv.uid, srv.gid) == (0o700, 5, 6)
    before = registry.image("team/base", base)[0]["layers"]
    assert registry.image("team/out", digest)[0]["layers"][:-1] == before


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_a_layer_that_is_damaged_is_named(
    registry: FakeRegistry, workspace: Path, compression: str, content: bytes | None
) -> None:
    base = registry.add_image(oci=True, layers=[tar_of({"f": b"x"})], compression=compression)
    layer = registry.image("team/base", base)[0]["layers"][0]["digest"]
    blobs = registry.blobs["team/base"]
    blobs[layer] = blobs[layer][:40] if content is None else content
    with pytest.raises(UnexpectedReply, match=layer):
        append(registry, workspace)


def test_without_zstd_such_a_layer_is_refused_until_it_is_installed(
    registry: FakeRegistry, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = tar_of({"srv/": (0o700, 5, 6)})
    registry.add_image(
        oci=True, layers=[layer], compression="zstd", settings={"WorkingDir": "/srv"}
    )
    with monkeypatch.context() as without:
        for name in ("zstandard", "compression.zstd"):
            without.setitem(sys.modules, name, None)
        for _ in range(2):
            with pytest.raises(UnsupportedRequest, match=r"torchx\[zstd\]") as caught:
                append(registry, workspace)
            assert f"{registry.host}/team/base:1" in str(caught.value)
    with registry.top_layer("team/out", append(registry, workspace)) as tar:
        assert tar.getmember("srv").mode == 0o700


def index_of(*images: tuple[str, str]) -> dict[str, Any]:
    """An index of manifests and their platforms."""
    manifests = []
    for digest, platform in images:
        os_name, architecture, *variant = platform.split("/")
        entry = {"os": os_name, "architecture": architecture}
        if variant:
            entry["variant"] = variant[0]
        manifests.append(
            {"mediaType": OCI_MANIFEST, "digest": digest, "size": 1, "platform": entry}
        )
    return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}


def test_an_image_for_several_platforms_is_picked_from(
    registry: FakeRegistry, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = registry.add_image(oci=True, layers=[tar_of({"ours": b""})])
    arm = registry.add_image(oci=True, layers=[tar_of({"arm": b""})], architecture="arm64")
    index = index_of(
        (digest_of(b""), "unknown/unknown"), (arm, "linux/arm64/v8"), (ours, this_platform())
    )
    registry.add_manifest("team/base", "1", OCI_INDEX, index)
    digest = append(registry, workspace)
    first = registry.image("team/base", ours)[0]["layers"]
    assert registry.image("team/out", digest)[0]["layers"][:-1] == first
    for platform in ("linux/arm64", "linux/arm64/v8"):
        monkeypatch.setenv("DOCKER_DEFAULT_PLATFORM", platform)
        _, config = registry.image("team/out", append(registry, workspace))
        assert config["architecture"] == "arm64"


def test_a_platform_that_is_not_there_lists_those_that_are(
    registry: FakeRegistry, workspace: Path
) -> None:
    arm = registry.add_image(oci=True)
    index = index_of(
        (arm, "linux/s390x"), (arm, "windows/amd64"), (digest_of(b""), "unknown/unknown")
    )
    registry.add_manifest("team/base", "1", OCI_INDEX, index)
    with pytest.raises(InvalidInput, match="`linux/s390x`, `windows/amd64`;") as caught:
        append(registry, workspace)
    assert this_platform() in str(caught.value)
    assert "unknown" not in str(caught.value)


def test_the_workspace_goes_where_the_image_works(registry: FakeRegistry, workspace: Path) -> None:
    layers = [
        tar_of({"home/": 0o755, "home/me/": (0o700, 1000, 1001), "data/": 0o1777}),
        tar_of({"home/me/": (0o750, 1000, 1002)}),
    ]
    registry.add_image(layers=layers, settings={"WorkingDir": "/home/me/app/"})
    digest = append(registry, workspace)
    with registry.top_layer("team/out", digest) as tar:
        names = tar.getnames()
        me = tar.getmember("home/me")
        assert tar.getmember("home/me/app").mode == 0o755
    assert names[:4] == ["home", "home/me", "home/me/app", "home/me/app/main.py"]
    assert (me.mode, me.uid, me.gid) == (0o750, 1000, 1002)


def large(content: dict[str, Any]) -> bytes:
    """A layer that is too large to be read without need."""
    return tar_of({**content, "large": os.urandom(5 << 20)})


def test_a_large_layer_is_read_only_if_it_may_have_the_directory(
    registry: FakeRegistry, workspace: Path
) -> None:
    layers = [tar_of({"srv/": 0o701}), large({"opt/": 0o700}), tar_of({"app/": 0o702})]
    blob = digest_of(gzip.compress(layers[1], mtime=0))
    read = {"/": 0, "/app": 0, "/srv": 1, "/opt": 1}  # and never again
    for tag, (working_dir, count) in enumerate(read.items()):
        registry.add_image(tag=str(tag), layers=layers, settings={"WorkingDir": working_dir})
        digest = append(registry, workspace, f"team/base:{tag}")
        assert len(registry.did("GET", blob)) == count
    with registry.top_layer("team/out", digest) as tar:
        assert tar.getmember("opt").mode == 0o700


def test_what_is_known_of_a_layer_is_kept_as_long_as_it_is_used(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image(layers=[tar_of({"srv/": 0o701})], settings={"WorkingDir": "/srv"})
    append(registry, workspace)
    (tree,) = (Path(os.environ["TORCHX_HOME"]) / "cache/images/trees").iterdir()
    os.utime(tree, (time.time() - 31 * 24 * 3600,) * 2)
    (workspace / "main.py").write_text("changed")
    append(registry, workspace)
    assert tree.exists()


@pytest.mark.parametrize(
    ("layers", "working_dir", "expected"),
    [
        ([{"app/": 0o755}, {"app/": (0o700, 1000, 1001)}], "/app", ("app", 0o700, 1000, 1001)),
        ([{"app/": (0o700, 5, 6)}, {".wh.app": b""}], "/app", ("app", 0o755, 0, 0)),
        ([{"srv/": 0o755}, {"app": "-> srv"}], "/app/x", ("srv/x", 0o755, 0, 0)),
        ([{"app/": 0o711}, {"app/": 0o700}, {"app/": 0o750}], "/app", ("app", 0o750, 0, 0)),
        (
            [{"a/": 0o755, "a/b/": (0o700, 5, 6)}, {"a": b"file"}, {"a/": 0o755}],
            *("/a/b", ("a/b", 0o755, 0, 0)),
        ),
    ],
)
def test_a_directory_is_what_the_highest_layer_makes_of_it_however_large(
    registry: FakeRegistry,
    workspace: Path,
    layers: list[dict[str, Any]],
    working_dir: str,
    expected: tuple[str, int, int, int],
) -> None:
    first, *others = layers
    registry.add_image(
        layers=[tar_of(first), *map(large, others)], settings={"WorkingDir": working_dir}
    )
    with registry.top_layer("team/out", append(registry, workspace)) as tar:
        place = tar.getmember(expected[0])
    assert (place.name, place.mode, place.uid, place.gid) == expected


def test_what_is_in_a_large_layer_is_not_replaced_where_it_was_read(
    registry: FakeRegistry, workspace: Path
) -> None:
    layers = [tar_of({"app/": 0o755}), large({"app/pkg": "-> /srv"})]
    registry.add_image(layers=layers, settings={"WorkingDir": "/app"})
    with pytest.raises(InvalidInput, match="has a link to `/srv` at `/app/pkg`"):
        append(registry, workspace)


def test_what_was_not_read_is_said(
    registry: FakeRegistry, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry.add_image(layers=[tar_of({"etc/": 0o755}), large({"pkg": "-> srv"})])
    caplog.set_level(logging.INFO)
    append(registry, workspace)
    assert "with 5.0 MiB were not read: whether the workspace replaces" in caplog.text


def test_what_a_large_layer_removed_is_not_in_the_way(
    registry: FakeRegistry, workspace: Path
) -> None:
    layers = [tar_of({"pkg": "-> srv"}), large({".wh.pkg": b"", "pkg/": 0o755})]
    registry.add_image(layers=layers)
    append(registry, workspace)


@pytest.mark.parametrize(
    ("layers", "working_dir", "place"),
    [
        ([{"data/": 0o755, "app": "-> data"}], "/app", "data"),
        ([{"data/": 0o755, "app": "-> /data"}], "/app/x", "data/x"),
        ([{"a/": 0o755, "a/b": "-> ../c"}], "/a/b/d", "c/d"),
        ([{"app": "-> data"}, {".wh.app": b""}], "/app", "app"),
        ([{"a/": 0o755, "a/b": "-> /c"}, {"a/.wh..wh..opq": b""}], "/a/b", "a/b"),
        ([{"app": "-> data"}, {"app/": 0o755}], "/app", "app"),
        ([{"x/": 0o755}], "app/../x", "x"),
        ([{"x/": 0o755}], "x", "x"),
        ([{"x/": 0o755}], "", ""),
    ],
)
def test_the_working_directory_is_found_through_links_and_removals(
    registry: FakeRegistry,
    workspace: Path,
    layers: list[dict[str, Any]],
    working_dir: str,
    place: str,
) -> None:
    registry.add_image(layers=map(tar_of, layers), settings={"WorkingDir": working_dir})
    digest = append(registry, workspace)
    with registry.top_layer("team/out", digest) as tar:
        assert os.path.join(place, "main.py") in tar.getnames()


@pytest.mark.parametrize(
    ("content", "words"),
    [({"app": b"file"}, "a file at `/app`"), ({"app": "-> app"}, "leads to itself")],
)
def test_a_working_directory_that_is_none_is_named(
    registry: FakeRegistry, workspace: Path, content: dict[str, Any], words: str
) -> None:
    registry.add_image(layers=[tar_of(content)], settings={"WorkingDir": "/app"})
    with pytest.raises(InvalidInput, match=words):
        append(registry, workspace)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"usr/lib/": 0o755, "pkg": "-> usr/lib"}, "`pkg` of the workspace is a directory, but"),
        ({"pkg": b""}, "has a file at `/pkg`"),
        ({"main.py/": 0o755}, "has a directory at `/main.py`"),
    ],
)
def test_a_workspace_does_not_replace_directories_of_the_image(
    registry: FakeRegistry, workspace: Path, content: dict[str, Any], words: str
) -> None:
    """A folder `bin` in the place of the link `/bin` would hide every program."""
    registry.add_image(layers=[tar_of(content)])
    with pytest.raises(InvalidInput, match=words) as caught:
        append(registry, workspace)
    assert "WORKDIR" in str(caught.value)
    assert not registry.did("POST")


@pytest.mark.parametrize("name", [".wh.etc", ".wh..wh..opq", "pkg/.wh.x", ".wh.dir/file"])
def test_a_workspace_does_not_remove_files_of_the_image(
    registry: FakeRegistry, workspace: Path, name: str
) -> None:
    """In a layer, `.wh.etc` stands for the removal of `etc`."""
    registry.add_image()
    (workspace / name).parent.mkdir(exist_ok=True)
    (workspace / name).touch()
    with pytest.raises(InvalidInput, match=r"`\.wh\.` remove files") as caught:
        append(registry, workspace)
    assert f"`{name.removesuffix('/file')}`" in str(caught.value)
    assert not registry.did("POST")


def test_images_that_only_a_builder_can_build_on_are_refused(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image(tag="onbuild", settings={"OnBuild": ["RUN make"]})
    registry.add_image(tag="windows", os="windows")
    v1 = "application/vnd.docker.distribution.manifest.v1+prettyjws"
    registry.add_manifest("team/base", "v1", v1, {"schemaVersion": 1})
    digest = registry.add_image(tag="chart")
    chart = json.loads(registry.manifests["team/base", digest][1])
    chart["config"]["mediaType"] = "application/vnd.cncf.helm.config.v1+json"
    registry.add_manifest("team/base", "chart", OCI_MANIFEST, chart)
    for tag, words in (
        ("onbuild", "image_builder=docker"),
        ("windows", "windows"),
        ("v1", "push the image again"),
        ("chart", "helm"),
    ):
        with pytest.raises(UnsupportedRequest, match=words):
            append(registry, workspace, f"team/base:{tag}")


@pytest.mark.parametrize(
    "entry", [{"digest": "sha256:../../../x"}, {}, [], {"digest": 1, "platform": []}]
)
def test_an_index_that_makes_no_sense_is_refused(
    registry: FakeRegistry, workspace: Path, entry: Any
) -> None:
    registry.add_manifest("team/base", "1", OCI_INDEX, {"manifests": [entry]})
    with pytest.raises(UnexpectedReply, match="index of"):
        append(registry, workspace)


def test_a_digest_is_never_a_path(registry: FakeRegistry, workspace: Path) -> None:
    digest = registry.add_image()
    manifest = json.loads(registry.manifests["team/base", digest][1])
    manifest["config"]["digest"] = "sha256:../../../../x"
    registry.add_manifest("team/base", "1", DOCKER_MANIFEST, manifest)
    with pytest.raises(UnexpectedReply, match="manifest of"):
        append(registry, workspace)


@pytest.mark.parametrize(
    "config",
    [
        {"rootfs": {}},
        {"rootfs": {"diff_ids": 1}},
        {"config": []},
        {"config": {"Env": "A"}},
        {"config": {"Labels": ["a"]}},
        {"config": {"WorkingDir": 1}},
        {"history": {"a": 1}},
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    registry: FakeRegistry, workspace: Path, config: dict[str, Any]
) -> None:
    settings = config.pop("config", None)
    registry.add_image(settings=settings, **config)
    if settings == []:
        registry.add_image(settings=["x"], **config)  # type: ignore[arg-type]
    with pytest.raises(UnexpectedReply, match="configuration of"):
        append(registry, workspace)


def test_an_image_made_here_can_be_a_base_again(registry: FakeRegistry, workspace: Path) -> None:
    """Its layer has many gzip members, of which every one counts."""
    registry.add_image(settings={"WorkingDir": "/srv/app"})
    for number in range(300):
        (workspace / f"f{number}").write_text("x")
    (workspace / "zz").mkdir(mode=0o711)
    first = append(registry, workspace)
    shutil.rmtree(workspace)
    workspace.mkdir()
    (workspace / "zz").write_text("x")
    with pytest.raises(InvalidInput, match="has a directory at `/srv/app/zz`"):
        append(registry, workspace, f"team/out@{first}")


def test_a_damaged_layer_is_not_used_again(registry: FakeRegistry, workspace: Path) -> None:
    registry.add_image()
    out = f"{registry.host}/team/out"
    base = find_base(f"{registry.host}/team/base:1", AT_ONCE)
    later_ns = time.time_ns() + 10_000_000_000

    def plan() -> Plan:
        return plan_image(base, str(workspace), scan(str(workspace)), out, AT_ONCE, later_ns)

    layer = plan().layer
    Path(layer.path).write_bytes(bytes(layer.size))
    with pytest.raises(BackendUnavailable, match="damaged and is removed"):
        push_image(plan(), AT_ONCE)
    push_image(plan(), AT_ONCE)


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"config": {}, "layers": []}', b"[]", b"null"])
def test_a_manifest_that_makes_no_sense_is_refused(
    registry: FakeRegistry, workspace: Path, content: bytes
) -> None:
    registry.add_manifest("team/base", "1", OCI_MANIFEST, content)
    with pytest.raises(UnexpectedReply, match="manifest of"):
        append(registry, workspace)


def test_an_image_that_is_not_there_is_named(registry: FakeRegistry, workspace: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no image .*team/base:1") as caught:
        append(registry, workspace)
    assert registry.host in str(caught.value)
    missing = "team/base@sha256:" + "0" * 64
    with pytest.raises(InvalidInput, match="MANIFEST_UNKNOWN"):
        append(registry, workspace, missing)


def test_a_registry_that_does_not_tell_digests_serves_as_well(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.tells_digest = False
    registry.add_image()
    registry.image("team/out", append(registry, workspace))


def test_a_base_by_digest_is_not_asked_for_again(registry: FakeRegistry, workspace: Path) -> None:
    base = registry.add_image()
    append(registry, workspace, f"team/base@{base}")
    registry.requests.clear()
    append(registry, workspace, f"team/base@{base}")
    assert [r.split()[0] for r in registry.requests] == ["HEAD"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("PUT", "manifests", 403, body=b'{"errors":[{"code":"DENIED","message":"quota"}]}'),
        Fault("PUT", "manifests", 500, times=100),
        Fault("POST", "uploads", 429, times=100),
        Fault("POST", "uploads", times=100),
        Fault("PUT", "uploads", 401, times=100),
        Fault("PUT", "uploads", 503, times=100),
    ],
)
def test_no_failure_leaves_a_half_pushed_image(
    registry: FakeRegistry, workspace: Path, fault: Fault
) -> None:
    registry.add_image()
    registry.faults.append(fault)
    with pytest.raises(TorchXError) as caught:
        append(registry, workspace)
    assert registry.host in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [key for key in registry.manifests if key[0] == "team/out"]
    # the answer to one that was being begun meanwhile may be lost: it holds nothing
    assert not any(registry.uploads.values())


def test_a_plan_is_known_to_other_processes_until_it_is_pushed(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image()
    out = f"{registry.host}/team/out"
    base = find_base(f"{registry.host}/team/base:1", AT_ONCE)
    plan = plan_image(base, str(workspace), scan(str(workspace)), out, AT_ONCE)
    assert find_plan(plan.image) == plan
    assert find_plan(f"{out}2@{plan.manifest.digest}") is None
    push_image(plan, AT_ONCE)
    assert find_plan(plan.image) is None
    registry.image("team/out", plan.tag)


def test_what_was_planned_can_be_pushed_after_many_other_plans(
    registry: FakeRegistry, workspace: Path
) -> None:
    registry.add_image()
    out = f"{registry.host}/team/out"
    base = find_base(f"{registry.host}/team/base:1", AT_ONCE)
    cache = Path(os.environ["TORCHX_HOME"]) / "cache/images"

    def plan(number: int) -> Plan:
        (workspace / "main.py").write_text(str(number))
        return plan_image(base, str(workspace), scan(str(workspace)), out, AT_ONCE)

    plans = [plan(number) for number in range(6)]
    for planned in plans:
        push_image(planned, AT_ONCE)
        registry.image("team/out", planned.tag)
    plan(6)
    assert len([*(cache / "layers").iterdir()]) == 3
    plans = [plan(number) for number in range(7, 12)]
    assert len([*(cache / "layers").iterdir()]) == 3 + 3
    for path in (cache / "plans").iterdir():  # as if nobody had wanted these for long
        os.utime(path, (time.time() - 8 * 24 * 3600,) * 2)
    plan(12)
    assert len([*(cache / "layers").iterdir()]) == 3


@pytest.mark.parametrize("home", ["/proc/nope", "/dev/null/x", None])
def test_without_a_cache_there_is_no_plan(
    monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    """Whoever runs an image that is there already needs none."""
    if home:
        monkeypatch.setenv("TORCHX_HOME", home)
    else:
        monkeypatch.delenv("TORCHX_HOME")
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # a user without an entry
    assert find_plan(f"h.io/x@{digest_of(b'')}") is None


def test_looking_for_a_plan_makes_no_folder() -> None:
    assert find_plan(f"h.io/x@{digest_of(b'')}") is None
    assert not Path(os.environ["TORCHX_HOME"]).exists()


def test_a_cache_that_cannot_be_written_is_one_clear_line(
    registry: FakeRegistry, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add_image()
    monkeypatch.setenv("TORCHX_HOME", "/dev/null/x")
    with pytest.raises(BackendUnavailable, match="TORCHX_HOME"):
        append(registry, workspace)


def test_a_deleted_cache_is_no_obstacle(registry: FakeRegistry, workspace: Path) -> None:
    registry.add_image()
    first = append(registry, workspace)
    shutil.rmtree(Path(os.environ["TORCHX_HOME"]) / "cache")
    assert append(registry, workspace) == first


@pytest.mark.parametrize("kind", ["manifests", "configs", "trees", "slots"])
@pytest.mark.parametrize("damage", [b"", b"null", b"[1, 2, 3]", b'{"digest": 1}', b"\xff", "cut"])
def test_a_damaged_cache_is_made_anew(
    registry: FakeRegistry, workspace: Path, kind: str, damage: bytes | str
) -> None:
    registry.add_image(layers=[tar_of({"app/": (0o700, 7, 8)})], settings={"WorkingDir": "/app"})
    first = append(registry, workspace)
    files = [*(Path(os.environ["TORCHX_HOME"]) / "cache/images" / kind).iterdir()]
    whole = {path: path.read_bytes() for path in files}
    assert whole
    for path, data in whole.items():
        path.write_bytes(data[: len(data) // 2] if isinstance(damage, str) else damage)
    assert append(registry, workspace) == first
    if kind != "slots":  # which has times
        assert {path: path.read_bytes() for path in files} == whole


def test_secrets_are_neither_logged_nor_shown(
    registry: FakeRegistry,
    workspace: Path,
    docker_login: Callable[[str, str, str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry.users["me"] = "hunter22"
    registry.bearer = True
    registry.add_image()
    docker_login(registry.host, "me", "hunter22")
    caplog.set_level(logging.DEBUG)
    append(registry, workspace)
    assert "hunter22" not in caplog.text
    assert "token0" not in caplog.text


def test_finding_a_base_uploads_nothing(registry: FakeRegistry) -> None:
    registry.add_image()
    base = find_base(f"{registry.host}/team/base:1", AT_ONCE)
    assert base.working_dir == "/"
    assert {r.split()[0] for r in registry.requests} == {"HEAD", "GET"}
