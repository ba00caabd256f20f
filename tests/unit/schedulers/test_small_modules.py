"""The table of schedulers, ids, devices and the tee."""

import io
import os
import random
import string
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from torchx import schedulers
from torchx.errors import TorchXError
from torchx.schedulers import (
    DEFAULT_SCHEDULER_MODULES,
    get_default_scheduler_name,
    get_scheduler_factories,
)
from torchx.schedulers.devices import get_device_mounts
from torchx.schedulers.ids import (
    END_CANDIDATES,
    START_CANDIDATES,
    make_unique,
    random_id,
    random_uint64,
)
from torchx.schedulers.streams import Tee
from torchx.specs import DeviceMount

BUILT_IN = [
    "local_cwd",
    "local_docker",
    "slurm",
    "kubernetes",
    "kubernetes_mcad",
    "aws_batch",
    "aws_sagemaker",
    "lsf",
]


class Plugin:
    """An entry point whose target may only be loaded when it is called."""

    group = "torchx.schedulers"
    value = "acme:create_scheduler"

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self) -> Any:
        return lambda session_name, **kwargs: (self.name, session_name, kwargs)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> list[Plugin]:
    installed: list[Plugin] = []
    monkeypatch.setattr(
        "torchx.util.entrypoints.metadata.entry_points",
        lambda group: [p for p in installed if p.group == group],
    )
    return installed


# -- the table --------------------------------------------------------------------------------


def test_the_built_in_schedulers_are_listed_in_order(plugins: list[Plugin]) -> None:
    assert list(DEFAULT_SCHEDULER_MODULES) == BUILT_IN
    assert list(get_scheduler_factories()) == BUILT_IN
    assert get_scheduler_factories(skip_defaults=True) == {}
    assert get_default_scheduler_name() == "local_cwd"


def test_plugins_come_first_and_replace_built_ins(plugins: list[Plugin]) -> None:
    plugins += [Plugin("acme"), Plugin("slurm")]
    names = list(get_scheduler_factories())
    assert names == ["acme", "slurm", *[n for n in BUILT_IN if n != "slurm"]]
    made: Any = get_scheduler_factories()["slurm"]("s", a=1)
    assert made == ("slurm", "s", {"a": 1})
    assert list(get_scheduler_factories(skip_defaults=True)) == ["acme", "slurm"]
    assert get_default_scheduler_name() == "acme"


def test_the_table_is_the_callers_own(plugins: list[Plugin]) -> None:
    get_scheduler_factories().clear()
    assert list(get_scheduler_factories()) == BUILT_IN


def test_no_scheduler_at_all_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "get_scheduler_factories", dict)
    with pytest.raises(ValueError, match="no scheduler is registered"):
        get_default_scheduler_name()


def test_a_scheduler_without_its_module_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "needs_sdk.py").write_text("import no_such_sdk\n")
    monkeypatch.syspath_prepend(tmp_path)
    modules = {"lsf": "torchx.schedulers.no_such", "aws_batch": "needs_sdk", "slurm": "needs_sdk"}
    monkeypatch.setattr(schedulers, "DEFAULT_SCHEDULER_MODULES", modules)
    factories = get_scheduler_factories()
    with pytest.raises(ModuleNotFoundError, match="`lsf` is not part of this version") as err:
        factories["lsf"]("s")
    assert isinstance(err.value, TorchXError)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torchx\[aws\]'") as err:
        factories["aws_batch"]("s")
    assert err.value.name == "no_such_sdk"
    with pytest.raises(ModuleNotFoundError, match="no_such_sdk"):
        factories["slurm"]("s")
    sys.modules.pop("needs_sdk", None)


# -- ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entropy", "full", "short"),
    [
        ("0001020304050607", "fzfjxlmln9", "fzfj"),
        ("ffffffffffffffff", "tqsrbbl31fnwwd", "tqsr"),
        ("8000000000000000", "ljk1ssxp5ch3lc", "ljk1"),
        ("0123456789abcdef", "t4rcs9x6sv1m", "t4rc"),
        ("0000000000000014", "bc", "bc"),
        ("0000000000000000", "b", "b"),
    ],
)
def test_ids_follow_from_entropy(
    entropy: str, full: str, short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", lambda n: bytes.fromhex(entropy)[:n])
    assert random_uint64() == int(entropy, 16)
    assert random_id() == full
    assert random_id(4) == short
    assert make_unique("n") == f"n-{full}"
    assert make_unique("n", 4) == f"n-{short}"


def test_ids_are_valid_in_host_names_and_do_not_repeat() -> None:
    assert END_CANDIDATES == "bcdfghjklmnpqrstvwxz012345679"
    seen = set()
    for _ in range(1000):
        random.seed(0)
        name = random_id()
        seen.add(name)
        assert name[0] in START_CANDIDATES
        assert set(name) <= set(string.ascii_lowercase + string.digits)
        assert len(name) <= 14
    assert len(seen) == 1000


def test_no_length_is_no_id() -> None:
    assert random_id(0) == random_id(-1) == ""
    assert make_unique("n", -1) == "n-"


# -- devices ----------------------------------------------------------------------------------


def test_devices_become_mounts_in_order() -> None:
    assert get_device_mounts({"aws.amazon.com/neurondevice": 2, "vpc.amazonaws.com/efa": 1}) == [
        DeviceMount("/dev/neuron0", "/dev/neuron0"),
        DeviceMount("/dev/neuron1", "/dev/neuron1"),
        DeviceMount("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0"),
    ]


def test_an_unknown_device_is_skipped_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="unknown device `acme`.*neurondevice"):
        assert get_device_mounts({"acme": 1}) == []


# -- the tee ----------------------------------------------------------------------------------


def test_a_tee_copies_all_that_was_written_before_it_closed(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(b"")
    out = io.FileIO(tmp_path / "out", "w")
    tee = Tee(out, *map(str, paths))
    with paths[0].open("ab") as lower, paths[1].open("ab") as upper:
        for i in range(20_000):
            text = "".join(chr(ord("a") + int(digit)) for digit in str(i)) + "z"
            lower.write(text.encode())
            upper.write(text.upper().encode())
    assert tee.write(b"0") == 1
    tee.close()
    tee.close()
    assert out.closed
    written = (tmp_path / "out").read_bytes()
    assert written.count(b"0") == 1
    # chunks of the two may come in any order, those of each in its own
    assert bytes(b for b in written if chr(b).islower()) == paths[0].read_bytes()
    assert bytes(b for b in written if chr(b).isupper()) == paths[1].read_bytes()


def test_a_tee_needs_sources_that_exist(tmp_path: Path) -> None:
    with io.FileIO(tmp_path / "out", "w") as out:
        with pytest.raises(AssertionError):
            Tee(out)
        (tmp_path / "a").write_bytes(b"")
        before = threading.active_count()
        with pytest.raises(FileNotFoundError):
            Tee(out, str(tmp_path / "a"), str(tmp_path / "none"))
        assert threading.active_count() == before
