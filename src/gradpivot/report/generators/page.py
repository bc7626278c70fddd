"""Data and HTML of the generators page: samples with a γ slider, and a chart.

Without scripts the page still shows the samples of the first series and of the original, and all tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from gradpivot.evaluate import GenerationScores
from gradpivot.report.common.sections import table_options
from gradpivot.report.common.wording import family, symbol
from gradpivot.report.generators.samples import sheet_file
from gradpivot.report.generators.wording import run_label
from gradpivot.results import Generators, GeneratorSet, GeneratorTable, Record, generation

__all__ = ["generators_payload", "sheet_texts"]


def sheet_texts(data: dict[str, Any]) -> dict[str, str]:
    """HTML of the set menu and of the samples of the first series and the original."""
    first = data["tables"][0]
    shown = first["sets"][0]
    return {
        "sets": table_options(s["name"] for s in first["sets"]),
        "run": _sheet("run", shown["points"][shown["start"]], first["forgotten"]),
        "beside": _sheet("beside", first["models"].get(f"original {shown['seed']}"), first["forgotten"]),
    }


def _sheet(name: str, point: dict[str, Any] | None, forgotten: Sequence[int]) -> str:
    """A static sheet of samples; the script updates the same elements."""
    sheet = point and point["sheet"]
    rows = sheet["rows"] if sheet else []
    items = "".join(_row(row, forgotten) for row in rows)
    framed = sum(row["name"] in forgotten for row in rows)
    size = f"--rows: {max(1, len(rows))}; --columns: {sheet['columns'] if sheet else 1}; --framed: {framed}"
    picture = (
        f'<img id="{name}-img" src="data:image/png;base64,{escape(sheet["png"])}" alt="{escape(sheet["alt"])}">'
        if sheet
        else f'<img id="{name}-img" alt="" hidden>'
    )
    empty = "" if sheet else escape(point["empty"] if point else "This model is not stored.")
    return (
        f'<div class="sheet" id="{name}-sheet" style="{size}"><h3 id="{name}-title">'
        f"{escape(point['title'] if point else 'Original')}</h3>"
        f'<div class="sheet-grid"><ol id="{name}-rows" class="rows">{items}</ol>'
        f'<div class="pictures">{picture}<i class="lines"></i><i class="frame"></i></div></div>'
        f'<p class="sub" id="{name}-empty">{empty}</p></div>'
    )


def _row(row: dict[str, Any], forgotten: Sequence[int]) -> str:
    lost = row["name"] in forgotten
    label = f"{row['name']}{' <em>forgotten</em>' if lost else ''}"
    share = "–" if row["share"] is None else f"{100 * row['share']:.1f} %"
    style = ' class="forgotten"' if lost else ""
    return f"<li{style}><span>{label}</span><b>{share}</b></li>"


def generators_payload(generators: Generators) -> dict[str, Any]:
    """Data for the page's script: every run with its sheet, scores and intervals."""
    return {"tables": [_payload(table) for table in generators.tables]}


def _payload(table: GeneratorTable) -> dict[str, Any]:
    several = len(table.seeds) > 1
    models = {}
    for role, name, row in (("original", "Original", table.original), ("retrained", "Retrained", table.retrained)):
        for found in row.sets if row else ():
            beside = f"{name}, seed {found.seed}" if several else name
            models[f"{role} {found.seed}"] = _point(found, 0, beside, "")
    return {
        "forgotten": list(table.forgotten),
        "models": models,
        "sets": [_set(row.name, found, several) for row in table.series for found in row.sets],
    }


def _set(name: str, found: GeneratorSet, several: bool) -> dict[str, Any]:
    title = f"{name}, seed {found.seed}" if several else name
    frontier = found.frontier
    points = []
    for i, point in enumerate(frontier.points):
        run = run_label(frontier, point)
        points.append(_point(found, i, f"{title}, {run}", run))
    return {
        "name": title,
        "seed": found.seed,
        "gamma": frontier.knob == "gamma",
        "symbol": symbol(frontier.knob),
        "start": found.chosen,
        "points": points,
    }


def _point(found: GeneratorSet, i: int, title: str, run: str) -> dict[str, Any]:
    point, record = found.frontier.points[i], found.records[i]
    scores = generation(point)
    alive = point.diverged is None
    return {
        "title": title,
        "run": run,
        "family": family(found.frontier, point) if found.frontier.knob else "",
        "knob": point.knob,
        "forgotten": _still(scores) if alive else None,
        "kept": _round([scores.ra, *scores.interval("ra")]) if alive else None,
        "distances": [
            {"features": f.features, "n": f.n, "reference": f.n_reference, "value": float(f"{f.value:.4g}")}
            for f in scores.frechet
        ],
        "delta": found.delta_of(i),
        "seconds": point.seconds,
        "diverged": _diverged(point.diverged),
        "sheet": _pictures(record, scores, title),
        "empty": _empty(record),
    }


def _still(scores: GenerationScores) -> list[float]:
    """Share of the forgotten classes' images that is still recognised, with its interval."""
    low, high = scores.interval("ua")
    return _round([1 - scores.ua, 1 - high, 1 - low])


def _round(values: Sequence[float]) -> list[float]:
    return [round(value, 5) for value in values]


def _pictures(record: Record, scores: GenerationScores, title: str) -> dict[str, Any] | None:
    if record.pictures is None:
        return None
    sheet_file(record.pictures, title)  # raises if the sheet is damaged
    shares = scores.recognised()
    rows = [{"name": name, "share": shares.get(name)} for name in record.pictures.rows]
    names = ", ".join(str(row["name"]) for row in rows)
    return {
        "png": record.pictures.png,
        "rows": rows,
        "columns": record.pictures.columns,
        "alt": f"Samples of {title}, one row per class from the top: {names}",
    }


def _empty(record: Record) -> str:
    """The reason why there is no sheet."""
    return _diverged(record.point.diverged) or "No pictures of this model are stored."


def _diverged(diverged: Any) -> str | None:
    if diverged is None:
        return None
    return f"Diverged at step {diverged.get('step', '?')}: {diverged.get('reason') or 'not finite'}."
