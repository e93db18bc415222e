"""The error that the command line prints in one line, and those that must not be disguised as one."""

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
    """Whether Python raised an error in the code of this package, where a damaged file would be read by a library."""
    frames = traceback.extract_tb(error.__traceback__) if isinstance(error, _OF_CODE) else []
    return bool(frames) and _PACKAGE in Path(frames[-1].filename).resolve().parents
