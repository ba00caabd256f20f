"""``torchx doctor``: checks of schedulers, with programs and servers that stand in for theirs."""

import json
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import torchx
from tests.unit.cli.conftest import RemoteScheduler
from torchx.cli import cmd_doctor
from torchx.errors import BackendUnavailable
from torchx.schedulers.checkups import Checkup, Configured, broken, neutral, ok, warning


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a shell script on a PATH that has little else: ``programs(name, script)``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def add(name: str, script: str = "exit 0") -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return add


def checks(call: Callable[..., Any], *names: str) -> tuple[int, dict[str, tuple[str, str]], Any]:
    """Exit code; verdict and text by the name of the check; all of the answer."""
    result = call("doctor", "-s", ",".join(names), "--json")
    found = json.loads(result.out)
    rows = [row for row in found["checks"] if row["scheduler"] is not None]
    return result.code, {row["check"]: (row["verdict"], row["text"]) for row in rows}, found


def test_local_jobs_need_little(call: Callable[..., Any]) -> None:
    code, found, _ = checks(call, "local_cwd")
    assert code == 0
    assert found["records"][0] in ("ok", "warning")
    assert set(found) == {"records", "open files", "processes", "shared memory", "GPUs"}


def test_what_is_not_set_up_is_neutral_unless_it_is_asked_for(
    call: Callable[..., Any], programs: Any
) -> None:
    everything = json.loads(call("doctor", "--json").out)["checks"]
    verdicts = {row["scheduler"]: row["verdict"] for row in everything}
    assert (verdicts["slurm"], verdicts["lsf"]) == ("neutral", "neutral")
    code, found, _ = checks(call, "slurm")
    assert code == 1
    assert found["programs"][0] == "broken"


def test_a_cluster_of_slurm(call: Callable[..., Any], programs: Any) -> None:
    for name in ("sbatch", "squeue", "scancel", "srun", "sacct"):
        programs(name)
    programs("scontrol", "echo 'Slurmctld(primary) at ctl1 is UP'")
    programs("sinfo", "printf 'batch* up\\ngpu up\\nold down\\n'")
    code, found, answer = checks(call, "slurm")
    assert code == 0
    assert found["controller"] == ("ok", "Slurmctld(primary) at ctl1 is UP")
    assert found["partitions"] == ("ok", "batch, gpu (default batch)")
    assert found["accounting"] == ("ok", "sacct answers")
    assert found["account"][0] == found["clock"][0] == "neutral"  # nobody tells
    assert answer["config"] == ["[slurm]", "partition = batch"]
    assert "[slurm]\npartition = batch" in call("doctor", "-s", "slurm").out


CLUSTER = {
    "sbatch": "echo 'slurm-wlm 22.05.8'",
    "squeue": "",
    "scancel": "",
    "srun": "",
    "sacct": "",
    "scontrol": "echo 'Slurmctld(primary) at ctl1 is UP'",
    "sinfo": "printf 'batch* up\\ngpu up\\nold down\\n'",
    "sacctmgr": "printf 'physics\\nchem\\nphysics\\n'",
}


@pytest.fixture
def slurm(call: Callable[..., Any], programs: Any) -> Callable[..., Any]:
    """Finds what is told of a cluster: ``slurm(config, program=script)``."""

    def found(options: str = "", **changed: str) -> dict[str, tuple[str, str]]:
        for name, script in {**CLUSTER, **changed}.items():
            programs(name, script)
        Path(".torchxconfig").write_text(f"[slurm]\n{options}\n")
        return checks(call, "slurm")[1]

    return found


def as_of(seconds_ago: int) -> str:
    """A controller that tells its time when it is asked, in our time zone."""
    now = f"$(/bin/date -d '-{seconds_ago} seconds' +%Y-%m-%dT%H:%M:%S)"
    return f'echo "Configuration data as of {now}"; echo "is UP"'


@pytest.mark.parametrize(
    ("check", "changed", "verdict", "text"),
    [
        ("version", {}, "ok", "Slurm 22.05"),
        ("version", {"sbatch": "echo nothing"}, "warning", "`sbatch --version` says 'nothing'"),
        ("version", {"sbatch": "exit 1"}, "neutral", "`sbatch` does not tell it"),
        ("clock", {"scontrol": "exit 1"}, "neutral", "the controller does not answer"),
        ("clock", {"scontrol": as_of(0)}, "ok", "agrees with that of the controller"),
        ("clock", {"scontrol": as_of(120)}, "warning", "that of the controller is 12"),
        ("clock", {"scontrol": as_of(3600)}, "broken", "60 min behind: Slurm's messages, which"),
        ("account", {}, "ok", "this user may use physics, chem"),
        ("account", {"sacctmgr": "exit 0"}, "neutral", "this user has no account"),
        ("account", {"sacctmgr": "exit 1"}, "neutral", "`sacctmgr` does not tell them"),
        ("accounting", {"sacct": "exit 1"}, "warning", "jobs are forgotten minutes after"),
        ("partitions", {"sinfo": "echo 'old down'"}, "broken", "no partition is up"),
        ("partitions", {"sinfo": "echo 'gpu up'"}, "warning", "gpu; none is the default"),
        ("controller", {"scontrol": "echo 'is DOWN'"}, "broken", "is DOWN"),
    ],
)
def test_what_a_cluster_of_slurm_tells(
    slurm: Callable[..., Any], check: str, changed: dict[str, str], verdict: str, text: str
) -> None:
    found = slurm(**changed)[check]
    assert found[0] == verdict
    assert text in found[1]


def test_programs_that_know_no_cluster(call: Callable[..., Any], slurm: Any) -> None:
    words = "fetch_config: DNS SRV lookup failed; Could not establish a configuration source"
    fails = f"echo 'sbatch: fatal: {words}' >&2; exit 1"
    found = slurm(**dict.fromkeys(CLUSTER, fails))
    assert {name: verdict for name, (verdict, _) in found.items()} == {"programs": "broken"}
    assert found["programs"][1].startswith("not set up: Slurm's programs are here")
    rows = json.loads(call("doctor", "--json").out)["checks"]
    (row,) = [row for row in rows if row["scheduler"] == "slurm"]
    assert (row["verdict"], row["fix"].rpartition(", ")[2]) == ("neutral", "or set SLURM_CONF")


@pytest.mark.parametrize(
    ("check", "option", "verdict", "text"),
    [
        ("partitions", "partition = gpu", "ok", "batch, gpu (configured: gpu)"),
        ("partitions", "partition = gpu,old", "broken", "`old` is none of those that are up"),
        ("account", "account = chem", "ok", "this user may use physics, chem"),
        ("account", "account = bio", "broken", "`bio` is not an account of this user"),
        ("folder", "job_dir = /proc/no/such", "broken", "`/proc/no/such`: it cannot be written"),
    ],
)
def test_what_the_config_names_is_looked_for(
    slurm: Callable[..., Any], check: str, option: str, verdict: str, text: str
) -> None:
    found = slurm(option)[check]
    assert found[0] == verdict
    assert text in found[1]


def test_a_controller_that_is_away(call: Callable[..., Any], programs: Any) -> None:
    for name in ("sbatch", "squeue", "scancel", "srun", "sacct"):
        programs(name)
    for name in ("scontrol", "sinfo"):
        programs(name, "echo 'Unable to contact slurm controller' >&2; exit 1")
    code, found, _ = checks(call, "slurm")
    assert code == 1
    assert found["controller"][0] == "broken"
    assert "Unable to contact slurm controller" in found["controller"][1]


def test_programs_that_are_missing_are_named(call: Callable[..., Any], programs: Any) -> None:
    programs("sbatch")
    code, found, _ = checks(call, "slurm")
    assert (code, found["programs"][0]) == (1, "broken")
    assert "squeue, scancel, srun" in found["programs"][1]


def test_a_cluster_of_lsf(call: Callable[..., Any], programs: Any) -> None:
    for name in ("bsub", "bjobs", "bkill", "bhist"):
        programs(name)
    programs("lsid", "echo 'IBM Spectrum LSF 10.1'; echo 'My cluster name is blue'")
    programs(
        "bqueues",
        "echo 'QUEUE_NAME PRIO STATUS MAX'; echo 'night 40 Open:Inact -';"
        " echo 'normal 30 Open:Active -'",
    )
    code, found, answer = checks(call, "lsf")
    assert code == 0
    assert found["cluster"] == ("ok", "IBM Spectrum LSF 10.1, My cluster name is blue")
    assert answer["config"] == ["[lsf]", "queue = normal"]
    config = Path(".torchxconfig")
    config.write_text("[lsf]\nlsf_queue = normal\n")
    assert checks(call, "lsf")[1]["queues"] == ("ok", "open: normal (configured: normal)")
    config.write_text("[lsf]\nqueue = night\n")
    code, found, _ = checks(call, "lsf")
    text = "`night` is none of the open queues: normal"
    assert (code, found["queues"]) == (1, ("broken", text))
    programs("bqueues", "echo 'QUEUE_NAME PRIO STATUS MAX'")
    programs("lsid", "exit 0")
    _, found, _ = checks(call, "lsf")
    assert found["queues"] == ("broken", "no queue takes and starts jobs")
    assert found["cluster"] == ("broken", "`lsid` says nothing")


def test_no_daemon_and_no_cluster(call: Callable[..., Any]) -> None:
    assert checks(call, "local_docker")[1]["daemon"][0] == "broken"
    code, found, _ = checks(call, "kubernetes")
    assert (code, found["cluster"][0]) == (1, "broken")
    assert "not set up" in found["cluster"][1]


def test_a_kubeconfig_that_is_damaged(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text("a: [")
    monkeypatch.setenv("KUBECONFIG", str(path))
    code, found, _ = checks(call, "kubernetes")
    assert (code, found["cluster"][0]) == (1, "broken")
    assert str(path) in found["cluster"][1]


class Examined(RemoteScheduler):
    """Has one check of each kind, and one that never ends."""

    def checkups(self) -> list[Checkup]:  # type: ignore[override]  # as before it took options
        def away() -> Any:
            raise BackendUnavailable("nobody answers")

        def fails() -> Any:
            raise RuntimeError("odd\nand more")

        def hangs() -> Any:
            threading.Event().wait()

        found = [ok("fine", team="a"), warning("hm"), neutral("no GPUs"), broken("off", "turn it")]
        return [
            *(Checkup(one.verdict.value, lambda one=one: one) for one in found),  # type: ignore[misc]  # mypy does not infer it
            Checkup("away", away),
            Checkup("fails", fails),
            Checkup("hangs", hangs),
        ]


def test_checks_of_a_plugin_fail_one_by_one(
    call: Callable[..., Any], install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("torchx.schedulers", "remote", lambda session_name, **_: Examined(session_name))
    monkeypatch.setattr(cmd_doctor, "TIMEOUT_S", 0.5)
    code, found, answer = checks(call, "remote")
    assert code == 1
    assert found["away"] == ("broken", "nobody answers")
    assert found["fails"] == ("broken", "the check failed: RuntimeError: odd")
    assert found["hangs"] == ("broken", "no answer within 0.5 s")
    assert (found["ok"], found["neutral"]) == (("ok", "fine"), ("neutral", "no GPUs"))
    assert answer["config"] == ["[remote]", "team = a"]
    text = call("doctor", "-s", "remote").out
    assert "broken" in text
    assert "turn it" in text


class Slow(RemoteScheduler):
    """Takes for ever to say what it checks."""

    def checkups(self, configured: Configured | None = None) -> list[Checkup]:
        threading.Event().wait()
        return []


class Configurable(RemoteScheduler):
    """Tells what it was given."""

    def checkups(self, configured: Configured | None = None) -> list[Checkup]:
        assert configured is not None
        options = Checkup("options", lambda: ok(f"{configured.cfg}"))
        return [options, Checkup("images", lambda: ok(f"{configured.images}"))]


def test_a_scheduler_that_is_slow_keeps_no_other_waiting(
    call: Callable[..., Any], install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("torchx.schedulers", "slow", lambda session_name, **_: Slow(session_name))
    install("torchx.schedulers", "quick", lambda session_name, **_: Configurable(session_name))
    monkeypatch.setattr(cmd_doctor, "TIMEOUT_S", 0.5)
    _, found, _ = checks(call, "slow", "quick")
    assert found["setup"] == ("broken", "no answer within 0.5 s")
    assert found["options"] == ("ok", "{}")


def test_checks_know_what_is_configured(
    call: Callable[..., Any], install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("torchx.schedulers", "remote", lambda session_name, **_: Configurable(session_name))
    Path(".torchxconfig").write_text(
        "[remote]\nqueue = long\n[component:dist.ddp]\nimage = own:1\n"
    )
    _, found, _ = checks(call, "remote")
    assert found["options"] == ("ok", "{'queue': 'long'}")
    images = {torchx.IMAGE: "", "own:1": "[component:dist.ddp]"}
    assert found["images"] == ("ok", str(images))
    monkeypatch.setenv("TORCHX_IMAGE", torchx.IMAGE)
    images[torchx.IMAGE] = "TORCHX_IMAGE"
    assert checks(call, "remote")[1]["images"] == ("ok", str(images))


def test_limits_that_are_low() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))

    command = [sys.executable, "-m", "torchx.cli.main", "doctor", "-s", "local_cwd", "--json"]
    done = subprocess.run(command, capture_output=True, check=False, preexec_fn=limit)
    rows = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    assert rows["open files"]["verdict"] == "warning"
    assert rows["open files"]["text"].startswith("128 open files at once")
    assert rows["open files"]["fix"] == "ulimit -n 128"
    assert rows["processes"]["verdict"] == "warning"
    assert done.returncode == 0


def test_records_that_cannot_be_written(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", "/proc/none")
    code, found, answer = checks(call, "local_cwd")
    assert (code, found["records"][0]) == (1, "broken")
    home = next(row for row in answer["checks"] if row["check"] == "home")
    assert home["verdict"] == "broken"


def test_a_config_that_cannot_be_read(call: Callable[..., Any]) -> None:
    Path(".torchxconfig").write_text("[slurm\npartition = a\n")
    result = call("doctor", "-s", "local_cwd", "--json")
    rows = {row["check"]: row for row in json.loads(result.out)["checks"]}
    assert (result.code, rows["config"]["verdict"]) == (1, "broken")


def test_a_section_that_nothing_reads(call: Callable[..., Any]) -> None:
    Path(".torchxconfig").write_text("[slrum]\npartition = a\n")
    checks_of = json.loads(call("doctor", "-s", "local_cwd", "--json").out)["checks"]
    (config,) = [row for row in checks_of if row["check"] == "config"]
    assert config["verdict"] == "warning"
    assert "[slrum]" in config["text"]
    assert "Did you mean `slurm`?" in config["text"]


def test_an_unknown_scheduler(call: Callable[..., Any]) -> None:
    assert call("doctor", "-s", "nope").code == 2
