#!/usr/bin/env python
"""
Pretrain an encoder by masked language modelling on running text, with documents packed into full blocks.

With a recipe; the command line overrides it:
    accelerate launch run_scripts/run_mlm.py configuration/recipes/mlm_english.yaml --train_file articles*.txt.gz ...

A fresh Star-Transformer on your own files, with a tokenizer trained on them:
    python run_scripts/run_mlm.py --train_file a.txt b.jsonl.gz --validation_file dev.txt --output_dir outputs/mine \\
        --tokenizer_kind wordpiece --mask_unit whole_word --num_train_epochs 10 --per_device_train_batch_size 32

Streamed text from files or the Hub; or further pretraining of any saved model of transformers:
    ... --streaming --dataset_name wikimedia/wikipedia --dataset_config_name 20231101.en --max_steps 100000
    ... --model_name_or_path bert-base-cased

Or learn the hidden states of a BERT, for a smaller model with its tokenizer (docs/distillation.md):
    ... --teacher bert-base-uncased --train_file articles.txt.gz --validation_file dev.txt

Fine-tune the result: run_glue.py --model_name_or_path outputs/mine, run_ner.py and run_qa.py likewise. The batch size
counts blocks of --max_seq_length tokens. The model is evaluated and saved every 500 updates (--eval_steps,
--save_steps).

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml run_scripts/run_mlm.py ...
"""

from modeling_star.training.arguments import PRETRAINING_DEFAULTS, ModelArguments, RunArguments, TextArguments, parse


def main() -> None:
    """Read the arguments, run, report."""
    model, data, run, training = parse((ModelArguments, TextArguments, RunArguments), __doc__, PRETRAINING_DEFAULTS)

    from modeling_star.tasks.masked_lm import PretrainingTask
    from modeling_star.tasks.text_distillation import TextDistillationTask
    from modeling_star.training.run import run_script

    task = PretrainingTask if data.teacher is None else TextDistillationTask
    run_script(task, model, data, run, training)


if __name__ == "__main__":
    main()
