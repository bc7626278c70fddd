from ._estimate import (
    Estimate as Estimate,
    estimate as estimate,
    spearman as spearman,
    student_quantile as student_quantile,
)
from ._sets import ComparedTable as ComparedTable, ComparedTables as ComparedTables, forget_words as forget_words
from ._standings import Standings as Standings, Table as Table, standings as standings
from .audit import (
    QUESTIONS as QUESTIONS,
    AuditRecord as AuditRecord,
    AuditVerdict as AuditVerdict,
    Finding as Finding,
    Outcome as Outcome,
    judge as judge,
    verdict_on as verdict_on,
)
from .changes import really_changed as really_changed
from .comparison import Comparison as Comparison
from .dial import DialCurve as DialCurve
from .frontier import (
    Frontier as Frontier,
    Point as Point,
    determined_metrics as determined_metrics,
    read_scores as read_scores,
    varying as varying,
)
from .generator_tables import compare_generators as compare_generators
from .generators import (
    Generators as Generators,
    GeneratorSeries as GeneratorSeries,
    GeneratorSet as GeneratorSet,
    GeneratorTable as GeneratorTable,
    are_generators as are_generators,
    generation as generation,
    recognised_rho as recognised_rho,
)
from .paper import GENERATED as GENERATED, PaperValue as PaperValue, paper_generation as paper_generation
from .pareto import (
    distance as distance,
    epsilon_to as epsilon_to,
    hypervolume as hypervolume,
    nondominated as nondominated,
)
from .ranking import CRITERIA as CRITERIA, Ranking as Ranking, Rival as Rival, comparable as comparable
from .record import Record as Record, Role as Role
from .selection import (
    Condition as Condition,
    check_metric as check_metric,
    metric_name as metric_name,
    parse_conditions as parse_conditions,
)
from .series import Measure as Measure, Series as Series, SolutionSet as SolutionSet, measures as measures
