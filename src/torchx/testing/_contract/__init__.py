"""The parts of ``torchx.testing.scheduler_suite``, one subject each."""

import pkgutil

try:
    import pytest
except ModuleNotFoundError as err:
    if err.name != "pytest":
        raise
    msg = "the scheduler suite needs pytest, install it with: pip install 'torchx[test]'"
    raise ModuleNotFoundError(msg, name="pytest") from None

# failed asserts of the suite show their values, as those of a test file do
pytest.register_assert_rewrite(
    *(part.name for part in pkgutil.iter_modules(__path__, f"{__name__}."))
)
