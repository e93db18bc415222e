"""The folder that a run writes to: nothing in it is overwritten, and a run that was interrupted goes on in it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from .data_files import DataError


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint in a folder."""
    return next(whole_checkpoints(folder), None)


def whole_checkpoints(folder: Path) -> Iterator[Path]:
    """The checkpoints in a folder, the newest first, without one that was being written when a run was killed."""
    steps = {path: path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*")}
    for path in sorted((p for p, step in steps.items() if step.isdigit()), key=lambda p: -int(steps[p])):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))  # what Trainer writes last
        except (OSError, ValueError):
            continue
        yield path


def check_output_dir(folder: Path, resume: str | None) -> str | None:
    """
    Make sure that a run may write here, before anything is loaded, and find what to resume from.

    Args:
        folder: the output folder; made if absent.
        resume: `last` (or `true`), a checkpoint's folder, or `None`.

    Returns:
        The checkpoint to resume from, or `None`.

    Raises:
        DataError: the folder is a file, cannot be written, holds something already, or has no such checkpoint.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"--output_dir {folder} is a file: name a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"--output_dir {folder} cannot be made ({error.strerror}): name another folder.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"--output_dir {folder} cannot be written: name another folder, or change its permissions.")
    held = sorted(path.name for path in folder.iterdir())
    if resume and resume.lower() in ("last", "true"):
        checkpoint = last_checkpoint(folder)
        if checkpoint is None and held:
            raise DataError(
                f"There is no whole checkpoint in {folder} to resume from: leave --resume_from_checkpoint away, and "
                "name another --output_dir."
            )
        return None if checkpoint is None else str(checkpoint)
    if resume:
        if not (Path(resume) / "trainer_state.json").is_file():
            raise DataError(
                f"--resume_from_checkpoint {resume} is no checkpoint's folder: write last, or such a folder."
            )
        return resume
    if held:
        raise DataError(
            f"--output_dir {folder} holds {', '.join(held[:4])}{', ...' if len(held) > 4 else ''}, and nothing is "
            "overwritten: name another folder, or go on with the run in it by --resume_from_checkpoint last"
        )
    return None


__all__ = ["check_output_dir", "last_checkpoint", "whole_checkpoints"]
