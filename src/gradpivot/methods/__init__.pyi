from .bad_teacher import BadTeacher as BadTeacher
from .be import BE as BE
from .bs import BS as BS
from .cf_k import CFk as CFk
from .cup import CUP as CUP
from .dcgd import DCGD as DCGD
from .delete import Delete as Delete
from .epo import EPO as EPO
from .eu_k import EUk as EUk
from .ft import FT as FT
from .ga import GA as GA
from .iu import IU as IU
from .l1_sparse import L1Sparse as L1Sparse
from .method import Descent as Descent, ForgettingDescent as ForgettingDescent, Method as Method
from .neggrad_plus import NegGradPlus as NegGradPlus
from .pcgrad import PCGrad as PCGrad
from .registry import list_methods as list_methods, make_method as make_method, method_class as method_class
from .retrain import Retrain as Retrain
from .rl import RL as RL
from .sa import SA as SA
from .salun import SalUn as SalUn
from .scrub import SCRUB as SCRUB
from .sfron import SFRon as SFRon
from .ssd import SSD as SSD
from .stch import STCH as STCH
from .steerable import SteerableDescent as SteerableDescent
from .warm_restart import WarmRestart as WarmRestart
from .ws import WS as WS
