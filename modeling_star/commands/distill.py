"""
Distil a fine-tuned model into a small one: the student learns the teacher's outputs on labelled and unlabelled texts.

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

from ..training.arguments import (
    ClassificationModelArguments,
    LabelRunArguments,
    TaggingModelArguments,
)
from ..training.distillation_arguments import (
    AnyDistillationArguments,
    DistillClassificationArguments,
    DistillTaggingArguments,
)
from . import parse_run


def main() -> None:
    """Read the arguments, run, report."""
    _, data, *_ = parse_run((ClassificationModelArguments, AnyDistillationArguments, LabelRunArguments), __doc__)

    from ..tasks.distillation import DistillClassificationTask, DistillTaggingTask
    from ..training.run import run_script

    # Again, with the defaults and flags of the task.
    if data.task == "tagging":
        arguments = parse_run((TaggingModelArguments, DistillTaggingArguments, LabelRunArguments), __doc__)
        run_script(DistillTaggingTask, *arguments)
    else:
        arguments = parse_run(
            (ClassificationModelArguments, DistillClassificationArguments, LabelRunArguments), __doc__
        )
        run_script(DistillClassificationTask, *arguments)
