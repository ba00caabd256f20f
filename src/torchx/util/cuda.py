"""GPUs, as PyTorch sees them."""


def has_cuda_devices() -> bool:
    """Whether PyTorch can use a GPU here."""
    import torch

    return bool(torch.cuda.is_available() and torch.cuda.device_count() > 0)
