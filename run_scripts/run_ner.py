#!/usr/bin/env python
"""
Fine-tune a tagger: entities, parts of speech, any label for every token.

A recipe, with the command line overriding it:
    accelerate launch run_scripts/run_ner.py configuration/recipes/wnut17.yaml --train_file train.jsonl.gz ...

A fresh Star-Transformer on your own files (columns found or named), its tokenizer trained on them; for Chinese with
--tokenizer_kind character:
    python run_scripts/run_ner.py --train_file train.conll --validation_file dev.conll --test_file test.conll \\
        --output_dir outputs/mine --num_train_epochs 10 --per_device_train_batch_size 32

On a BERT, static or contextual; or a saved model, any of transformers:
    ... --embeddings_from bert-base-cased --embeddings_mode contextual --learning_rate 1e-4 \\
        --config_overrides hidden_size=768,num_attention_heads=12
    ... --model_name_or_path bert-base-cased

With a CRF that knows which entity labels go together, and what words are spelled like:
    ... --config_overrides use_crf=true,crf_constraints=auto,char_features=true

Several processes: accelerate launch --config_file configuration/accelerate/multi_gpu.yaml run_scripts/run_ner.py ...
"""

from modeling_star.training.arguments import RunArguments, TaggingArguments, TaggingModelArguments, parse


def main() -> None:
    """Read the arguments, run, report."""
    model, data, run_arguments, training = parse((TaggingModelArguments, TaggingArguments, RunArguments), __doc__)

    from modeling_star.tasks.token_classification import TaggingTask
    from modeling_star.training.run import run_script

    run_script(TaggingTask, model, data, run_arguments, training)


if __name__ == "__main__":
    main()
