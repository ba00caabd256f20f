"""Where release 0.7 kept its test helpers; now ``torchx.testing``."""
