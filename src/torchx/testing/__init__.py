"""What authors of apps, components and schedulers test them with.

``torchx.testing.fixtures`` needs nothing, ``torchx.testing.distributed`` needs PyTorch and
``torchx.testing.scheduler_suite`` needs pytest.
"""
