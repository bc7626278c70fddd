"""Tables for LaTeX, in the form of the paper's Table 1; they need ``booktabs`` and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradpivot.report.common.grid import Grid, GridCell, Section

__all__ = ["latex_page", "latex_text"]

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
        _LATEX.get(c) or (c if 32 <= ord(c) < 127 or 0xC0 <= ord(c) <= 0xFF else _unprintable(c)) for c in text
    )


def _unprintable(letter: str) -> str:
    return " " if letter.isspace() else rf"\texttt{{U+{ord(letter):04X}}}"


def latex_page(name: str, notes: Sequence[str], sections: Iterable[Section]) -> str:
    """All tables, each with a label ``tab:name-1-…``; the notes stand under the main ones."""
    parts = [
        "% Made by gradpivot. In the preamble: \\usepackage{booktabs}\n"
        "% Wide tables want a table* environment or a turned page; nothing is scaled here."
    ]
    for i, section in enumerate(sections, start=1):
        for place, grid in enumerate(section.grids):
            told = (*section.short, *notes) if place == 0 else ()
            texts = (f"{section.title}. {grid.title}.", grid.caption, *told)
            parts.append(_table(grid, " ".join(filter(None, texts)), f"tab:{name}-{i}-{grid.name}"))
    return "\n\n".join(parts) + "\n"


def _table(grid: Grid, caption: str, label: str) -> str:
    columns = "l" * grid.texts + "c" * (len(grid.heads) - grid.texts)
    rows = [_line([_cell(cell) for cell in line]) for line in grid.lines]
    if 0 < grid.models < len(rows):
        rows.insert(grid.models, r"\midrule")
    return "\n".join([
        r"\begin{table}[htb]", r"\centering", r"\small", r"\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{latex_text(caption)}}}", rf"\label{{{label}}}", rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule", _line([_head(text) for text in grid.heads]), r"\midrule", *rows,
        r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ])  # fmt: skip


def _line(cells: list[str]) -> str:
    line = " & ".join(cells) + r" \\"
    # A bracket or star after the break before it would be read as that break's argument.
    return "{}" + line if line.startswith(("[", "*")) else line


def _cell(cell: GridCell) -> str:
    text = latex_text(cell.text)
    return {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.mark, text)


def _head(text: str) -> str:
    name, space, rest = text.partition(" ")
    return r"$\mathcal{H}$" + latex_text(space + rest) if name == "H" else latex_text(text)
