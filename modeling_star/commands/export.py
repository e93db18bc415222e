"""
Export a trained model to ONNX Runtime, which needs neither PyTorch nor this package.

    modeling-star export outputs/reviews --output_dir outputs/reviews-onnx
    python outputs/reviews-onnx/predict.py "A fine film."
    modeling-star export outputs/tagger --web --output_dir outputs/page

The exported file is compared with PyTorch on sample texts, and refused where it differs by more than 1e-4 (relative
where an output is above 1). The folder holds model.onnx, tokenizer.json, config.json with the labels, and predict.py.
With --web it is also a page that predicts in the browser of its reader; npm install --prefix OUT fetches what it
imports.
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
    parser.add_argument("--output_dir", type=Path, required=True, metavar="OUT", help="new, or an earlier export")
    parser.add_argument("--web", action="store_true", help="also write a page that predicts in the browser")
    parser.add_argument("--trust_remote_code", action="store_true", help="run the code in the model's folder")
    parser.add_argument("--log_level", choices=LOG_LEVELS, default="passive", help=LOG_LEVEL_HELP)
    arguments = parser.parse_args()

    from ..errors import UserError
    from ..inference.onnx_runtime import check_output_dir

    try:
        check_output_dir(arguments.output_dir)
    except UserError as error:
        parser.error(str(error))

    from ..inference.export import load, write_export
    from ..loading import quiet_transformers
    from ..runs.cli_errors import command_messages
    from ..training.named_models import loading

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # advice of the exporter that does not apply
    try:
        with (
            command_messages("modeling-star export", arguments.output_dir, log_level=arguments.log_level),
            quiet_transformers(arguments.log_level, downloads=True),
        ):
            with loading("FOLDER", arguments.model):
                model, tokenizer = load(arguments.model, arguments.trust_remote_code)
            largest = write_export(model, tokenizer, arguments.output_dir, web=arguments.web)
    finally:
        logging.disable(before)
    path = arguments.output_dir / "model.onnx"
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, largest difference from PyTorch {largest:.1e} on sample texts")
    if arguments.web:
        folder = shlex.quote(str(arguments.output_dir))
        print(
            f"Next: npm install --prefix {folder}\n"
            f"      python -m http.server --bind 127.0.0.1 --directory {folder}\n"
            "      and open http://127.0.0.1:8000"
        )
