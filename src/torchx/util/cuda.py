"""GPUs, as PyTorch sees them."""


def has_cuda_devices() -> bool:
    """Returns True if PyTorch can use a GPU."""
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.device_count() > 0)
