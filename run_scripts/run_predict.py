#!/usr/bin/env python
"""
Tag, classify, rate or translate texts with a saved model, or find the answer to a question in them.

    python run_scripts/run_predict.py outputs/quickstart/model "Maria Keller moved to Oslo."
    python run_scripts/run_predict.py outputs/sst2 --file texts.txt --json > predictions.jsonl
    python run_scripts/run_predict.py outputs/sst2 --file reviews.csv --text_column_name "Review Text"
    zcat reviews.txt.gz | head -100 | python run_scripts/run_predict.py outputs/sst2 --file -
    python run_scripts/run_predict.py outputs/drcd --question "Who moved to Oslo?" "Maria Keller moved to Oslo."
    python run_scripts/run_predict.py outputs/snli --pairs "A man plays a guitar." "Somebody makes music."
    python run_scripts/run_predict.py outputs/tatoeba_zh_en "我们都哭了。"

Entities and answers come with character offsets: text[start:end] is the entity.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from modeling_star.data.prediction_inputs import Text
    from modeling_star.inference.prediction import Prediction, SavedModel


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder or Hub name of a model for tagging, classes, answers or translation")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts to predict on")
    parser.add_argument(
        "--file",
        type=Path,
        help="a column of csv, tsv, json, jsonl, parquet or CoNLL; .txt and others: one text per line; .gz allowed; "
        "-: standard input, one text per line",
    )
    parser.add_argument(
        "--text_column_name",
        metavar="NAME",
        help="its column of texts; of pairs two, joined by a comma (default: as in training, or a usual name: tokens, "
        "text, sentence, review, ...)",
    )
    parser.add_argument(
        "--column_names",
        metavar="NAMES",
        help="columns of a csv or tsv without a header line: text,id; of CoNLL in their order: _,tokens,_",
    )
    parser.add_argument(
        "--pairs",
        action="store_true",
        help="classify pairs: every two TEXTs, two columns of a file, or two texts per line, separated by a tab",
    )
    parser.add_argument(
        "--question",
        help="the question that is answered from every text (default: that of each row, of a --file with columns of "
        "questions and contexts)",
    )
    parser.add_argument(
        "--null_threshold",
        type=float,
        metavar="X",
        help="predict no answer where its score exceeds the best answer's by more; inf: always answer (default: as "
        "the model was evaluated)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="X",
        help="of several labels per text, predict those with a higher probability (default: 0.5)",
    )
    parser.add_argument("--batch_size", type=int, default=32, help="texts predicted at once (default: 32)")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per text; its index is the row of the --file, from 0: rows without text are left "
        "out",
    )
    parser.add_argument("--trust_remote_code", action="store_true", help="run the code in the model's folder")
    arguments = parser.parse_intermixed_args()  # a question may come before the texts
    if not arguments.texts and arguments.file is None:
        parser.error('there is no text: write run_predict.py MODEL "A text." or --file texts.txt')
    if arguments.file is None and (arguments.text_column_name or arguments.column_names):
        parser.error("--text_column_name and --column_names need --file")
    for text in filter(os.path.isfile, arguments.texts):
        parser.error(f"{text} is a file: write --file {text} to read the texts in it")
    if arguments.pairs and len(arguments.texts) % 2:
        parser.error(f"--pairs takes two TEXTs each, and {len(arguments.texts)} are given")
    return arguments


def main() -> None:
    """Read the arguments, predict, print."""
    arguments = parse_arguments()

    from modeling_star.inference.prediction import SavedModel, predict
    from modeling_star.training.builders import loading

    try:
        with loading("MODEL", arguments.model):
            model = SavedModel.load(arguments.model, arguments.trust_remote_code)
        if arguments.file is not None and not arguments.texts and model.takes_pairs:
            arguments.pairs = True
        typed = arguments.texts
        texts: list[Text] = list(zip(typed[::2], typed[1::2], strict=True)) if arguments.pairs else typed
        rows: list[tuple[int | None, Text]] = [(None, text) for text in texts]
        if arguments.file is not None:
            rows += texts_of_file(model, arguments)
        predictions = predict(
            model,
            [text for _, text in rows],
            pairs=arguments.pairs,
            question=arguments.question,
            null_threshold=arguments.null_threshold,
            threshold=arguments.threshold,
            batch_size=arguments.batch_size,
        )
        for (index, _), (text, found) in zip(rows, predictions, strict=True):
            print(as_json(index, text, found) if arguments.json else as_lines(text, found))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it exits
        sys.exit(1)
    except (ValueError, OSError) as error:
        sys.exit(f"run_predict.py: {' '.join(str(error).split())}")


def texts_of_file(model: "SavedModel", arguments: argparse.Namespace) -> "list[tuple[int, Text]]":
    """The texts, pairs of texts or questions of --file, each with the number of its row from 0."""
    from modeling_star.data.prediction_inputs import read_texts

    trained = model.arguments
    return read_texts(
        arguments.file,
        pairs=arguments.pairs,
        contexts=arguments.question is not None,
        questions=model.task == "question-answering" and arguments.question is None and not arguments.pairs,
        text_column_name=arguments.text_column_name,
        column_names=split_names(arguments.column_names),
        trained_on=trained.get("text_column_name") or trained.get("source_column"),
        trained_columns=split_names(trained.get("column_names")),
    )


def split_names(names: str | None) -> list[str] | None:
    """tokens,tags -> ["tokens", "tags"]"""
    return names.split(",") if names else None


def as_json(index: int | None, text: "Text", found: "list[Prediction]") -> str:
    """The line of --json."""
    row: dict[str, Any] = {} if index is None else {"index": index}
    if isinstance(text, str):
        row["text"] = text
    else:
        names = getattr(text, "_fields", ("text", "text_pair"))  # a question and its context are a named tuple
        row |= dict(zip(names, text, strict=True))
    return json.dumps({**row, "found": found}, ensure_ascii=False)


def as_lines(text: "Text", found: "list[Prediction]") -> str:
    """The text, and below it a line for each prediction."""
    lines = [text if isinstance(text, str) else "\n".join(text)]
    for entry in found:
        if "value" in entry:
            lines.append(f"    {entry['value']:.4g}")
        elif "score" not in entry:
            lines.append(f"    {entry['text']}")
        else:
            place = f"{entry['start']:>4}-{entry['end']:<4} {entry['text']!r} " if "start" in entry else ""
            label = f"{entry['label']} " if "label" in entry else ""
            if "predicted" in entry:
                label = ("* " if entry["predicted"] else "  ") + label
            lines.append(f"    {place}{label} {entry['score']:.2f}")
    return "\n".join(lines if found else [*lines, "    (nothing)"])


if __name__ == "__main__":
    main()
