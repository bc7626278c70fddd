from .classifiers.evaluation import (
    PredictionCache as PredictionCache,
    SetPredictions as SetPredictions,
    evaluate as evaluate,
    fixed_subset as fixed_subset,
    matching_test_indices as matching_test_indices,
    predictions as predictions,
)
from .classifiers.membership import threshold_attack as threshold_attack
from .classifiers.scorer import ClassifierScorer as ClassifierScorer
from .generators.frechet import statistics_of as statistics_of
from .generators.judge import Judge as Judge, Reference as Reference, recogniser_features as recogniser_features
from .generators.judging import Judging as Judging
from .generators.pictures import Pictures as Pictures
from .generators.scorer import GeneratorScorer as GeneratorScorer, SampleScorer as SampleScorer
from .generators.scores import Frechet as Frechet, GenerationScores as GenerationScores
from .losses import LossScorer as LossScorer, LossScores as LossScores
from .metrics.metric import Metric as Metric, Verdict as Verdict
from .metrics.registry import (
    all_metrics as all_metrics,
    find_metric as find_metric,
    metrics_digest as metrics_digest,
    register_metric as register_metric,
    scored_metrics as scored_metrics,
    standing_metrics as standing_metrics,
    steering_metrics as steering_metrics,
    unregister_metric as unregister_metric,
)
from .on_test import HeldOutScore as HeldOutScore, score_on_test as score_on_test
from .scorer import Examination as Examination, Scorer as Scorer, scorer_of as scorer_of
from .scores import Scored as Scored, Scores as Scores
