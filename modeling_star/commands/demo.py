"""
Try a classifier or a tagger in the browser: its classes or entities for a text, and below what they follow from.

    pip install ".[train,demo]"    # in a checkout
    modeling-star demo outputs/reviews

The page is served to this machine alone, and loads nothing from others.
"""

import argparse
import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import LOG_LEVEL_HELP, LOG_LEVELS


if TYPE_CHECKING:
    from ..inference.prediction import Predictor


def respond(predictor: "Predictor", text: str) -> tuple[Any, str]:
    """
    What the page shows for a text: the probability of each class, or its number; of a tagger the text with its
    entities. Then the explanation as HTML.
    """
    from ..errors import UserError
    from ..inference.explain import as_html, explain

    is_tagger = predictor.saved.task == "token-classification"
    if not text.strip():
        return (None, "")
    [(_, found)] = predictor.predict([text])
    shown: Any = {each["label"]: each["score"] for each in found if "label" in each}
    if is_tagger:
        entities = [{"entity": each["label"], "start": each["start"], "end": each["end"]} for each in found]
        shown = {"text": text, "entities": entities}
    elif not shown:
        shown = f"{found[0]['value']:.3f}"
    try:
        page = as_html(explain(predictor, text), "What the prediction follows from")
    except UserError as error:
        return shown, f"<p>{escape(str(error))}</p>"
    fit = "this.style.height = this.contentDocument.documentElement.scrollHeight + 'px'"
    return shown, f'<iframe srcdoc="{escape(page)}" onload="{fit}" style="width: 100%; border: 0"></iframe>'


def main() -> None:
    """Read the arguments, load the model, serve the page until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="FOLDER", help="folder or Hub name of a classifier of texts or a tagger")
    parser.add_argument("--port", type=int, help="of the page; without it, the first free one from 7860")
    parser.add_argument("--trust_remote_code", action="store_true", help="run the code in the model's folder")
    parser.add_argument("--log_level", choices=LOG_LEVELS, default="passive", help=LOG_LEVEL_HELP)
    arguments = parser.parse_args()

    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import gradio

    from ..inference.explain import check_task
    from ..inference.prediction import Predictor
    from ..inference.saved_model import SavedModel
    from ..loading import quiet_transformers
    from ..runs.cli_errors import command_messages
    from ..training.named_models import loading

    with (
        command_messages("modeling-star demo", log_level=arguments.log_level),
        quiet_transformers(arguments.log_level, downloads=True),
        loading("FOLDER", arguments.model),
    ):
        predictor = Predictor(SavedModel.load(arguments.model, arguments.trust_remote_code))
        check_task(predictor)
        predictor.load()
    name = Path(arguments.model).name
    with gradio.Blocks(title=name, analytics_enabled=False) as page:
        gradio.Markdown(f"## {name}")
        text = gradio.Textbox(label="Text", lines=4)
        button = gradio.Button("Predict", variant="primary")
        is_tagger = predictor.saved.task == "token-classification"
        shown = gradio.HighlightedText(label="Entities") if is_tagger else gradio.Label(label="Classes")
        explanation = gradio.HTML()
        # One text at a time: an explanation has hooks in the model.
        button.click(lambda typed: respond(predictor, typed), text, [shown, explanation], concurrency_limit=1)
    page.launch(share=False, server_name="127.0.0.1", server_port=arguments.port, footer_links=[])
