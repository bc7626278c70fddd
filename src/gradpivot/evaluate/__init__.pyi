from .classifiers.evaluation import (
    Known as Known,
    SetPredictions as SetPredictions,
    check_scorable as check_scorable,
    evaluate as evaluate,
    predictions as predictions,
    same_kind as same_kind,
    scored_part as scored_part,
)
from .classifiers.membership import threshold_attack as threshold_attack
from .generators.examination import (
    Examination as Examination,
    Examined as Examined,
    check_examinable as check_examinable,
)
from .generators.frechet import statistics_of as statistics_of
from .generators.judge import (
    Judge as Judge,
    Reference as Reference,
    recogniser_features as recogniser_features,
)
from .generators.judging import Judging as Judging
from .generators.pictures import Pictures as Pictures
from .generators.scores import Frechet as Frechet, GenerationScores as GenerationScores
from .metrics.metric import Metric as Metric, Verdict as Verdict
from .metrics.registry import (
    all_metrics as all_metrics,
    find_metric as find_metric,
    register_metric as register_metric,
    scored_metrics as scored_metrics,
    standing_metrics as standing_metrics,
    steering_metrics as steering_metrics,
    unregister_metric as unregister_metric,
)
from .on_test import accuracy_on_test as accuracy_on_test, loss_on_test as loss_on_test
from .scores import Scored as Scored, Scores as Scores
