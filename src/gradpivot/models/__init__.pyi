from .checkpoints.foreign import load_foreign as load_foreign
from .checkpoints.weights import (
    class_name as class_name,
    constants as constants,
    load_weights as load_weights,
    save_weights as save_weights,
    structure as structure,
    weights_digest as weights_digest,
)
from .cnn import SmallCNN as SmallCNN
from .ddpm import paper_unet as paper_unet, small_unet as small_unet
from .find import find_model as find_model, list_models as list_models
from .images import CIFAR10_MEAN as CIFAR10_MEAN, CIFAR10_STD as CIFAR10_STD, Images as Images
from .initialisation import reinitialise as reinitialise, shrink_and_perturb as shrink_and_perturb
from .layers import last_layers as last_layers
from .mlp import MLP as MLP
from .recogniser import Recogniser as Recogniser
from .resnet import resnet18 as resnet18
from .vae import VAE as VAE
