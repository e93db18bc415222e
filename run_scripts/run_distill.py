#!/usr/bin/env python
"""
Distil a fine-tuned model into a small one: the student learns the teacher's outputs on labelled and unlabelled texts.

Fine-tune a teacher, then distil it (docs/distillation.md):
    python run_scripts/run_glue.py --model_name_or_path bert-base-uncased --output_dir outputs/teacher \\
        --train_file train.csv --validation_file dev.csv --learning_rate 5e-5
    python run_scripts/run_distill.py configuration/recipes/distill_sst2.yaml --teacher outputs/teacher \\
        --train_file train.csv --validation_file dev.csv --unlabeled_file more.txt --output_dir outputs/student

A tagger, without unlabelled texts:
    python run_scripts/run_distill.py --task tagging --teacher outputs/teacher --train_file train.conll \\
        --validation_file dev.conll --augment 4 --output_dir outputs/student

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml \\
    run_scripts/run_distill.py ...
"""

from modeling_star.training.arguments import (
    ClassificationModelArguments,
    LabelRunArguments,
    TaggingModelArguments,
    parse,
)
from modeling_star.training.distillation_arguments import (
    AnyDistillationArguments,
    DistillClassificationArguments,
    DistillTaggingArguments,
)


def main() -> None:
    """Read the arguments, run, report."""
    _, data, *_ = parse((ClassificationModelArguments, AnyDistillationArguments, LabelRunArguments), __doc__)

    from modeling_star.tasks.distillation import DistillClassificationTask, DistillTaggingTask
    from modeling_star.training.run import run_script

    # Again, with the defaults and flags of the task.
    if data.task == "tagging":
        arguments = parse((TaggingModelArguments, DistillTaggingArguments, LabelRunArguments), __doc__)
        run_script(DistillTaggingTask, *arguments)
    else:
        arguments = parse((ClassificationModelArguments, DistillClassificationArguments, LabelRunArguments), __doc__)
        run_script(DistillClassificationTask, *arguments)


if __name__ == "__main__":
    main()
