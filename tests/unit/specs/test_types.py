"""Resources, capabilities, mounts, workspaces, roles, apps, macros and constants."""

import copy
import dataclasses
import json
import os
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import torchx.specs as specs
from torchx.deprecations import deprecated
from torchx.errors import TorchXError
from torchx.specs import (
    AppDef,
    BindMount,
    CapabilityKey,
    DeviceMount,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
    Workspace,
    macros,
    parse_mounts,
)
from torchx.specs._macros import MacroPlan
from torchx.specs._serialize import app_from_json, app_to_json
from torchx.specs.api import MountType, is_started


def test_everything_published_is_exported():
    assert len(specs.__all__) == 44
    for name in [*specs.__all__, "GiB", "ResourceFactory"]:
        assert hasattr(specs, name), name
    assert specs.GiB == 1024


def test_constants_have_their_wire_values():
    assert (specs.ALL, specs.MISSING, specs.NONE, specs.UNKNOWN) == (
        "all",
        "<MISSING>",
        "<NONE>",
        "<UNKNOWN>",
    )
    assert Resource(-1, -1, -1) == specs.NULL_RESOURCE
    assert specs.NA == "<<NA>>"
    assert specs.TORCHX_CONTEXT_NAME == "TORCHX_CONTEXT_NAME"
    keys = specs.app_metadata
    assert (keys.CONTEXT, keys.VERSION, keys.SCHEDULER, keys.ROLES_PREFIX) == (
        "torchx/context",
        "torchx/version",
        "torchx/scheduler",
        "torchx/roles.",
    )


def test_home_is_made_where_the_variable_says(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "x"))
    assert specs.TORCHX_HOME("a", "b") == tmp_path / "x/a/b"
    assert (tmp_path / "x/a/b").is_dir()
    monkeypatch.delenv("TORCHX_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert specs.TORCHX_HOME() == tmp_path / ".torchx"


# -- resources ----------------------------------------------------------------------------------


def test_a_resource_shows_all_it_has():
    text = "Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})"
    assert repr(Resource(cpu=4, gpu=1, memMB=8192)) == text
    assert Resource(1, 0, 1).devices is not Resource(1, 0, 1).devices


def test_a_copied_resource_shares_nothing():
    original = Resource(1, 0, 64, {"k": "old"}, {"nic": 2}, {"t": 1})
    copied = Resource.copy(original, k="new", z=1)
    assert copied.capabilities == {"k": "new", "z": 1}
    copied.devices["nic"] = 3
    copied.tags["t"] = 2
    assert (original.capabilities, original.devices, original.tags) == (
        {"k": "old"},
        {"nic": 2},
        {"t": 1},
    )


def test_tags_tell_name_and_fraction():
    resource = Resource(1, 0, 1)
    assert not resource.is_fractional()
    assert resource.get_resource_name() is None
    resource.tags.update(
        {"torchx/named_resources.is_fractional": True, "torchx/named_resources.name": "half"}
    )
    assert resource.is_fractional()
    assert resource.get_resource_name() == "half"


def test_capability_keys_check_the_type_on_reading():
    key = CapabilityKey("acme", "vram", int)
    resource = Resource(1, 1, 1)
    assert key.get(resource) is None
    assert key.get(resource, 7) == 7
    key.set(resource, 80)
    assert resource.capabilities == {"acme.vram": 80}
    assert key.get(Resource.copy(resource)) == 80
    resource.capabilities["acme.vram"] = "80"
    with pytest.raises(TypeError, match=r"capability `acme\.vram` expected `int`, got `str`: '80'"):
        key.get(resource)
    resource.capabilities["acme.vram"] = True
    with pytest.raises(TypeError, match="expected `int`, got `bool`"):
        key.get(resource)
    assert CapabilityKey("acme", "vram", bool).get(resource) is True
    assert hash(key) == hash(CapabilityKey("acme", "vram", int))


# -- mounts -------------------------------------------------------------------------------------


def test_mounts_are_read_from_options():
    options = ["type=bind", "source=/h", "target=/c", "readonly", "type=device", "src=/dev/d"]
    assert parse_mounts([*options, "perm=r"]) == [
        BindMount("/h", "/c", True),
        DeviceMount("/dev/d", "/dev/d", "r"),
    ]
    assert parse_mounts([]) == []
    assert parse_mounts(["type=volume", "src=~v", "destination=/d", "read_only=false"]) == [
        VolumeMount("~v", "/d", True)
    ]
    assert parse_mounts(["type=device", "src=/a", "dst=/b", "perm="]) == [
        DeviceMount("/a", "/b", "")
    ]
    assert [m.value for m in MountType] == ["bind", "volume", "device"]


def test_a_home_directory_is_expanded_in_bind_sources(monkeypatch):
    monkeypatch.setenv("HOME", "/me")
    (mount,) = parse_mounts(["type=bind", "src=~/data", "dst=~/data"])
    assert mount == BindMount("/me/data", "~/data")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (["nope=1"], KeyError, "unknown mount option nope, must be one of"),
        (["src=/a"], KeyError, "type must be specified first"),
        (["type=bind", "src=/a"], KeyError, "dst"),
        (["type=device"], KeyError, "src"),
        (["type=device", "src=/a", "perm=rx"], ValueError, "x is not a valid permission flags"),
        (["type=volume", "dst=/a"], KeyError, "src is missing from a mount of type `volume`"),
        (["type=tape", "src=/a"], ValueError, "invalid mount type 'tape', must be one of"),
    ],
)
def test_bad_mounts_are_refused(options, error, text):
    with pytest.raises(error, match=text) as caught:
        parse_mounts(options)
    assert isinstance(caught.value, TorchXError)


def test_clients_read_the_missing_option_from_the_error():
    with pytest.raises(KeyError) as caught:
        parse_mounts(["type=bind", "src=/a"])
    assert caught.value.args[0] == "dst"


@given(st.lists(st.sampled_from([
    "type=bind", "type=volume", "type=device", "type=", "src=/a", "source", "dst=b", "target=c=d",
    "readonly", "read_only=false", "perm=rw", "perm=x", "other", "",
])))  # fmt: skip
def test_any_options_are_mounts_or_refused(options):
    try:
        mounts = parse_mounts(options)
    except (KeyError, ValueError):
        return
    assert len(mounts) == sum(option.startswith("type=") for option in options)


PATHS = st.text(st.characters(codec="utf-8", exclude_characters="=,~\0"), min_size=1)


@given(st.lists(st.tuples(PATHS, PATHS, st.booleans())))
def test_mounts_survive_their_text(mounts):
    options = []
    for source, target, read_only in mounts:
        options += ["type=bind", f"src={source}", f"dst={target}"]
        options += ["readonly"] if read_only else []
    assert parse_mounts(options) == [BindMount(*mount) for mount in mounts]


# -- workspaces ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "projects"),
    [
        (None, {}),
        ("", {}),
        ("/a", {"/a": ""}),
        ("/a: b", {"/a": "b"}),
        ("/a:b", {"/a:b": ""}),
        ("#\n/a:\n/b: c\n", {"/a": "", "/b": "c"}),
        ("{}", {}),
    ],
)
def test_workspaces_are_read_from_text(text, projects):
    assert Workspace.from_str(text) == Workspace(projects)


@pytest.mark.parametrize(
    "text", ["[a, b]", "3", "null", "~", "a: [", "{a", "a: [b]", "a: yes", "3: b", "a: 010"]
)
def test_text_that_is_no_workspace_is_refused(text):
    with pytest.raises(ValueError, match="is not a path or a YAML mapping of paths"):
        Workspace.from_str(text)


def test_workspaces_compare_by_their_projects():
    assert not Workspace({})
    assert Workspace({"a": "", "b": "c"}) == Workspace({"b": "c", "a": ""})
    assert len({Workspace({"a": ""}), Workspace({"a": ""})}) == 1
    assert Workspace({"a": ""}) != "a"
    assert Workspace({"a": ""}).is_unmapped_single_project()
    assert not Workspace({"a": "b"}).is_unmapped_single_project()
    assert str(Workspace({"a": ""})) == "a"
    assert str(Workspace({"a": "", "b": "c"})) == "a;b:c"


def test_workspaces_are_merged_into_a_directory(tmp_path: Path):
    (tmp_path / "src/sub").mkdir(parents=True)
    (tmp_path / "src/sub/f").write_text("1")
    (tmp_path / "one").write_text("2")
    (tmp_path / "out/there").mkdir(parents=True)
    projects = {str(tmp_path / "src"): "there", str(tmp_path / "one"): "renamed"}
    Workspace(projects).merge_into(tmp_path / "out")
    assert (tmp_path / "out/there/sub/f").read_text() == "1"
    assert (tmp_path / "out/renamed").read_text() == "2"
    with pytest.raises(FileNotFoundError):
        Workspace({str(tmp_path / "gone"): ""}).merge_into(str(tmp_path / "out"))


def test_links_are_kept_and_loops_come_to_an_end(tmp_path: Path):
    source = tmp_path / "src"
    (source / "a").mkdir(parents=True)
    (source / "b").mkdir()
    (source / "a/f").write_text("1")
    (source / "link").symlink_to(source / "a/f")
    (source / "gone").symlink_to("nowhere")
    (source / "up").symlink_to("..")
    (source / "a/x").symlink_to(source / "b")
    (source / "b/y").symlink_to("../a")
    workspace = Workspace({str(source): ""})
    for _ in range(2):
        workspace.merge_into(tmp_path / "out")
    out = tmp_path / "out"
    copied = {
        str(p.relative_to(out)): os.readlink(p) if p.is_symlink() else "" for p in out.rglob("*")
    }
    assert copied == {
        "a": "", "a/f": "", "a/x": "../b", "b": "", "b/y": "../a", "gone": "nowhere",
        "link": "a/f", "up": str(tmp_path),
    }  # fmt: skip


def test_a_workspace_may_be_merged_into_a_directory_of_its_own(tmp_path: Path):
    (tmp_path / "f").write_text("1")
    for _ in range(2):
        Workspace({str(tmp_path): ""}).merge_into(tmp_path / "build")
    assert [path.name for path in (tmp_path / "build").iterdir()] == ["f"]


def test_a_file_goes_into_the_directory_and_needs_it(tmp_path: Path):
    (tmp_path / "f").write_text("1")
    (tmp_path / "out").mkdir()
    Workspace({str(tmp_path / "f"): ""}).merge_into(tmp_path / "out")
    assert (tmp_path / "out/f").read_text() == "1"
    with pytest.raises(FileNotFoundError):
        Workspace({str(tmp_path / "f"): "no/such/f"}).merge_into(tmp_path / "out")


@given(st.dictionaries(st.text("abc/~._-", min_size=1), st.text("abc/", max_size=3), min_size=1))
def test_workspaces_survive_yaml(projects):
    assert Workspace.from_str(yaml.safe_dump(projects)).projects == projects


# -- roles and apps -----------------------------------------------------------------------------


def test_a_role_has_the_published_fields_in_order():
    names = [f.name for f in dataclasses.fields(Role)]
    assert names == [
        "name", "image", "min_replicas", "entrypoint", "args", "env", "num_replicas", "max_retries",
        "retry_policy", "resource", "port_map", "metadata", "mounts", "workspace", "overrides",
    ]  # fmt: skip
    role = Role("r", "i")
    assert role.resource is specs.NULL_RESOURCE
    assert (role.entrypoint, role.num_replicas, role.max_retries) == ("<MISSING>", 1, 0)
    assert role.retry_policy is RetryPolicy.APPLICATION
    info: Any = object()
    assert role.pre_proc("slurm", info) is info


def test_apps_are_looked_up_by_role_name():
    a, b = Role("a", "i"), Role("b", "i")
    app = AppDef("app", [a, b])
    assert app["b"] is app.get_role("b") is b
    assert "a" in app
    assert a not in app
    assert 0 not in app
    with pytest.raises(KeyError, match="app `app` has no role named `c`; available roles: a, b"):
        app["c"]
    with pytest.raises(KeyError, match="available roles: none"):
        AppDef("x").get_role("c")
    with pytest.raises(TypeError):
        iter(app)


def test_states_are_ordered_numbers_with_names():
    states = specs.AppState
    assert [s.name for s in states] == [
        "UNSUBMITTED", "SUBMITTED", "PENDING", "RUNNING",
        "SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN",
    ]  # fmt: skip
    assert [int(s) for s in states] == list(range(8))
    assert (str(states.FAILED), f"{states.FAILED}", repr(states.FAILED)) == (
        "FAILED",
        "FAILED",
        "FAILED (5)",
    )
    assert [s.name for s in states if specs.is_terminal(s)] == ["SUCCEEDED", "FAILED", "CANCELLED"]
    assert is_started(states.RUNNING)
    assert not is_started(states.UNKNOWN)
    assert specs.ReplicaState is states
    assert states.RUNNING < states.FAILED


def test_an_unknown_role_is_an_error_of_torchx_with_a_readable_text():
    with pytest.raises(TorchXError) as caught:
        _ = AppDef("app")["w"]
    assert str(caught.value) == "app `app` has no role named `w`; available roles: none"
    with pytest.raises(KeyError):
        AppDef("app", [Role("w", "i")])[0]  # type: ignore[index]  # a position is no name


def test_a_role_shares_nothing_with_the_next():
    one, two = Role("r", "i"), Role("r", "i")
    for name in ("args", "env", "port_map", "metadata", "mounts", "overrides"):
        assert getattr(one, name) is not getattr(two, name)
    assert one == two


# -- macros -------------------------------------------------------------------------------------

VALUES = macros.Values(img_root="/i", app_id="j1", replica_id="0", rank0_env="R0")


def test_macros_have_their_literals():
    assert [macros.img_root, macros.app_id, macros.replica_id, macros.rank0_env] == [
        "${img_root}",
        "${app_id}",
        "${replica_id}",
        "${rank0_env}",
    ]
    assert macros.base_img_root == "${base_img_root}"
    assert VALUES.to_dict()["base_img_root"] == "DEPRECATED"


def test_known_macros_are_filled_in_and_others_stay():
    assert VALUES.substitute("$app_id-${replica_id}-${other}-$$x") == "j1-0-${other}-$x"
    assert VALUES.substitute("$${${rank0_env}:=localhost}:1") == "${R0:=localhost}:1"


@given(
    st.lists(
        st.sampled_from(["$", "$$", "{", "}", "app_id", "replica_id", "x", "_", "1", " ", "-", "é"])
    ).map("".join)
)
def test_filling_in_is_what_a_template_does(text):
    assert VALUES.substitute(text) == string.Template(text).safe_substitute(VALUES.to_dict())


def test_macros_are_filled_in_where_they_are_promised_and_nowhere_else():
    role = Role(
        "r",
        "${app_id}",
        entrypoint="${app_id}",
        args=["${app_id}"],
        env={"${app_id}": "${app_id}"},
        metadata={"m": [{"k": "${app_id}"}, ["${app_id}"], 7], "${app_id}": ("${app_id}",)},
    )
    before = copy.deepcopy(role)
    filled = VALUES.apply(role)
    assert role == before
    assert filled.args == ["j1"]
    assert filled.env == {"${app_id}": "j1"}
    assert (filled.image, filled.entrypoint) == ("${app_id}", "${app_id}")
    assert filled.metadata == {
        "m": [{"k": "j1"}, ["${app_id}"], 7],
        "${app_id}": ("${app_id}",),
    }
    filled.metadata["m"][1].append("x")
    filled.mounts.append(BindMount("a", "b"))
    assert role == before


def test_overrides_are_shared_by_the_filled_in_copy(caplog):
    caplog.set_level("DEBUG")
    lazy = Role("r", "i", overrides={"image": lambda: "x"})
    assert VALUES.apply(lazy).overrides is lazy.overrides
    assert len(caplog.records) == 1
    plain = Role("r", "i")
    assert VALUES.apply(plain).overrides is not plain.overrides
    assert len(caplog.records) == 1


@given(
    st.lists(st.text("ab$ {}_app_id", max_size=12)),
    st.dictionaries(st.text(max_size=5), st.text("ab${}app_id", max_size=12)),
)
def test_a_plan_gives_what_applying_gives(args, env):
    role = Role("r", "i", args=args, env=env)
    plan, filled = MacroPlan(role), VALUES.apply(role)
    assert (plan.args(VALUES), plan.env(VALUES)) == (filled.args, filled.env)


def test_a_filled_in_copy_shares_nothing_that_can_change():
    role = Role(
        "r",
        "i",
        args=["a"],
        env={"A": "1"},
        port_map={"p": 1},
        resource=Resource(1, 2, 3, {"c": [1]}, {"d": 2}, {"t": {"u": 1}}),
        metadata={"m": {"n": [1]}},
        mounts=[BindMount("a", "b")],
        workspace=Workspace({"a": "b"}),
    )
    before = copy.deepcopy(role)
    filled = VALUES.apply(role)
    assert filled == role
    filled.args.append("b")
    filled.env["B"] = "2"
    filled.port_map["q"] = 2
    filled.resource.capabilities["c"].append(2)
    filled.resource.tags["t"]["u"] = 2  # type: ignore[index]  # a dict, see above
    filled.metadata["m"]["n"].append(2)
    filled.mounts[0].dst_path = "c"
    assert filled.workspace is not None
    filled.workspace.projects["c"] = "d"
    assert role == before


def test_a_role_of_a_class_of_its_own_stays_one():
    class Special(Role):
        pass

    role = Special("r", "i", args=["${app_id}"])
    role.extra = ["x"]  # type: ignore[attr-defined]  # clients do such things
    filled: Any = VALUES.apply(role)
    assert type(filled) is Special
    assert filled.args == ["j1"]
    filled.extra.append("y")
    assert vars(role)["extra"] == ["x"]


# -- records ------------------------------------------------------------------------------------


def test_apps_survive_their_record():
    role = Role(
        "r",
        "i",
        min_replicas=1,
        entrypoint="e",
        args=["a"],
        env={"A": "1"},
        num_replicas=2,
        max_retries=3,
        retry_policy=RetryPolicy.ROLE,
        resource=Resource(1, 2, 3, {"c": 1}, {"d": 2}, {"t": "x"}),
        port_map={"p": 1},
        metadata={"m": {"n": [1, "2"]}},
        mounts=[BindMount("a", "b", True), VolumeMount("v", "w"), DeviceMount("x", "y", "r")],
        workspace=Workspace({"a": "b"}),
    )
    app = AppDef("app", [role, Role("bare", "i")], {"k": "v"})
    assert app_from_json(app_to_json(app)) == app


def test_records_hold_produced_values_and_text_for_what_json_lacks():
    role = Role("r", "i", metadata={"p": Path("/x")}, overrides={"image": lambda: "late"})
    data = app_to_json(AppDef("app", [role]))
    assert data["roles"][0]["image"] == "late"
    assert data["roles"][0]["metadata"] == {"p": "/x"}


def test_records_are_json_whatever_the_app_holds():
    args: Any = [1, Path("/x")]
    env: Any = {"N": 1, "P": Path("/y")}
    metadata: Any = {1: (RetryPolicy.ROLE, {2}, None), "s": specs.AppState.FAILED}

    class Special(BindMount):
        pass

    role = Role("r", "i", args=args, env=env, metadata=metadata, mounts=[Special("a", "b")])
    data = json.loads(json.dumps(app_to_json(AppDef("app", [role]))))
    restored = app_from_json(data).roles[0]
    assert restored.args == [1, "/x"]
    assert restored.env == {"N": 1, "P": "/y"}
    assert restored.metadata == {"1": ["ROLE", "{2}", None], "s": 5}
    assert restored.mounts == [BindMount("a", "b")]
    assert restored.resource is specs.NULL_RESOURCE


def test_what_is_no_mount_is_not_recorded():
    mounts: Any = ["type=bind"]
    with pytest.raises(TorchXError, match="'type=bind' is not a mount"):
        app_to_json(AppDef("app", [Role("r", "i", mounts=mounts)]))


TEXTS = st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)
ROLES = st.builds(
    Role,
    TEXTS,
    TEXTS,
    min_replicas=st.none() | st.integers(),
    args=st.lists(TEXTS, max_size=3),
    env=st.dictionaries(TEXTS, TEXTS, max_size=3),
    retry_policy=st.sampled_from(RetryPolicy),
    resource=st.builds(Resource, st.integers(), st.integers(), st.integers(), st.just({"a": [1]})),
    metadata=st.dictionaries(TEXTS, JSON, max_size=3),
    mounts=st.lists(
        st.builds(BindMount, TEXTS, TEXTS, st.booleans())
        | st.builds(VolumeMount, TEXTS, TEXTS, st.booleans())
        | st.builds(DeviceMount, TEXTS, TEXTS, TEXTS),
        max_size=3,
    ),
    workspace=st.none() | st.builds(Workspace, st.dictionaries(TEXTS, TEXTS, max_size=3)),
)


@given(st.builds(AppDef, TEXTS, st.lists(ROLES, max_size=2), st.dictionaries(TEXTS, TEXTS)))
def test_any_app_survives_its_record(app):
    assert app_from_json(json.loads(json.dumps(app_to_json(app)))) == app


# -- settings of the process --------------------------------------------------------------------


def test_without_a_home_the_variable_is_asked_for():
    script = (
        f"import os, pwd, sys\nsys.path[:] = {sys.path!r}\n"
        "def nobody(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = nobody\n"
        "import torchx.specs as specs\n"
        "try: specs.TORCHX_HOME()\n"
        "except ValueError as err: print(err)\n"
    )
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "TORCHX_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    assert "set TORCHX_HOME to a directory" in done.stdout


def test_a_deprecated_class_may_take_its_arguments_when_it_is_made():
    @deprecated()
    class Old:
        def __new__(cls, a: int) -> "Old":
            made = super().__new__(cls)
            made.a = a  # type: ignore[attr-defined]  # set where a tuple's class would
            return made

    with pytest.warns(UserWarning, match="is deprecated"):
        assert vars(Old(1)) == {"a": 1}
