"""The checkpoints of a run: which of them are whole, and the manifests that say so."""

import logging
import os
import shutil
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..errors import UserError
from ..files import MANIFEST, MODEL_FILES, find_change, write_manifest


logger = logging.getLogger(__name__)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint in a folder."""
    return next(whole_checkpoints(folder), None)


def remove_checkpoints(folder: Path) -> None:
    """
    Remove the checkpoints of a run that is finished. The newest loses its state first, and is no whole checkpoint from
    then on: whatever a kill leaves, a run that resumes from it has the best checkpoint that it knows of.
    """
    paths = _by_step(folder)
    for path in paths:
        (path / "trainer_state.json").unlink(missing_ok=True)
    for path in paths:
        shutil.rmtree(path)


def _by_step(folder: Path) -> list[Path]:
    """The folders of checkpoints, newest first."""
    steps = {path: path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*")}
    return sorted((path for path in steps if steps[path].isdigit()), key=lambda path: -int(steps[path]))


def whole_checkpoints(folder: Path) -> Iterator[Path]:
    """
    The checkpoints in a folder, newest first, without any that was being written when a run was killed, or was damaged
    later; a warning names each of those. transformers' `get_last_checkpoint` would return them.
    """
    for path in _by_step(folder):
        if fault := find_fault(path):
            logger.warning(f"{path} is skipped: {fault}.")
        else:
            yield path


def find_fault(checkpoint: Path) -> str | None:
    """
    The reason why a run cannot resume from a checkpoint, or `None`: it is not whole, or the best one so far is not,
    which the run would end with.
    """
    if fault := _find_damage(checkpoint):
        return fault
    best = TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).best_model_checkpoint
    best = checkpoint.parent / Path(best or checkpoint).name
    if best.name != checkpoint.name and best.is_dir() and (fault := _find_damage(best)):
        return f"in {best.name}, the best one so far, {fault}"
    return None


def _find_damage(checkpoint: Path) -> str | None:
    """The reason why a checkpoint is not as its manifest says, which is written last, or `None`."""
    if not (checkpoint / MANIFEST).is_file():
        return f"{MANIFEST} is missing"
    try:
        return find_change(checkpoint)
    except UserError as error:
        return str(error)


class ManifestWriter(TrainerCallback):
    """Write the manifest of each checkpoint, after all processes have written their files."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()
        if args.should_save:
            write_manifest(Path(args.output_dir) / f"checkpoint-{state.global_step}")


def seal_model(folder: Path) -> None:
    """Finish the folder of a saved model: its weights get the permissions of other files, and it gets a manifest."""
    follow_umask(folder)
    write_manifest(folder, MODEL_FILES)


def follow_umask(folder: Path) -> None:
    """Give weights, which safetensors writes for their owner alone, the permissions of other files."""
    mask = os.umask(0o077)  # it is read by setting it
    os.umask(mask)
    for path in folder.glob("*.safetensors"):
        path.chmod(0o666 & ~mask)


def differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The differences between two sets of arguments or configuration fields, in words; or nothing."""
    names = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    shorten = partial(textwrap.shorten, width=100, placeholder=" ...")  # the names of all labels, for one
    return "; ".join(f"{name} {shorten(str(before.get(name)))}, now {shorten(str(now.get(name)))}" for name in names)
