"""
The operating point of a tagger: the offset of the score of entities with which it finds as many, or errs as rarely, as
asked (`LinearChainCrf.best_paths`).
"""

import logging
from collections.abc import Sequence

from ..errors import UserError


logger = logging.getLogger(__name__)

Curve = Sequence[Sequence[float]]
"""Offsets, each with the precision and the recall of entities that it has on validation data."""


def check_targets(recall: float | None, precision: float | None, flags: tuple[str, str]) -> None:
    """
    Raises:
        UserError: both are given, or one is no share.
    """
    if recall is not None and precision is not None:
        raise UserError(f"{flags[0]} and {flags[1]} are given, and one of them decides: omit the other.")
    for value, flag in zip((recall, precision), flags, strict=True):
        if value is not None and not 0 < value < 1:
            raise UserError(f"{flag} {value:g} is given: write a share above 0 and below 1, such as {flag} 0.9.")


def best_point(curve: Curve, recall: float | None = None, precision: float | None = None) -> Sequence[float]:
    """
    The point with the highest precision of those with at least a recall, or the reverse; the one with the most where
    none has as much. Of equal ones the one that changes the model least.
    """
    wanted, other, target = (2, 1, recall) if recall is not None else (1, 2, precision)
    enough = [point for point in curve if point[wanted] >= target]
    if enough:
        return max(enough, key=lambda point: (point[other], -abs(point[0])))
    return max(curve, key=lambda point: (point[wanted], point[other], -abs(point[0])))


def choose_point(curve: Curve, recall: float | None = None, precision: float | None = None) -> Sequence[float]:
    """`best_point`, with a warning where no point has as much as asked."""
    point = best_point(curve, recall, precision)
    name, target, reached = ("recall", recall, point[2]) if recall is not None else ("precision", precision, point[1])
    if reached < target:
        logger.warning(
            f"No operating point has a {name} of {target:g} on the validation data; the highest, with a precision of "
            f"{point[1]:.3f} and a recall of {point[2]:.3f}, is used. predict --min_probability 0.01 lists all spans "
            "that may be entities, overlapping ones too."
        )
    return point
