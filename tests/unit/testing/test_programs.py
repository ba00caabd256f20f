"""Programs that stand in front of a backend's, in tests of authors too."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from torchx.testing.programs import Programs

WORDS = "error: 100% away, it's gone"


@pytest.fixture
def programs(tmp_path):
    script = tmp_path / "greet.py"
    script.write_text("import sys; print('hello')")
    programs = Programs.of_script(tmp_path / "bin of it", script, ["greet", "other"])
    with programs.on_path():
        yield programs


def call(name="greet"):
    """Exit code and output of one call."""
    done = subprocess.run([name], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


WORKS = (0, "hello\n", "")
REFUSED = (1, "", "greet: error: refused by the test\n")


def test_one_program_refuses_after_so_many_calls_each_time_anew(programs):
    for after in (0, 2, 2):
        with programs.refusing("greet", after):
            assert [call() for _ in range(4)] == [WORKS] * after + [REFUSED] * (4 - after)
            assert call("other") == WORKS
        assert call() == WORKS


def test_calls_at_the_same_time_are_counted_too(programs):
    with programs.refusing("greet", 3), ThreadPoolExecutor(8) as pool:
        ended = [*pool.map(lambda _: call(), range(8))]
    assert set(ended) <= {WORKS, REFUSED}
    assert ended.count(REFUSED) >= 5


def test_calls_work_or_say_what_they_were_told_while_an_outage_ends(programs):
    with ThreadPoolExecutor(4) as pool:
        ended = []
        for _ in range(20):
            with programs.away(WORDS), programs.refusing("greet"):
                calls = [pool.submit(call) for _ in range(4)]
            ended += [made.result() for made in calls]
    assert {*ended} <= {WORKS, REFUSED, (1, "", f"{WORDS}\n")}
    assert call() == WORKS
