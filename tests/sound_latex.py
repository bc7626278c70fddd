"""What LaTeX of ours must be, without a LaTeX to try it."""

from __future__ import annotations

import re

_KNOWN = {
    "begin", "end", "centering", "small", "setlength", "tabcolsep", "caption", "label", "toprule", "midrule",
    "bottomrule", "textbf", "underline", "mathcal", "Delta", "gamma", "lambda", "rho", "uparrow", "downarrow",
    "times", "ldots", "textless", "textgreater", "usepackage", "textbar",
}  # fmt: skip


def assert_sound(text: str) -> None:
    """Only commands that it may use, balanced, and as many cells in every row as columns."""
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= _KNOWN
    body = re.sub(r"%.*", "", re.sub(r"\\[\\%$&#_{}]", "", text))
    assert body.count("{") == body.count("}")
    assert body.count("$") % 2 == 0
    assert text.count(r"\begin{table}") == text.count(r"\end{table}")
    assert all(c.isprintable() or c == "\n" for c in text)
    # Nothing may stand between a line's break and the rule after it.
    assert re.search(r"\\\\\n\\bottomrule", text)
    for table in re.findall(r"\\begin\{tabular\}\{(.*?)\}\n(.*?)\\end\{tabular\}", text, re.S):
        rows = [line for line in table[1].splitlines() if line.endswith(r"\\")]
        assert {re.sub(r"\\&", "", row).count("&") for row in rows} == {len(table[0]) - 1}
