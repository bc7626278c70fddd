"""``python -m gradpivot``: the same as the ``gradpivot`` command."""

import os
import sys

if __name__ == "__main__":
    # ``-m`` puts the current folder first, where a file sklearn.py would replace the package. What Python and this
    # package import before this line is searched there all the same; ``gradpivot`` and ``python -P`` never do that.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - pathlib may be a file there
        del sys.path[0]

    from gradpivot.cli import main

    raise SystemExit(main())
