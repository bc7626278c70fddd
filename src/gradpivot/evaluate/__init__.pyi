from .classifiers.evaluation import (
    PredictionCache as PredictionCache,
    ReferencePredictions as ReferencePredictions,
    SetPredictions as SetPredictions,
    evaluate as evaluate,
    fixed_subset as fixed_subset,
    matching_test_indices as matching_test_indices,
    predictions as predictions,
)
from .classifiers.membership import (
    RMIA_OFFSET as RMIA_OFFSET,
    rmia_log_ratios as rmia_log_ratios,
    threshold_attack as threshold_attack,
)
from .classifiers.scorer import ClassifierScorer as ClassifierScorer
from .generators.frechet import statistics_of as statistics_of
from .generators.judge import Judge as Judge, Reference as Reference, recogniser_features as recogniser_features
from .generators.judging import Judging as Judging
from .generators.pictures import Pictures as Pictures
from .generators.scorer import GeneratorScorer as GeneratorScorer, SampleScorer as SampleScorer
from .generators.scores import Frechet as Frechet, GenerationScores as GenerationScores
from .losses import LossScorer as LossScorer, LossScores as LossScores
from .metrics.metric import Metric as Metric, Verdict as Verdict, WithIdeal as WithIdeal
from .metrics.registry import (
    all_metrics as all_metrics,
    find_metric as find_metric,
    headline_metrics as headline_metrics,
    metrics_digest as metrics_digest,
    register_metric as register_metric,
    scored_metrics as scored_metrics,
    standing_metrics as standing_metrics,
    steering_metrics as steering_metrics,
    unregister_metric as unregister_metric,
)
from .on_test import HeldOutScore as HeldOutScore, score_on_test as score_on_test
from .recovery import (
    RECOVERY_STEPS as RECOVERY_STEPS,
    recovered_correctness as recovered_correctness,
    recovery_batches as recovery_batches,
    recovery_ways as recovery_ways,
)
from .relearning import (
    MAX_RELEARNED as MAX_RELEARNED,
    RELEARN_SHOTS as RELEARN_SHOTS,
    RELEARN_STEPS as RELEARN_STEPS,
    RelearnPlan as RelearnPlan,
    Shots as Shots,
    mean_over_steps as mean_over_steps,
    relearn_batches as relearn_batches,
    relearn_plan as relearn_plan,
    relearned_correctness as relearned_correctness,
    repeated_batches as repeated_batches,
    sample_shots as sample_shots,
    sgd_steps as sgd_steps,
)
from .scorer import Examination as Examination, Scorer as Scorer, scorer_of as scorer_of
from .scores import Scored as Scored, Scores as Scores
