"""Former location of ``torchx.testing``, from release 0.7."""
