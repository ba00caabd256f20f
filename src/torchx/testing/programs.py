"""Programs of a backend in tests: fakes on ``PATH`` or the real ones, counted and made to fail.

>>> import tempfile, subprocess
>>> from pathlib import Path
>>> folder = Path(tempfile.mkdtemp())
>>> script = folder / "greet.py"
>>> _ = script.write_text("import sys; print(sys.argv[1:])")
>>> programs = Programs.of_script(folder / "bin", script, ["qhello"])
>>> with programs.on_path():
...     subprocess.run(["qhello", "you"], capture_output=True, text=True, check=True).stdout
"['qhello', 'you']\\n"
>>> programs.calls()
['qhello you']
"""

import os
import shlex
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_PROGRAM = """\
#!/bin/sh
printf '%s\\n' "{name} $*" >>{folder}/calls
# marks may go while this runs: what is read of one counts, not that it was there
if {reaches} && [ -e {folder}/away ] && words=$(cat {folder}/away 2>/dev/null); then
    printf '%s\\n' "$words" >&2
    exit 1
fi
if [ -e {folder}/refuse-{name} ] && after=$(cat {folder}/refuse-{name} 2>/dev/null); then
    echo >>{folder}/refusing-{name}
    if [ "$(wc -l <{folder}/refusing-{name})" -gt "$after" ]; then
        echo "{name}: error: refused by the test" >&2
        exit 1
    fi
fi
exec {command} "$@"
"""


class Programs:
    """Executables that stand in front of a backend's programs.

    Args:
        folder: made for them; it also holds the list of their calls.
        commands: the command line behind each name.
        patient: names of programs that jobs call themselves, which wait where others fail.
    """

    def __init__(
        self,
        folder: Path,
        commands: Mapping[str, Sequence[str]],
        patient: Collection[str] = (),
    ) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        for name, command in commands.items():
            text = _PROGRAM.format(
                name=name,
                folder=shlex.quote(str(folder)),
                command=shlex.join(command),
                reaches="false" if name in patient else "true",
            )
            program = folder / name
            program.write_text(text)
            program.chmod(0o755)

    @classmethod
    def of_script(
        cls, folder: Path, script: Path, names: Sequence[str], patient: Collection[str] = ()
    ) -> "Programs":
        """Fakes that run one Python script, which gets the name of the program and its arguments.

        It has the standard library only, so that it starts in 20 ms.
        """
        python = [sys.executable, "-I", "-S", str(script)]
        return cls(folder, {name: [*python, name] for name in names}, patient)

    @classmethod
    def real(cls, folder: Path, names: Sequence[str], patient: Collection[str] = ()) -> "Programs":
        """The programs that are installed.

        Raises:
            FileNotFoundError: if one is not on ``PATH``.
        """
        found = {name: shutil.which(name) for name in names}
        for name, path in found.items():
            if path is None:
                raise FileNotFoundError(name)
        return cls(folder, {name: [str(path)] for name, path in found.items()}, patient)

    @contextmanager
    def on_path(self) -> Iterator[None]:
        """Puts the programs in front of all others on ``PATH``."""
        before = os.environ.get("PATH", "")
        os.environ["PATH"] = f"{self._folder}{os.pathsep}{before}"
        try:
            yield
        finally:
            os.environ["PATH"] = before

    @contextmanager
    def missing(self) -> Iterator[None]:
        """Takes everything from ``PATH``, as where the programs are not installed."""
        before = os.environ["PATH"]
        os.environ["PATH"] = str(self._folder / "no-such-folder")
        try:
            yield
        finally:
            os.environ["PATH"] = before

    @contextmanager
    def away(self, words: str) -> Iterator[None]:
        """Lets every program fail with these words, as where its server does not answer."""
        with self._mark("away", words):
            yield

    @contextmanager
    def refusing(self, name: str, after: int = 0) -> Iterator[None]:
        """Lets one program fail after so many calls that it answers."""
        self._folder.joinpath(f"refusing-{name}").unlink(missing_ok=True)
        with self._mark(f"refuse-{name}", str(after)):
            yield

    @contextmanager
    def _mark(self, name: str, text: str) -> Iterator[None]:
        """Tells the programs something for a while, and never half of it."""
        mark = self._folder / name
        new = self._folder / f"{name}.new"
        new.write_text(f"{text}\n")
        new.replace(mark)
        try:
            yield
        finally:
            mark.unlink()

    def calls(self) -> list[str]:
        """The command lines so far, each with the name of its program in front."""
        try:
            return (self._folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
