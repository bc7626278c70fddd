"""Options of 'gradpivot audit'."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gradpivot.cli.options.fields import COMPUTING, HOW_MUCH, INPUTS, MODEL, named
from gradpivot.cli.options.running import ProblemRun
from gradpivot.cli.options.sweeps import ENGINES

__all__ = ["AuditOptions"]


@dataclass(frozen=True, kw_only=True)
class AuditOptions(ProblemRun):
    """Attack a model that claims to have forgotten.

    Compares it with a retrained and the original model. Writes audit.json and audit.html. Shadow models are kept in
    the store; run the command again to resume.

    example: gradpivot audit runs/first

    example: gradpivot audit runs/first --level full --shadows 32

    example: gradpivot audit --problem my_module:my_problem --weights new.pt --original old.pt --split split.json
    """

    folder: tyro.conf.Positional[Path | None] = field(default=None, metadata=named("[RUN]"))
    """A folder from 'gradpivot unlearn'. For other models give --weights and --split instead."""
    level: Literal["quick", "standard", "full"] = field(default="quick", metadata=HOW_MUCH)
    """quick: no training. standard: trains a retrained reference, fine-tunes and relearns. full: adds shadow models."""
    shadows: int = field(default=32, metadata=HOW_MUCH)
    """Number of shadow worlds at level full."""
    weights: Path | None = field(default=None, metadata=MODEL)
    """Weights of the model under audit."""
    original: Path | None = field(default=None, metadata=MODEL)
    """Weights of the model before unlearning."""
    retrained: tuple[Path, ...] = field(default=(), metadata=MODEL)
    """Weights of models trained without the forgotten data. The first is the control; by default one is trained at
    level standard and full."""
    split: Path | None = field(default=None, metadata=MODEL)
    """What was forgotten: a split.json from 'gradpivot unlearn' or ForgetSplit.save."""
    map: tuple[str, ...] = field(default=(), metadata=named("OLD=NEW …", INPUTS))
    """Rename keys of the weights files: fc=linear downsample=shortcut. aux=- drops a key."""
    images: bool | None = None
    """Show pictures of records on the page. By default only for forgotten classes: single records may be personal."""
    out: Path | None = None
    """Output folder; by default 'audit' in the run's folder, or runs/audit."""
    overwrite: bool = False
    """Replace an audit in that folder."""
    store: Path = field(default=Path("runs/shadows"), metadata=COMPUTING)
    """Folder for shadow models, shared by all audits."""
    jobs: int | None = field(default=None, metadata=COMPUTING)
    """Worker processes for shadow models; one per core by default."""
    engine: Annotated[str, tyro.conf.arg(help=ENGINES)] = field(default="local", metadata=COMPUTING)
