"""Programs that stand where those of Slurm would stand on PATH."""

import os
import stat
import sys
from pathlib import Path

import pytest

SRUN = """\
#!{python}
# Runs the tasks of a step one after the other, each with the input of srun.
import os, subprocess, sys
args = sys.argv[1:]
at = args.index("sh") if "sh" in args else len(args)
with open({calls!r}, "a") as f:
    f.write("srun " + " ".join(args[:at]) + "\\n")
text = sys.stdin.buffer.read()
code = 0
for rank in range(int(os.environ.get("FAKE_TASKS", "1"))):
    env = dict(os.environ, SLURM_PROCID=str(rank))
    code = subprocess.run(args[at:], input=text, env=env).returncode or code
sys.exit(code)
"""

CANNED = """\
#!{python}
# Answers from files beside it: `<program>.out`, `.err`, `.rc`, or `<program>.<n>.out` for call n.
import os, sys
me = os.path.basename(sys.argv[0])
here = os.path.dirname(os.path.abspath(sys.argv[0]))
with open({calls!r}, "a") as f:
    f.write("\\x1e".join([me, *sys.argv[1:]]).replace("\\n", "\\\\n") + "\\n")
with open({calls!r}) as f:
    n = sum(line.rstrip("\\n").split("\\x1e")[0] == me for line in f)
def read(suffix):
    for name in (f"{{me}}.{{n}}.{{suffix}}", f"{{me}}.{{suffix}}"):
        try:
            with open(os.path.join(here, name)) as f:
                return f.read()
        except FileNotFoundError:
            continue
    return ""
sys.stdout.write(read("out"))
sys.stderr.write(read("err"))
sys.exit(int(read("rc") or 0))
"""


class FakeSlurm:
    """A directory in front of PATH, in which a test puts programs and their answers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.calls_file = folder / "calls"
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        # answers are kept for each cluster, and this is one of its own
        monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))

    def program(self, name: str, text: str) -> None:
        """Puts a program on PATH; ``{python}`` and ``{calls}`` in the text are filled in."""
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, calls=str(self.calls_file)))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def answer(
        self, name: str, out: str = "", err: str = "", code: int = 0, call: int | None = None
    ) -> None:
        """What a program prints and returns, always or in one call (the first is 1)."""
        if not (self.folder / name).exists():
            self.program(name, CANNED)
        prefix = name if call is None else f"{name}.{call}"
        for suffix, text in (("out", out), ("err", err), ("rc", str(code))):
            (self.folder / f"{prefix}.{suffix}").write_text(text)

    def calls(self, name: str | None = None) -> list[list[str]]:
        """The calls so far, of one program or of all: name and arguments."""
        if not self.calls_file.exists():
            return []
        lines = self.calls_file.read_text().split("\n")[:-1]
        found = [line.split("\x1e") for line in lines]
        return [call for call in found if name in (None, call[0])]
