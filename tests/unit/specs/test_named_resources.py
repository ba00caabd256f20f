"""Named resources: their numbers, where they come from, how they are looked up."""

import csv
import threading
import warnings
from collections.abc import KeysView
from pathlib import Path

import pytest

import torchx.specs as specs
from torchx.errors import TorchXError
from torchx.specs import Resource, named_resources, resource
from torchx.specs import named_resources_aws as aws
from torchx.specs._named_resources import _NamedResourcesLibrary
from torchx.specs.named_resources_aws import (
    EFA_DEVICE,
    K8S_ITYPE,
    NEURON_DEVICE,
    aws_p4d_24xlarge,
    instance_type_from_resource,
)


def test_raw_resources_have_defaults():
    assert resource() == Resource(2, 0, 1024)
    assert resource(cpu=0) == Resource(2, 0, 1024)
    assert resource(cpu=4, gpu=1, memMB=8192, h="") == Resource(4, 1, 8192)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("gpu.small", (8, 1, 32768)),
        ("gpu.medium", (16, 2, 65536)),
        ("gpu.large", (32, 4, 131072)),
        ("gpu.xlarge", (64, 8, 262144)),
        ("cpu.nano", (1, 0, 512)),
        ("cpu.micro", (1, 0, 1024)),
        ("cpu.small", (1, 0, 2048)),
        ("cpu.medium", (2, 0, 4096)),
        ("cpu.large", (2, 0, 8192)),
        ("cpu.xlarge", (8, 0, 32768)),
    ],
)
def test_named_resources_have_their_numbers(name, numbers):
    found = resource(cpu=99, h=name)
    assert (found.cpu, found.gpu, found.memMB) == numbers
    assert found.get_resource_name() == name
    assert found is not resource(h=name)


def aws_table() -> list[dict[str, str]]:
    with (Path(__file__).parent / "aws_resources.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", aws_table(), ids=lambda row: row["name"])
def test_aws_resources_are_those_of_the_table(row):
    devices = {EFA_DEVICE: int(row["efa"]), NEURON_DEVICE: int(row["neuron"])}
    wanted = Resource(
        int(row["cpu"]),
        int(row["gpu"]),
        int(row["mem_mb"]),
        capabilities={K8S_ITYPE: row["name"].removeprefix("aws_")},
        devices={name: count for name, count in devices.items() if count},
    )
    made = getattr(aws, row["factory"])()
    assert made == wanted
    assert list(made.devices) == list(wanted.devices)
    assert resource(h=row["name"]).capabilities == wanted.capabilities
    assert aws.NAMED_RESOURCES[row["name"]]() == wanted


def test_aws_resources_come_in_the_order_of_the_table():
    assert list(aws.NAMED_RESOURCES) == [row["name"] for row in aws_table()]
    assert (aws.EFA_DEVICE, aws.NEURON_DEVICE, aws.MEM_TAX, aws.GiB) == (
        "vpc.amazonaws.com/efa",
        "aws.amazon.com/neurondevice",
        0.96,
        1024,
    )
    assert aws.K8S_ITYPE == "node.kubernetes.io/instance-type"


def test_aws_resources_name_their_type_and_devices():
    aws = [name for name in named_resources if name.startswith("aws_")]
    assert len(aws) == 61
    for name in aws:
        assert instance_type_from_resource(resource(h=name)) == name.removeprefix("aws_")
    assert resource(h="aws_p4d.24xlarge").devices == {EFA_DEVICE: 4}
    assert resource(h="aws_trn1.32xlarge").devices == {EFA_DEVICE: 8, NEURON_DEVICE: 16}
    assert list(resource(h="aws_trn1.32xlarge").devices) == [EFA_DEVICE, NEURON_DEVICE]
    assert aws_p4d_24xlarge().tags == {}
    with pytest.warns(UserWarning, match="named_resources_aws:K8S_ITYPE"):
        assert instance_type_from_resource(Resource(1, 0, 1)) is None
    assert resource(h="aws_m5.metal").capabilities == {K8S_ITYPE: "m5.metal"}


def test_names_are_found_in_any_case():
    assert resource(h="GPU.Small") == resource(h="gpu.small")
    assert "AWS_t3.MEDIUM" in named_resources
    assert "nope" not in named_resources


def test_unknown_names_get_a_hint():
    with pytest.raises(KeyError, match=r"No named resource found for `gpu\.smal`\. Did you mean"):
        resource(h="gpu.smal")
    with pytest.raises(KeyError, match="Registered named resources: "):
        resource(h="zzzzzzzz")


def test_null_resources_are_the_shared_object():
    assert resource(h="NULL") is resource(h="MISSING") is specs.NULL_RESOURCE
    assert specs.NULL_RESOURCE.tags == {}


def test_subscripts_work_with_a_warning():
    with pytest.warns(FutureWarning, match="resource"):
        assert named_resources["cpu.nano"].memMB == 512
    with pytest.warns(FutureWarning, match="resource"):
        assert specs.get_named_resources("cpu.nano").memMB == 512
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resource(h="cpu.nano").memMB == 512


def test_resources_come_in_order_and_one_by_one():
    names = list(named_resources)
    assert names[:2] == ["gpu.small", "gpu.medium"]
    assert names[-2:] == ["NULL", "MISSING"]
    assert list(named_resources.keys()) == names
    name, first = next(named_resources.items())
    assert (name, first.cpu) == ("gpu.small", 8)


@pytest.fixture
def custom_module(tmp_path: Path, monkeypatch):
    def write(text: str, name: str = "custom_resources") -> _NamedResourcesLibrary:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("TORCHX_CUSTOM_NAMED_RESOURCES", name)
        return _NamedResourcesLibrary()

    return write


def test_a_custom_module_adds_and_overrides(custom_module):
    library = custom_module(
        "from torchx.specs import Resource\n"
        "NAMED_RESOURCES = {\n"
        "    'mine': lambda: Resource(1, 1, 1),\n"
        "    'gpu.small': lambda: Resource(7, 7, 7, tags={'torchx/named_resources.name': 'x'}),\n"
        "    'MINE': lambda: Resource(2, 2, 2),\n"
        "}\n",
        "custom_one",
    )
    assert library.find("mine").gpu == 1
    assert library.find("gpu.small").get_resource_name() == "x"
    assert next(iter(library)) == "gpu.small"
    with pytest.raises(KeyError, match="matches more than one registered named resource"):
        library.find("Mine")


def test_a_custom_module_that_is_missing_or_broken(custom_module, monkeypatch):
    monkeypatch.setenv("TORCHX_CUSTOM_NAMED_RESOURCES", "no_such_module_at_all")
    assert "gpu.small" in _NamedResourcesLibrary()
    with pytest.raises(ModuleNotFoundError):
        list(custom_module("import no_such_import_at_all\n", "custom_two"))
    with pytest.raises(AttributeError):
        list(custom_module("x = 1\n", "custom_three"))


def test_looking_up_while_loading_is_refused(custom_module):
    library = custom_module(
        "import torchx.specs as specs\n"
        "from tests.unit.specs import reentrant\n"
        "NAMED_RESOURCES = {}\n"
        "try:\n"
        "    reentrant.library.find('gpu.small')\n"
        "except RuntimeError as err:\n"
        "    reentrant.message = str(err)\n",
        "custom_four",
    )
    from tests.unit.specs import reentrant

    reentrant.library = library
    assert "gpu.small" in library
    assert reentrant.message.startswith("re-entrant named-resource lookup")


def test_many_threads_discover_once(custom_module, tmp_path: Path):
    library = custom_module(
        "import time, pathlib\n"
        f"with open({str(tmp_path / 'count')!r}, 'a') as f: f.write('x')\n"
        "time.sleep(0.1)\n"
        "NAMED_RESOURCES = {}\n",
        "custom_five",
    )
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(len(list(library)))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 1
    assert (tmp_path / "count").read_text() == "x"


def test_names_are_a_view_and_have_no_length():
    assert isinstance(named_resources.keys(), KeysView)
    with pytest.raises(TypeError):
        len(named_resources)  # type: ignore[arg-type]  # that is the point


def test_an_unknown_name_is_an_error_of_torchx_with_a_readable_text():
    with pytest.raises(TorchXError) as caught:
        resource(h="gpu.smal")
    assert str(caught.value).startswith("No named resource found")


def test_factories_are_called_when_their_resource_is_needed(custom_module):
    library = custom_module(
        "calls = []\n"
        "def bad():\n"
        "    calls.append(1)\n"
        "    raise ValueError('called')\n"
        "NAMED_RESOURCES = {'bad': bad}\n",
        "custom_six",
    )
    assert "bad" in library
    assert "bad" in library.keys()  # noqa: SIM118 - the view is what is tested
    assert "BAD" in library
    items = library.items()
    assert next(items)[0] == "gpu.small"
    with pytest.raises(ValueError, match="called"):
        library.find("bad")


def test_what_could_not_be_loaded_is_looked_for_again(custom_module, tmp_path: Path):
    library = custom_module("import no_such_import_at_all\n", "custom_seven")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            library.find("gpu.small")
    (tmp_path / "custom_seven.py").write_text("NAMED_RESOURCES = {}\n# now longer than it was\n")
    assert library.find("gpu.small").gpu == 1


def test_a_reset_looks_again(custom_module, monkeypatch):
    library = custom_module("NAMED_RESOURCES = {}\n", "custom_eight")
    assert "mine" not in library
    custom_module(
        "from torchx.specs import Resource\n"
        "NAMED_RESOURCES = {'mine': lambda: Resource(1, 1, 1)}\n",
        "custom_nine",
    )
    assert "mine" not in library
    library.reset()
    assert "mine" in library


def test_an_installed_package_adds_and_overrides(custom_module, tmp_path: Path):
    library = custom_module(
        "from torchx.specs import Resource\n"
        "def make(): return Resource(3, 3, 3)\n"
        "NAMED_RESOURCES = {'mine': lambda: Resource(1, 1, 1)}\n",
        "custom_ten",
    )
    info = tmp_path / "custom_ten-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: custom_ten\nVersion: 1\n")
    points = "".join(f"{name} = custom_ten:make\n" for name in ("mine", "theirs", "NULL"))
    (info / "entry_points.txt").write_text(f"[torchx.named_resources]\n{points}")
    assert library.find("mine").cpu == 3
    assert library.find("theirs").get_resource_name() == "theirs"
    assert library.find("NULL") is specs.NULL_RESOURCE
    assert list(library)[-3:] == ["theirs", "NULL", "MISSING"]


def test_a_name_that_differs_in_case_from_several_lists_them(custom_module):
    library = custom_module(
        "NAMED_RESOURCES = {'bb': None, 'BB': None}\n",
        "custom_eleven",
    )
    with pytest.raises(KeyError) as caught:
        library.find("Bb")
    assert str(caught.value) == (
        "`Bb` matches more than one registered named resource, ignoring case: ['BB', 'bb']."
        " Use one of those names exactly."
    )
