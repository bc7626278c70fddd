"""Tables, figures and the page of a comparison. Draws what :mod:`gradpivot.frontier` holds; no torch.

:mod:`~gradpivot.report.tables` needs only rich, :mod:`~gradpivot.report.page` nothing, and the figures need
matplotlib (the extra ``figures``), which is imported when the first one is drawn.
"""
