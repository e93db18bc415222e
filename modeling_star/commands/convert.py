"""
Make a fine-tuned or pretrained encoder fast on a CPU and ready for long texts: tokens attend to a window and to [CLS].

    modeling-star convert distilbert-base-uncased-finetuned-sst-2-english outputs/sst2 --check reviews.csv
    modeling-star predict outputs/sst2 --file new.csv
    modeling-star convert roberta-base outputs/big --max_positions 8192 --layers 0 3 6 9 --radius 16

BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT and ELECTRA become a BiG-Transformer; ModernBERT and Ettin a
WindowModernBert. The folder holds the model with the head of the encoder (classes, tags, answers, masked tokens), its
labels, code and tokenizer. Predictions of texts of up to 129 tokens are those of the encoder, which 64 random texts
check; with other layers or a smaller radius fine-tune it (docs/convert.md).
"""

import argparse
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import UserError


def main() -> None:
    """Read the arguments, convert, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", metavar="NAME", help="a Hub name or a folder")
    parser.add_argument("output_dir", type=Path, metavar="OUTPUT", help="new or empty folder")
    parser.add_argument("--layers", type=int, nargs="+", help="layers that are taken (default: all)")
    parser.add_argument("--radius", type=int, default=128, help="neighbours on either side (default: 128)")
    parser.add_argument("--max_positions", type=int, help="longest text in tokens (default: the encoder's)")
    parser.add_argument(
        "--positions",
        choices=("repeated", "interpolated"),
        default="repeated",
        help="how a longer table of positions is filled (default: repeated)",
    )
    parser.add_argument("--lexicon", metavar="FILE", help="file with one word per line, jieba, or whole_word")
    parser.add_argument(
        "--check",
        metavar="FILE",
        help="predict the texts of a file, labelled or not, with the encoder and with what was written; print what "
        "differs, and the speed of both",
    )
    arguments = parser.parse_args()

    from ..files import check_new, no_empty_folder
    from ..runs.cli_errors import as_user_error, command_messages

    with ExitStack() as at_the_end:
        at_the_end.enter_context(command_messages("modeling-star convert", arguments.output_dir))
        with suppress(OSError):  # named by `check_new`
            at_the_end.enter_context(no_empty_folder(arguments.output_dir))
        check_new(arguments.output_dir)  # before the imports, which take seconds

        from transformers import AutoConfig, AutoTokenizer

        from ..data.prediction_inputs import read_texts
        from ..inference.conversion import compare_predictions
        from ..inference.saved_model import SavedModel
        from ..loading import check_whole, quiet_transformers
        from ..models import modeling_window_modernbert
        from ..models.convert import kept_head
        from ..models.modeling_encoder import longest_input
        from ..training.build import check_lexicon
        from ..training.checkpoints import seal_model
        from ..training.named_models import as_typed, loading

        at_the_end.enter_context(quiet_transformers(downloads=True))
        check_lexicon(arguments.lexicon)
        with as_user_error(), loading("NAME", arguments.encoder):
            config = AutoConfig.from_pretrained(arguments.encoder, trust_remote_code=False)
            tokenizer = AutoTokenizer.from_pretrained(arguments.encoder)
        saved = None if arguments.check is None else SavedModel.load(arguments.encoder)
        head = kept_head(config.architectures)
        with _as_flags(), as_user_error(), as_typed():
            task = None if saved is None else saved.task
            options = {"tags": task == "token-classification", "questions": task == "question-answering"}
            texts = [] if task is None else [text for _, text in read_texts(arguments.check, **options)]
            if config.model_type == "modernbert":
                unused = [flag for flag in ("max_positions", "lexicon") if getattr(arguments, flag) is not None]
                unused += ["positions"] * (arguments.positions != "repeated")
                if unused:
                    raise UserError(f"--{unused[0]} is given, which a ModernBERT does not need or read: omit it.")
                window_modernbert = getattr(modeling_window_modernbert, f"WindowModernBert{head}")
                model = window_modernbert.from_encoder(arguments.encoder, arguments.layers, arguments.radius)
            elif arguments.positions != "repeated" and arguments.max_positions is None:
                raise UserError("--positions interpolated fills a longer table: add --max_positions 8192")
            else:
                model = _big(arguments, head, tokenizer)
        check_whole(arguments.encoder, model, ())
        print(_checked(arguments, config, head, model))
        model.save_pretrained(arguments.output_dir)
        if arguments.max_positions is not None:
            tokenizer.model_max_length = longest_input(model.config)
        if tokenizer.is_fast:  # an encoder of sentences saves at which length its texts are cut
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
        tokenizer.save_pretrained(arguments.output_dir)
        seal_model(arguments.output_dir)
        if saved is not None:
            for line in compare_predictions(saved, str(arguments.output_dir), texts, arguments.radius):
                print(line)
    chosen = "all layers" if arguments.layers is None else f"layers {' '.join(map(str, arguments.layers))}"
    if head == "Model" and config.architectures and not config.architectures[0].endswith("Model"):
        print(f"The head of a {config.architectures[0]} is not kept: fine-tuning begins a new one.")
    print(
        f"{type(model).__name__} of {chosen}, radius {arguments.radius}, for texts of up to "
        f"{longest_input(model.config):,} tokens, {model.num_parameters():,} parameters, written to "
        f"{arguments.output_dir}"
    )


def _checked(arguments: argparse.Namespace, config: Any, head: str, model: Any) -> str:
    """A line: how far random texts differ from the encoder, or why they were not compared."""
    from ..inference.conversion import LONGEST, SHORTEST, check_random_texts
    from ..models.convert import load_encoder
    from ..models.modeling_encoder import longest_input

    changed = [name for name in ("layers", "lexicon") if getattr(arguments, name) is not None]
    changed += ["positions"] * (arguments.positions != "repeated")
    longest = min(
        LONGEST, arguments.radius + 1, longest_input(config) or LONGEST, longest_input(model.config) or LONGEST
    )
    if changed:
        return f"Not compared with the encoder, which --{changed[0]} changes: fine-tune the model."
    if longest < SHORTEST:
        return f"Not compared with the encoder: no text of {SHORTEST} tokens is covered. Fine-tune the model."
    encoder = load_encoder(arguments.encoder, config, head, {}).eval()
    return check_random_texts(arguments.encoder, encoder, model, longest)


@contextmanager
def _as_flags() -> Iterator[None]:
    """Name the flags of this command where others, or fields, are named."""
    try:
        yield
    except UserError as error:
        message = str(error).replace("max_position_embeddings=", "--max_positions ").replace("--file", "--check")
        message = re.sub(r"Name it: `--text_column_name.*", "Rename that of the texts: text", message)
        message = message.replace("window_radius=", "--radius ").replace("global_radius=", "--radius ")
        raise UserError(message) from error


def _big(arguments: argparse.Namespace, head: str, tokenizer: Any) -> Any:
    """A BiG-Transformer of an encoder whose block is BERT's."""
    from ..models import modeling_big
    from ..models.configuration_big import BigTransformerConfig
    from ..training.build import read_lexicon

    lexicon = None
    if arguments.lexicon is not None:
        lexicon = read_lexicon(arguments.lexicon, tokenizer, BigTransformerConfig.max_word_length)
    return getattr(modeling_big, f"BigTransformer{head}").from_encoder(
        arguments.encoder,
        arguments.layers,
        arguments.radius,
        lexicon,
        max_positions=arguments.max_positions,
        positions=arguments.positions,
    )
