from dataclasses import dataclass

from gradpivot import CUP, Classification, ForgetSplit, unlearn
from gradpivot.testing import blobs, trained


@dataclass(frozen=True)
class Uniform(Classification):
    """Pull the forget samples towards the uniform distribution."""

    def forget_loss(self, model, batch, objective):
        logits, _ = self.logits(model, batch)
        return -logits.log_softmax(1).mean()


split = ForgetSplit.by_class(blobs(), blobs(seed=1), classes=0)
result = unlearn(trained(), split, CUP(gamma=1.0, lr=0.02, epochs=15), task=Uniform())
assert result.scores.ua == result.scores.ra == 1.0  # the class is forgotten, the rest is kept
