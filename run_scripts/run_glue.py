#!/usr/bin/env python
"""
Fine-tune a classifier: texts or pairs of texts, one label, several labels or a number; GLUE by name or any data set.

With a recipe; the command line overrides it:
    accelerate launch run_scripts/run_glue.py configuration/recipes/sst2.yaml --train_file train.jsonl.gz ...

A fresh Star-Transformer on your own files, with a tokenizer trained on them; without star-plus.json the model is the
paper's:
    python run_scripts/run_glue.py --train_file train.csv --validation_file dev.csv --output_dir outputs/mine \\
        --config_name configuration/models/star-plus.json --num_train_epochs 5 --per_device_train_batch_size 32

A GLUE task from the Hub, with any saved model of transformers:
    python run_scripts/run_glue.py --dataset_name nyu-mll/glue --dataset_config_name mrpc --task_name mrpc \\
        --model_name_or_path bert-base-cased

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml run_scripts/run_glue.py ...
"""

from modeling_star.training.arguments import (
    ClassificationArguments,
    ClassificationModelArguments,
    LabelRunArguments,
    parse,
)


def main() -> None:
    """Read the arguments, run, report."""
    groups = (ClassificationModelArguments, ClassificationArguments, LabelRunArguments)
    model, data, run, training = parse(groups, __doc__)

    from modeling_star.tasks.sequence_classification import ClassificationTask
    from modeling_star.tasks.tfidf_baseline import run_tfidf
    from modeling_star.training.run import run_script

    run_script(ClassificationTask, model, data, run, training, baselines={"tfidf": run_tfidf})


if __name__ == "__main__":
    main()
