"""``python -m gradpivot``: the same as the ``gradpivot`` command."""

from gradpivot.cli import main

raise SystemExit(main())
