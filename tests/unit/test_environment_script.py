"""What the script for reports of problems tells, and what it does not."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/environment"


def report(**env: str) -> str:
    return subprocess.run(
        [sys.executable, SCRIPT],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    ).stdout


def test_it_names_versions_sections_and_options_but_no_values(tmp_path: Path) -> None:
    text = "[tracker:acme]\nconfig = https://user:very-secret@db\n"
    Path(".torchxconfig").write_text(text)
    found = report(PATH=str(tmp_path), TORCHX_TRACKER_ACME_CONFIG="very-secret")
    assert "  python: 3." in found
    assert "  torchx: " in found
    assert "  sbatch: not installed" in found
    assert "    [tracker:acme] config" in found
    assert "  TORCHX_TRACKER_ACME_CONFIG: is set" in found
    assert "torchx.tracker.backend.fsspec" in found
    assert "very-secret" not in found


def test_programs_are_asked_for_their_versions(tmp_path: Path) -> None:
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\necho slurm 24.05.1\n")
    program.chmod(0o755)
    assert "  sbatch: slurm 24.05.1" in report(PATH=str(tmp_path))


def test_a_file_that_is_no_config_is_named(tmp_path: Path) -> None:
    Path(".torchxconfig").write_text("no section\n")
    found = report(PATH=str(tmp_path))  # the programs of this machine may take long to answer
    assert ".torchxconfig: cannot be read: MissingSectionHeaderError" in found
