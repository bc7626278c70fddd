"""The documentation site: Sphinx, furo, MyST. No network and no machine paths; see `make docs`."""

from __future__ import annotations

import dataclasses

import docstring_parser
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gradpivot import __version__
from gradpivot.methods.registry import method_class

project = "gradpivot"
author = "The gradpivot developers"
copyright = "2026, The gradpivot developers"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Dataclass fields are described in the class docstring; listing them as members too would say everything twice.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"gradpivot {release}"
html_static_path = ["static"]
html_extra_path = ["_build/extra"]  # the report of a real audit, made by `make docs`
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
# Fonts of the reader's system only: the pages open from disk, without a network.
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#7fb2ea", "color-brand-content": "#7fb2ea"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"


class SettingsTable(SphinxDirective):
    """``{settings} cup``: the fields of a method with defaults, the paper protocol and their meaning."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        cls = method_class(self.arguments[0])
        meanings = _meanings(cls)
        rows = ["| setting | default | `paper` | meaning |", "|---|---|---|---|"]
        for field in dataclasses.fields(cls):
            printed = f"`{cls.paper[field.name]}`" if field.name in cls.paper else "same"
            rows.append(f"| `{field.name}` | `{field.default}` | {printed} | {meanings[field.name]} |")
        return self.parse_text_to_nodes("\n".join(rows))


class SpaceTable(SphinxDirective):
    """``{space} cup``: the paper's search space of a method."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        space = method_class(self.arguments[0]).paper_space
        rows = ["| setting | values |", "|---|---|"]
        rows += [f"| `{name}` | {', '.join(f'{value:g}' for value in values)} |" for name, values in space.items()]
        return self.parse_text_to_nodes("\n".join(rows))


def _meanings(cls: type) -> dict[str, str]:
    """What each field means, from the Attributes sections of the class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("gradpivot."):
            params = docstring_parser.parse(base.__doc__ or "").params
            found |= {p.arg_name: " ".join((p.description or "").split()) for p in params}
    return found


def setup(app: Sphinx) -> None:
    app.add_directive("settings", SettingsTable)
    app.add_directive("space", SpaceTable)
