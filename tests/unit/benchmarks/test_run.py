"""The benchmarks run and judge; how fast anything is, no test asks."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[3] / "benchmarks" / "run.py"


def load_run():
    spec = importlib.util.spec_from_file_location("benchmark_run", RUN)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


run = load_run()


def benchmark(*args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(RUN), *args], capture_output=True, text=True, check=False
    )


def test_two_venvs_are_measured_and_compared():
    if not Path(sys.prefix, "bin", "torchx").exists():
        pytest.skip("TorchX is not installed with its command")
    venvs = [f"--venv={name}={sys.prefix}" for name in ("one", "two")]
    done = benchmark(*venvs, "--only", "version", "--only", "run_200", "-n", "1")
    assert done.returncode in (0, 1), done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["figure", "one", "two", "one/two", "budget"]
    assert [row.split()[0] for row in rows] == ["bare", "version"] + ["run_200"] * 3
    assert "x bare" in rows[1]
    assert rows[1].split()[-1] in ("ok", "MISS")


def test_every_script_is_used():
    scripts = {path.stem for path in run.SCRIPTS.glob("[a-z]*.py")}
    used = {w.seed for w in run.WORKLOADS} | {Path(w.command[-1]).stem for w in run.WORKLOADS}
    assert scripts <= used


@pytest.mark.parametrize("text", ["nothing", "a=", "=b", "a=/no/such/venv"])
def test_what_is_no_venv_is_refused(text):
    done = benchmark("--venv", text)
    assert done.returncode == 2
    assert "is not name=path of a virtual environment" in done.stderr


@pytest.mark.parametrize(
    ("budget", "ours", "theirs", "verdict"),
    [
        (run.Budget(2, "bare"), 0.2, 9, "ok"),
        (run.Budget(2, "bare"), 0.21, 9, "MISS"),
        (run.Budget(0.1, "other"), 1, 10, "ok"),
        (run.Budget(0.1, "other"), 1, 9, "MISS"),
        (run.Budget(0.1, "other"), 1, None, "?"),
        (run.Budget(3, "other", at_least=True), 30, 10, "ok"),
        (run.Budget(3, "other", at_least=True), 29, 10, "MISS"),
        (run.Budget(0, "value"), 0, 5, "ok"),
        (run.Budget(0, "value"), None, 5, "?"),
    ],
)
def test_budgets_are_judged_for_the_first_venv(budget, ours, theirs, verdict):
    workload = run.Workload("w", (), {"x": budget})
    venvs = [run.Venv(name, Path()) for name in ("ours", "theirs")]
    for venv, value in zip(venvs, (ours, theirs), strict=True):
        venv.figures["bare", "s"] = [0.3, 0.1, 0.1]
        if value is not None:
            venv.figures["w", "x"] = [value]
    assert run.table([workload], venvs)[-1][-1] == verdict


def test_a_venv_that_cannot_do_a_workload_is_told(tmp_path):
    venv = run.Venv("v", tmp_path)
    (tmp_path / "python").write_text("#!/bin/sh\necho the reason >&2\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    workload = run.script("dryrun_10k")
    run.measure(workload, [venv], 1)
    assert run.render(run.table([workload], [venv]), [venv]).endswith("v: dryrun_10k: the reason")
