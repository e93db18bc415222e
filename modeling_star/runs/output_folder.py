"""The output folder of a run: its lock, where it may begin or resume, and the arguments that it began with."""

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from transformers import TrainingArguments

from ..errors import UserError
from ..files import (
    ARGUMENTS,
    LOCK,
    check_empty,
    find_report,
    folder_contents,
    is_finished,
    no_empty_folder,
)
from ..training.arguments import STUDENT, DataArguments, ModelArguments, RunArguments, current_names
from ..training.checkpoints import differences, find_fault, last_checkpoint


logger = logging.getLogger(__name__)

DECISIVE = (
    *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "weight_decay", "max_grad_norm"),
    *("num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "label_smoothing_factor"),
    *("train_sampling_strategy", "data_seed", "bf16", "fp16", "metric_for_best_model", "do_train"),
    *("eval_strategy", "eval_steps", "eval_delay", "save_strategy", "save_steps", "load_best_model_at_end"),
    *("dataloader_drop_last", "neftune_noise_alpha", "average_tokens_across_devices", "bf16_full_eval"),
    "fp16_full_eval",
)
"""The TrainingArguments that decide the final weights or their scores."""


_INDECISIVE = ("seeds", "teacher_cache", "teacher_batch_size", "card_examples", "keeps_checkpoints")


@contextmanager
def lock_output_dir(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder, which is created if absent, and stays if something is in it."""
    with ExitStack() as at_the_end:
        with suppress(OSError):  # named by `folder_contents`
            at_the_end.enter_context(no_empty_folder(folder))
        folder_contents(folder)
        lock = FileLock(folder / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(f"Another run writes to --output_dir {folder}: name another folder, or wait.") from None
        try:
            yield
        finally:
            with suppress(PermissionError):  # Windows does not remove an open file
                (folder / LOCK).unlink(missing_ok=True)
            lock.release()
            for path in folder.glob("seed-*"):
                with suppress(OSError):  # of a seed with files
                    path.rmdir()


def check_output_dir(folder: Path, resume: str | None, may_restart: bool = False) -> str | None:
    """
    Make sure that a run may write to a folder, which is created if absent, and return the checkpoint to resume from,
    or `None`. `resume` is `last` (or `true`), a checkpoint's folder, or `None`; `may_restart`: `last` restarts a run
    that was killed before its first whole checkpoint.
    """
    # Arguments alone are of a call that failed before its run.
    held = [name for name in folder_contents(folder) if name != ARGUMENTS]
    newest = last_checkpoint(folder)
    if not resume:
        hint = ", or resume its run by --resume_from_checkpoint last" if newest else ""
        check_empty(folder, held, f"name another folder{hint}")
        return None
    if resume.lower() not in ("last", "true"):
        checkpoint = Path(resume)
        if fault := find_fault(checkpoint):
            raise UserError(
                f"--resume_from_checkpoint {resume} is no whole checkpoint ({fault}): write last, or another folder."
            )
        if checkpoint.resolve().parent != folder.resolve():
            check_empty(folder, held, "name a new folder")
        elif newest is not None and newest.resolve() != checkpoint.resolve():
            raise UserError(
                f"--resume_from_checkpoint {resume} would overwrite {newest.name} beside it: write last, or a new "
                "folder, --output_dir NAME"
            )
    elif newest is not None:
        checkpoint = newest
    elif held and not may_restart:
        raise UserError(
            f"There is no whole checkpoint in {folder}: omit --resume_from_checkpoint, and name another --output_dir."
        )
    else:
        logger.info(f"There is no whole checkpoint in {folder}: the run starts from the beginning.")
        return None
    if not any(checkpoint.glob("optimizer*")):
        raise UserError(
            f"{checkpoint} holds only a model (--save_only_model): train it further by --model_name_or_path "
            f"{checkpoint} and another --output_dir."
        )
    return str(checkpoint)


def run_config(
    model_args: ModelArguments, data_args: DataArguments, run_args: RunArguments, training: TrainingArguments
) -> dict[str, Any]:
    """The arguments that decide the results of a seed's run."""
    config = {**vars(model_args), **vars(data_args), **vars(run_args)}
    config |= {name: value for name, value in training.to_dict().items() if name in DECISIVE}
    config["processes"] = training.world_size
    # Without a teacher those of a student decide nothing, and earlier runs do not have them.
    for name in (*_INDECISIVE, *(STUDENT if config.get("teacher") is None else ())):
        config.pop(name, None)
    return json.loads(json.dumps(config, default=str))  # as they are read back


def changed_arguments(folder: Path, config: dict[str, Any]) -> str:
    """The differences from the arguments that the run in a folder began with; empty if these are unknown."""
    path = folder / ARGUMENTS
    if not path.is_file():
        return ""
    before = current_names(json.loads(path.read_text(encoding="utf-8")))
    # An earlier version may have had more arguments.
    return differences({name: value for name, value in before.items() if name in config}, config)


def check_several_seeds(seeds: list[int], training: TrainingArguments) -> None:
    """Raise a UserError where a seed is named twice, or an argument suits a single run only."""
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {' '.join(map(str, seeds))} names a seed twice: write each once.")
    if training.push_to_hub:
        raise UserError("--push_to_hub uploads one model: name one seed, --seed 1, or omit --push_to_hub.")
    if training.resume_from_checkpoint and training.resume_from_checkpoint.lower() not in ("last", "true"):
        raise UserError("With several --seeds write --resume_from_checkpoint last: each resumes from its checkpoint.")


def plan_seeds(
    folders: list[Path], training: TrainingArguments, config: dict[str, Any]
) -> list[tuple[bool, str | None]]:
    """Find out for the folder of each seed whether its run is finished, and the checkpoint to resume from."""
    parent, resume = Path(training.output_dir), training.resume_from_checkpoint
    if len(folders) == 1:
        if (resume or "").lower() in ("last", "true") and is_finished(parent) and last_checkpoint(parent) is None:
            _check_same(parent, {**config, "seed": training.seed})
            return [(True, None)]
        return [(False, check_output_dir(folders[0], resume))]
    held = folder_contents(parent)
    has_runs = any(name.startswith("seed-") for name in held)
    if not has_runs:  # perhaps the arguments of a call that failed before its first run
        check_empty(parent, [name for name in held if name != ARGUMENTS], "name a new folder for several seeds")
    elif not resume:
        check_empty(parent, held, "name another folder, or resume its runs by --resume_from_checkpoint last")
    elif changes := changed_arguments(parent, config):
        raise UserError(f"The seeds in {parent} have other arguments ({changes}): restore them, or name a new folder.")
    # A seed that was killed before its first whole checkpoint must not keep the others from resuming.
    may_restart = (parent / ARGUMENTS).is_file()
    finished = [find_report(folder, "all_results.json").is_file() for folder in folders]
    return [
        (done, None if done else check_output_dir(folder, resume, may_restart))
        for folder, done in zip(folders, finished, strict=True)
    ]


def _check_same(folder: Path, config: dict[str, Any]) -> None:
    """Raise a UserError where a finished run without checkpoints had other arguments, such as fewer epochs."""
    if changes := changed_arguments(folder, config):
        raise UserError(
            f"The run in {folder} is finished and its checkpoints are removed, and the arguments differ ({changes}): "
            f"name another --output_dir; to train its model further, add --model_name_or_path {folder}. With "
            "--save_total_limit 1 a run keeps a checkpoint to resume from."
        )
