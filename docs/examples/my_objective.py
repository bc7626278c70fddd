"""An objective: the mean probability of the true label."""

from gradpivot.tasks import Objective, register_objective

p_true = Objective("p_true", lambda logits, y: logits.softmax(1).gather(1, y[:, None]).mean(), 0.0)
register_objective(p_true)
