"""Several seeds of one call: which arguments they have to share, and what is to be done for each."""

import json
import logging
import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from transformers import TrainingArguments

from ..errors import UserError


logger = logging.getLogger(__name__)


# What decides what a run, or each seed of a call, comes to.
ARGUMENTS = "arguments.json"
# There as long as a run is at the folder.
LOCK = "running.lock"


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint in a folder."""
    return next(whole_checkpoints(folder), None)


def whole_checkpoints(folder: Path) -> Iterator[Path]:
    """The checkpoints in a folder, the newest first, without one that was being written when a run was killed."""
    named = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    for path in sorted(named, key=_step, reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))  # what Trainer writes last
        except (OSError, ValueError):
            continue
        yield path


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


@contextmanager
def lock_output_dir(folder: Path) -> Iterator[None]:
    """
    Within it no other run begins in a folder, or goes on there: both would write the same checkpoints.

    Args:
        folder: made if absent.

    Raises:
        UserError: another run is at it, or it cannot be written.
    """
    _held_by(folder)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"Another run is at --output_dir {folder}, and both would write the same files: name another folder, or "
            "wait until it has ended."
        ) from None
    try:
        yield
    finally:
        with suppress(PermissionError):  # Windows removes no open file: there an empty one stays
            (folder / LOCK).unlink(missing_ok=True)
        lock.release()


def check_output_dir(folder: Path, resume: str | None, may_begin_anew: bool = False) -> str | None:
    """
    Make sure that a run may write here, before anything is loaded, and find what to resume from.

    Args:
        folder: the output folder; made if absent.
        resume: `last` (or `true`), a checkpoint's folder, or `None`.
        may_begin_anew: whether `last` begins anew where the run was killed without a whole checkpoint; only where what
            the folder holds is known to be of the same arguments.

    Returns:
        The checkpoint to resume from, or `None`.

    Raises:
        UserError: the folder is a file, cannot be written, holds another run or newer checkpoints, or has no such
            checkpoint.
    """
    held = [name for name in _held_by(folder) if name != ARGUMENTS]  # alone, of a call that failed before its run
    if resume and resume.lower() in ("last", "true"):
        checkpoint = last_checkpoint(folder)
        if checkpoint is None and held and may_begin_anew:
            logger.info(f"There is no whole checkpoint in {folder}: its run begins anew.")
        elif checkpoint is None and held:
            raise UserError(
                f"There is no whole checkpoint in {folder} to resume from: leave --resume_from_checkpoint away, and "
                "name another --output_dir."
            )
        elif checkpoint is None:
            logger.info(f"There is nothing in {folder} to go on with: its run begins.")
        if checkpoint is not None:
            _check_goes_on(checkpoint)
        return None if checkpoint is None else str(checkpoint)
    if resume:
        if not (Path(resume) / "trainer_state.json").is_file():
            raise UserError(
                f"--resume_from_checkpoint {resume} is no checkpoint's folder: write last, or such a folder."
            )
        _check_goes_on(Path(resume))
        newest = last_checkpoint(folder)
        if Path(resume).resolve().parent != folder.resolve():
            _check_empty(folder, held, "name a new folder")
        elif newest is not None and newest.resolve() != Path(resume).resolve():
            raise UserError(
                f"--resume_from_checkpoint {resume} would overwrite {newest.name}, which lies beside it: write last, "
                "or go on from there in a new folder, --output_dir NAME"
            )
        return resume
    goes_on = ", or go on with the run in it by --resume_from_checkpoint last" if last_checkpoint(folder) else ""
    _check_empty(folder, held, f"name another folder{goes_on}")
    return None


def _check_goes_on(checkpoint: Path) -> None:
    """
    Raises:
        UserError: a checkpoint holds a model alone: optimizer and learning rate would silently begin anew.
    """
    if not (checkpoint / "scheduler.pt").is_file():
        raise UserError(
            f"{checkpoint} holds the model alone (--save_only_model), and a run cannot go on where it was: train it "
            f"further by --model_name_or_path {checkpoint} and another --output_dir."
        )


def check_several_runs(folder: Path, told: dict[str, Any], resume: str | None) -> None:
    """
    Make sure that several runs may begin in a folder, or go on there, where what it holds is of the same arguments.

    Args:
        folder: what the runs' folders lie in; made if absent.
        told: the arguments that all runs share, which are kept in ARGUMENTS.
        resume: `last`, or `None`.

    Raises:
        UserError: the folder cannot be written, holds something else, or runs of other arguments.
    """
    held = _held_by(folder)
    if not any(name.startswith("seed-") for name in held):
        others = [name for name in held if name != ARGUMENTS]  # of a call that failed before its first run
        _check_empty(folder, others, "name a new folder for several seeds")
        return
    if not resume:
        _check_empty(
            folder, held, "name another folder, or go on with the runs in it by --resume_from_checkpoint last"
        )
    kept = folder / ARGUMENTS
    if kept.is_file():
        other = differences(json.loads(kept.read_text(encoding="utf-8")), told)
        if other:
            raise UserError(
                f"The seeds in {folder} were run with other arguments ({other}), and a mean over both says nothing: "
                "name another --output_dir, or write them as they were."
            )


def warn_of_other_arguments(folder: Path, told: dict[str, Any]) -> None:
    """Tell what is given otherwise than when the run in a folder was begun, as more epochs may well be."""
    kept = folder / ARGUMENTS
    other = differences(json.loads(kept.read_text(encoding="utf-8")), told) if kept.is_file() else ""
    if other:
        logger.warning(f"The run in {folder} was begun with other arguments, and goes on with those of now: {other}")


def differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What differs between the arguments, or fields, that something was made with and others, in words; or nothing."""
    names = sorted(name for name in {**before, **now} if before.get(name) != now.get(name))
    shorten = partial(textwrap.shorten, width=100, placeholder=" ...")  # the names of all labels, say
    return "; ".join(f"{name} {shorten(str(before.get(name)))}, now {shorten(str(now.get(name)))}" for name in names)


def check_new(folder: Path) -> None:
    """
    Make sure that results may be written to a folder, before hours are spent on them.

    Args:
        folder: made if absent.

    Raises:
        UserError: it is a file, cannot be written, or holds something.
    """
    _check_empty(folder, _held_by(folder), "name a new folder")


def _held_by(folder: Path) -> list[str]:
    """
    What is in a folder, but for empty folders; it is made if absent.

    Raises:
        UserError: it is a file, or cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output_dir {folder} is a file: name a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output_dir {folder} cannot be made ({error.strerror}): name another folder.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"--output_dir {folder} cannot be written: name another folder, or change its permissions.")
    found = (path for path in folder.iterdir() if not path.is_dir() or any(path.iterdir()))
    return sorted(path.name for path in found if path.name != LOCK)


def _check_empty(folder: Path, held: list[str], instead: str) -> None:
    """
    Raises:
        UserError: there is something in the folder.
    """
    if held:
        raise UserError(
            f"--output_dir {folder} holds {', '.join(held[:4])}{', ...' if len(held) > 4 else ''}, and nothing is "
            f"overwritten: {instead}"
        )


DECISIVE = (
    *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "weight_decay", "max_grad_norm"),
    *("num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "label_smoothing_factor"),
    *("train_sampling_strategy", "data_seed", "bf16", "fp16", "metric_for_best_model", "do_train"),
    *("eval_strategy", "eval_steps", "eval_delay", "save_strategy", "save_steps", "load_best_model_at_end"),
    *("dataloader_drop_last", "neftune_noise_alpha", "average_tokens_across_devices", "bf16_full_eval"),
    *("fp16_full_eval", "predict_with_generate", "generation_num_beams", "generation_max_length"),
)
"""Of TrainingArguments, what decides which weights a run ends with, or what they are scored with."""

# Of the script's own arguments, what leaves the weights and the scores as they are.
_INDECISIVE = ("seeds", "token", "cache_dir", "preprocessing_num_workers", "overwrite_cache")


def check_several_seeds(seeds: list[int], training: TrainingArguments) -> None:
    """
    Raises:
        UserError: a seed is named twice, or something is asked for that only a single run can do.
    """
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {' '.join(map(str, seeds))} names a seed twice: write each once.")
    if training.push_to_hub:
        raise UserError("--push_to_hub uploads one model: name one seed, --seed 1, or leave --push_to_hub away.")
    if training.resume_from_checkpoint and training.resume_from_checkpoint.lower() not in ("last", "true"):
        raise UserError("With several --seeds write --resume_from_checkpoint last: each goes on from its own.")


def run_config(model_args: Any, data_args: Any, run_args: Any, training: TrainingArguments) -> dict[str, Any]:
    """The arguments that decide what a seed's run comes to."""
    given = {**vars(model_args), **vars(data_args), **vars(run_args)}
    given |= {name: value for name, value in training.to_dict().items() if name in DECISIVE}
    given["processes"] = training.world_size
    # As they are read back.
    return json.loads(
        json.dumps({name: value for name, value in given.items() if name not in _INDECISIVE}, default=str)
    )


def plan_seeds(
    folders: list[Path], training: TrainingArguments, told: dict[str, Any]
) -> list[tuple[bool, str | None]]:
    """
    For the folder of each seed, whether the run in it is finished, and the checkpoint that it goes on from.

    Args:
        folders: one for each seed.
        training: with the folder that they lie in.
        told: what `run_config` tells, the same for all seeds.

    Raises:
        UserError: see `check_output_dir`, `check_several_runs`.
    """
    resume = training.resume_from_checkpoint
    if len(folders) == 1:
        return [(False, check_output_dir(folders[0], resume))]
    together = Path(training.output_dir)
    check_several_runs(together, told, resume)
    # A seed that was killed before its first whole checkpoint must not keep the finished ones from being gone on with.
    same_arguments = (together / ARGUMENTS).is_file()
    finished = [(folder / "all_results.json").is_file() for folder in folders]
    return [
        (done, None if done else check_output_dir(folder, resume, may_begin_anew=same_arguments))
        for folder, done in zip(folders, finished, strict=True)
    ]


__all__ = [
    "ARGUMENTS",
    "DECISIVE",
    "check_new",
    "check_output_dir",
    "check_several_runs",
    "check_several_seeds",
    "differences",
    "last_checkpoint",
    "lock_output_dir",
    "plan_seeds",
    "run_config",
    "warn_of_other_arguments",
    "whole_checkpoints",
]
