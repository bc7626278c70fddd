from .atomic import (
    create_text as create_text,
    remove_stale as remove_stale,
    replacing as replacing,
    write_text as write_text,
)
from .importing import (
    describe_error as describe_error,
    import_path as import_path,
    load_entry_point as load_entry_point,
)
from .locking import exclusive as exclusive
from .modes import evaluating as evaluating
from .parallel import Gradient as Gradient, Part as Part, Replicas as Replicas, Side as Side
from .parsing import (
    Number as Number,
    checked as checked,
    is_number as is_number,
    parse_json as parse_json,
    parse_yaml as parse_yaml,
)
from .processes import host_name as host_name, process_start as process_start
from .progress import (
    LOG_SECONDS as LOG_SECONDS,
    LogLines as LogLines,
    bar as bar,
    bar_below_lines as bar_below_lines,
    duration as duration,
)
from .provenance import environment as environment, foreign_source as foreign_source
from .randomness import (
    derive as derive,
    draw_labels as draw_labels,
    draw_rows as draw_rows,
    draw_strata as draw_strata,
    drawing_for as drawing_for,
    isolated as isolated,
    reseed as reseed,
    rewinder as rewinder,
)
