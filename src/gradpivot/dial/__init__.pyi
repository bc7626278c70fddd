from .dial import Dial as Dial, Steerable as Steerable
from .goal import goal_name as goal_name, suited_objective as suited_objective
from .ramp import asked_degree as asked_degree, gamma_for as gamma_for
from .segment import Segment as Segment
from .settings import SUITED as SUITED, DialSettings as DialSettings
