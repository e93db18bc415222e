"""The error that the command line prints in one line, and those that it must not disguise as one."""

import linecache
import traceback
from pathlib import Path


class UserError(ValueError):
    """Input cannot be used as asked: the message says what was given, what is allowed and what to write instead."""


def missing_package(error: ModuleNotFoundError, extras: str = "train") -> str:
    """What to install where an import failed: the extras that have the package."""
    return f'{error.name} is not installed. In the checkout of modeling-star write pip install ".[{extras}]".'


_PACKAGE = Path(__file__).resolve().parent
# Kinds that Python raises for mistakes in code. Libraries raise them for damaged files too.
_OF_CODE = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RecursionError, TypeError)


def is_bug(error: BaseException) -> bool:
    """Whether an error is one of this package's code: Python raised it in one of its lines, which is no `raise`."""
    return isinstance(error, _OF_CODE) and _origin(error) == "code"


def is_deliberate(error: BaseException) -> bool:
    """Whether a `raise` of this package raised an error, whose message is then for the user."""
    return _origin(error) == "raise"


def _origin(error: BaseException) -> str | None:
    """Where an error comes from: "raise" or other "code" of this package; `None` for other packages."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _PACKAGE not in Path(frames[-1].filename).resolve().parents:
        return None
    line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0)
    return "raise" if line.lstrip().startswith("raise ") else "code"
