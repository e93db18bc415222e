"""
The operating point of a tagger with a CRF: what it lists of a text, so that it finds as many entities, or errs as
rarely, as asked. That is the best path with an offset of the score of entities (`LinearChainCrf.best_paths`), or every
span above a bound of its probability: below a half these may overlap, as those of a path cannot, since the
probabilities of two readings of one word add up to 1 at most.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import UserError


logger = logging.getLogger(__name__)

_APART = 0.5


@dataclass(frozen=True)
class OperatingPoint:
    """
    Args:
        precision, recall: of entities, on validation data.
        offset: of the best path.
        bound: the least probability of the spans that are listed in place of the path's; `None`: those of the path.
    """

    precision: float
    recall: float
    offset: float = 0.0
    bound: float | None = None

    def __str__(self) -> str:
        return f"offset {self.offset:g}" if self.bound is None else f"probability {self.bound:g}"


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


def best_point(config: Any, recall: float | None = None, precision: float | None = None) -> OperatingPoint:
    """
    The point with the highest precision of those with at least a recall, or the reverse: of those without overlaps,
    or else of the others. Where none has as much, the one with the most. Of equal ones the one that changes the model
    least.

    Args:
        config: of a model; it has `operating_curve`, and with this version `bound_curve`.
    """
    wanted, other, target = ("recall", "precision", recall)
    if recall is None:
        wanted, other, target = ("precision", "recall", precision)

    def order(point: OperatingPoint) -> tuple[float, float]:
        return getattr(point, other), -abs(point.offset)

    apart = [OperatingPoint(p, r, offset=offset) for offset, p, r in config.operating_curve]
    bounds = [OperatingPoint(p, r, bound=bound) for bound, p, r in getattr(config, "bound_curve", None) or ()]
    apart += [point for point in bounds if point.bound >= _APART]
    for points in (apart, bounds):
        if enough := [point for point in points if getattr(point, wanted) >= target]:
            return max(enough, key=order)
    return max([*apart, *bounds], key=lambda point: (getattr(point, wanted), *order(point)))


def without_overlaps(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of entities of a text that overlap the most probable ones, in the order of the text."""
    kept: list[dict[str, Any]] = []
    for each in sorted(found, key=lambda each: -each["score"]):
        if all(each["end"] <= other["start"] or other["end"] <= each["start"] for other in kept):
            kept.append(each)
    return sorted(kept, key=lambda each: each["start"])


def choose_point(config: Any, recall: float | None = None, precision: float | None = None) -> OperatingPoint:
    """`best_point`, with a warning where no point has as much as asked."""
    point = best_point(config, recall, precision)
    name, target = ("recall", recall) if recall is not None else ("precision", precision)
    if getattr(point, name) < target:
        _warn_once(
            f"No operating point has a {name} of {target:g} on the validation data; the highest, with a precision of "
            f"{point.precision:.3f} and a recall of {point.recall:.3f}, is used."
        )
    return point


@cache
def _warn_once(message: str) -> None:
    # A command makes one predictor to check its options, and another one of the whole configuration.
    logger.warning(message)
