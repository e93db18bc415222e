"""
Explain the prediction of a classifier or a tagger for one text, as a page without any other file.

    modeling-star explain outputs/reviews "A fine film." --output_file explain.html

Tokens are coloured by what they add to the logit of the class or entity (integrated gradients). Below are the weights
of the encoder's attentions: what Star's relay reads and a token's candidates on the ring, and BiG's words. No file is
overwritten.
"""

import argparse
import os
from pathlib import Path

from . import LOG_LEVEL_HELP, LOG_LEVELS
from .predict import as_lines


def main() -> None:
    """Read the arguments, predict, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="FOLDER", help="folder or Hub name of a classifier or a tagger")
    parser.add_argument("text", metavar="TEXT", help="the text")
    parser.add_argument(
        "--output_file",
        type=Path,
        default=Path("explain.html"),
        metavar="FILE",
        help="the page (default: explain.html)",
    )
    parser.add_argument("--trust_remote_code", action="store_true", help="run the code in the model's folder")
    parser.add_argument("--log_level", choices=LOG_LEVELS, default="passive", help=LOG_LEVEL_HELP)
    arguments = parser.parse_args()
    page = arguments.output_file
    if page.suffix.lower() not in (".html", ".htm"):
        parser.error(f"--output_file {page} would hold HTML: write --output_file {page.with_suffix('.html')}")
    if os.path.lexists(page):
        parser.error(f"{page} exists, and nothing is overwritten: name another --output_file")

    from ..files import write_text
    from ..inference.explain import as_html, explain
    from ..inference.output_rows import rounded
    from ..inference.prediction import Predictor
    from ..inference.saved_model import SavedModel
    from ..loading import quiet_transformers
    from ..runs.cli_errors import command_messages
    from ..training.named_models import loading

    with (
        command_messages("modeling-star explain", arguments.output_file, log_level=arguments.log_level),
        quiet_transformers(arguments.log_level, downloads=True),
    ):
        with loading("FOLDER", arguments.model):
            # Differences of scores are shown, so these are those of the saved weights.
            predictor = Predictor(SavedModel.load(arguments.model, arguments.trust_remote_code), dtype=None)
            predictor.instructions = None  # a compiled copy has no gradients
        explanation = explain(predictor, arguments.text)
        _, found = predictor.predict([arguments.text])[0]
        title = f"Prediction of {Path(arguments.model).name}"
        write_text(arguments.output_file, as_html(explanation, title))
    print(as_lines(arguments.text, rounded(found)))
    for each in explanation.attributions:
        best = sorted(zip(each.values, explanation.tokens, strict=True), key=lambda pair: -abs(pair[0]))[:5]
        print(
            f"{each.title}, probability {each.score:.4f}, follows from: "
            + ", ".join(f"{token} {value:+.2f}" for value, token in best)
        )
    print(f"Written: {arguments.output_file}")
