from .contract import MethodContract as MethodContract
from .problems import Guarded as Guarded, blobs as blobs, trained as trained
