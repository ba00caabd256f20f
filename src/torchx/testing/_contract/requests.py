"""Dry runs: a request is a value, and options are checked before anything happens."""

import copy
import re
from dataclasses import asdict, is_dataclass
from typing import Any

import pytest

from torchx._secrets import mask_request, mask_text
from torchx.errors import InvalidRunConfigException
from torchx.schedulers.api import AppDef, AppDryRunInfo, CfgVal, Role, Scheduler
from torchx.schedulers.ids import random_id
from torchx.specs.api import NULL_RESOURCE, AppState
from torchx.testing._contract.jobs import APP, REFUSED, WORKER, ContractParts, Jobs


class RequestContract(ContractParts):
    """Tests of dry runs."""

    def test_dryrun_leaves_the_app_alone(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        app = rich_app(jobs)
        before = copy.deepcopy(app)
        scheduler.submit_dryrun(app, opts)
        assert app == before

    def test_dryrun_leaves_the_options_alone(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        before = copy.deepcopy(opts)
        scheduler.submit_dryrun(rich_app(jobs), opts)
        assert opts == before

    def test_dryrun_submits_nothing(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        if not scheduler.features.list:
            with pytest.raises(REFUSED):
                scheduler.list()
            return
        app = rich_app(jobs)
        app.name = f"dry{random_id(8)}"  # other tests may use the backend at the same time
        scheduler.submit_dryrun(app, opts)
        assert [row for row in scheduler.list() if app.name in (row.app_id + row.name)] == []

    def test_two_dryruns_differ_in_nothing_but_the_id(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        app = rich_app(jobs)
        first, second = (str(scheduler.submit_dryrun(app, opts)) for _ in range(2))
        assert without_ids(first) == without_ids(second)

    def test_dryrun_shows_what_would_run(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        text = str(scheduler.submit_dryrun(jobs.sh("echo shown-in-the-text"), opts))
        assert "shown-in-the-text" in text

    def test_a_masked_dryrun_shows_no_secret(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        env = {
            "HF_TOKEN": 'hush it\'s "quoted" \\ hush',
            "GH_PAT": "hush",
            "DATABASE_URL": "postgres://me:hush@db/x",
            "OTHER": "shown-as-it-is",
        }
        role = jobs.role("sh", "-c", "true", "--api-key", "hush1", "--password=hush,2", env=env)
        info = scheduler.submit_dryrun(AppDef(APP, [role]), opts)
        app = asdict(info.app) if info.app is not None else {}
        text = mask_text(str(info), app, info.request)
        assert "shown-as-it-is" in text
        assert "hush" not in text
        if is_dataclass(info.request) and not isinstance(info.request, type):
            assert "hush" not in str(mask_request(asdict(info.request), app))

    def test_dryrun_knows_its_app_and_options(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        app = jobs.sh("true")
        info = scheduler.submit_dryrun(app, opts)
        assert info.app is app
        assert dict(info.cfg) == scheduler.run_opts().resolve(opts)

    def test_scheduling_leaves_the_request_alone(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        info = scheduler.submit_dryrun(jobs.sh("true"), opts)
        before = str(info)
        app_id = scheduler.schedule(info)
        assert str(info) == before
        jobs.end(app_id)

    def test_a_request_without_its_app_can_be_scheduled(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        info = scheduler.submit_dryrun(jobs.sh("true"), opts)
        app_id = scheduler.schedule(AppDryRunInfo(info.request, repr))
        assert jobs.end(app_id).state is AppState.SUCCEEDED

    def test_hooks_of_roles_run_once_and_in_order(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        calls = []

        class HookedRole(Role):
            def pre_proc(
                self, scheduler: str, dryrun_info: AppDryRunInfo[Any]
            ) -> AppDryRunInfo[Any]:
                calls.append((self.name, scheduler))
                return dryrun_info

        names = ["b", "a"] if scheduler.features.multi_role else [WORKER]
        app = AppDef(APP, [HookedRole(**vars(jobs.role("sh", name=name))) for name in names])
        scheduler.submit_dryrun(app, opts)
        assert calls == [(name, scheduler.backend) for name in names]

    def test_what_a_hook_returns_is_the_result(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        replaced = []

        class ReplacingRole(Role):
            def pre_proc(
                self, scheduler: str, dryrun_info: AppDryRunInfo[Any]
            ) -> AppDryRunInfo[Any]:
                replaced.append(AppDryRunInfo(dryrun_info.request, repr))
                return replaced[-1]

        app = AppDef(APP, [ReplacingRole(**vars(jobs.role("sh", "-c", "true")))])
        info = scheduler.submit_dryrun(app, opts)
        assert info is replaced[0]
        assert info.app is app

    def test_an_unknown_option_is_refused(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        cfg: dict[str, CfgVal] = {**opts, "no_such_option": "x"}
        with pytest.raises(InvalidRunConfigException, match="no_such_option"):
            scheduler.submit_dryrun(jobs.sh("true"), cfg)
        with pytest.raises(InvalidRunConfigException, match="no_such_option"):
            scheduler.submit(jobs.sh("true"), cfg)

    def test_an_option_of_another_type_is_refused(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        for name, option in scheduler.run_opts():
            wrong: CfgVal = 12.5 if option.opt_type is not float else ["a"]
            with pytest.raises(InvalidRunConfigException, match=re.escape(name)):
                scheduler.submit_dryrun(jobs.sh("true"), {**opts, name: wrong})

    def test_a_required_option_must_be_given(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        for name, option in scheduler.run_opts():
            if option.is_required:
                cfg = {key: value for key, value in opts.items() if key != name}
                with pytest.raises(InvalidRunConfigException, match=re.escape(name)):
                    scheduler.submit_dryrun(jobs.sh("true"), cfg)

    def test_every_option_has_a_help_text(self, scheduler: Scheduler[Any]) -> None:
        for name, option in scheduler.run_opts():
            assert option.help.strip() not in ("", name), f"option `{name}` has no help text"

    def test_a_role_without_resource_is_refused_where_one_is_needed(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        app = jobs.sh("true", resource=NULL_RESOURCE)
        cfg = scheduler.run_opts().resolve(opts)
        if self.requires_resource:
            with pytest.raises(ValueError, match=WORKER):
                scheduler._validate(app, scheduler.backend, cfg)
        else:
            scheduler._validate(app, scheduler.backend, cfg)

    def test_several_roles_are_refused_where_one_is_supported(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        app = AppDef(APP, [jobs.role("sh", "-c", "true", name=name) for name in "ab"])
        if scheduler.features.multi_role:
            scheduler.submit_dryrun(app, opts)
        else:
            with pytest.raises(REFUSED):
                scheduler.submit_dryrun(app, opts)

    def test_two_roles_of_one_name_are_refused(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        # their replicas, logs and exit codes could not be told apart
        app = AppDef(APP, [jobs.role("sh", "-c", "true"), jobs.role("sh", "-c", "exit 3")])
        with pytest.raises(REFUSED):
            scheduler.submit_dryrun(app, opts)


def rich_app(jobs: Jobs) -> AppDef:
    """An app that has something in most of its fields."""
    app = jobs.sh(
        "echo ${app_id} ${replica_id} $$HOME",
        env={"A": "${img_root}", "PATH": "/opt/x"},
        metadata={"note": {"nested": ["${app_id}"]}},
        port_map={"http": 8080},
        num_replicas=2,
    )
    app.metadata["team"] = "contract"
    return app


def without_ids(text: str) -> str:
    """The text with the random part of ids taken out."""
    return re.sub(rf"{APP}-[a-z0-9]+", f"{APP}-ID", text)
