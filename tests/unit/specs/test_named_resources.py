"""Named resources: their numbers, where they come from, how they are looked up."""

import threading
import warnings
from pathlib import Path

import pytest

import torchx.specs as specs
from torchx.specs import Resource, named_resources, resource
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
        ("aws_t3.medium", (2, 0, 3932)),
        ("aws_c5.18xlarge", (72, 0, 139586)),
        ("aws_p3.2xlarge", (8, 1, 59963)),
        ("aws_p6-b300.48xlarge", (192, 8, 4026368)),
        ("aws_inf2.48xlarge", (192, 0, 754944)),
    ],
)
def test_named_resources_have_their_numbers(name, numbers):
    found = resource(cpu=99, h=name)
    assert (found.cpu, found.gpu, found.memMB) == numbers
    assert found.get_resource_name() == name
    assert found is not resource(h=name)


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
