"""The decorators, and the fractions of named resources."""

import sys
import types
from collections.abc import Iterator

import pytest

from torchx.plugins import (
    EIGHTH,
    HALF,
    QUARTER,
    SIXTEENTH,
    WHOLE,
    PluginType,
    halve_mem_down_to,
    powers_of_two_gpus,
    register,
    resource_tags,
)
from torchx.specs import Resource

GIB = 1024


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType("acme_resources_of_a_test")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def define(module: types.ModuleType, source: str) -> None:
    preamble = (
        "from torchx.plugins import *\nfrom torchx.specs import Resource\n"
        "from torchx.plugins import register, WHOLE, powers_of_two_gpus, halve_mem_down_to\n"
    )
    exec(preamble + source, module.__dict__)


def test_fractions_have_names() -> None:
    assert (WHOLE, HALF, QUARTER, EIGHTH, SIXTEENTH) == (1.0, 0.5, 0.25, 0.125, 0.0625)


@pytest.mark.parametrize(
    ("decorator", "kind"),
    [
        (register.scheduler, PluginType.SCHEDULER),
        (register.tracker, PluginType.TRACKER),
        (register.event_handler, PluginType.EVENT_HANDLER),
    ],
)
def test_a_decorated_function_is_marked_and_returned_as_it_is(decorator, kind) -> None:
    def make() -> None: ...

    assert decorator()(make) is make
    assert (make._plugin_type, make._plugin_name) == (kind, "make")
    assert decorator(name="other")(make)._plugin_name == "other"


@pytest.mark.parametrize(
    ("decorator", "written"),
    [
        (register.scheduler, "@register.scheduler()"),
        (register.tracker, "@register.tracker()"),
        (register.event_handler, "@register.event_handler()"),
        (register.named_resource, "@register.named_resource()"),
        (register, "@register.scheduler()"),
    ],
)
def test_without_parentheses_the_right_form_is_told(decorator, written: str) -> None:
    def make() -> None: ...

    with pytest.raises(TypeError, match="make at") as caught:
        decorator(make)
    assert f"write `{written}`" in str(caught.value)


def test_a_class_can_be_decorated() -> None:
    @register.tracker()
    class Acme: ...

    assert Acme._plugin_name == "Acme"


def test_the_decorator_takes_a_kind_directly() -> None:
    def make() -> None: ...

    assert register(PluginType.TRACKER, "t")(make) is make
    assert make._plugin_name == "t"


def test_a_named_resource_carries_its_name(module: types.ModuleType) -> None:
    define(
        module,
        "@register.named_resource()\ndef acme() -> Resource:\n    return Resource(1, 0, 1024)\n",
    )
    made = module.acme()
    assert made.get_resource_name() == "acme"
    assert made.tags == {resource_tags.RESOURCE_NAME: "acme", resource_tags.IS_FRACTIONAL: False}
    assert not made.is_fractional()
    assert {"acme": module.acme} == module.NAMED_RESOURCES


def test_aliases_and_fractions_are_attributes_of_the_module(module: types.ModuleType) -> None:
    define(
        module,
        "@register.named_resource(\n"
        "    name='big', aliases=['b', 'bb'], fractionals=powers_of_two_gpus\n)\n"
        "def acme(fractional: float = WHOLE) -> Resource:\n"
        "    return Resource(int(8 * fractional), int(4 * fractional), int(4096 * fractional))\n",
    )
    assert sorted(module.NAMED_RESOURCES) == ["b", "bb", "big", "big_1", "big_2", "big_4"]
    assert all(getattr(module, name) is fn for name, fn in module.NAMED_RESOURCES.items())
    assert module.b().get_resource_name() == "big"
    assert not module.b().is_fractional()
    assert (module.big_4().gpu, module.big_4().is_fractional()) == (4, False)
    assert (module.big_1().gpu, module.big_1().is_fractional()) == (1, True)
    assert module.big_1().get_resource_name() == "big_1"
    assert module.acme is module.big


def test_fractions_may_be_given_as_a_dict(module: types.ModuleType) -> None:
    define(
        module,
        "@register.named_resource(fractionals={0.5: 'half'})\n"
        "def acme(fractional: float = WHOLE) -> Resource:\n"
        "    return Resource(int(8 * fractional), 0, 1024)\n",
    )
    assert module.acme_half().cpu == 4


@pytest.mark.parametrize("fractionals", ["None", "{}"])
def test_without_fractions_nothing_is_called_at_import(
    module: types.ModuleType, fractionals: str
) -> None:
    define(
        module,
        f"@register.named_resource(aliases=['a'], fractionals={fractionals})\n"
        "def acme() -> Resource:\n    raise AssertionError('called')\n",
    )
    with pytest.raises(AssertionError, match="called"):
        module.acme()


def test_the_factory_forwards_its_arguments(module: types.ModuleType) -> None:
    define(
        module,
        "@register.named_resource()\ndef acme(cpu: int = 1) -> Resource:\n"
        "    return Resource(cpu, 0, 1024)\n",
    )
    assert module.acme(7).cpu == 7
    assert module.acme(cpu=8).cpu == 8


def test_a_fraction_of_a_function_without_parameter_fails_when_called(
    module: types.ModuleType,
) -> None:
    define(
        module,
        "@register.named_resource(fractionals={0.5: 'h'})\ndef acme() -> Resource:\n"
        "    return Resource(1, 0, 1024)\n",
    )
    with pytest.raises(TypeError):
        module.acme_h()


def test_a_name_twice_in_a_module_is_refused(module: types.ModuleType) -> None:
    one = (
        "@register.named_resource(name='x')\ndef {}() -> Resource:\n    return Resource(1, 0, 1)\n"
    )
    with pytest.raises(ValueError, match="duplicate named resource `x` in module `acme_resources"):
        define(module, one.format("a") + one.format("b"))


@pytest.mark.parametrize(
    "arguments", ["name='taken'", "aliases=['taken']", "fractionals={0.5: 'taken'}, name='x'"]
)
def test_an_attribute_that_exists_is_not_replaced(module: types.ModuleType, arguments: str) -> None:
    define(module, "taken = 1\nx_taken = 1\n")
    with pytest.raises(AttributeError, match=r"taken.*rename"):
        define(
            module,
            f"@register.named_resource({arguments})\ndef y(f: float = 1.0) -> Resource:\n"
            "    return Resource(1, 0, 1)\n",
        )


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (8, {1.0: "8", 0.5: "4", 0.25: "2", 0.125: "1"}),
        (2, {1.0: "2", 0.5: "1"}),
        (1, {1.0: "1"}),
    ],
)
def test_gpus_are_halved_down_to_one(gpus: int, expected: dict[float, str]) -> None:
    assert powers_of_two_gpus(Resource(cpu=1, gpu=gpus, memMB=1)) == expected


@pytest.mark.parametrize("gpus", [0, -1, 3, 6, 12])
def test_other_numbers_of_gpus_are_refused(gpus: int) -> None:
    with pytest.raises(ValueError, match=f"power of two to be halved, given: {gpus}"):
        powers_of_two_gpus(Resource(cpu=1, gpu=gpus, memMB=1))


@pytest.mark.parametrize(
    ("gib", "least", "names"),
    [
        (64, 8, ["64", "32", "16", "8"]),
        (64, 1, ["64", "32", "16", "8", "4", "2", "1"]),
        (256, 32, ["256", "128", "64", "32"]),
        (96, 3, ["96", "48", "24", "12", "6", "3"]),
    ],
)
def test_memory_is_halved_down_to_a_minimum(gib: int, least: int, names: list[str]) -> None:
    fractions = halve_mem_down_to(minGiB=least)(Resource(cpu=1, gpu=0, memMB=gib * GIB))
    assert list(fractions.values()) == names
    assert list(fractions) == [0.5**i for i in range(len(names))]


@pytest.mark.parametrize(("mem", "least"), [(0, 1), (-1, 1), (1000, 1), (96 * GIB, 2)])
def test_memory_that_cannot_be_halved_in_whole_gib_is_refused(mem: int, least: int) -> None:
    with pytest.raises(ValueError, match=r"GiB|memMB"):
        halve_mem_down_to(minGiB=least)(Resource(cpu=1, gpu=0, memMB=mem))
