"""Greedy label placement without overlaps, in pixels. Computes positions only; draws nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

__all__ = ["Box", "Position", "clusters", "place_labels"]

Position = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""

# Diagonals first: frontiers and error bars run along the axes.
_DIRECTIONS = ((1, 1), (-1, -1), (1, -1), (-1, 1), (1, 0), (-1, 0), (0, 1), (0, -1))


def clusters(points: Sequence[Position], radius: float) -> list[list[int]]:
    """Group the indices of points within ``radius`` of the first point of a group; a group shares one label."""
    groups: list[list[int]] = []
    for i, point in enumerate(points):
        near = next((g for g in groups if math.dist(points[g[0]], point) <= radius), None)
        if near is None:
            groups.append([i])
        else:
            near.append(i)
    return groups


def place_labels(
    anchors: Sequence[Position],
    sizes: Sequence[tuple[float, float]],
    taken: Sequence[Box],
    bounds: Box,
    radii: Sequence[float] = (10, 16, 26, 40, 56),
) -> list[Position | None]:
    """Place each label near its anchor without overlapping ``taken`` or another label. O(n²).

    Args:
        anchors: The point each label belongs to.
        sizes: Width and height of each label.
        taken: Boxes to avoid, such as markers.
        bounds: The box that must contain all labels.
        radii: Distances between anchor and label to try, in order.

    Returns:
        The centre of each label, or None if there is no room for it.
    """
    occupied = list(taken)
    centres: list[Position | None] = []
    for anchor, size in zip(anchors, sizes, strict=True):
        free = (
            centre
            for centre in _candidates(anchor, size, radii)
            if _inside(box := _around(centre, *size), bounds) and not any(_overlap(box, o) for o in occupied)
        )
        centre = next(free, None)
        if centre:
            occupied.append(_around(centre, *size))
        centres.append(centre)
    return centres


def _candidates(anchor: Position, size: tuple[float, float], radii: Sequence[float]) -> Iterator[Position]:
    for radius in radii:
        for right, up in _DIRECTIONS:
            gap = radius / math.hypot(right, up)
            yield anchor[0] + right * (gap + size[0] / 2), anchor[1] + up * (gap + size[1] / 2)


def _around(centre: Position, width: float, height: float) -> Box:
    x, y = centre
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _inside(box: Box, bounds: Box) -> bool:
    return box[0] >= bounds[0] and box[1] >= bounds[1] and box[2] <= bounds[2] and box[3] <= bounds[3]


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
