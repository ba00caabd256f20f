"""What importing the runner and making one leaves unloaded."""

import subprocess
import sys

HEAVY = [
    "asyncio",
    "concurrent.futures",
    "configparser",
    "difflib",
    "docker",
    "docstring_parser",
    "fsspec",
    "importlib.metadata",
    "kubernetes",
    "pprint",
    "socket",
    "subprocess",
    "tempfile",
    "torch",
    "torchx.schedulers.local_scheduler",
    "torchx.specs.finder",
    "urllib.request",
    "uuid",
    "yaml",
]


def loaded_by(code: str) -> set[str]:
    # -S: a site package may load anything on its own account; the path is handed on instead
    script = f"import sys; sys.path[:] = {sys.path!r}; {code}; print(*sys.modules)"
    command = [sys.executable, "-S", "-c", script]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_a_runner_loads_no_scheduler_no_sdk_and_nothing_slow() -> None:
    loaded = loaded_by("from torchx.runner import get_runner; get_runner()")
    assert "torchx.runner.api" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_a_dry_run_reads_no_config_file_that_is_not_there() -> None:
    loaded = loaded_by(
        "from torchx.runner import get_runner;"
        "from torchx.specs import AppDef, Role;"
        "get_runner().dryrun(AppDef('a', [Role('w', '', entrypoint='x')]), 'local_cwd')"
    )
    slow = {"configparser", "difflib", "importlib.metadata", "yaml", "uuid", "logging", "textwrap"}
    if sys.version_info < (3, 14):  # where `dataclasses` needs it
        slow.add("inspect")
    assert "torchx.schedulers.local_scheduler" in loaded
    assert loaded.isdisjoint(slow)


def test_a_verb_works_while_another_thread_imports_logging() -> None:
    script = (
        "import sys, types\n"
        "from torchx.runner import get_runner\n"
        "with get_runner() as runner:\n"
        "    sys.modules['logging'] = types.ModuleType('logging')  # as it is at first\n"
        "    print(runner.status('local_cwd://torchx/gone-1'))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("None\n", "")
