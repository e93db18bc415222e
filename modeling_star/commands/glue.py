"""
Fine-tune a classifier: texts or pairs of texts, one label, several labels or a number; GLUE by name or any data set.

With a recipe; the command line overrides it:
    modeling-star classify mtl16 --train_file train.jsonl.gz ...

Your own files, with a tokenizer trained on them: TF-IDF (--tfidf_vote true: with a randomly initialised encoder;
--config_name star-base: an encoder in the paper's form, without TF-IDF):
    modeling-star classify --train_file train.csv --validation_file dev.csv --output_dir outputs/mine

A pretrained encoder, converted to a BiG-Transformer, and TF-IDF where that helps:
    ... --pretrained sentence-transformers/all-MiniLM-L6-v2

A GLUE task from the Hub, with any saved model of transformers as it is:
    modeling-star classify --dataset_name nyu-mll/glue --dataset_config_name mrpc --task_name mrpc \\
        --model_name_or_path bert-base-cased

A small model that learns from a fine-tuned one, also on unlabelled texts (docs/distillation.md):
    ... --teacher outputs/teacher --unlabeled_file more.txt

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml -m modeling_star glue ...
"""

from typing import Any

from ..training.arguments import ClassificationArguments, ClassificationModelArguments, LabelRunArguments
from . import parse_run


GROUPS = (ClassificationModelArguments, ClassificationArguments, LabelRunArguments)


def main() -> None:
    """Read the arguments, run, report."""
    train(*parse_run(GROUPS, __doc__))


def train(model: Any, data: ClassificationArguments, run: Any, training: Any) -> None:
    """Run and report, with the teacher that the arguments name, or without one."""
    from ..runs.run import run_script
    from ..tasks.distillation import DistillClassificationTask
    from ..tasks.sequence_classification import ClassificationTask

    task = ClassificationTask if data.teacher is None else DistillClassificationTask
    run_script(task, model, data, run, training)
