"""A network for 64×64 ImageNet-normalised images, used on 32×32 byte images."""

from torch import nn

from gradpivot.models.pixels import Pixels


class Upsampled(nn.Module):
    """Normalise, resize, then run the network."""

    def __init__(self, model, size):
        super().__init__()
        self.pixels = Pixels(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
        self.resize = nn.Upsample(size=size, mode="bilinear")
        self.model = model

    def forward(self, images):
        return self.model(self.resize(self.pixels(images)))


def make_model():
    """Return a new, untrained network; gradpivot loads the weights."""
    network = nn.Sequential(nn.Conv2d(3, 16, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 8 * 8, 10))
    return Upsampled(network, size=64)
