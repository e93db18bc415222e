"""
Export a trained model to ONNX Runtime, which needs neither PyTorch nor this package.

    modeling-star export outputs/reviews --format onnx --int8 --output_dir outputs/reviews-onnx
    modeling-star export outputs/tagger --int8 --output_dir outputs/tagger-onnx
    python outputs/reviews-onnx/predict.py "A fine film."
    modeling-star export outputs/tagger --web --output_dir outputs/page

The exported file is compared with PyTorch on sample texts, and refused where it differs by more than 1e-4 (relative
where an output is above 1). The folder holds model.onnx, with
--int8 also model.int8.onnx, tokenizer.json, config.json with the labels, and predict.py. With --web it is also a page
that predicts in the browser of its reader; npm install --prefix OUT fetches what it imports.
"""

import argparse
import logging
import shlex
from pathlib import Path

from . import LOG_LEVEL_HELP, LOG_LEVELS


def main() -> None:
    """Read the arguments, export, compare, print sizes and differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="FOLDER", help="folder or Hub name of an encoder with any head")
    parser.add_argument("--format", choices=["onnx"], default="onnx", help="the only one (default)")
    parser.add_argument("--output_dir", type=Path, required=True, metavar="OUT", help="new, or an earlier export")
    parser.add_argument("--int8", action="store_true", help="also write the model with weights of 8 bits")
    parser.add_argument("--web", action="store_true", help="also write a page that predicts in the browser")
    parser.add_argument("--sample_file", type=Path, metavar="FILE", help="texts to compare on, one per line")
    parser.add_argument("--trust_remote_code", action="store_true", help="run the code in the model's folder")
    parser.add_argument("--log_level", choices=LOG_LEVELS, default="passive", help=LOG_LEVEL_HELP)
    arguments, unknown = parser.parse_known_args()
    if unknown and unknown[0].partition("=")[0] in ("--check", "--max_changed"):
        parser.error(
            f"there is no {unknown[0]}: write modeling-star predict {arguments.model} --file dev.jsonl "
            f"--output_file one.jsonl, the same with {arguments.output_dir}, and compare the two files"
        )
    if unknown:
        parser.error(f"there is no {unknown[0]}: --help lists the arguments")

    from ..errors import UserError
    from ..inference.onnx_runtime import check_output_dir

    try:
        check_output_dir(arguments.output_dir)
    except UserError as error:
        parser.error(str(error))

    from ..inference.export import SAMPLES, load, write_export
    from ..loading import quiet_transformers
    from ..runs.cli_errors import command_messages
    from ..training.named_models import loading

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # advice of the exporter and the quantizer that does not apply
    try:
        with (
            command_messages("modeling-star export", arguments.output_dir, log_level=arguments.log_level),
            quiet_transformers(arguments.log_level, downloads=True),
        ):
            texts = SAMPLES
            if arguments.sample_file is not None:
                texts = tuple(filter(None, map(str.strip, arguments.sample_file.read_text("utf-8").splitlines())))
                if not texts:
                    raise UserError(f"{arguments.sample_file} has no text: write one per line.")
            with loading("FOLDER", arguments.model):
                model, tokenizer = load(arguments.model, arguments.trust_remote_code)
            parities = write_export(model, tokenizer, arguments.output_dir, arguments.int8, texts, arguments.web)
    finally:
        logging.disable(before)
    for name, parity in parities.items():
        size = (arguments.output_dir / name).stat().st_size / 1e6
        print(
            f"{arguments.output_dir / name}: {size:.1f} MB, largest difference from PyTorch {parity.largest:.1e}, "
            f"{parity.agreement:.1%} of the best labels equal ({parity.batches} batches of sample texts, "
            f"{parity.shortest} to {parity.longest} tokens)"
        )
    if arguments.web:
        folder = shlex.quote(str(arguments.output_dir))
        print(
            f"Next: npm install --prefix {folder}\n"
            f"      python -m http.server --bind 127.0.0.1 --directory {folder}\n"
            "      and open http://127.0.0.1:8000"
        )
