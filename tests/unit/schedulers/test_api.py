"""The scheduler interface, its answers and its small functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.errors import TorchXError
from torchx.schedulers import api
from torchx.schedulers.api import (
    AppSnapshot,
    DescribeAppResponse,
    ListAppResponse,
    LogBlock,
    LogChunk,
    LogKey,
    LogQuery,
    ReplicaKey,
    Scheduler,
    SchedulerFeatures,
    Stream,
    StructuredOpts,
    filter_regex,
    split_lines,
    split_lines_iterator,
)
from torchx.specs import (
    NONE,
    AppDef,
    AppDryRunInfo,
    AppState,
    CfgVal,
    InvalidRunConfigException,
    Resource,
    Role,
    Workspace,
    runopts,
)
from torchx.workspace import WorkspaceMixin, pin_workspace_images


@dataclass
class PrintOpts(StructuredOpts):
    prefix: str = ">"
    """Text put in front of the command."""


class Printer(Scheduler[PrintOpts]):
    def __init__(self, session_name: str, **kwargs: object) -> None:
        super().__init__("printer", session_name)
        self.jobs: dict[str, AppState] = {}
        self.cancelled: list[str] = []

    def _run_opts(self) -> runopts:
        return PrintOpts.as_runopts()

    def _submit_dryrun(self, app: AppDef, cfg: PrintOpts) -> AppDryRunInfo[Any]:
        self.cfg = cfg
        role = app.roles[0]
        return AppDryRunInfo([cfg.prefix, role.image, role.entrypoint, *role.args], repr)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        self.jobs["job-1"] = AppState.RUNNING
        return "job-1"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        state = self.jobs.get(app_id)
        return None if state is None else DescribeAppResponse(app_id, state)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        return [ListAppResponse(i, s) for i, s in self.jobs.items()]

    def _cancel_existing(self, app_id: str) -> None:
        self.cancelled.append(app_id)


class Grandchild(Printer):
    """Options are those of the first class that names them."""


class Building(WorkspaceMixin[None], Printer):
    def workspace_opts(self) -> runopts:
        opts = runopts()
        opts.add("image_repo", type_=str, default="repo", help="of the builder")
        opts.add("prefix", type_=str, default="builder's", help="clashes")
        return opts

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        role.image = f"{role.image}+{workspace}"


def an_app(*names: str) -> AppDef:
    return AppDef("app", [Role(n, "img", entrypoint="sh", args=["-c"]) for n in names or ("w",)])


def test_options_reach_the_scheduler_in_their_type() -> None:
    scheduler = Printer("s")
    app = an_app()
    info = scheduler.submit_dryrun(app, {"prefix": "$"})  # type: ignore[arg-type]  # any mapping
    assert info.request == ["$", "img", "sh", "-c"]
    assert scheduler.cfg == PrintOpts("$")
    assert info.cfg is scheduler.cfg
    assert info.app is app
    assert dict(info.cfg) == scheduler.run_opts().resolve({"prefix": "$"})


@pytest.mark.parametrize("cls", [Grandchild, Building])
def test_the_type_of_options_is_inherited(cls: type[Printer]) -> None:
    scheduler = cls("s")
    scheduler.submit_dryrun(an_app(), PrintOpts(">>"))
    assert isinstance(scheduler.cfg, PrintOpts)
    assert dict(scheduler.cfg) == scheduler.run_opts().resolve({"prefix": ">>"})


@pytest.mark.parametrize("config", [Mapping[str, CfgVal], dict[str, str], StructuredOpts])
def test_other_types_of_options_get_the_resolved_dict(config: Any) -> None:
    """NeMo-Run subscripts with ``dict[str, str]``."""

    class Mapped(Scheduler[config]):
        _run_opts = Printer._run_opts
        schedule = Printer.schedule
        describe = Printer.describe
        list = Printer.list
        _cancel_existing = Printer._cancel_existing

        def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[Any]:
            return AppDryRunInfo(cfg, repr)

    request = Mapped("m", "s").submit_dryrun(an_app(), {}).request
    assert type(request) is dict
    assert request == {"prefix": ">"}


def test_wrong_options_are_refused_before_the_app_is_touched() -> None:
    scheduler = Building("s")
    app = an_app()
    with pytest.raises(InvalidRunConfigException):
        scheduler.submit(app, {"none": 1}, workspace="/w")  # type: ignore[arg-type]  # any mapping
    assert app == an_app()


def test_hooks_of_roles_may_replace_the_request() -> None:
    class Hooked(Role):
        def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[Any]) -> AppDryRunInfo[Any]:
            return AppDryRunInfo([*dryrun_info.request, self.name, scheduler], repr)

    app = AppDef("app", [Hooked("a", "img", entrypoint="sh"), Hooked("b", "img")])
    info = Printer("s").submit_dryrun(app, PrintOpts())
    assert info.request[3:] == ["a", "printer", "b", "printer"]
    assert info.app is app


def test_submit_works_without_a_runner() -> None:
    scheduler = Printer("s")
    assert scheduler.submit(an_app(), PrintOpts()) == "job-1"


def test_submit_builds_every_workspace() -> None:
    scheduler = Building("s")
    app = an_app("a", "b", "c")
    app.roles[1].workspace = Workspace({"/b": ""})
    scheduler.submit(app, {}, workspace="/a")  # type: ignore[arg-type]  # any mapping
    assert [role.image for role in app.roles] == ["img+/a", "img+/b", "img"]
    app = an_app("a")
    app.roles[0].workspace = Workspace({"/x": ""})
    scheduler.submit(app, {})  # type: ignore[arg-type]  # any mapping
    assert app.roles[0].image == "img"
    with pytest.raises(ValueError, match="`printer` does not support workspaces"):
        Printer("s").submit(an_app(), PrintOpts(), workspace="/a")


def test_options_of_a_builder_join_those_of_the_scheduler_and_win() -> None:
    assert [(k, o.default) for k, o in Building("s").run_opts()] == [
        ("prefix", "builder's"),
        ("image_repo", "repo"),
    ]
    assert [k for k, _ in Printer("s").run_opts()] == ["prefix"]


def test_ending_an_app_that_does_not_exist_is_nothing() -> None:
    scheduler = Printer("s")
    scheduler.cancel("none")
    scheduler.delete("none")
    assert scheduler.cancelled == []
    scheduler.schedule(AppDryRunInfo([], repr))
    assert scheduler.exists("job-1")
    scheduler.cancel("job-1")
    scheduler.delete("job-1")
    assert scheduler.cancelled == ["job-1", "job-1"]


def test_a_role_without_resource_is_refused_by_default() -> None:
    scheduler = Printer("s")
    app = an_app("a", "b")
    app.roles[0].resource = Resource(1, 0, 1)
    message = r"No resource for role: b \(image: img\)\. Did you forget to attach resource to"
    with pytest.raises(ValueError, match=message):
        scheduler._validate(app, "printer", PrintOpts())
    with pytest.raises(ValueError, match=message):
        scheduler._validate(app, "printer")  # as NeMo-Run calls it
    app.roles[1].resource = Resource(1, 0, 1)
    scheduler._validate(app, "printer")


@pytest.mark.parametrize("method", ["log_iter", "log_blocks", "verify_logs"])
def test_what_is_not_supported_is_refused_at_the_call(method: str) -> None:
    arguments = ("id", "role") if method == "log_iter" else ("id",)
    with pytest.raises(NotImplementedError, match="Printer") as err:
        getattr(Printer("s"), method)(*arguments)
    assert isinstance(err.value, TorchXError)


def test_the_other_defaults() -> None:
    scheduler = Printer("s")
    assert (scheduler.backend, scheduler.session_name) == ("printer", "s")
    assert scheduler.describe_native("x") is None
    assert scheduler.failed_replicas("x") == []
    assert scheduler.features == SchedulerFeatures()
    scheduler.close()
    scheduler.close()


def test_a_scheduler_must_implement_the_abstract_methods_and_define_hooks_or_verbs() -> None:
    assert Scheduler.__abstractmethods__ == {"_submit_dryrun", "schedule"}

    class Nothing(Scheduler[Any]):
        _submit_dryrun = Printer._submit_dryrun  # type: ignore[assignment]  # never called
        schedule = Printer.schedule

    scheduler = Nothing("n", "s")
    with pytest.raises(NotImplementedError, match="Nothing` must define `look`, or `describe`"):
        scheduler.describe("x")
    with pytest.raises(NotImplementedError, match="Nothing` must define `look_all`, or `list`"):
        scheduler.list()


def test_responses_have_the_published_defaults() -> None:
    described = DescribeAppResponse()
    assert (described.app_id, described.state) == ("<NOT_SET>", AppState.UNSUBMITTED)
    assert (described.num_restarts, described.msg, described.ui_url) == (-1, NONE, None)
    assert described.structured_error_msg == NONE
    assert (described.metadata, described.roles, described.roles_statuses) == ({}, [], [])
    row = ListAppResponse("i", AppState.RUNNING)
    assert (row.app_handle, row.name) == ("<NOT_SET>", "")
    assert hash(row) == hash(ListAppResponse("i", AppState.RUNNING, name="other"))
    assert row != ListAppResponse("i", AppState.RUNNING, name="other")
    assert [s.value for s in Stream] == ["stdout", "stderr", "combined"]
    assert Stream("stdout") == "stdout"
    assert "'w', 1, 0" in repr(LogBlock("w", 1, 0, "text"))
    assert api.DAYS_IN_2_WEEKS == 14


def test_every_published_name_is_there() -> None:
    for name in api.__all__:
        assert hasattr(api, name)


def test_lines_are_filtered_lazily() -> None:
    def lines() -> Any:
        yield from ["a1\n", "b\n"]
        raise AssertionError

    assert next(iter(filter_regex("[0-9]", lines()))) == "a1\n"
    assert list(filter_regex("^b", ["ab", "b"])) == ["b"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", ["\n"]),
        ("p\nq", ["p\n", "q"]),
        ("p\n\nq\n", ["p\n", "\n", "q\n"]),
        ("p\rq\r\n", ["p\rq\r\n"]),
        ("p\x0bq\u2028r", ["p\x0bq\u2028r"]),
    ],
)
def test_lines_are_split(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


@given(st.text())
def test_splitting_loses_nothing(text: str) -> None:
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all(line.endswith("\n") for line in lines[:-1])
    assert all("\n" not in line[:-1] for line in lines)


def test_chunks_are_split_one_by_one() -> None:
    assert list(split_lines_iterator(["a\nb", "c"])) == ["a\n", "b", "c"]


def test_several_projects_are_merged_before_they_are_built(tmp_path: Any) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x.py").write_text("")
    (tmp_path / "b" / "y.py").write_text("")
    seen = []

    class Merging(Building):
        def build_workspace_and_update_role(
            self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
        ) -> None:
            from pathlib import Path

            root = Path(workspace)
            seen.append((root, sorted(str(p.relative_to(root)) for p in root.rglob("*.py"))))

    app = an_app("w", "none")
    app.roles[0].workspace = Workspace({str(tmp_path / "a"): "", str(tmp_path / "b"): "lib"})
    Merging("s").build_workspaces(app.roles, {})
    ((root, files),) = seen
    assert files == ["lib/y.py", "x.py"]
    assert not root.exists()
    assert app.roles[0].workspace


def test_one_cache_serves_the_roles_of_one_call() -> None:
    caches = []

    class Caching(Building):
        def caching_build_workspace_and_update_role(
            self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
        ) -> None:
            build_cache[role.name] = True
            caches.append(dict(build_cache))

    app = an_app("a", "none", "b")
    app.roles[0].workspace = app.roles[2].workspace = Workspace({"/w": ""})
    for _ in range(2):
        Caching("s").build_workspaces(app.roles, {})
    assert caches == [{"a": True}, {"a": True, "b": True}] * 2


def test_a_builder_that_builds_nothing_says_so() -> None:
    class Empty(WorkspaceMixin[None], Printer):
        pass

    app = an_app()
    app.roles[0].workspace = Workspace({"/w": ""})
    empty = Empty("s")
    with pytest.raises(NotImplementedError, match="Empty"):
        empty.build_workspaces(app.roles, {})
    with pytest.raises(NotImplementedError):
        empty.dryrun_push_images(app, {})
    with pytest.raises(NotImplementedError):
        empty.push_images(None)
    assert len(empty.workspace_opts()) == 0


def test_built_images_are_pinned() -> None:
    workspace, other = Workspace({"/w": ""}), Workspace({"/o": ""})
    app = an_app("a", "b", "c")
    app.roles[0].workspace, app.roles[1].workspace = workspace, other
    pin_workspace_images(app, {("img", workspace): "built"})
    assert [(r.image, r.workspace) for r in app.roles] == [
        ("built", None),
        ("img", other),
        ("img", None),
    ]


class Looking(Printer):
    """A scheduler that is written with hooks."""

    def look(self, app_id: str) -> AppSnapshot | None:
        self.cancelled.append(f"look {app_id}")
        return AppSnapshot(app_id, native_state=AppState.RUNNING)

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        yield LogKey("w", 0), None, b"line\n"

    describe = Scheduler.describe
    _cancel_existing = Scheduler._cancel_existing


class FromElsewhere(Looking):
    """A client's subclass, whose backend the inherited hook cannot reach."""

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return DescribeAppResponse(app_id, AppState.RUNNING)

    def _cancel_existing(self, app_id: str) -> None:
        self.cancelled.append(app_id)


def test_an_override_of_describe_wins_over_the_inherited_hook() -> None:
    scheduler = FromElsewhere("t")
    assert scheduler.exists("j")
    scheduler.cancel("j")
    scheduler.delete("j")
    assert scheduler.failed_replicas("j") == []
    assert scheduler.end_after_failure("j") is None
    assert scheduler.cancelled == ["j", "j"]
    looking = Looking("t")
    assert looking.exists("j")
    assert looking.cancelled == ["look j"]
