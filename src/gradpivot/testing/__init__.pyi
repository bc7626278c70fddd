from .contract import MethodContract as MethodContract
from .planted import Masked as Masked, destroyed as destroyed, memorised as memorised
from .problems import Guarded as Guarded, blobs as blobs, trained as trained
