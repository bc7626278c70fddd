from .goal import Goal as Goal, Misclassified as Misclassified, Unseen as Unseen
from .landing import Landing as Landing
from .segment import Segment as Segment
from .steering import (
    LAG as LAG,
    LONGEST_MOVE as LONGEST_MOVE,
    SOFTEST as SOFTEST,
    Change as Change,
    Course as Course,
    StepLength as StepLength,
    asked_degree as asked_degree,
    gamma_for as gamma_for,
)
