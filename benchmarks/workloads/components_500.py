"""Runs one of 500 installed files of three components each, and lists them all."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _shared import report

FILES = 500

IMPORT = "import torchx.specs as specs\n"

COMPONENT = '''

def {name}(msg: str = "x", num_replicas: int = 1) -> specs.AppDef:
    """Job {i}.

    Args:
        msg: what to say
        num_replicas: how often
    """
    role = specs.Role(
        "job",
        image="",
        entrypoint="echo",
        args=[msg],
        num_replicas=num_replicas,
        resource=specs.Resource(cpu=1, gpu=0, memMB=1),
    )
    return specs.AppDef("job", [role])
'''


def install(folder: Path) -> None:
    """Writes a package of component files and what makes it look installed."""
    package = folder / "bench_components"
    package.mkdir()
    (package / "__init__.py").touch()
    for i in range(FILES):
        components = [COMPONENT.format(name=name, i=i) for name in ("job", "other", "third")]
        (package / f"m{i}.py").write_text(IMPORT + "".join(components))
    info = folder / "bench_components-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-components\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchx.components]\nbench = bench_components\n")


def timed(folder: Path, *args: str) -> float:
    """Seconds that a command takes when the package is installed, its bytecode cached."""
    command = [str(Path(sys.executable).parent / "torchx"), *args]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    times = []
    for _ in range(2):
        started = time.perf_counter()
        subprocess.run(command, env=env, check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return times[-1]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install(folder)
        run = timed(folder, "run", "--dryrun", "-s", "local_cwd", "bench.m321.job")
        builtins = timed(folder, "builtins")
    report(run_s=run, builtins_s=builtins)


main()
