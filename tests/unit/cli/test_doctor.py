"""``torchx doctor``: checks of schedulers, with programs and servers that stand in for theirs."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import RemoteScheduler
from torchx.cli import cmd_doctor
from torchx.errors import BackendUnavailable
from torchx.schedulers.checkups import Checkup, broken, neutral, ok, warning


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
    assert answer["config"] == ["[slurm]", "partition = batch"]
    assert "[slurm]\npartition = batch" in call("doctor", "-s", "slurm").out


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
    assert found["cluster"] == ("ok", "My cluster name is blue")
    assert answer["config"] == ["[lsf]", "queue = normal"]


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

    def checkups(self) -> list[Checkup]:
        def away() -> Any:
            raise BackendUnavailable("nobody answers")

        def fails() -> Any:
            raise RuntimeError("odd")

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


def test_a_section_that_nothing_reads(call: Callable[..., Any]) -> None:
    Path(".torchxconfig").write_text("[slrum]\npartition = a\n")
    checks_of = json.loads(call("doctor", "-s", "local_cwd", "--json").out)["checks"]
    (config,) = [row for row in checks_of if row["check"] == "config"]
    assert config["verdict"] == "warning"
    assert "[slrum]" in config["text"]
    assert "Did you mean `slurm`?" in config["text"]


def test_an_unknown_scheduler(call: Callable[..., Any]) -> None:
    assert call("doctor", "-s", "nope").code == 2
