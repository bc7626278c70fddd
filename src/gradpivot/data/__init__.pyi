from .download.cache import (
    cached_content as cached_content,
    cached_file as cached_file,
    data_folder as data_folder,
    read_manifest as read_manifest,
    state_of as state_of,
)
from .download.catalogue import ENTRIES as ENTRIES, Entry as Entry, entry as entry
from .download.getting import check as check, get as get
from .identifiers import find_records as find_records, read_entries as read_entries, read_indices as read_indices
from .loader import Collated as Collated, Loader as Loader
from .order import (
    batch_count as batch_count,
    cut as cut,
    default_batch_size as default_batch_size,
    paired_order as paired_order,
    shuffled as shuffled,
    smallest_batch as smallest_batch,
)
from .readers.cifar10 import load_cifar10 as load_cifar10
from .readers.digits import load_digits as load_digits
from .readers.gaussians import load_gaussians as load_gaussians
from .readers.mnist import (
    load_fashion_mnist as load_fashion_mnist,
    load_mnist as load_mnist,
    load_mnist16 as load_mnist16,
)
from .readers.png import decode_rgb as decode_rgb, encode_rgb as encode_rgb, png_size as png_size
from .readers.svhn import load_svhn as load_svhn
from .split import ForgetSplit as ForgetSplit
from .worlds import world_split as world_split
