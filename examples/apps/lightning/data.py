"""Images for the trainer: those of an archive, or made up."""

import io
import tarfile
from pathlib import PurePosixPath

import fsspec
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, TensorDataset

SIDE = 64
MADE_UP_CLASSES = 4


class Images(LightningDataModule):
    """Pairs of an image (3 x 64 x 64, values from 0 to 1) and the number of its class.

    Args:
        data_path: URL of what ``datapreproc`` wrote, or of the folder of it; ``None`` makes images
            up: noise with one bright quarter, which is the class.
        num_samples: how many images to take at most.
    """

    def __init__(self, data_path: str | None, batch_size: int, num_samples: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        images, labels = _read(data_path, num_samples) if data_path else _make_up(num_samples)
        self.data = TensorDataset(images, labels)
        self.num_classes = int(labels.max()) + 1 if data_path else MADE_UP_CLASSES

    def train_dataloader(self) -> DataLoader:
        """All images, in a random order."""
        return DataLoader(self.data, self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        """The same images, in order: there are no others."""
        return DataLoader(self.data, self.batch_size)


def _make_up(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    images = torch.rand(count, 3, SIDE, SIDE, generator=random) / 2
    labels = torch.arange(count) % MADE_UP_CLASSES
    half = SIDE // 2
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = half * (label // 2), half * (label % 2)
        image[:, top : top + half, left : left + half] += 0.5
    return images, labels


def _read(data_path: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    from PIL import Image

    if not data_path.endswith(".tar.gz"):
        data_path = f"{data_path.rstrip('/')}/images.tar.gz"
    images, names = [], []
    with fsspec.open(data_path, "rb") as file, tarfile.open(fileobj=file, mode="r:gz") as archive:
        for entry in archive:
            if len(images) == count:
                break
            content = archive.extractfile(entry)
            if content is None:  # not a file
                continue
            with Image.open(io.BytesIO(content.read())) as image:
                pixels = bytearray(image.convert("RGB").resize((SIDE, SIDE)).tobytes())
            flat = torch.frombuffer(pixels, dtype=torch.uint8)
            images.append(flat.reshape(SIDE, SIDE, 3).permute(2, 0, 1) / 255)
            names.append(PurePosixPath(entry.name).parent.name)
    if not images:
        raise SystemExit(f"there are no images in `{data_path}`")
    classes = sorted(set(names))
    return torch.stack(images), torch.tensor([classes.index(name) for name in names])
