"""
Fine-tune a tagger: entities, parts of speech, or any label for each token.

With a recipe; the command line overrides it:
    modeling-star tag conll2003 --train_file train.jsonl.gz ...

A new star-plus on your own files, with a tokenizer trained on them (--tokenizer_kind character for Chinese;
--config_name star-base is the paper's form); it reads the spelling of words, and for entities it has a CRF:
    modeling-star tag --train_file train.conll --validation_file dev.conll --test_file test.conll \\
        --output_dir outputs/mine --num_train_epochs 10 --per_device_train_batch_size 32

A pretrained encoder, converted to a BiG-Transformer, or any saved model of transformers as it is:
    ... --pretrained bert-base-cased --learning_rate 5e-5
    ... --model_name_or_path bert-base-cased

Without the CRF that a new tagger of entities has, and without characters:
    ... --config_overrides use_crf=false,char_features=false

A small model that learns from a fine-tuned one, also on unlabelled texts (docs/distillation.md):
    ... --teacher outputs/teacher --unlabeled_file more.conll

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml -m modeling_star ner ...
"""

from typing import Any

from ..training.arguments import LabelRunArguments, TaggingArguments, TaggingModelArguments
from . import parse_run


GROUPS = (TaggingModelArguments, TaggingArguments, LabelRunArguments)


def main() -> None:
    """Read the arguments, run, report."""
    train(*parse_run(GROUPS, __doc__))


def train(model: Any, data: TaggingArguments, run: Any, training: Any) -> None:
    """Run and report, with the teacher that the arguments name, or without one."""
    from ..runs.run import run_script
    from ..tasks.distillation import DistillTaggingTask
    from ..tasks.token_classification import TaggingTask

    run_script(TaggingTask if data.teacher is None else DistillTaggingTask, model, data, run, training)
