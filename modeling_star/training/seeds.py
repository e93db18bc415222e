"""Several seeds of one call: which arguments they have to share, and what is to be done for each."""

import json
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from .data_files import DataError
from .output_folder import ARGUMENTS, check_output_dir, check_several_runs


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
        DataError: a seed is named twice, or something is asked for that only a single run can do.
    """
    if len(set(seeds)) < len(seeds):
        raise DataError(f"--seeds {' '.join(map(str, seeds))} names a seed twice: write each once.")
    if training.push_to_hub:
        raise DataError("--push_to_hub uploads one model: name one seed, --seed 1, or leave --push_to_hub away.")
    if training.resume_from_checkpoint and training.resume_from_checkpoint.lower() not in ("last", "true"):
        raise DataError("With several --seeds write --resume_from_checkpoint last: each goes on from its own.")


def asked_for(model_args: Any, data_args: Any, run_args: Any, training: TrainingArguments) -> dict[str, Any]:
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
        told: what `asked_for` tells, the same for all seeds.

    Raises:
        DataError: see `check_output_dir`, `check_several_runs`.
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


__all__ = ["DECISIVE", "asked_for", "check_several_seeds", "plan_seeds"]
