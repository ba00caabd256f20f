"""Measures workloads in any number of venvs, interleaved, and compares them.

::

    python benchmarks/run.py --venv ours=PATH --venv other=PATH [--only NAME] [-n RUNS]

The budgets apply to the first venv. See README.md beside this file.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).parent / "workloads"


@dataclass(frozen=True)
class Budget:
    """What a figure of the first venv is measured against."""

    limit: float
    against: str
    """``bare``: times its bare interpreter; ``other``: times another venv; ``value``: as it is."""
    at_least: bool = False

    def kept_by(self, figure: float) -> bool:
        return figure >= self.limit if self.at_least else figure <= self.limit

    def __str__(self) -> str:
        unit = {"bare": " x bare", "other": " x other", "value": ""}[self.against]
        return f"{'>=' if self.at_least else '<='} {self.limit:g}{unit}"


@dataclass(frozen=True)
class Workload:
    """A command of a venv that is timed, or a script that reports figures of its own."""

    name: str
    command: tuple[str, ...]
    budgets: dict[str, Budget]
    most_runs: int = 1000
    seed: str = ""
    """Script that prepares the home directory; its last line replaces ``{seed}`` in the command."""


def start(name: str, *command: str, times_bare: float, seed: str = "") -> Workload:
    """A command of which the wall time of the whole process counts."""
    return Workload(name, command, {"s": Budget(times_bare, "bare")}, seed=seed)


def script(name: str, **budgets: Budget) -> Workload:
    """A script below ``workloads/`` that prints its figures as JSON."""
    return Workload(name, ("python", str(SCRIPTS / f"{name}.py")), budgets, most_runs=5)


TENTH = Budget(0.1, "other")
FIFTIETH = Budget(0.02, "other")
HALF = Budget(0.5, "other")
NONE = Budget(0, "value")
BARE = Workload("bare", ("python", "-c", "pass"), {"s": Budget(1, "bare")})
WORKLOADS = [
    start("version", "torchx", "--version", times_bare=2),
    start("help", "torchx", "--help", times_bare=3),
    start("import_specs", "python", "-c", "import torchx.specs", times_bare=4),
    start(
        "make_runner",
        *("python", "-c", "from torchx.runner import get_runner; get_runner()"),
        times_bare=4,
    ),
    start(
        "dryrun_echo", "torchx", "run", "--dryrun", "-s", "local_cwd", "utils.echo", times_bare=4
    ),
    start("dryrun_slurm", "torchx", "run", "--dryrun", "-s", "slurm", "utils.echo", times_bare=6),
    start(
        "run_echo",
        *("torchx", "run", "-s", "local_cwd", "utils.echo", "--msg", "hi"),
        times_bare=6,
    ),
    start("status_10k", "torchx", "status", "{seed}", times_bare=5, seed="seed_jobs"),
    start("list_10k", "torchx", "list", "-s", "local_cwd", times_bare=7, seed="seed_jobs"),
    script("dryrun_10k", dryrun_s=TENTH, render_s=TENTH),
    script(
        "run_200",
        seconds=Budget(0.25, "other"),
        threads=Budget(20, "value"),
        open_files=Budget(50, "value"),
    ),
    script("lines_api", lines_per_s=Budget(3, "other", at_least=True), broken=NONE, lost=NONE),
    script("lines_cli", lines_per_s=Budget(3, "other", at_least=True), broken=NONE, lost=NONE),
    script("line_latency", p50_ms=Budget(10, "value"), p95_ms=Budget(25, "value")),
    script("wait_latency", p50_ms=Budget(20, "value")),
    script("slurm_dryrun", one_role_s=FIFTIETH, many_roles_s=TENTH),
    # the yardstick is our own slurm in the same process
    script("lsf_dryrun", times_slurm=Budget(2, "value")),
    start(
        "lsf_dryrun_echo",
        *("torchx", "run", "--dryrun", "-s", "lsf", "-cfg", "runtime=none", "utils.echo"),
        times_bare=6,
    ),
    start(
        "dryrun_kube",
        *("torchx", "run", "--dryrun", "-s", "kubernetes", "--workspace=", "-cfg"),
        *("namespace=x", "utils.sh", "--image", "any", "--num_replicas", "2", "true"),
        times_bare=8,
    ),
    script(
        "kube_dryrun",
        job_s=Budget(1 / 500, "other"),
        job_mib=Budget(5, "value"),
        volcano_s=TENTH,
        volcano_rendered_s=TENTH,
    ),
    script("kube_status", requests=Budget(2, "value"), times_bare=Budget(16, "value")),
    script("kube_list", requests=Budget(3, "value"), seconds=Budget(1.5, "value")),
    script("kube_wait", p50_ms=Budget(50, "value"), idle_requests=NONE),
    script(
        "kube_logs",
        lines_per_s=Budget(150_000, "value", at_least=True),
        threads=Budget(64, "value"),
        mb=Budget(250, "value"),
        lost_or_doubled=NONE,
        broken=NONE,
    ),
    script("kube_import", import_s=Budget(2 / 3, "other")),
    script("lsf_watch", calls_per_min=Budget(31, "value")),  # 30, and the first at once
    start(
        "batch_dryrun_echo",
        *("torchx", "run", "--dryrun", "-s", "aws_batch", "--workspace", "", "-cfg", "queue=q"),
        *("utils.sh", "--image", "i:1", "echo"),
        times_bare=8,
    ),
    script("batch_dryrun", seconds=Budget(0.1, "value")),
    script(
        "batch_calls",
        list_s=Budget(2, "value"),
        list_calls=Budget(22, "value"),
        wait_calls=Budget(1.1, "value"),  # an interval ends a little late
        follow_calls_per_s=Budget(1, "value"),
    ),
    start(
        "sagemaker_dryrun_echo",
        *("torchx", "run", "--dryrun", "-s", "aws_sagemaker", "--workspace", ""),
        *("-cfg", "role=Trainer,launch=container", "utils.sh", "--image", "i:1", "echo"),
        times_bare=8,
    ),
    script("sagemaker_dryrun", seconds=Budget(0.1, "value")),
    script(
        "sagemaker_calls",
        list_s=Budget(2, "value"),
        list_calls=Budget(22, "value"),
        wait_calls=Budget(1.1, "value"),  # an interval ends a little late
        follow_calls_per_s=Budget(1, "value"),
    ),
    script("slurm_watch", calls_per_min=Budget(65, "value")),
    script("slurm_follow", calls_per_min=Budget(6, "value"), cpu_ms_per_s=TENTH),
    Workload(
        "workspace_20k",
        ("python", str(SCRIPTS / "workspace_20k.py")),
        {
            "walk_s": Budget(1 / 3, "other"),
            "copy_s": Budget(1 / 4, "other"),
            "context_s": Budget(1 / 4, "other"),
            "build_s": Budget(1.25, "other"),  # nearly all of it is the daemon
            "rebuild_s": Budget(1 / 4, "other"),
        },
        most_runs=3,
    ),
    script("components_500", run_s=TENTH, builtins_s=Budget(1 / 3, "other")),
    script("overlay_10k", seconds=TENTH),
    script("macros_apply", apply_us=TENTH),
    script(
        "tracker_10k",
        add_us=HALF,
        read_us=HALF,
        lost=NONE,
        lost_of_8=NONE,
    ),
    script("completion", slowest_s=Budget(0.15, "value")),
    Workload(
        "registry_20k",
        ("python", str(SCRIPTS / "registry_20k.py")),
        {"new_s": Budget(1, "other"), "unchanged_s": TENTH, "changed_s": Budget(1 / 3, "other")},
        most_runs=2,
    ),
]


@dataclass
class Venv:
    """One side of the comparison, with what was measured in it."""

    name: str
    bin: Path
    figures: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def median(self, workload: str, figure: str) -> float | None:
        values = self.figures.get((workload, figure))
        return statistics.median(values) if values else None


class Home:
    """A home directory in which one workload runs in one venv."""

    def __init__(self, venv: Venv) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="torchx-bench-"))
        (self.path / "work").mkdir()
        self._venv = venv
        env = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TORCHX", "KUBE"))
        }
        env["HOME"] = str(self.path)
        env["TORCHX_HOME"] = str(self.path / ".torchx")
        env["PATH"] = f"{venv.bin}{os.pathsep}{env.get('PATH', os.defpath)}"
        self._env = env

    def run(self, command: tuple[str, ...]) -> tuple[float, str]:
        """Runs a program of the venv; gives its wall time in seconds and its stdout.

        Raises:
            RuntimeError: if it fails; the message is the last line of its stderr.
        """
        out, err = self.path / "stdout", self.path / "stderr"
        # made before the clock starts: to empty one takes as long as a third of a bare start
        with out.open("wb") as out_file, err.open("wb") as err_file:
            took_s, status = self._run(command, out_file.fileno(), err_file.fileno())
        if status:
            lines = err.read_text(errors="replace").strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"ended with status {status}")
        return took_s, out.read_text(errors="replace")

    def _run(self, command: tuple[str, ...], out: int, err: int) -> tuple[float, int]:
        """Wall time in seconds, and the status that ``wait(2)`` gives."""
        actions = [(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, err, 2)]
        program = str(self._venv.bin / command[0])
        back = os.getcwd()
        os.chdir(self.path / "work")
        try:
            started = time.perf_counter()
            pid = os.posix_spawn(program, [program, *command[1:]], self._env, file_actions=actions)
            _, status = os.waitpid(pid, 0)
            return time.perf_counter() - started, status
        finally:
            os.chdir(back)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def measure(workload: Workload, venvs: list[Venv], runs: int) -> None:
    """Runs one workload in each venv in turns, after one run in each that does not count."""
    homes: dict[str, Home] = {}
    commands: dict[str, tuple[str, ...]] = {}
    try:
        for venv in venvs:
            homes[venv.name] = home = Home(venv)
            try:
                commands[venv.name] = _prepared(workload, home)
                home.run(commands[venv.name])
            except RuntimeError as err:
                venv.problems[workload.name] = str(err)
        for _ in range(min(runs, workload.most_runs)):
            for venv in venvs:
                if workload.name not in venv.problems:
                    _measure_once(workload, venv, homes[venv.name], commands[venv.name])
    finally:
        for home in homes.values():
            home.remove()


def _prepared(workload: Workload, home: Home) -> tuple[str, ...]:
    if not workload.seed:
        return workload.command
    _, out = home.run(("python", str(SCRIPTS / f"{workload.seed}.py")))
    seed = out.strip().splitlines()[-1]
    return tuple(word.replace("{seed}", seed) for word in workload.command)


def _measure_once(workload: Workload, venv: Venv, home: Home, command: tuple[str, ...]) -> None:
    os.sync()  # what an earlier run wrote must not slow this one
    bare_s, _ = home.run(BARE.command)
    venv.figures.setdefault((BARE.name, "s"), []).append(bare_s)
    try:
        took_s, out = home.run(command)
    except RuntimeError as err:
        venv.problems[workload.name] = str(err)
        return
    figures = {"s": took_s} if "s" in workload.budgets else json.loads(out.splitlines()[-1])
    for name, value in figures.items():
        venv.figures.setdefault((workload.name, name), []).append(value)


def table(workloads: list[Workload], venvs: list[Venv]) -> list[list[str]]:
    """Rows of the result: figure, median of each venv, ratios to the first, budget, verdict."""
    first, others = venvs[0], venvs[1:]
    rows = [["figure", *(v.name for v in venvs), *(f"{first.name}/{v.name}" for v in others)]]
    rows[0] += ["budget", ""]
    rows.append(["bare s", *(_text(v.median("bare", "s")) for v in venvs)])
    for workload in workloads:
        for figure, budget in workload.budgets.items():
            medians = [v.median(workload.name, figure) for v in venvs]
            cells = [_with_ratio(v, m, budget) for v, m in zip(venvs, medians, strict=True)]
            ratios = [_ratio(medians[0], median) for median in medians[1:]]
            verdict = _verdict(budget, first, medians[0], ratios)
            rows.append(
                [f"{workload.name} {figure}", *cells, *map(_text, ratios), str(budget), verdict]
            )
    return rows


def _with_ratio(venv: Venv, median: float | None, budget: Budget) -> str:
    text = _text(median)
    if budget.against == "bare" and median is not None:
        text += f" = {_text(_ratio(median, venv.median('bare', 's')))} x bare"
    return text


def _verdict(budget: Budget, first: Venv, median: float | None, ratios: list[float | None]) -> str:
    if budget.against == "bare":
        judged = [_ratio(median, first.median("bare", "s"))]
    else:
        judged = ratios if budget.against == "other" else [median]
    known = [figure for figure in judged if figure is not None]
    if not known:
        return "?"
    return "ok" if all(budget.kept_by(figure) for figure in known) else "MISS"


def _ratio(figure: float | None, base: float | None) -> float | None:
    return None if figure is None or not base else figure / base


def _text(figure: float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def render(rows: list[list[str]], venvs: list[Venv]) -> str:
    """The table as text, followed by what could not be measured."""
    width = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, width, strict=False)).rstrip() for row in rows
    ]
    lines += [f"{v.name}: {name}: {why}" for v in venvs for name, why in v.problems.items()]
    return "\n".join(lines)


def parse_venv(text: str) -> Venv:
    """Reads ``name=path``."""
    name, _, path = text.partition("=")
    folder = Path(path).absolute() / "bin"
    if not name or not path or not (folder / "python").exists():
        msg = f"`{text}` is not name=path of a virtual environment"
        raise argparse.ArgumentTypeError(msg)
    return Venv(name, folder)


def main() -> int:
    """Measures, prints the table, and returns 1 if a budget is missed."""
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--venv", action="append", required=True, type=parse_venv, metavar="NAME=PATH"
    )
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("-n", "--runs", type=int, default=10, help="runs of each workload")
    parser.add_argument("--json", action="store_true", help="print all figures instead")
    args = parser.parse_args()
    workloads = [w for w in WORKLOADS if not args.only or w.name in args.only]
    for workload in workloads:
        sys.stderr.write(f"{workload.name} ...\n")
        measure(workload, args.venv, args.runs)
    rows = table(workloads, args.venv)
    if args.json:
        figures = {
            v.name: {" ".join(key): values for key, values in v.figures.items()} for v in args.venv
        }
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    else:
        sys.stdout.write(render(rows, args.venv) + "\n")
    return int(any(row[-1] == "MISS" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
