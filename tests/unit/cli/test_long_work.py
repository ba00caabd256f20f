"""What shows itself while it takes long: builds, pushes, waiting for room, and for a backend."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.fake_kube.server import FakeKube
from tests.unit.cli import scenes
from tests.unit.cli.scenes import Scene
from tests.unit.cli.terminal import Screen

WIDTHS = [60, 100, 200]
COLOUR = re.compile(r"\033\[[0-9;:]*m")
TIME = re.compile(r"\d\d:\d\d:\d\d")

Scenes = Callable[[str], AbstractContextManager[Scene]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeKube]:
    with FakeKube() as running:
        yield running


@pytest.fixture
def scene(cluster: FakeKube, tmp_path: Path) -> Scenes:
    """Makes one of the scenes by its name."""

    @contextmanager
    def made(name: str) -> Iterator[Scene]:
        cluster.reset()
        if name == "build":
            with scenes.building(tmp_path / "job") as found:
                yield found
        elif name in ("push", "push with docker"):
            builder = "docker" if "docker" in name else "auto"
            with scenes.pushing(tmp_path / "job", cluster, builder) as found:
                yield found
        else:
            folder = tmp_path / "job"
            yield scenes.pending(folder, cluster) if name == "pending" else scenes.away(folder)

    return made


ALL = ["build", "push", "push with docker", "pending", "away"]


def shown(screen: Screen) -> str:
    """What stays on the screen, with the spaces for the breaks of long lines."""
    return re.sub(r"\n  +", " ", "\n".join(screen.left))


def check_words(name: str, text: str) -> None:
    """All that is to be told of the scene, in its order."""
    words = {
        "build": [
            r"pulled image `team/base:1`, 200 MB",
            r"workspace of role `trainer` is in image 5e1d8c0a47bf\b",
        ],
        "push": [
            r"is in image localhost:\d+/team/train@[0-9a-f]{12}\b",
            r"pushed image `localhost:\d+/team/train:[0-9a-f]{12}`",
        ],
        "push with docker": [
            r"is in image 5e1d8c0a47bf\b",
            r"pushed image `localhost:\d+/team/train:5e1d8c0a47bf`",
        ],
        "pending": [
            "PENDING: unschedulable: no node has enough nvidia.com/gpu free",
            "PENDING: unschedulable: no node has enough memory free",
            "RUNNING",
        ],
        "away": [
            "`slurm` cannot be reached, trying again: ",
            r"`slurm` answers again after \d+ s",
        ],
    }[name]
    ends = ["kubernetes://"] if name.startswith("push") else [r"SUCCEEDED after \d"]
    assert re.search(".*".join([*words, *ends]), text, re.DOTALL), text


@pytest.mark.parametrize(
    "columns", [WIDTHS[0], *(pytest.param(w, marks=pytest.mark.thorough) for w in WIDTHS[1:])]
)
@pytest.mark.parametrize("name", ALL)
def test_long_work_is_a_line_that_moves_and_few_that_stay(
    name: str, columns: int, scene: Scenes
) -> None:
    with scene(name) as run:
        screen = run.on_terminal(columns)
    assert screen.code == 0, screen.text
    assert "\r\033[K⠋ " in screen.raw
    check_words(name, shown(screen))
    assert TIME.search(screen.text) is None
    assert len(screen.left) <= 20
    kept = screen.raw.replace("\r", "\n").replace("\033[K", "")
    for line in COLOUR.sub("", kept).splitlines():
        assert len(line) <= columns or len(line.split()) <= 2, line  # a word alone may be longer


@pytest.mark.parametrize("name", ALL)
def test_without_colours_the_line_still_moves(name: str, scene: Scenes) -> None:
    with scene(name) as run:
        screen = run.on_terminal(100, {"NO_COLOR": "1"})
    assert screen.code == 0, screen.text
    assert "\r\033[K⠋ " in screen.raw
    assert COLOUR.search(screen.raw) is None
    check_words(name, shown(screen))


@pytest.mark.parametrize("name", ALL)
def test_a_dumb_terminal_gets_a_line_for_each_change(name: str, scene: Scenes) -> None:
    with scene(name) as run:
        screen = run.on_terminal(100, {"TERM": "dumb"})
    assert screen.code == 0, screen.text
    assert not {"\r", "\033"} & set(screen.raw)
    check_words(name, shown(screen))
    steps = {
        "build": ["docker pull 111111111111: Downloading", "Step 2/3 : COPY . ."],
        "push with docker": ["docker push 111111111111: Pushing"],
    }
    assert all(screen.lines.count(step) == 1 for step in steps.get(name, []))


@pytest.mark.parametrize("name", ALL)
def test_a_file_gets_records_and_nothing_that_moves(name: str, scene: Scenes) -> None:
    with scene(name) as run:
        screen = run.off_terminal()
    assert screen.code == 0, screen.text
    assert not {"\r", "\033"} & set(screen.raw)
    assert not set("●✓✗○│⠋⠙") & set(screen.raw)
    words = {
        "build": ["docker pull 111111111111: Downloading", "Step 2/3 : COPY . ."],
        "push": ["packing 2 files", "pushed image `localhost:"],
        "push with docker": ["docker push 111111111111: Pushing", "pushed `localhost:"],
        "pending": ["PENDING: unschedulable: no node has enough nvidia", "enough memory"],
        "away": ["WARNING  `slurm` cannot be reached", "`slurm` answers again"],
    }[name]
    for text in words:
        assert len([line for line in screen.lines if text in line]) == 1, screen.text
    assert sum("launched app: " in line for line in screen.lines) == 1
    handles = [line for line in screen.lines if re.match(r"\w+://torchx/\S+$", line)]
    assert len(handles) == 1


def test_layers_and_bytes_are_counted_while_they_come(scene: Scenes) -> None:
    with scene("build") as run:
        raw = COLOUR.sub("", run.on_terminal(100).raw)
    assert "\r\033[K⠋ pulling `team/base:1`: 0/5 layers, 104 MB of 200 MB" in raw
    assert "\r\033[K⠋ pulling `team/base:1`: 4/5 layers, 200 MB of 200 MB" in raw
    assert "\r\033[K⠋ Step 2/3 : COPY . ." in raw


def test_blobs_are_counted_while_they_are_uploaded(scene: Scenes) -> None:
    with scene("push") as run:
        raw = COLOUR.sub("", run.on_terminal(100).raw)
    assert re.search(r"⠋ pushing to `localhost:\d+/team/train`: \d/2 layers, \d+ B of \d+ B", raw)
    assert "2/2 layers" in raw


@pytest.mark.parametrize("name", ["build", "push with docker"])
def test_a_quiet_run_shows_no_progress(name: str, scene: Scenes) -> None:
    with scene(name) as run:
        quiet = run._replace(argv=("run", "-q", *run.argv[1:]))
        on, off = quiet.on_terminal(100), quiet.off_terminal()
    for screen in (on, off):
        assert screen.code == 0, screen.text
        assert len(screen.lines) <= 4, screen.lines
        assert re.search("pull|push|Step|image", screen.text) is None


def test_what_is_waited_for_is_shown_with_a_spinner_until_it_comes(scene: Scenes) -> None:
    with scene("pending") as run:
        raw = COLOUR.sub("", run.on_terminal(100).raw)
    waits = [at.start() for at in re.finditer("\r\033\\[K⠋ waiting", raw)]
    assert len(waits) == 2  # below each of the causes
    assert raw.index("gpu free") < waits[0] < raw.index("memory free") < waits[1]
    assert raw.rindex("waiting") < raw.index("● RUNNING")


def test_a_backend_that_is_away_is_waited_for_with_a_spinner(scene: Scenes) -> None:
    with scene("away") as run:
        raw = COLOUR.sub("", run.on_terminal(100).raw)
    assert raw.index("cannot be reached") < raw.index("\r\033[K⠋ waiting for `slurm`")
    assert raw.rindex("waiting for `slurm`") < raw.index("`slurm` answers again")


def test_what_is_watched_is_drawn_anew_below_an_outage(scene: Scenes) -> None:
    with scene("away") as run:
        (_, leave), (_, come_back) = run.steps
        words = [word for word in run.argv if word != "--log"]
        launched = Scene((*words, "--epochs", "500"), run.env).off_terminal().text
        found = re.search(r"^slurm://\S+$", launched, re.MULTILINE)
        assert found is not None

        def end() -> None:
            assert Scene(("cancel", found[0]), run.env).off_terminal().code == 0

        steps = (("RUNNING", leave), ("cannot be", come_back), ("answers again", end))
        screen = Scene(("status", "--watch", found[0]), run.env, steps).on_terminal(100)
    assert screen.code == 0
    assert "CANCELLED" in screen.text
    outage = screen.raw[screen.raw.index("cannot be") : screen.raw.index("CANCELLED")]
    assert "answers again" in outage
    assert "F\033[J" not in outage[: outage.index("answers again")]


def test_the_status_of_what_waits_says_why_and_which_command_tells_more(scene: Scenes) -> None:
    with scene("pending") as run:
        words = [word for word in run.argv if word != "--log"]
        launched = Scene((*words,), run.env).off_terminal().text
        assert "PENDING" in launched
        status = Scene(("status",), run.env).on_terminal(60)
        why = Scene(("why",), run.env).on_terminal(40)
    assert status.lines[0].startswith("○ default:train-")
    assert status.lines[1] == "  kubernetes · 2 replicas"
    assert status.lines[2] == "  unschedulable: no node has enough nvidia.com/gpu free"
    assert status.lines[4].split() == ["REPLICA", "STATE", "WHY"]  # not where it might run
    assert status.lines[-1] == "→ Ask for less, or wait: kubectl describe nodes"
    assert why.lines[-2:] == ["  → Ask for less, or wait:", "    kubectl describe nodes"]
