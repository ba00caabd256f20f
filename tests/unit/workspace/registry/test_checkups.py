"""What ``torchx doctor`` finds about the registry that images go to, and about images."""

from collections.abc import Callable
from pathlib import Path

import pytest

from torchx.schedulers._image_checkups import container_checkups
from torchx.schedulers.checkups import Configured, Finding

from .fake_registry import FakeRegistry, Fault

Login = Callable[[str, str, str], None]


@pytest.fixture(params=["basic", "bearer"])
def guarded(request: pytest.FixtureRequest, registry: FakeRegistry) -> FakeRegistry:
    """A registry that asks for a log-in, in both ways."""
    registry.users = {"me": "secret"}
    registry.bearer = request.param == "bearer"
    return registry


def looked_at(repository: str) -> Finding:
    """What is found of a repository."""
    (check,) = container_checkups(Configured({"image_repo": repository}))
    return check.check()


def image(name: str, origin: str = "", is_here: bool | None = None) -> Finding:
    """What is found of an image."""
    local = None if is_here is None else lambda _: is_here
    *_, check = container_checkups(Configured(images={name: origin}), local)
    assert check.name == "image"
    return check.check()


# -- registries -----------------------------------------------------------------------------------


def test_a_registry_for_everybody(registry: FakeRegistry) -> None:
    found = looked_at(f"{registry.host}/team/out")
    text = f"`{registry.host}` answers and needs no log-in"
    assert (found.verdict.value, found.text) == ("ok", text)


def test_a_log_in_that_is_good(guarded: FakeRegistry, docker_login: Login) -> None:
    docker_login(guarded.host, "me", "secret")
    found = looked_at(f"{guarded.host}/team/out")
    assert found.verdict.value == "ok"
    assert "accepts the log-in" in found.text


def test_a_log_in_that_is_wrong(guarded: FakeRegistry, docker_login: Login) -> None:
    docker_login(guarded.host, "me", "old")
    found = looked_at(f"{guarded.host}/team/out")
    assert (found.verdict.value, found.fix) == ("broken", f"docker login {guarded.host}")
    assert "401" in found.text


def test_no_log_in(guarded: FakeRegistry, docker_config: Path) -> None:
    found = looked_at(f"{guarded.host}/team/out")
    text = f"there is no log-in to `{guarded.host}`"
    fix = f"docker login {guarded.host}"
    assert (found.verdict.value, found.text, found.fix) == ("broken", text, fix)


def test_a_configuration_of_docker_that_is_damaged(
    guarded: FakeRegistry, docker_config: Path
) -> None:
    docker_config.write_text("{")
    found = looked_at(f"{guarded.host}/team/out")
    assert found.verdict.value == "broken"
    assert str(docker_config) in found.text


@pytest.mark.parametrize("fault", [Fault("GET", "/v2/", times=9), Fault("GET", "", 503, times=9)])
def test_a_registry_that_is_away(registry: FakeRegistry, fault: Fault) -> None:
    registry.faults.append(fault)
    found = looked_at(f"{registry.host}/team/out")
    assert (found.verdict.value, found.fix) == ("broken", "Check `image_repo` and the network")
    assert len(registry.requests) <= 2  # there are but seconds for it


@pytest.mark.parametrize("name", ["Team/Out", "localhost:5000/out:tag", "a b"])
def test_a_name_that_no_repository_has(name: str) -> None:
    found = looked_at(name)
    assert found.verdict.value == "broken"
    assert name in found.text
    assert "image_repo = " in found.fix


def test_a_clock_that_is_wrong(registry: FakeRegistry) -> None:
    registry.ahead_s = 1800.5
    found = looked_at(f"{registry.host}/team/out")
    assert found.verdict.value == "warning"
    assert f"its clock: that of `{registry.host}` is 30 min ahead" in found.text


def test_without_a_repository_images_are_run_as_they_are() -> None:
    (check,) = container_checkups(Configured())
    assert (check.name, check.check().verdict.value) == ("registry", "neutral")
    assert container_checkups(Configured(), lambda _: True) == []  # a daemon needs no registry


# -- images ---------------------------------------------------------------------------------------


def test_an_image_that_is_there(registry: FakeRegistry) -> None:
    registry.add_image("team/base", "1")
    found = image(f"{registry.host}/team/base:1", "TORCHX_IMAGE")
    assert found.verdict.value == "ok"
    assert image("any", is_here=True).text == "`any` is on this machine"
    assert image(f"{registry.host}/team/base:1", is_here=False).verdict.value == "ok"


def test_an_image_that_is_configured_and_not_there(registry: FakeRegistry) -> None:
    name = f"{registry.host}/team/base:2"
    found = image(name, "TORCHX_IMAGE")
    assert found.verdict.value == "broken"
    assert found.text == f"`{name}` is not in its registry, and is named in TORCHX_IMAGE"


def test_the_default_image_is_needed_only_where_no_other_is_given(registry: FakeRegistry) -> None:
    found = image(f"{registry.host}/team/base:2")
    assert (found.verdict.value, found.fix) == (
        "warning",
        "Pass --image, or set TORCHX_IMAGE for all jobs",
    )


def test_an_image_that_may_not_be_looked_at(guarded: FakeRegistry, docker_config: Path) -> None:
    found = image(f"{guarded.host}/team/base:1", "[component:dist.ddp]")
    assert found.verdict.value == "warning"
    assert "cannot be checked" in found.text
    assert "[component:dist.ddp]" in found.fix


def test_a_registry_of_an_image_that_is_away(registry: FakeRegistry) -> None:
    registry.faults.append(Fault("HEAD", "", times=9))
    found = image(f"{registry.host}/team/base:1")
    assert found.verdict.value == "warning"
    assert "cannot tell whether" in found.text


def test_a_name_that_no_image_has() -> None:
    found = image("No Image", "TORCHX_IMAGE")
    assert found.verdict.value == "warning"
    assert "No Image" in found.text
