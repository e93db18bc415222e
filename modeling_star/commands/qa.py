"""
Fine-tune a model for extractive question answering: the span of a context that answers a question, or no answer.

With a recipe; the command line overrides it:
    modeling-star qa drcd --train_file train.jsonl.gz ...

A new star-plus on your own files, in SQuAD's json or with one question per line; it reads contexts of any
length in one window:
    modeling-star qa --train_file train.json --validation_file dev.json --output_dir outputs/mine \\
        --config_overrides position_embedding_type=ring --num_train_epochs 5

SQuAD 2.0 from the Hub, with any saved model of transformers:
    modeling-star qa --dataset_name rajpurkar/squad_v2 --version_2_with_negative \\
        --model_name_or_path bert-base-cased --max_seq_length 384

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml -m modeling_star qa ...
"""

from ..training.arguments import ModelArguments, ReadingArguments, RunArguments
from . import parse_run


def main() -> None:
    """Read the arguments, run, report."""
    model, data, run, training = parse_run((ModelArguments, ReadingArguments, RunArguments), __doc__)

    from ..runs.run import run_script
    from ..tasks.question_answering import ReadingTask

    run_script(ReadingTask, model, data, run, training)
