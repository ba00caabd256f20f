"""Mutations that were found in real schedulers fail the suite: each is one edit of the sample."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.contract import spool_scheduler, test_spool

ROOT = Path(__file__).parents[2]
SAMPLE = Path(spool_scheduler.__file__).read_text()
SUITE = Path(test_spool.__file__).read_text()


HANGS = "Timeout"
"""How a row notices a mutant that it waits for in vain."""


class Mutant(NamedTuple):
    """A text of the sample, what takes its place, the row that must notice, and how it does."""

    text: str
    instead: str
    row: str
    noticed: str


MUTANTS = {
    "mounts are dropped": Mutant(
        "        attempts=True,\n",
        "        attempts=True,\n        mounts=True,\n",
        "test_mounts_are_in_the_request_or_refused",
        "marker-of-mount",
    ),
    "resources are dropped": Mutant(
        "mem_mb=max(role.resource.memMB, 0)",
        "mem_mb=0",
        "test_resources_are_in_the_request",
        "memory makes no difference",
    ),
    "two roles get one native name": Mutant(
        'name=f"{index}-{k}"',
        'name=f"{min(index, 3)}-{k}"',
        "test_awkward_names_stay_apart_or_are_refused",
        "has no role `x",
    ),
    "an unknown native state crashes": Mutant(
        'STATES.get(str(task.get("state")), AppState.UNKNOWN)',
        'STATES[str(task.get("state"))]',
        "test_every_native_state_has_a_meaning_and_an_unknown_one_is_unknown",
        "UnexpectedReply.*SUSPENDED",
    ),
    "a submission that fails leaves its first half": Mutant(
        "        with_retries(lambda: take_back(job.name))\n",
        "",
        "test_a_submission_that_is_refused_leaves_nothing",
        HANGS,
    ),
    "a missing program is a bare FileNotFoundError": Mutant(
        '    done = PROGRAMS.ask(["spool-show", *([name] if name else [])], pauses_s=())\n',
        "    import subprocess\n\n"
        '    done = subprocess.check_output(["spool-show", name or "all"], text=True)\n',
        "test_a_backend_that_is_not_installed_is_an_error_of_ours",
        "FileNotFoundError",
    ),
    "an error of the kill is swallowed": Mutant(
        '    PROGRAMS.run(["spool-end", name])\n',
        '    try:\n        PROGRAMS.run(["spool-end", name])\n'
        "    except CommandFailed:\n        pass\n",
        "test_an_end_that_is_refused_is_an_error",
        "DID NOT RAISE",
    ),
    "a backend that is away knows no app": Mutant(
        "        records = show(app_id)\n",
        "        try:\n            records = show(app_id)\n        except BackendUnavailable:\n"
        "            records = []\n",
        "test_a_backend_that_is_away_is_not_an_unknown_app",
        "DID NOT RAISE",
    ),
    "a follower never ends": Mutant(
        "        return self._over\n",
        "        return False\n",
        "test_following_gives_all_lines_to_the_last",
        HANGS,
    ),
    "replicas cost questions": Mutant(
        "        return parse_job(records[0]) if records else None\n",
        "        found = parse_job(records[0]) if records else None\n"
        "        for _ in found.replicas[::100] if found else ():\n            show(app_id)\n"
        "        return found\n",
        "test_the_number_of_queries_does_not_grow_with_replicas[cancel]",
        "Left contains 4 more items",
    ),
    "a failure does not end the others": Mutant(
        "end_on_failure=ends_on_failure(opts.on_failure)",
        "end_on_failure=ends_on_failure(opts.on_failure) and False",
        "test_a_replica_that_fails_for_good_ends_the_others",
        HANGS,
    ),
    "signals are counted as shells do": Mutant(
        'exit_code=task.get("code"),',
        'exit_code=None if task.get("code") is None else task["code"] % 137,',
        "test_a_signal_is_a_negative_exit_code",
        "== -9",
    ),
}
"""The first nine passed an earlier suite."""


def run_suite(folder: Path, sample: str, *args: str, timeout_s: int = 200) -> str:
    """Output of the sample's tests with that text in its place; each may take so long."""
    package = folder / "mutant"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "spool_scheduler.py").write_text(sample)
    suite = SUITE.replace(
        "from tests.contract.spool_scheduler import", "from mutant.spool_scheduler import"
    )
    assert suite != SUITE
    (package / "test_spool.py").write_text(suite)
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    options = ["-p", "no:cacheprovider", "-p", "no:randomly", "-q", "-rA", f"--timeout={timeout_s}"]
    command = [sys.executable, "-m", "pytest", *options, *args]
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=280, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.thorough
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fails_the_suite(name: str, tmp_path: Path) -> None:
    text, instead, row, how = MUTANTS[name]
    assert SAMPLE.count(text) == 1
    mutant = SAMPLE.replace(text, instead)
    timeout_s = 20 if how == HANGS else 200
    node = f"mutant/test_spool.py::TestSpool::{row}"
    out = run_suite(tmp_path, mutant, node, timeout_s=timeout_s)
    noticed = rf"^FAILED mutant/test_spool.py::TestSpool::{re.escape(row)}"
    assert re.search(noticed, out, re.MULTILINE), out
    assert re.search(f"^E  .*{how}", out, re.MULTILINE), out


@pytest.mark.timeout(300)
def test_the_sample_itself_passes_those_rows(tmp_path: Path) -> None:
    rows = {f"mutant/test_spool.py::TestSpool::{mutant.row}" for mutant in MUTANTS.values()}
    out = run_suite(tmp_path, SAMPLE, *sorted(rows))
    assert not re.search(r"^(FAILED|ERROR|SKIPPED) .*test_spool", out, re.MULTILINE), out
    assert len(re.findall(r"^PASSED", out, re.MULTILINE)) >= len(rows)
