"""How many launches the contract suite interrupts: few, or as ``TORCHX_TEST_TRIALS`` says."""

import os

TRIALS = int(os.environ.get("TORCHX_TEST_TRIALS", "4"))  # tests themselves do not see the variable
