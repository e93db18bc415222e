"""The flags of masked_summation.py. This file imports nothing heavy, so that `--help` answers at once."""

from dataclasses import dataclass
from typing import Any

from modeling_star.training.arguments import flag


@dataclass
class SummationArguments:
    """the task, the systems and the stages"""

    systems: list[str] = flag(
        "star, star-no-radial and star-no-ring (variants a and b of Table 6), vanilla, bilstm, lstm, or a model type "
        "of this package.",
        ["star", "star-no-radial", "star-no-ring", "vanilla", "bilstm", "lstm"],
    )
    lengths: list[int] = flag("n, vectors of an example, several in one call.", [10, 50, 100, 200, 400, 800])
    seeds: list[int] | None = flag("Seeds of weights and batches, several in one call. None: that of --seed.")
    flagged: int = flag("k, vectors of an example that are summed.", 10)
    width: int = flag("d, numbers of a vector: the flag, and d - 1 that are summed.", 10)
    train_samples: int = flag("Examples to train on.", 10_000)
    validation_samples: int = flag("Examples of the validation split.", 10_000)
    test_samples: int = flag("Examples of the test split.", 10_000)
    draw_seed: int = flag("Seed of the data, the same for every system and seed.", 0)
    config_name: str = flag(
        "Shape of every system: a file, of which the model type is ignored.",
        "configuration/models/star-masked-summation.json",
    )
    config_overrides: str | None = flag("Fields of every system's configuration: hidden_size=200,residual=true")
    stages: list[str] = flag(
        "train: train and test what is not finished; time: time what is not timed; report: tables and figures of all "
        "that is kept.",
        ["train", "time", "report"],
    )
    repeats: int = flag("Passes of which the median time is reported.", 5)
    results: str | None = flag("File of the finished runs and times. None: results.jsonl in the output folder.")
    keep_models: bool = flag("Save the model of every run.", False)


# Differences to the other scripts: one cycle of the learning rate, and no evaluation during training, since the model
# of the last step is scored.
SUMMATION_DEFAULTS: dict[str, Any] = {
    "num_train_epochs": 40,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.3,
    "max_grad_norm": 5.0,
    "per_device_train_batch_size": 100,
    "per_device_eval_batch_size": 100,
    "eval_strategy": "no",
    "logging_steps": 100,
    "seed": 1,
}

SUMMATION_HELP = """
training:
  Every field of transformers.TrainingArguments is a flag as well (--help_all lists them). The most used:
  --output_dir DIR                     all output (default: outputs/masked_summation)
  --num_train_epochs N                 passes over the training data (default: {num_train_epochs})
  --learning_rate X                    peak of a rise and a cosine fall (default: {learning_rate:g})
  --warmup_steps X                     the rise in steps, or below 1 a fraction of all (default: {warmup_steps:g})
  --per_device_train_batch_size N      examples a process and step (default: {per_device_train_batch_size})
  --per_device_eval_batch_size N       examples tested, or timed, at once (default: {per_device_eval_batch_size})
  --seed N                             seed of a single run (default: {seed})
  --use_cpu, --bf16, --torch_compile
""".format(**SUMMATION_DEFAULTS)
