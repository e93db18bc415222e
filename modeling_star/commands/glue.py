"""
Fine-tune a classifier: texts or pairs of texts, one label, several labels or a number; GLUE by name or any data set.

With a recipe; the command line overrides it:
    modeling-star classify sst2 --train_file train.jsonl.gz ...

A fresh star-plus on your own files, with a tokenizer trained on them (--config_name star-base is the paper's form):
    modeling-star classify --train_file train.csv --validation_file dev.csv --output_dir outputs/mine \\
        --num_train_epochs 5 --per_device_train_batch_size 32

A GLUE task from the Hub, with any saved model of transformers:
    modeling-star classify --dataset_name nyu-mll/glue --dataset_config_name mrpc --task_name mrpc \\
        --model_name_or_path bert-base-cased

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml -m modeling_star glue ...
"""

from ..training.arguments import (
    ClassificationArguments,
    ClassificationModelArguments,
    LabelRunArguments,
)
from . import parse_run


def main() -> None:
    """Read the arguments, run, report."""
    groups = (ClassificationModelArguments, ClassificationArguments, LabelRunArguments)
    model, data, run, training = parse_run(groups, __doc__)

    from ..tasks.sequence_classification import ClassificationTask
    from ..tasks.tfidf_baseline import run_tfidf
    from ..training.run import run_script

    run_script(ClassificationTask, model, data, run, training, baselines={"tfidf": run_tfidf})
