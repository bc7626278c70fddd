from .audit.console import audit_lines as audit_lines
from .audit.files import read_audit as read_audit, write_audit as write_audit
from .common.canvas import save_figure as save_figure
from .common.exports import Exports as Exports
from .common.tables import (
    console_table as console_table,
    measurable as measurable,
    point_table as point_table,
    with_reference as with_reference,
    write_csv as write_csv,
)
from .generators.files import GENERATORS as GENERATORS
from .paper.animation import save_latent_animation as save_latent_animation
from .paper.latent import latent_figure as latent_figure, latent_markdown as latent_markdown
from .paper.toy import toy_figure as toy_figure
from .run.figures import (
    conflict_figure as conflict_figure,
    frontier_figure as frontier_figure,
    metrics_figure as metrics_figure,
)
from .run.page import write_page as write_page
from .run.summary import summary as summary, summary_markdown as summary_markdown
from .standings.files import STANDINGS as STANDINGS
