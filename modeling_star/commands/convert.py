"""
Make a BiG-Transformer of a BERT: some of its layers, with attention to a window and to [CLS].

    modeling-star convert bert-base-uncased outputs/big --layers 0 3 6 --radius 4
    modeling-star classify --model_name_or_path outputs/big --learning_rate 5e-5 --train_file train.csv \\
        --validation_file dev.csv --output_dir outputs/classifier

The folder holds the model, with the head of a masked language model where the BERT has one, its code, and the BERT's
tokenizer (docs/from_bert.md).
"""

import argparse
from pathlib import Path


def main() -> None:
    """Read the arguments, convert, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bert", metavar="NAME", help="a BERT: a Hub name or a folder")
    parser.add_argument("output_dir", type=Path, metavar="OUTPUT", help="new or empty folder")
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 3], help="layers that are taken (default: 0 3)")
    parser.add_argument("--radius", type=int, default=4, help="neighbours on either side (default: 4)")
    parser.add_argument("--lexicon", metavar="FILE", help="file with one word per line, jieba, or whole_word")
    arguments = parser.parse_args()

    from transformers import AutoConfig, AutoTokenizer

    from ..loading import check_whole
    from ..models.configuration_big import BigTransformerConfig
    from ..models.modeling_big import BigTransformerForMaskedLM, BigTransformerModel
    from ..runs.cli_errors import as_user_error, command_messages
    from ..runs.output_folder import check_new
    from ..training.build import check_lexicon, read_lexicon
    from ..training.checkpoints import seal_model
    from ..training.named_models import loading

    with command_messages("modeling-star convert", arguments.output_dir):
        check_new(arguments.output_dir)
        check_lexicon(arguments.lexicon)
        with as_user_error(), loading("NAME", arguments.bert):
            architectures = AutoConfig.from_pretrained(arguments.bert, trust_remote_code=False).architectures or []
            has_head = not {"BertForMaskedLM", "BertForPreTraining"}.isdisjoint(architectures)
            tokenizer = AutoTokenizer.from_pretrained(arguments.bert)
            lexicon = None
            if arguments.lexicon is not None:
                lexicon = read_lexicon(arguments.lexicon, tokenizer, BigTransformerConfig.max_word_length)
            model = (BigTransformerForMaskedLM if has_head else BigTransformerModel).from_bert(
                arguments.bert, arguments.layers, arguments.radius, lexicon
            )
        check_whole(arguments.bert, model, ())
        model.save_pretrained(arguments.output_dir)
        tokenizer.save_pretrained(arguments.output_dir)
        seal_model(arguments.output_dir)
    print(f"{type(model).__name__} with {model.num_parameters():,} parameters written to {arguments.output_dir}")
