"""The mix-ins that builders are made from."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workspace.trees import make
from torchx.specs import AppDef, Role, Workspace, runopts
from torchx.workspace import MultiWorkspaceMixin, WorkspaceMixin
from torchx.workspace.api import TORCHX_IGNORE, PkgInfo, WorkspaceBuilder


class Zips(WorkspaceMixin[None]):
    """As a user would write one."""

    def workspace_opts(self) -> runopts:
        opts = runopts()
        opts.add("drop_dir", type_=str, required=True, help="where archives go")
        return opts

    def caching_build_workspace_and_update_role(self, role, cfg, build_cache) -> None:
        if not role.workspace:
            return
        key = (role.image, role.workspace)
        if key not in build_cache:
            with tempfile.TemporaryDirectory() as folder:
                role.workspace.merge_into(folder)
                place = os.path.join(cfg["drop_dir"], str(len(build_cache)))
                build_cache[key] = shutil.make_archive(place, "zip", folder)
        role.env["CODE_ZIP"] = build_cache[key]


class Pushes(WorkspaceMixin[list[str]]):
    def __init__(self) -> None:
        self.pushed: list[str] = []

    def workspace_opts(self) -> runopts:
        opts = runopts()
        opts.add("repo", type_=str, default="r", help="of Pushes")
        opts.add("drop_dir", type_=str, default="d", help="of Pushes")
        return opts

    def build_workspace_and_update_role(self, role, workspace, cfg) -> None:
        role.image = f"{role.image}+{workspace}"

    def dryrun_push_images(self, app, cfg):
        return [role.image for role in app.roles]

    def push_images(self, images_to_push) -> None:
        self.pushed += images_to_push


class Both(MultiWorkspaceMixin):
    def __init__(self, **builders: WorkspaceMixin[Any]) -> None:
        self._all = builders

    def workspace_builders(self) -> Mapping[str, WorkspaceMixin[Any]]:
        return self._all


@pytest.fixture
def both() -> Both:
    return Both(push=Pushes(), zip=Zips())


def test_a_builder_of_the_users_own_shares_what_it_built(tmp_path: Path):
    source = make(tmp_path / "src", "f")
    roles = [Role(n, "i", workspace=Workspace({str(source): "lib"})) for n in "ab"]
    roles.append(Role("c", "other", workspace=Workspace({str(source): "lib"})))
    Zips().build_workspaces([*roles, Role("d", "i")], {"drop_dir": str(tmp_path)})
    archives = [role.env["CODE_ZIP"] for role in roles]
    assert archives[0] == archives[1] != archives[2]
    shutil.unpack_archive(archives[0], tmp_path / "out")
    assert (tmp_path / "out/lib/f").read_text() == "f"
    assert roles[0].workspace


def test_a_builder_of_single_directories_gets_projects_merged(tmp_path: Path):
    a, b = make(tmp_path / "a", "x.py"), make(tmp_path / "b", "y.py")
    seen = []

    class Old(WorkspaceMixin[None]):
        def build_workspace_and_update_role(self, role, workspace, cfg):
            files = sorted(str(p.relative_to(workspace)) for p in Path(workspace).rglob("*.py"))
            seen.append((workspace, files))
            role.image = "built"

    merged = Role("m", "i", workspace=Workspace({str(a): "", str(b): "lib"}))
    single = Role("s", "i", workspace=Workspace({str(a): ""}))
    Old().build_workspaces([merged, single, single, Role("none", "i")], {})
    assert seen[0][1] == ["lib/y.py", "x.py"]
    assert seen[0][0].endswith("torchx_workspace_")
    assert not os.path.exists(seen[0][0])
    assert seen[1:] == [(str(a), ["x.py"])] * 2


def test_what_a_builder_does_not_do_is_said():
    builder = WorkspaceMixin[None]()
    assert builder.workspace_opts().resolve({}) == {}
    with pytest.raises(NotImplementedError, match="does not push"):
        builder.dryrun_push_images(AppDef("a"), {})
    with pytest.raises(NotImplementedError, match="does not push"):
        builder.push_images(None)
    with pytest.raises(NotImplementedError, match="does not build"):
        builder.build_workspaces([Role("r", "i", workspace=Workspace({"/x": ""}))], {})


def test_the_first_builder_is_the_default_one(both: Both):
    opts = both.workspace_opts()
    assert opts.resolve({"drop_dir": "d"})["workspace_type"] == "push"
    assert "push, zip" in dict(opts)["workspace_type"].help
    assert {name for name, _ in opts} == {"workspace_type", "repo", "drop_dir"}
    assert dict(opts)["drop_dir"].help == "where archives go"  # that of the later one
    for cfg in ({}, {"workspace_type": None}, {"workspace_type": "push"}):
        assert both.workspace_builder(cfg)[0] == "push"


@pytest.mark.parametrize("value", ["tar", 3, ""])
def test_an_unknown_builder_is_refused(both: Both, value):
    with pytest.raises(ValueError, match=f"`workspace_type` is `{value}`.*push, zip"):
        both.workspace_builder({"workspace_type": value})


def test_no_builders_are_an_error_that_names_the_class():
    with pytest.raises(ValueError, match=r"`Both\.workspace_builders` gives no builders"):
        Both().workspace_opts()


def test_the_chosen_builder_builds_and_pushes(both: Both, tmp_path: Path):
    source = make(tmp_path / "src", "f")
    role = Role("r", "i", workspace=Workspace({str(source): ""}))
    both.build_workspaces([role], {})
    assert role.image == f"i+{source}"
    images = both.dryrun_push_images(AppDef("a", [role]), {})
    assert images == ("push", [role.image])
    both.push_images(images)
    assert both.workspace_builders()["push"].pushed == [role.image]
    zips = {"workspace_type": "zip", "drop_dir": str(tmp_path)}
    both.build_workspaces([role], zips)
    assert role.env["CODE_ZIP"].endswith(".zip")
    assert both.dryrun_push_images(AppDef("a", [role]), zips) == ("zip", None)
    both.push_images(("zip", None))


def test_old_names_say_that_they_are_deprecated():
    class Old(WorkspaceBuilder[str, dict[str, str]]):
        def build_workspace(self, sync: bool = True) -> PkgInfo[str]:
            with pytest.warns(FutureWarning, match="`PkgInfo` is deprecated"):
                return PkgInfo(img="i", lazy_overrides={}, metadata="m")

    with pytest.warns(FutureWarning, match="`Old` is deprecated") as caught:
        builder = Old({"a": "b"})
    assert caught[0].filename == __file__
    assert (builder.cfg, builder.build_workspace().img) == ({"a": "b"}, "i")
    assert TORCHX_IGNORE == ".torchxignore"
