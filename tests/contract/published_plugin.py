"""A scheduler written for the published package: the abstract methods, and verbs of its own.

Its apps are files in the folder ``PUBLISHED_DIR``, so that every command finds them.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from torchx.schedulers.api import (
    AppDryRunInfo,
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    filter_regex,
)
from torchx.specs.api import AppDef, AppState, Role, runopts

FOLDER = Path(os.environ.get("PUBLISHED_DIR", "."))


class PublishedScheduler(Scheduler[dict]):
    def __init__(self, session_name: str, **kwargs: object) -> None:
        super().__init__("published", session_name)

    def run_opts(self) -> runopts:
        opts = runopts()
        opts.add("queue", type_=str, default="main", help="queue in which the app waits")
        return opts

    def _submit_dryrun(self, app: AppDef, cfg) -> AppDryRunInfo:
        roles = [[role.name, role.num_replicas] for role in app.roles]
        return AppDryRunInfo({"roles": roles, "queue": cfg["queue"]}, json.dumps)

    def schedule(self, dryrun_info: AppDryRunInfo) -> str:
        app = {"state": "RUNNING", **dryrun_info.request}
        (FOLDER / "app-1").write_text(json.dumps(app))
        return "app-1"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        try:
            app = json.loads((FOLDER / app_id).read_text())
        except FileNotFoundError:
            return None
        roles = [Role(name, image="", num_replicas=count) for name, count in app["roles"]]
        return DescribeAppResponse(app_id=app_id, state=AppState[app["state"]], roles=roles)

    def list(self) -> list[ListAppResponse]:
        apps = [(path.name, json.loads(path.read_text())) for path in FOLDER.glob("app-*")]
        return [ListAppResponse(app_id=name, state=AppState[app["state"]]) for name, app in apps]

    def _cancel_existing(self, app_id: str) -> None:
        app = json.loads((FOLDER / app_id).read_text())
        (FOLDER / app_id).write_text(json.dumps({**app, "state": "CANCELLED"}))

    def log_iter(
        self,
        app_id,
        role_name,
        k=0,
        regex=None,
        since=None,
        until=None,
        should_tail=False,
        streams=None,
    ) -> Iterable[str]:
        return filter_regex(regex or ".*", [f"one of {k}\n", "two\n"])


def create_scheduler(session_name: str, **kwargs: object) -> PublishedScheduler:
    return PublishedScheduler(session_name)
