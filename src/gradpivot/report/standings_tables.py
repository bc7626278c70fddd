"""Standings as tables: console, Markdown, LaTeX (booktabs), CSV and JSON, the paper's values beside ours."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gradpivot.frontier.estimate import Estimate
from gradpivot.frontier.paper import PaperValue
from gradpivot.frontier.ranking import CRITERIA, comparable
from gradpivot.frontier.series import MEASURES, Measure, Series, forget_words
from gradpivot.frontier.standings import Standings, Table
from gradpivot.report.standings_wording import (
    NAMES,
    caption,
    head,
    interval,
    others,
    paper_title,
    scaled,
    sentences,
    spread,
    unit,
)
from gradpivot.report.tables import markdown_cell, markdown_grid, rich_table, spreadsheet_text
from gradpivot.report.wording import number, percent, symbol

if TYPE_CHECKING:
    from rich.console import Group

__all__ = [
    "CSV_HEADS", "Cell", "Grid", "grids", "standings_console", "standings_csv", "standings_json",
    "standings_latex", "standings_markdown",
]  # fmt: skip

SHOWN = (
    "ra",
    "ua",
    "ta",
    "mia",
    "mia_svc",
    "delta",
    "hypervolume",
    "hypervolume_svc",
    "hypervolume_without_mia",
)
JUDGED = ("delta", "hypervolume", "hypervolume_svc", "hypervolume_without_mia")
"""What best and second best are marked in: a set's numbers, not those of one chosen run."""
BESIDE = ("ra", "ua", "ta", "mia_svc", "delta_svc", "hypervolume_svc", "seconds")
"""What the paper prints; its MIA is the SVC's, and so are its Δ and H."""


class Cell(NamedTuple):
    """A cell's text, and whether it is the ``best`` or the ``second`` of its column."""

    text: str
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table ready to be written down.

    Attributes:
        name: A short name for anchors and labels.
        title: What it shows.
        heads: Its heads.
        lines: Its cells, row by row.
        caption: What to know beside it.
        texts: How many columns from the left are text.
    """

    name: str
    title: str
    heads: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    texts: int = 1


def grids(table: Table) -> list[Grid]:
    """Everything that is said of a table: methods, intervals, the paper, time, classes, dials."""
    found = [_methods(table), _intervals(table)]
    if table.dataset:
        found.append(_beside(table))
    found.append(_time(table))
    if len(table.forgets) > 1:
        found += [_by_class(table, "hypervolume"), _by_class(table, "delta")]
    if any(row.dials for row in table.series):
        found.append(_dials(table))
    return found


def _methods(table: Table) -> Grid:
    marks = {measure: _marks(table, measure) for measure in JUDGED}
    lines = tuple(
        (
            Cell(row.name),
            *(Cell(spread(m, row.measures[m]), marks.get(m, {}).get(row.name, "") if row.role == "run" else "")
              for m in SHOWN),
        )
        for row in table.rows
    )  # fmt: skip
    heads = ("Method", *(head(m, table.kind) for m in SHOWN))
    return Grid(name="methods", title="Methods", heads=heads, lines=lines, caption=caption(table))


def _marks(table: Table, measure: str) -> dict[str, str]:
    """Best and second best as printed, over the sets that all have: equal to two digits is equally good."""
    known = {name: round(100 * e.mean, 2) for name, e in comparable(table.series, measure).items()}
    order = sorted(set(known.values()), reverse=CRITERIA.get(measure, True))
    marks = dict(zip(order, ("best", "second"), strict=False))
    return {name: marks.get(value, "") for name, value in known.items()}


def _intervals(table: Table) -> Grid:
    heads = ["Method", "Sets"]
    for measure in JUDGED:
        heads += [f"{NAMES[measure]} over sets", f"over {len(table.seeds)} seeds"]
    lines = []
    for row in table.rows:
        line = [Cell(row.name), Cell(str(len(row.whole)))]
        for measure in JUDGED:
            m = row.measures[measure]
            line += [Cell(interval(measure, m.over_sets if m else None)),
                     Cell(interval(measure, m.over_seeds if m else None))]  # fmt: skip
        lines.append(tuple(line))
    return Grid(
        name="intervals", title="95 % intervals of the means", heads=tuple(heads), lines=tuple(lines),
        caption="Student intervals: over all (class, seed) sets as if they were independent, and over the means of "
        "each seed, fewer values but independent ones. They may reach beyond 100.",
    )  # fmt: skip


def _beside(table: Table) -> Grid:
    title = paper_title(table)
    heads = ["Method"]
    for measure in BESIDE:
        heads += [head(measure, table.kind), "paper"]
    lines = []
    for row in table.rows:
        if row.role == "original":
            continue
        line = [Cell(row.name)]
        for measure in BESIDE:
            line += [
                Cell(spread(measure, row.measures[measure])),
                Cell(spread(measure, table.paper(row, measure))),
            ]
        lines.append(tuple(line))
    said = (
        "Another problem than ours, for orientation only."
        if table.context
        else "The paper's machine, architecture and seeds are not ours; its time is minutes a run, here in seconds."
    )
    return Grid(
        name="paper", title=f"Beside the {title}", heads=tuple(heads), lines=tuple(lines),
        caption=f"Paper: arXiv:2510.19226. Its MIA is the SVC's, and so are its Δ and H. {said}",
    )  # fmt: skip


def _time(table: Table) -> Grid:
    heads = ("Method", "Runs a set", "Runs", "Diverged ↓", "SVC undetermined ↓ (%)", "Time a run ↓ (s)",
             "Whole space ↓ (s)", "Run / Retrain ↓ (%)", "Space / Retrain ↓ (%)")  # fmt: skip
    lines = tuple(
        tuple(map(Cell, (
            row.name, str(row.largest), str(row.runs), str(row.diverged), percent(row.undetermined),
            spread("seconds", row.measures["seconds"]), spread("space_seconds", row.measures["space_seconds"]),
            percent(row.retrain_ratio), percent(row.space_ratio),
        )))
        for row in table.rows
    )  # fmt: skip
    return Grid(
        name="time", title="Runs and time", heads=heads, lines=lines,
        caption="Wall-clock of the unlearning call, preparation included. Time a run is over finite runs, "
        "since one that diverged stops early; the whole space is all runs, what a search over all settings costs.",
    )  # fmt: skip


def _by_class(table: Table, measure: str) -> Grid:
    forgets = table.forgets
    lines = []
    for row in table.rows:
        cells = (row.classes.get(forget, {}).get(measure) for forget in forgets)
        lines.append((Cell(row.name), *(Cell(spread(measure, cell)) for cell in cells)))
        printed = [table.paper(row, f"{measure}_svc", forget) for forget in forgets]
        if any(printed) and not table.context:
            lines.append(
                (Cell(f"{row.name}, paper (SVC)"), *(Cell(spread(measure, value)) for value in printed))
            )
    return Grid(
        name=f"classes-{measure}", title=f"{head(measure, table.kind)} by what is forgotten",
        heads=("Method", *(forget_words(table.kind, forget) for forget in forgets)), lines=tuple(lines),
        caption="Mean and, in brackets, standard deviation over seeds."
        + (" The paper's rows for Retrain repeat its ten-class mean." if table.dataset and not table.context else ""),
    )  # fmt: skip


def _dials(table: Table) -> Grid:
    lines = []
    for row in table.series:
        for dial in row.dials:
            values = f"{symbol(dial.knob)} {dial.values[0]:g}…{dial.values[-1]:g} ({len(dial.values)})"
            rho, jump = dial.rho, dial.jump
            lines.append(tuple(map(Cell, (
                row.name, others(dial.others), values, number(rho.mean if rho else None),
                number(rho.low if rho else None), number(rho.high if rho else None),
                percent(jump.mean if jump else None), percent(dial.largest_jump), percent(dial.finite),
                str(dial.sets),
            ))))  # fmt: skip
    heads = ("Method", "Other settings", "Values", "ρ(γ, UA) ↑", "ρ low", "ρ high", "UA jump ↓ (pp)",
             "Largest ↓ (pp)", "Finite ↑ (%)", "Sets")  # fmt: skip
    return Grid(
        name="dials", title="Controllability", heads=heads, lines=tuple(lines), texts=3,
        caption="Along γ with all else equal: Spearman's ρ of γ and UA with its 95 % interval over sets, the mean and "
        "the largest UA jump between neighbouring γ, the share of runs that stayed finite. ρ and jumps are over "
        "finite runs; a set on which UA never varied has no ρ.",
    )  # fmt: skip


def standings_markdown(standings: Standings) -> str:
    """All tables as one Markdown page."""
    lines = ["# Standings", ""]
    lines += [f"- {markdown_cell(note)}" for note in standings.notes] + [""] * bool(standings.notes)
    for table in standings.tables:
        lines += [f"## {markdown_cell(table.title)}", ""]
        lines += [f"- {markdown_cell(text)}" for text in sentences(table)] + [""]
        if table.notes:
            lines += ["Notes:", "", *(f"- {markdown_cell(note)}" for note in table.notes), ""]
        for grid in grids(table):
            cells = [[_markdown(cell) for cell in line] for line in grid.lines]
            lines += [f"### {markdown_cell(grid.title)}", "", markdown_grid(grid.heads, cells, grid.texts), "",
                      markdown_cell(grid.caption), ""]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def _markdown(cell: Cell) -> str:
    text = markdown_cell(cell.text)
    return {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(cell.mark, text)


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "Δ": r"$\Delta$", "γ": r"$\gamma$", "λ": r"$\lambda$",
    "α": r"$\alpha$", "ε": r"$\varepsilon$", "ρ": r"$\rho$", "θ": r"$\theta$", "ℓ": r"$\ell$", "₁": "$_1$",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "→": r"$\rightarrow$", "×": r"$\times$", "✗": r"$\times$", "−": "$-$",
    "–": "--", "…": r"\ldots{}", "±": r"$\pm$", "’": "'",
}  # fmt: skip


def latex_text(text: str) -> str:
    """Text that pdflatex prints as it is; a letter it has no glyph for becomes its code point, ``U+4E09``."""
    return "".join(
        _LATEX.get(c) or (c if 32 <= ord(c) < 127 or 0xC0 <= ord(c) <= 0xFF else _unprintable(c))
        for c in text
    )


def _unprintable(letter: str) -> str:
    return " " if letter.isspace() else rf"\texttt{{U+{ord(letter):04X}}}"


def standings_latex(standings: Standings) -> str:
    r"""All tables for LaTeX, in the form of the paper's Table 1; needs ``\usepackage{booktabs}`` and nothing else."""
    parts = [
        "% Made by gradpivot. In the preamble: \\usepackage{booktabs}\n"
        "% Wide tables want a table* environment or a turned page; nothing is scaled here."
    ]
    for i, table in enumerate(standings.tables, start=1):
        for grid in grids(table):
            notes = standings.notes if grid.name == "methods" else ()
            parts.append(_latex_table(table, grid, f"tab:standings-{i}-{grid.name}", notes))
    return "\n\n".join(parts) + "\n"


def _latex_table(table: Table, grid: Grid, label: str, notes: Sequence[str] = ()) -> str:
    columns = "l" * grid.texts + "c" * (len(grid.heads) - grid.texts)
    told = " ".join(sentences(table, ("hypervolume", "delta"))) if grid.name == "methods" else ""
    caption_ = " ".join(
        part for part in (f"{table.title}. {grid.title}.", grid.caption, told, *notes) if part
    )
    rows = [_latex_line([_latex(cell) for cell in line]) for line in grid.lines]
    models = sum(row.role != "run" for row in table.rows) if grid.name in ("methods", "time") else 0
    if 0 < models < len(rows):
        rows.insert(models, r"\midrule")
    return "\n".join([
        r"\begin{table}[htb]", r"\centering", r"\small", r"\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{latex_text(caption_)}}}", rf"\label{{{label}}}", rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule", _latex_line([_latex_head(text) for text in grid.heads]), r"\midrule", *rows,
        r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ])  # fmt: skip


def _latex_line(cells: list[str]) -> str:
    line = " & ".join(cells) + r" \\"
    # A bracket or star after the break before it would be read as that break's argument.
    return "{}" + line if line.startswith(("[", "*")) else line


def _latex(cell: Cell) -> str:
    text = latex_text(cell.text)
    return {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.mark, text)


def _latex_head(text: str) -> str:
    name, space, rest = text.partition(" ")
    return r"$\mathcal{H}$" + latex_text(space + rest) if name == "H" else latex_text(text)


CSV_HEADS = (
    "problem", "task", "protocol", "series", "role", "forget", "measure", "unit", "mean", "std", "std over classes",
    "n", "low", "high", "mean over seeds", "low over seeds", "high over seeds", "paper", "paper std",
    "paper dataset", "note",
)  # fmt: skip


def standings_csv(standings: Standings) -> str:
    """Tidy: one line per table, series, what is forgotten (``all`` for all) and measure.

    Percent, percentage points, ×100 and seconds as the column ``unit`` says; ``low`` and ``high`` are the 95 %
    Student interval. Text cannot be taken for a formula. Notes on the whole come last, a line each with the role
    ``note`` and nothing but the last column.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADS)
    for table in standings.tables:
        for row in table.rows:
            writer.writerows([*line, ""] for line in _csv_lines(table, row))
    for note in standings.notes:
        writer.writerow(
            ["note" if column == "role" else "" for column in CSV_HEADS[:-1]] + [spreadsheet_text(note)]
        )
    return text.getvalue()


def _csv_lines(table: Table, row: Series) -> Iterator[list[str | float | int | None]]:
    texts = [
        spreadsheet_text(part) for part in (table.problem, table.task, table.protocol, row.name, row.role)
    ]
    dataset = f"{table.dataset} (context)" if table.context else table.dataset or ""
    for measure in MEASURES:
        m = row.measures[measure]
        if m is not None:
            values = [m.over_seeds.mean, m.over_seeds.low, m.over_seeds.high]
            paper = table.paper(row, measure)
            yield [*texts, "all", measure, unit(measure), *_csv_estimate(measure, m.over_sets, m.std_forget),
                   *(scaled(measure, v) for v in values), *_csv_paper(measure, paper, dataset)]  # fmt: skip
    for forget, cells in row.classes.items() if len(row.classes) > 1 else ():
        for measure, cell in cells.items():
            if cell is not None:
                paper = table.paper(row, measure, forget)
                yield [*texts, spreadsheet_text(forget), measure, unit(measure), *_csv_estimate(measure, cell, None),
                       None, None, None, *_csv_paper(measure, paper, dataset)]  # fmt: skip


def _csv_estimate(measure: str, value: Estimate, classes: float | None) -> list[float | int | None]:
    mean, std, low, high = (scaled(measure, v) for v in (value.mean, value.std, value.low, value.high))
    return [mean, std, scaled(measure, classes), value.n, low, high]


def _csv_paper(measure: str, value: PaperValue | None, dataset: str) -> list[str | float | None]:
    if value is None:
        return [None, None, ""]
    return [scaled(measure, value.mean), scaled(measure, value.std), dataset]


def standings_json(standings: Standings) -> str:
    """Everything, fractions and seconds, under the schema ``gradpivot.standings/1``."""
    return json.dumps(standings.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def standings_console(standings: Standings) -> Group:
    """All tables for the terminal, 80 columns wide, with who leads and what is missing."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(note, style="yellow") for note in standings.notes]
    for table in standings.tables:
        parts += [_console_table(table), Text()]
        parts += [Text(text) for text in sentences(table)] + [Text()]
        if table.dataset:
            parts += [_console_paper(table), Text()]
        parts += [Text(note, style="yellow") for note in table.notes]
    return Group(*parts)


_CONSOLE = ("ra", "ua", "ta", "mia", "delta", "hypervolume", "hypervolume_without_mia", "hypervolume_svc")


def _console_table(table: Table) -> Any:
    from rich.text import Text

    styles = {"best": "bold", "second": "underline"}
    lines: list[list[str | Text]] = []
    marks = {measure: _marks(table, measure) for measure in JUDGED}
    for row in table.rows:
        line: list[str | Text] = [row.name]
        for m in _CONSOLE:
            mark = marks.get(m, {}).get(row.name, "") if row.role == "run" else ""
            line.append(Text(_mean(m, row.measures[m]), style=styles.get(mark, "")))
        lines.append([*line, _mean("seconds", row.measures["seconds"]), str(row.diverged)])
    heads = [
        "Method",
        *(head(m, table.kind).replace("→ retrained", "→") for m in _CONSOLE),
        "Time ↓ (s)",
        "Diverged",
    ]
    note = f"Means over {len(table.places)} sets (class, seed); the scores are those of each set's run nearest to " \
        "the retrained model. ✗ = diverged runs, which count as zeros."  # fmt: skip
    return rich_table(table.title, note, heads, lines)


def _console_paper(table: Table) -> Any:
    heads = ["Method"]
    for measure in ("delta_svc", "hypervolume_svc"):
        heads += [NAMES[measure], "paper"]
    lines = [
        [row.name, *(text for m in ("delta_svc", "hypervolume_svc")
                     for text in (spread(m, row.measures[m]), spread(m, table.paper(row, m))))]
        for row in table.rows if row.role != "original"
    ]  # fmt: skip
    return rich_table(
        f"Beside the {paper_title(table)}", "Δ and H with the SVC's MIA, as the paper's.", heads, lines
    )


def _mean(measure: str, value: Measure | None) -> str:
    return number(scaled(measure, value.over_sets.mean if value else None))
