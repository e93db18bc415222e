"""
Pretrain an encoder by masked language modelling on running text, with documents packed into full blocks.

With a recipe; the command line overrides it:
    modeling-star mlm mlm_english --train_file articles*.txt.gz ...

A new star-plus on your own files, with a tokenizer trained on them:
    modeling-star mlm --train_file a.txt b.jsonl.gz --validation_file dev.txt --output_dir outputs/mine \\
        --tokenizer_kind wordpiece --mask_unit whole_word --num_train_epochs 10 --per_device_train_batch_size 32

Text from the Hub; or further pretraining of any saved model of transformers:
    ... --dataset_name wikimedia/wikipedia --dataset_config_name 20231101.en --max_steps 100000
    ... --model_name_or_path bert-base-cased

Fine-tune the result: modeling-star classify --model_name_or_path outputs/mine, `ner` and `qa` likewise. The batch size
counts blocks of --max_seq_length tokens. The model is evaluated and saved every 500 updates (--eval_steps,
--save_steps).

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml -m modeling_star mlm ...
"""

from typing import Any

from ..training.arguments import ModelArguments, RunArguments, TextArguments
from . import parse_run


# An epoch of pretraining may take days.
PRETRAINING_DEFAULTS: dict[str, Any] = {
    "eval_strategy": "steps",
    "eval_steps": 500,
    "save_strategy": "steps",
    "save_steps": 500,
    "include_num_input_tokens_seen": "non_padding",
}


def main() -> None:
    """Read the arguments, run, report."""
    model, data, run, training = parse_run(
        (ModelArguments, TextArguments, RunArguments), __doc__, PRETRAINING_DEFAULTS
    )

    from ..runs.run import run_script
    from ..tasks.masked_lm import PretrainingTask

    run_script(PretrainingTask, model, data, run, training)
