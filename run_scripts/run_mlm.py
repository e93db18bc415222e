#!/usr/bin/env python
"""
Pretrain an encoder on running text: masked language modelling, documents packed into full blocks.

A recipe, with the command line overriding it:
    accelerate launch run_scripts/run_mlm.py configuration/recipes/mlm_english.yaml --train_file articles*.txt.gz ...

A fresh Star-Transformer on your own files, its tokenizer trained on them:
    python run_scripts/run_mlm.py --train_file a.txt b.jsonl.gz --validation_file dev.txt --output_dir outputs/mine \\
        --tokenizer_kind wordpiece --mask_unit whole_word --num_train_epochs 10 --per_device_train_batch_size 32

Text that is read while it is used, from files or from the Hub; or a saved model that goes on, any of transformers:
    ... --streaming --dataset_name wikimedia/wikipedia --dataset_config_name 20231101.en --max_steps 100000
    ... --model_name_or_path bert-base-cased

Fine-tune the result: run_glue.py --model_name_or_path outputs/mine, run_ner.py and run_qa.py likewise. A batch counts
blocks of --max_seq_length tokens. It is measured and saved every 500 updates (--eval_steps, --save_steps).

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml run_scripts/run_mlm.py ...
"""

from modeling_star.training.arguments import (
    PRETRAINING_DEFAULTS,
    ModelArguments,
    RepeatArguments,
    TextArguments,
    parse,
)


def main() -> None:
    """Read the arguments, run, report."""
    groups = (ModelArguments, TextArguments, RepeatArguments)
    model, data, run_arguments, training = parse(groups, __doc__, PRETRAINING_DEFAULTS)

    from modeling_star.tasks.masked_lm import PretrainingTask
    from modeling_star.training.run import run_script

    run_script(PretrainingTask, model, data, run_arguments, training)


if __name__ == "__main__":
    main()
