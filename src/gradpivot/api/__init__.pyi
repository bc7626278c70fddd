from .tracing import Trace as Trace, check_traceable as check_traceable, over_knob as over_knob, trace as trace
from .verbs import Prepared as Prepared, score as score, train as train, unlearn as unlearn
