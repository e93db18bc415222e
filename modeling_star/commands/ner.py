"""
Fine-tune a tagger: entities, parts of speech, or any label for each token.

With a recipe; the command line overrides it:
    modeling-star tag wnut17 --train_file train.jsonl.gz ...

A fresh star-plus on your own files, with a tokenizer trained on them (--tokenizer_kind character for Chinese;
--config_name star-base is the paper's form); for entities it has a CRF:
    modeling-star tag --train_file train.conll --validation_file dev.conll --test_file test.conll \\
        --output_dir outputs/mine --num_train_epochs 10 --per_device_train_batch_size 32

On top of a BERT, or any saved model of transformers:
    ... --embeddings_name_or_path bert-base-cased --embeddings_mode contextual --learning_rate 1e-4 \\
        --config_overrides hidden_size=768,num_attention_heads=12
    ... --model_name_or_path bert-base-cased

Without the CRF that a fresh tagger of entities has, and with character features:
    ... --config_overrides use_crf=false,char_features=true

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml -m modeling_star ner ...
"""

from ..training.arguments import LabelRunArguments, TaggingArguments, TaggingModelArguments
from . import parse_run


def main() -> None:
    """Read the arguments, run, report."""
    model, data, run, training = parse_run((TaggingModelArguments, TaggingArguments, LabelRunArguments), __doc__)

    from ..tasks.token_classification import TaggingTask
    from ..training.run import run_script

    run_script(TaggingTask, model, data, run, training)
