from .verbs import Trace as Trace, over_knob as over_knob, score as score, trace as trace, unlearn as unlearn
