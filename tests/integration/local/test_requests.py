"""What ``local_cwd`` makes of an app, and what its processes get."""

import ast
import copy
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from torchx.errors import InvalidInput
from torchx.schedulers.local_scheduler import (
    CWDImageProvider,
    ImageProvider,
    LocalDirectoryImageProvider,
    LocalOpts,
    LocalScheduler,
    LogIterator,
    Opts,
    PopenRequest,
    ReplicaParam,
    SignalException,
    _client,
    _join_PATH,
    create_scheduler,
)
from torchx.specs.api import (
    AppDef,
    AppDryRunInfo,
    AppState,
    BindMount,
    Resource,
    Role,
    macros,
)

from .jobs import make_app, sh, wait_for_end, wait_until


def request(scheduler: LocalScheduler, app: AppDef, **cfg: Any) -> PopenRequest:
    found = scheduler.submit_dryrun(app, cfg).request
    assert isinstance(found, PopenRequest)
    return found


# -- options and construction -------------------------------------------------------------------


def test_options_have_defaults():
    assert LocalOpts is Opts
    assert dict(Opts()) == {
        "log_dir": None,
        "prepend_cwd": False,
        "auto_set_cuda_visible_devices": False,
        "detach": False,
        "on_failure": "end",
        "grace_s": 10,
    }
    assert all(option.help for _, option in Opts.as_runopts())


@pytest.mark.parametrize("size", [0, -1, "x", None])
def test_a_cache_size_must_be_positive(size):
    with pytest.raises(ValueError, match="cache size must be a positive number"):
        create_scheduler("test", cache_size=size)


def test_factories_take_what_they_do_not_know():
    assert create_scheduler("test", cache_size="5", unknown=1).backend == "local"


def test_signals_raise_in_the_main_thread_only(scheduler):
    with pytest.raises(SignalException) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.sigval is signal.SIGTERM
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    thread = threading.Thread(target=lambda: create_scheduler("other"))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_signals_do_what_they_did_before_once_all_schedulers_are_closed():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    one, two = create_scheduler("one"), create_scheduler("two")
    one.close()
    one.close()
    with pytest.raises(SignalException):
        signal.raise_signal(signal.SIGINT)
    two.close()
    assert {number: signal.getsignal(number) for number in before} == before


def test_handlers_of_the_program_stay():
    got = []

    def handler(number, _):
        got.append(number)

    signal.signal(signal.SIGTERM, handler)
    scheduler = create_scheduler("test")
    signal.raise_signal(signal.SIGTERM)
    assert got == [signal.SIGTERM]
    signal.signal(signal.SIGINT, handler)  # later than the scheduler's
    scheduler.close()
    assert signal.getsignal(signal.SIGINT) is signal.getsignal(signal.SIGTERM) is handler


def test_a_negative_grace_period_is_refused(scheduler):
    with pytest.raises(InvalidInput, match="`grace_s` must not be negative, given: -1"):
        scheduler.submit_dryrun(sh("true"), {"grace_s": -1})


# -- requests -----------------------------------------------------------------------------------


def test_the_published_example(scheduler, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchx.schedulers.local_scheduler.make_unique", lambda name: f"{name}-bc")
    app = make_app("python", "a.py", name="j", env={"PATH": "/opt/x"})
    logs = str(tmp_path / "L")
    made = request(scheduler, app, log_dir=logs)
    folder = f"{logs}/test/j-bc/w/0"
    assert made.app_id == "j-bc"
    assert made.log_dir == f"{logs}/test/j-bc"
    assert made.role_log_dirs == {"w": [folder]}
    assert made.role_params == {
        "w": [
            ReplicaParam(
                args=["python", "a.py"],
                env={
                    "PATH": f"/opt/x:{tmp_path}",
                    "TORCHX_RANK0_HOST": "localhost",
                    "TORCHELASTIC_ERROR_FILE": f"{folder}/error.json",
                    "PET_LOG_DIR": f"{logs}/test/j-bc/torchelastic/w",
                },
                stdout=f"{folder}/stdout.log",
                stderr=f"{folder}/stderr.log",
                combined=f"{folder}/combined.log",
                cwd=str(tmp_path),
            )
        ]
    }
    assert not Path(logs).exists()


def test_a_dry_run_leaves_no_trace(scheduler):
    app = sh("true", env={"A": "${replica_id}"}, replicas=2)
    before = copy.deepcopy(app)
    info = scheduler.submit_dryrun(app, {})
    assert app == before
    assert not Path(os.environ["TORCHX_HOME"]).exists()
    rendered = ast.literal_eval(str(info))
    assert rendered["app_id"] == info.request.app_id
    assert rendered["role_params"]["w"][1] == vars(info.request.role_params["w"][1])
    assert rendered["role_log_dirs"] == info.request.role_log_dirs


def test_what_the_role_sets_stays(scheduler):
    env = {"TORCHELASTIC_ERROR_FILE": "/e", "PET_LOG_DIR": "/p", "TORCHX_RANK0_HOST": "x"}
    made = request(scheduler, sh("true", env=env)).role_params["w"][0].env
    assert (made["TORCHELASTIC_ERROR_FILE"], made["PET_LOG_DIR"]) == ("/e", "/p")
    assert made["TORCHX_RANK0_HOST"] == "localhost"


def test_paths_are_composed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scheduler = create_scheduler("test", extra_paths=["/first", "${img_root}/bin"])
    app = sh("true", env={"PATH": ":/role:"})
    parts = f"/first:{tmp_path}/bin:/role"
    for prepend, expected in ((False, f"{parts}:{tmp_path}"), (True, f"{tmp_path}:{parts}")):
        for _ in range(2):
            made = request(scheduler, app, prepend_cwd=prepend)
            assert made.role_params["w"][0].env["PATH"] == expected
    assert _join_PATH("", None, ":a:", "b") == "a:b"
    assert _join_PATH() == ""


def test_macros_differ_by_replica(scheduler):
    app = make_app("echo", macros.replica_id, macros.app_id, "${other}", "$$x", replicas=2)
    made = request(scheduler, app)
    assert [p.args for p in made.role_params["w"]] == [
        ["echo", str(k), made.app_id, "${other}", "$x"] for k in (0, 1)
    ]


def test_images_can_be_directories(tmp_path):
    scheduler = create_scheduler("test", image_provider_class=LocalDirectoryImageProvider)
    (tmp_path / "img").mkdir()
    app = AppDef("job", [Role("w", str(tmp_path / "img"), entrypoint="pwd")])
    app_id = scheduler.submit(app, {})
    wait_for_end(scheduler, app_id)
    assert list(scheduler.log_iter(app_id, "w")) == [f"{tmp_path / 'img'}\n"]
    scheduler.close()


def test_providers_are_asked_once_for_a_role_and_once_for_a_replica(tmp_path):
    calls = []

    class Provider(ImageProvider):
        def __init__(self, cfg: object) -> None:
            pass

        def fetch(self, image: str) -> str:
            calls.append("fetch")
            return str(tmp_path)

        def get_replica_param(self, img_root: str, role: Role, *logs: Any) -> ReplicaParam:  # type: ignore[override]  # positional here
            calls.append("param")
            return super().get_replica_param(img_root, role, *logs)

    scheduler = create_scheduler("test", image_provider_class=Provider)
    made = request(scheduler, make_app("run.sh", replicas=2))
    assert calls == ["fetch", "param", "param"]
    assert made.role_params["w"][0].args == [str(tmp_path / "run.sh")]


def test_what_has_no_effect_here_is_said_once(scheduler, caplog):
    app = AppDef(
        "job",
        [
            Role(
                "w",
                "",
                entrypoint="true",
                num_replicas=2,
                min_replicas=1,
                resource=Resource(1, 0, 1, devices={"efa": 1}),
                mounts=[BindMount("/tmp", "/data")],
            )
        ],
    )
    scheduler.submit_dryrun(app, {})
    assert [record.message for record in caplog.records] == [
        "`local_cwd` leaves out `mounts` of role `w`",
        "`local_cwd` leaves out `devices` of role `w`",
        "`local_cwd` leaves out `min_replicas` of role `w`",
    ]
    caplog.clear()
    scheduler.submit_dryrun(sh("true"), {})
    assert caplog.records == []


# -- what arrives -------------------------------------------------------------------------------

ODD = ["a b", "'q'", '"d"', "$HOME", "`x`", "a\nb", "ü\u4e2d", "", "-x", "\\", "a,b;c=d", "\t"]


def test_arguments_and_environment_arrive_as_they_are(scheduler):
    code = (
        "import os, sys\n"
        "print(ascii(sys.argv[1:]))\n"
        "print(ascii([os.environ[f'V{i}'] for i in range(12)]))\n"
    )
    env = {f"V{i}": text for i, text in enumerate(ODD)}
    app_id = scheduler.submit(make_app(sys.executable, "-c", code, *ODD, env=env), {})
    assert wait_for_end(scheduler, app_id).state is AppState.SUCCEEDED
    args, values = (ast.literal_eval(line) for line in scheduler.log_iter(app_id, "w"))
    assert args == values == ODD


def test_the_environment_of_the_launcher_is_inherited(scheduler, monkeypatch):
    monkeypatch.setenv("FROM_LAUNCHER", "1")
    app = sh("echo $FROM_LAUNCHER $PYTHONUNBUFFERED $TORCHX_ATTEMPT; cat; ulimit -n")
    app_id = scheduler.submit(app, {})
    wait_for_end(scheduler, app_id)
    limit = subprocess.check_output(["sh", "-c", "ulimit -n"], text=True)
    unbuffered = os.environ.get("PYTHONUNBUFFERED", "x")
    assert "".join(scheduler.log_iter(app_id, "w")) == f"1 {unbuffered} 0\n{limit}"


def test_edits_to_a_request_are_honoured(scheduler):
    info = scheduler.submit_dryrun(sh("echo first; echo $A", replicas=2, env={"A": "1"}), {})
    info.request.role_params["w"][1].args[-1] = "echo second $A $B"
    info.request.role_params["w"][1].env["B"] = "2"
    del info.request.role_params["w"][1].env["A"]
    app_id = scheduler.schedule(info)
    wait_for_end(scheduler, app_id)
    assert list(scheduler.log_iter(app_id, "w", 0)) == ["first\n", "1\n"]
    assert list(scheduler.log_iter(app_id, "w", 1)) == ["second 2\n"]


def test_a_request_made_by_hand_can_be_scheduled(scheduler):
    info = scheduler.submit_dryrun(sh("echo hi"), {})
    app_id = scheduler.schedule(AppDryRunInfo(info.request, repr))
    assert wait_for_end(scheduler, app_id).state is AppState.SUCCEEDED


def test_another_process_reads_the_request_back(scheduler):
    app = sh("echo ${replica_id}", replicas=3, env={"A": "${replica_id}"})
    app_id = scheduler.submit(app, {"grace_s": 3})
    submitted = scheduler.describe_native(app_id)
    wait_for_end(scheduler, app_id)
    read = create_scheduler("other").describe_native(app_id)
    assert submitted is not None
    assert read is not None
    assert read.request == submitted.request
    assert read.app == submitted.app == app
    assert read.cfg["grace_s"] == 3
    assert scheduler.describe_native("nope") is None


# -- GPUs ---------------------------------------------------------------------------------------


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Puts an ``nvidia-smi`` on PATH that lists so many GPUs, or fails."""

    def have(count: int, code: int = 0) -> None:
        tool = tmp_path / "bin/nvidia-smi"
        tool.parent.mkdir(exist_ok=True)
        lines = "".join(f"echo 'GPU {i}: fake (UUID: x)'\n" for i in range(count))
        tool.write_text(f'#!/bin/sh\ntest "$1" = -L || exit 9\n{lines}echo\nexit {code}\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")

    return have


def gpu_app(*roles: tuple[str, int, int]) -> AppDef:
    return AppDef(
        "job",
        [
            Role(n, "", entrypoint="true", num_replicas=count, resource=Resource(1, gpu, 1))
            for n, count, gpu in roles
        ],
    )


def visible(made: PopenRequest) -> dict[str, list[str | None]]:
    return {
        role: [p.env.get("CUDA_VISIBLE_DEVICES") for p in params]
        for role, params in made.role_params.items()
    }


def test_gpus_are_handed_out_in_order(scheduler, gpus):
    gpus(8)
    app = gpu_app(("a", 2, 1), ("b", 1, 0), ("c", 3, 2))
    made = request(scheduler, app, auto_set_cuda_visible_devices=True)
    assert visible(made) == {"a": ["0", "1"], "b": [None], "c": ["2,3", "4,5", "6,7"]}


@pytest.mark.parametrize(("count", "code"), [(7, 0), (8, 1), (0, 0)])
def test_too_few_gpus_are_not_handed_out_at_all(scheduler, gpus, count, code, caplog):
    gpus(count, code)
    app = gpu_app(("a", 2, 1), ("c", 3, 2))
    have = 0 if code else count
    made = request(scheduler, app, auto_set_cuda_visible_devices=True)
    assert f"ask for 8 GPUs, this machine has {have} " in caplog.text
    assert visible(made) == {"a": [None] * 2, "c": [None] * 3}


def test_without_the_option_a_warning_says_so(scheduler, caplog):
    assert visible(request(scheduler, gpu_app(("a", 1, -1)))) == {"a": [None]}
    assert caplog.text == ""
    assert visible(request(scheduler, gpu_app(("a", 1, 1)))) == {"a": [None]}
    assert "ask for 1 GPUs, but `auto_set_cuda_visible_devices` is off" in caplog.text


def test_a_role_that_chooses_its_gpus_itself_gets_no_warning(scheduler, caplog):
    app = gpu_app(("a", 1, 1))
    app.roles[0].env["CUDA_VISIBLE_DEVICES"] = "0"
    assert visible(request(scheduler, app)) == {"a": ["0"]}
    assert caplog.text == ""


def test_memory_that_this_machine_does_not_have_is_told_once(scheduler, caplog):
    app = gpu_app(("a", 3, 0), ("b", 1, 0))
    app.roles[0].resource.memMB = 2**30
    request(scheduler, app)
    (record,) = caplog.records
    assert "role `a` asks for 1073741824 MB of memory, this machine has" in record.getMessage()


def test_without_the_tool_there_are_no_gpus(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert _client.cuda_device_count() == 0


# -- the generic follower -----------------------------------------------------------------------


def test_a_log_file_is_followed_to_the_end_of_its_app(scheduler, tmp_path):
    app_id = scheduler.submit(sh("while [ ! -e go ]; do sleep 0.02; done"), {})
    log = tmp_path / "some.log"
    lines: list[str] = []
    follower = LogIterator(app_id, str(log), scheduler)
    thread = threading.Thread(target=lambda: lines.extend(follower))
    thread.start()
    time.sleep(0.05)
    log.write_text("one\ntw")
    wait_until(lambda: lines == ["one\n"])
    with log.open("a") as f:
        f.write("o\nlast")
    Path("go").touch()
    thread.join(20)
    assert lines == ["one\n", "two\n", "last"]


def test_a_log_file_that_never_comes_is_told(scheduler, tmp_path):
    missing = LogIterator("gone", str(tmp_path / "nope.log"), scheduler, should_tail=False)
    with pytest.raises(RuntimeError, match=r"app `gone` is finished and has no log file .*nope"):
        list(missing)


def test_the_default_provider_ignores_the_image(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CWDImageProvider().fetch("anything") == str(tmp_path)


def test_files_of_the_launcher_are_not_inherited(scheduler, tmp_path):
    with (tmp_path / "secret").open("w") as f:
        os.set_inheritable(f.fileno(), True)
        app_id = scheduler.submit(sh("ls -l /proc/self/fd"), {})
        wait_for_end(scheduler, app_id)
    assert "secret" not in "".join(scheduler.log_iter(app_id, "w"))


def test_a_job_starts_with_few_files_allowed():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))\n"
        "from torchx.runner import get_runner\n"
        "from torchx.components.utils import echo\n"
        "with get_runner() as runner:\n"
        "    print(runner.wait(runner.run(echo(), 'local_cwd')).state)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("SUCCEEDED\n", 0), done.stderr


# -- the hook of release 0.7 --------------------------------------------------------------------


def test_a_process_can_be_started_as_release_0_7_does(scheduler, tmp_path):
    with (tmp_path / "out").open("wb") as out:
        process = scheduler.run_local_job(
            ["sh", "-c", "echo $A; pwd"], {"A": "1", "PATH": os.environ["PATH"]}, out, None, "/"
        )
        assert process.wait() == 0
    assert (tmp_path / "out").read_text() == "1\n/\n"


def test_a_subclass_may_change_what_is_run(tmp_path):
    class Wrapping(LocalScheduler):
        def run_local_job(self, args, env, stdout=None, stderr=None, cwd=None):
            assert env["PATH"].endswith(os.environ["PATH"])
            env = {**env, "WRAPPED": "yes", "A": env["A"] + "!"}
            return super().run_local_job(["sh", "-c", 'echo wrapped; "$@"', "x", *args], env)

    scheduler = Wrapping("test", CWDImageProvider)
    info = scheduler.submit_dryrun(sh("echo $A $WRAPPED; pwd", replicas=2, env={"A": "1"}), {})
    before = copy.deepcopy(info.request)
    app_id = scheduler.schedule(info)
    assert info.request == before
    assert wait_for_end(scheduler, app_id).state is AppState.SUCCEEDED
    for k in (0, 1):
        lines = list(scheduler.log_iter(app_id, "w", k))
        assert lines == ["wrapped\n", "1! yes\n", f"{os.getcwd()}\n"]
    scheduler.close()


def test_a_subclass_that_starts_something_itself_is_told_so(tmp_path):
    class Starting(LocalScheduler):
        def run_local_job(self, args, env, stdout=None, stderr=None, cwd=None):
            return object()

    scheduler = Starting("test", CWDImageProvider)
    with pytest.raises(NotImplementedError, match="must return what the method of"):
        scheduler.submit(sh("true"), {})
    assert scheduler.list() == []
