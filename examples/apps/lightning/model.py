"""The model: a small convolutional classifier."""

import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn import functional


class Classifier(LightningModule):
    """Classifies images of 3 channels.

    Args:
        layers: number of channels of each convolution, each of which halves the sides.
    """

    def __init__(self, num_classes: int, layers: list[int], lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        steps: list[nn.Module] = []
        channels = 3
        for width in layers:
            steps += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.ReLU()]
            channels = width
        self.features = nn.Sequential(*steps, nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(channels * 16, num_classes)
        self.lr = lr

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of each class: (batch, classes)."""
        return self.head(self.features(images))

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Loss of a batch."""
        return self._loss(batch, "train")

    def validation_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Loss of a batch that is not learned from."""
        return self._loss(batch, "val")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), self.lr)

    def _loss(self, batch: list[torch.Tensor], name: str) -> torch.Tensor:
        images, labels = batch
        scores = self(images)
        loss = functional.cross_entropy(scores, labels)
        accuracy = (scores.argmax(1) == labels).float().mean()
        self.log_dict(
            {f"{name}_loss": loss, f"{name}_accuracy": accuracy},
            on_step=False,
            on_epoch=True,
            sync_dist=True,
        )
        return loss
