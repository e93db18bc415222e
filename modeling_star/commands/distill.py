"""
Distil a fine-tuned model into a small one: `glue --teacher`, or with `--task tagging` `ner --teacher`.

Fine-tune a teacher, then distil it (docs/distillation.md):
    modeling-star classify --model_name_or_path bert-base-uncased --output_dir outputs/teacher \\
        --train_file train.csv --validation_file dev.csv --learning_rate 5e-5
    modeling-star distill distill_sst2 --teacher outputs/teacher \\
        --train_file train.csv --validation_file dev.csv --unlabeled_file more.txt --output_dir outputs/student

A tagger, without unlabelled texts:
    modeling-star distill --task tagging --teacher outputs/teacher --train_file train.conll \\
        --validation_file dev.conll --augment 4 --output_dir outputs/student

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml \\
    -m modeling_star distill ...
"""

import sys
from pathlib import Path

from . import glue, ner, parse_run, recipe_of, take_flag


def main() -> None:
    """Choose between the two commands, and run one of them."""
    task, typed = take_flag(sys.argv[1:], "--task")
    task = task or recipe_of(typed).get("task", "classification")
    script = Path(sys.argv[0]).name
    if task not in ("classification", "tagging"):
        raise SystemExit(f"{script}: --task {task} is unknown: write classification or tagging.")
    command = ner if task == "tagging" else glue
    arguments = parse_run(command.GROUPS, __doc__, typed=typed)
    if arguments[1].teacher is None:
        raise SystemExit(f"{script}: there is no teacher: write --teacher FOLDER, a model fine-tuned on these data.")
    command.train(*arguments)
