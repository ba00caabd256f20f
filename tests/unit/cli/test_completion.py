"""What shells are told to offer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchx._component_names import components_in
from torchx._launches import note_deletion, note_launch

COMPONENT = "from torchx.specs import AppDef\ndef train(lr: float, j: str = '1x1') -> AppDef: ...\n"


def offered(line: str) -> list[str]:
    """The words that the shell is given for a line with the cursor at its end."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    env = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    script = (
        f"import os; os.dup2({writer}, 8); os.dup2(2, 9)\nfrom torchx.cli.main import main; main()"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        pass_fds=[writer],
        capture_output=True,
        check=True,
    )
    os.close(writer)
    with open(reader) as f:
        return [word.rstrip() for word in f.read().split("\n") if word]


def test_commands_are_offered() -> None:
    words = offered("torchx ")
    assert "run" in words
    assert "tracker" in words
    assert offered("torchx stat") == ["status"]


def test_flags_are_offered_after_a_dash() -> None:
    assert "--dryrun" in offered("torchx run --")
    assert "--dryrun" not in offered("torchx run ")
    assert offered("torchx run --dry") == ["--dryrun"]


def test_schedulers_are_offered() -> None:
    assert "local_cwd" in offered("torchx run -s ")
    assert offered("torchx run --scheduler sl") == ["slurm"]
    assert "local_cwd" in offered("torchx runopts lo")


def test_components_are_offered_without_importing_them() -> None:
    assert offered("torchx run utils.ec") == ["utils.echo"]
    assert {"dist.ddp", "utils.sh"} <= set(offered("torchx run -s local_cwd "))
    assert offered("torchx builtins --print utils.ec") == ["utils.echo"]


def test_arguments_of_a_component_are_offered() -> None:
    assert set(offered("torchx run -s local_cwd utils.echo --")) == {
        "--help",
        "--msg",
        "--image",
        "--num_replicas",
    }
    assert offered("torchx run utils.echo --msg a --num") == ["--num_replicas"]


def test_components_in_files_are_offered() -> None:
    Path("jobs").mkdir()
    Path("jobs/my.py").write_text(COMPONENT)
    Path("jobs/other.py").write_text("def no_component(): ...\n")
    assert offered("torchx run jo") == ["jobs/"]
    assert offered("torchx run jobs/") == ["jobs/my.py:"]
    assert offered("torchx run ./jobs/my") == ["./jobs/my.py:"]
    assert "--lr" in offered("torchx run jobs/my.py:train --")


def test_options_of_the_chosen_scheduler_are_offered() -> None:
    assert "log_dir=" in offered("torchx run -s local_cwd -cfg ")
    assert offered("torchx run -s local_cwd -cfg detach=True,log") == ["detach=True,log_dir="]
    for chosen in ("-s slurm", "-sslurm", "--scheduler slurm", "--scheduler=slurm"):
        words = offered(f"torchx run {chosen} -cfg ")
        assert "partition=" in words
        assert "log_dir=" not in words


def test_states_are_offered() -> None:
    assert offered("torchx list --state RUNNING,PEND") == ["RUNNING,PENDING"]


def test_handles_of_local_apps_are_offered() -> None:
    subprocess.run(
        [sys.executable, "-m", "torchx.cli.main", "run", "utils.echo"],
        check=True,
        capture_output=True,
    )
    (handle,) = offered("torchx status local_cwd://torchx/e")
    assert handle.startswith(("local_cwd://torchx/echo-", "//torchx/echo-"))


def test_app_ids_are_offered_of_all_that_was_launched_from_here() -> None:
    for handle in ("slurm://torchx/4711", "local_cwd://torchx/train-x1", "slurm://torchx/4712"):
        note_launch(handle)
    note_deletion("slurm://torchx/4712")
    for command in ("status", "why", "logs", "rm", "describe", "cancel"):
        assert offered(f"torchx {command} tr") == ["train-x1"]
        assert offered(f"torchx {command} 47") == ["4711"]
    (handle,) = offered("torchx status slurm://torchx/4")
    assert handle.endswith("//torchx/4711")


def test_short_names_and_what_is_new_are_offered() -> None:
    assert offered("torchx why") == ["why"]
    assert offered("torchx doc") == ["doctor"]
    assert offered("torchx ps") == ["ps"]
    assert offered("torchx ps -o ") == ["wide", "json", "yaml", "name"]
    assert "--tail-lines" in offered("torchx logs --")
    assert offered("torchx doctor -s slu") == ["slurm"]


def test_the_latest_handles_are_offered_of_many() -> None:
    local = Path(os.environ["TORCHX_HOME"], "local")
    local.mkdir(parents=True)
    rows = [f"job-{i}\ts\tSUCCEEDED\t{i}\t{i}\tjob\n" for i in range(10_000)]
    rows.append("job-9998\t\t-\t0\t0\t\n")
    (local / "index").write_text("".join(rows))
    words = offered("torchx status local_cwd://torchx/")
    assert len(words) == 100
    assert words[0].endswith("/job-9999")
    assert not any(word.endswith("/job-9998") for word in words)
    (word,) = offered("torchx status local_cwd://torchx/job-4712")
    assert word.endswith("/job-4712")


def test_a_broken_component_offers_nothing() -> None:
    Path("broken.py").write_text("raise RuntimeError('on import')\n")
    assert offered("torchx run broken.py:f --") in ([], ["--help"])


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def a() -> AppDef: ...", ["a"]),
        ("def a(x: int = (1), *y: str) -> specs.AppDef: ...", ["a"]),
        ("def a(\n    x: int,\n) -> 'torchx.specs.AppDef':\n    ...", ["a"]),
        ("def _a() -> AppDef: ...\ndef b() -> int: ...\n", []),
        ("class A:\n    def a(self) -> AppDef: ...", []),
        ("def a():\n    return AppDef()\n", []),
    ],
)
def test_components_are_found_in_the_text(tmp_path: Path, source: str, names: list[str]) -> None:
    file = tmp_path / "m.py"
    file.write_text(source)
    assert components_in(str(file)) == names


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_code_is_printed(shell: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "torchx.cli.main", "completion", shell],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "torchx" in result.stdout
    assert "_ARGCOMPLETE" in result.stdout
    interpreter = shutil.which(shell)
    if interpreter is None:
        return  # not installed: its syntax cannot be checked here, its words are tested above
    flag = "--no-execute" if shell == "fish" else "-n"
    subprocess.run([interpreter, flag], input=result.stdout, text=True, check=True)


def test_bash_completes_a_word_for_real() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    bin_dir = Path("bin")
    bin_dir.mkdir()
    launcher = bin_dir / "torchx"
    launcher.write_text(f'#!/bin/sh\nexec {sys.executable} -m torchx.cli.main "$@"\n')
    launcher.chmod(0o755)
    script = (
        'eval "$(torchx completion bash)"\n'
        "COMP_LINE='torchx stat'; COMP_POINT=11; COMP_WORDS=(torchx stat); COMP_CWORD=1\n"
        "_python_argcomplete torchx\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    env = {**os.environ, "PATH": f"{bin_dir.resolve()}:{os.environ['PATH']}"}
    out = subprocess.run([bash, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "status", out.stderr
