"""Every name that published programs import from the modules that exist so far."""

import importlib

import pytest

NEMO_RUN = """
torchx: IMAGE specs
torchx.cli.cmd_log: _prefix_line find_role_replicas validate
torchx.cli.colors: ENDC GREEN ORANGE BLUE GRAY
torchx.components: dist
torchx.components.dist: _noquote parse_nnodes ddp
torchx.runner.api: Runner
torchx.runner.events: log_event
torchx.schedulers: get_scheduler_factories
torchx.schedulers.api: AppDryRunInfo DescribeAppResponse ListAppResponse Scheduler Stream
    filter_regex split_lines split_lines_iterator
torchx.schedulers.ids: make_unique
torchx.schedulers.local_scheduler: AppId COMBINED_LOG STDOUT_LOG STDERR_LOG CWDImageProvider
    ImageProvider LocalOpts Opts LocalScheduler LogIterator PopenRequest _LocalAppDef
torchx.schedulers.slurm_scheduler: SLURM_STATES SlurmScheduler
torchx.specs: AppDef AppDryRunInfo AppHandle AppState AppStatus ReplicaStatus Role RoleStatus
    make_app_handle parse_app_handle parse_mounts resource runopts macros
torchx.specs.api: AppDef AppDryRunInfo AppState AppStatus ReplicaStatus Role RoleStatus is_started
    is_terminal parse_app_handle
torchx.specs.builders: make_app_handle
torchx.util.types: none_throws
"""
MONARCH = """
torchx: specs
torchx.runner: Runner
torchx.schedulers: SchedulerFactory
torchx.schedulers.local_scheduler: create_scheduler
torchx.schedulers.slurm_scheduler: create_scheduler
torchx.specs: AppDef AppDryRunInfo AppState AppStatus CfgVal Role RoleStatus parse_app_handle macros
    resource
torchx.specs.api: is_terminal ReplicaState ReplicaStatus
torchx.specs.builders: parse_args
torchx.util.types: decode decode_optional
"""
AX = """
torchx.runner: get_runner Runner
torchx.specs: AppDef AppState AppStatus CfgVal
torchx.runtime.tracking: FsspecResultTracker
torchx.components.utils: booth python
torchx.version: TORCHX_IMAGE
"""
TORCHFT = """
torchx.specs: AppDef Role resource
torchx.components: dist
torchx.components.dist: ddp
torchx.runner: get_runner Runner
"""
CODEFLARE = """
torchx.components.dist: ddp
torchx.runner: get_runner Runner
torchx.specs: AppHandle AppDryRunInfo parse_app_handle
"""
ELSEWHERE = """
torchx: apps pipelines
torchx.specs: AppDef Role Resource named_resources
torchx.runner: get_runner
torchx.schedulers.slurm_scheduler: SBATCH_JOB_OPTIONS SBATCH_GROUP_OPTIONS SLURM_JOB_DIRS
    SlurmBatchRequest SlurmOpts SlurmReplicaRequest appstate_from_slurm_state get_appstate_from_job
    version subprocess _apply_app_id_env _get_job_dirs _partition_memmb _save_job_dir
    _should_use_gpus_per_node_from_version
torchx.schedulers.slurm_scheduler.SlurmScheduler: _describe_squeue _describe_sacct _list_squeue
    _list_sacct
torchx.util.colors: GREEN BLUE ORANGE GRAY ENDC
torchx.schedulers: Scheduler
torchx.specs.builders: BindMount VolumeMount DeviceMount
torchx.schedulers.docker_scheduler: DockerOpts
torchx.test.fixtures: DistributedTestCase
torchx.schedulers.ids: get_len_random_id
torchx.cli.main: CmdBuiltins CmdCancel CmdConfigure CmdDescribe CmdList CmdLog CmdRun CmdRunopts
    CmdStatus CmdTracker
torchx.cli.cmd_base: logger
torchx.cli.cmd_builtins: logger
torchx.cli.cmd_cancel: logger
torchx.cli.cmd_configure: logger
torchx.cli.cmd_describe: logger
torchx.cli.cmd_list: logger
torchx.cli.cmd_log: logger
torchx.cli.cmd_run: logger
torchx.cli.cmd_runopts: logger
torchx.cli.cmd_status: logger
torchx.cli.cmd_status.CmdStatus: print_status
torchx.cli.cmd_tracker: logger
torchx.schedulers.aws_sagemaker_scheduler: AWSSageMakerJob AWSSageMakerOpts AWSSageMakerScheduler
    JOB_STATE Opts create_scheduler make_unique
torchx.schedulers.aws_sagemaker_scheduler.AWSSageMakerScheduler: _client _get_job _job_ui_url
    _local_session _parse_args
"""
CLIENTS = {
    "NeMo-Run": NEMO_RUN,
    "Monarch": MONARCH,
    "Ax": AX,
    "TorchFT": TORCHFT,
    "CodeFlare": CODEFLARE,
    "elsewhere": ELSEWHERE,
}


def imports(text: str) -> list[tuple[str, str]]:
    """Module and name of each import that a client's list holds."""
    found, module = [], ""
    for word in text.split():
        if word.endswith(":"):
            module = word[:-1]
        else:
            found.append((module, word))
    return found


def attribute(path: str, name: str) -> object:
    """An attribute of a module, or of a class in one."""
    try:
        return getattr(importlib.import_module(path), name)
    except ModuleNotFoundError:
        module, _, owner = path.rpartition(".")
        return getattr(getattr(importlib.import_module(module), owner), name)


@pytest.mark.parametrize(
    ("client", "module", "name"),
    [(client, *item) for client, text in CLIENTS.items() for item in imports(text)],
)
def test_a_name_that_a_client_imports_is_there(client, module, name):
    try:
        value = attribute(module, name)
    except AttributeError:
        value = importlib.import_module(f"{module}.{name}")
    assert value is not None


@pytest.mark.parametrize(
    "path",
    [
        "torchx.runner.Runner.cancel",
        "torchx.runner.Runner.describe",
        "torchx.runner.Runner.status",
        "torchx.schedulers.local_scheduler.LocalScheduler.schedule",
        "torchx.schedulers.local_scheduler.LocalScheduler.describe",
        "torchx.schedulers.local_scheduler.LocalScheduler.run_local_job",
        "torchx.schedulers.local_scheduler.make_unique",
    ],
)
def test_a_name_that_a_client_patches_can_be_patched(monkeypatch, path):
    monkeypatch.setattr(path, "patched")


def test_the_first_arguments_are_where_clients_put_them():
    import inspect

    from torchx.runner import Runner
    from torchx.schedulers.api import Scheduler
    from torchx.schedulers.local_scheduler import LogIterator, _LocalAppDef

    def parameters(function):
        return list(inspect.signature(function).parameters)

    assert parameters(Runner.__init__)[1:5] == [
        "name",
        "scheduler_factories",
        "component_defaults",
        "scheduler_params",
    ]
    assert parameters(Runner.dryrun)[1:5] == ["app", "scheduler", "cfg", "workspace"]
    assert parameters(Scheduler.__init__)[1:] == ["backend", "session_name"]
    assert parameters(LogIterator)[:4] == ["app_id", "log_file", "scheduler", "should_tail"]
    assert parameters(_LocalAppDef)[:2] == ["id", "log_dir"]


def test_logger_names_are_below_torchx():
    from torchx.runner import api

    assert api.logger.name.startswith("torchx")


def test_names_that_are_loaded_late_are_listed():
    import torchx.schedulers.api
    import torchx.specs

    for module in (torchx.schedulers.api, torchx.specs):
        assert {*module.__all__} <= {*dir(module)}
