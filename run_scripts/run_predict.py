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
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any


Text = str | tuple[str, str] | list[str]  # list: of words


def main() -> None:
    """Read the arguments, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder or Hub name of a model for tagging, classes, answers or translation")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts to read")
    parser.add_argument(
        "--file",
        type=Path,
        help="a column of csv, tsv, json, jsonl, parquet or CoNLL; .txt and any other: a text a line; .gz allowed; "
        "-: standard input, a text a line",
    )
    parser.add_argument(
        "--text_column_name",
        metavar="NAME",
        help="its column of texts; of pairs two, joined by a comma (default: that which was named in training, "
        "else found by its name: tokens, text, sentence, review, ...)",
    )
    parser.add_argument(
        "--column_names",
        metavar="NAMES",
        help="columns of a csv or tsv without a header line: text,id; of CoNLL in their order: _,tokens,_",
    )
    parser.add_argument(
        "--pairs",
        action="store_true",
        help="pairs are classified: every two TEXTs, two columns of a file, a line's two parted by a tab",
    )
    parser.add_argument(
        "--question",
        help="what a question-answering model looks for in every text (default: each row's own, of a --file with "
        "columns of questions and contexts)",
    )
    parser.add_argument(
        "--null_threshold",
        type=float,
        metavar="X",
        help="no answer where its score exceeds the best answer's by more; inf: there is always one (default: as the "
        "model was scored)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="X",
        help="of several labels a text, those whose probability is above it are predicted (default: 0.5, by which the "
        "model was scored)",
    )
    parser.add_argument(
        "--batch_size",
        type=int,
        default=32,
        help="texts read at once; a question is read by one window after the other (default: 32)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object a text instead of lines to read; its index is the row of the --file, from 0: rows "
        "without text are left out",
    )
    parser.add_argument("--trust_remote_code", action="store_true", help="run the code that the model brings along")
    arguments = parser.parse_intermixed_args()  # a question may stand before the texts
    if arguments.threshold is not None and not 0 <= arguments.threshold <= 1:
        parser.error(f"--threshold {arguments.threshold} is given: a probability, from 0 to 1, is needed")
    if arguments.batch_size < 1:
        parser.error(f"--batch_size {arguments.batch_size} is given: at least 1 is needed")
    texts: list[Text] = []
    try:
        check_utf8([*arguments.texts, arguments.question or ""])
        for text in filter(os.path.isfile, arguments.texts):
            raise ValueError(f"{text} is a file: write --file {text} to read the texts in it")
        columns = trained_with(arguments).get("text_columns") or ()
        if arguments.file is not None and not arguments.texts and not arguments.pairs and len(columns) == 2:
            arguments.pairs = True
            print(f"run_predict.py: pairs are read, as in training ({', '.join(columns)}): --pairs", file=sys.stderr)
        texts = in_pairs(arguments.texts) if arguments.pairs else list(arguments.texts)
        places: list[int | None] = [None] * len(texts)
        if arguments.file is not None:
            numbered = texts_of_file(arguments)
            places += [number for number, _ in numbered]
            texts += [text for _, text in numbered]
        elif arguments.text_column_name or arguments.column_names:
            parser.error("--text_column_name and --column_names tell of a --file, and none is given")
    except ValueError as error:
        parser.error(str(error))
    if not texts:
        parser.error('no text is given: write run_predict.py MODEL "A text." or --file texts.txt')
    from modeling_star.data.prediction_inputs import QuestionContext
    from modeling_star.training.builders import loading

    try:
        with loading("MODEL", arguments.model):
            found_in_each = predict(texts, arguments)
        for place, (text, found) in zip(places, found_in_each, strict=True):
            if arguments.json:
                number = {} if place is None else {"index": place}
                if isinstance(text, str):
                    told = {"text": text}
                else:
                    told = (
                        text._asdict()
                        if isinstance(text, QuestionContext)
                        else {"text": text[0], "text_pair": text[1]}
                    )
                print(json.dumps({**number, **told, "found": found}, ensure_ascii=False))
            else:
                print(readable(text if isinstance(text, str) else "\n".join(text), found))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try once more at its end
        sys.exit(1)
    except ValueError as error:
        sys.exit(f"run_predict.py: {' '.join(str(error).split())}")


def check_utf8(texts: list[str]) -> None:
    """
    Raises:
        ValueError: what was typed holds bytes that are no UTF-8, which Python keeps as halves of characters.
    """
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{text!r} is not UTF-8: write it to a file in UTF-8, and name that by --file") from None


def in_pairs(texts: list[str]) -> list[Text]:
    """
    Every two of some texts as one.

    Raises:
        ValueError: one is left over.
    """
    if len(texts) % 2:
        raise ValueError(f"--pairs takes two TEXTs each, and {len(texts)} are given")
    return list(zip(texts[::2], texts[1::2], strict=True))


def texts_of_file(arguments: argparse.Namespace) -> list[tuple[int, Text]]:
    """
    The texts, or pairs of texts, of --file, each with the number of its row from 0.

    Raises:
        ValueError: there is no such file, or it cannot be read as asked.
    """
    from modeling_star.data.prediction_inputs import read_texts

    trained = trained_with(arguments)
    return read_texts(
        arguments.file,
        pairs=arguments.pairs,
        contexts=arguments.question is not None,
        questions=arguments.question is None and not arguments.pairs and answers_questions(arguments),
        text_column_name=arguments.text_column_name,
        column_names=split_names(arguments.column_names),
        trained_on=trained.get("text_column_name") or trained.get("source_column"),
        trained_columns=split_names(trained.get("column_names")),
    )


def answers_questions(arguments: argparse.Namespace) -> bool:
    """Whether the model is one for answers."""
    if trained_with(arguments).get("model_type") == "tfidf":
        return False
    from transformers import AutoConfig

    import modeling_star  # noqa: F401  registers the models of this package
    from modeling_star.training.builders import loading

    with loading("MODEL", arguments.model):
        config = AutoConfig.from_pretrained(arguments.model, trust_remote_code=arguments.trust_remote_code)
    return any(name.endswith("ForQuestionAnswering") for name in config.architectures or ())


def trained_with(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments that the model was trained with, where its folder tells them."""
    told = Path(arguments.model) / "arguments.json"
    return json.loads(told.read_text(encoding="utf-8")) if told.is_file() else {}


def split_names(names: str | None) -> list[str] | None:
    """tokens,tags -> ["tokens", "tags"]"""
    return names.split(",") if names else None


def predict(texts: list[Text], arguments: argparse.Namespace) -> Iterator[tuple[Text, Any]]:
    """
    Load the model; then each text with its entities or answer (`start`, `end`, `text`, `score`), its labels (`score`;
    of several a text also whether each is `predicted`), its number (`value`), or translated.
    """
    from transformers import AutoConfig

    import modeling_star  # noqa: F401  registers the models of this package
    from modeling_star.data.prediction_inputs import QuestionContext, joined

    model = arguments.model
    given, texts = texts, joined(texts)  # a tagger alone reads words
    if trained_with(arguments).get("model_type") == "tfidf":
        return classified_by_terms(texts, arguments)
    config = AutoConfig.from_pretrained(model, trust_remote_code=arguments.trust_remote_code)
    architecture = (config.architectures or [""])[0]
    if arguments.pairs and not architecture.endswith("ForSequenceClassification"):
        sys.exit(f"{model} is a {architecture}, which classifies no pairs: leave --pairs away.")
    if not arguments.pairs and getattr(config, "pair_mode", "cross") == "siamese":
        sys.exit(f'{model} reads two texts at once: write --pairs "A text." "Another text."')
    columns = trained_with(arguments).get("text_columns") or []
    if architecture.endswith("ForSequenceClassification") and columns and arguments.pairs != (len(columns) == 2):
        trained, instead = ("pairs", 'write --pairs "A text." "Another text."')
        if arguments.pairs:
            trained, instead = ("single texts", "leave --pairs away")
        sys.exit(f"{model} was trained on {trained}, {', '.join(columns)}: {instead}.")
    if arguments.threshold is not None and config.problem_type != "multi_label_classification":
        sys.exit(f"{model} does not choose among several labels of a text: leave --threshold away.")
    heads = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
    if architecture.endswith("ForQuestionAnswering"):
        if arguments.question is None and not all(isinstance(text, QuestionContext) for text in texts):
            sys.exit(
                f'{model} answers questions: write --question "Who moved to Oslo?", or name a --file with a column of '
                "questions beside one of contexts."
            )
        return answered(texts, arguments)
    for name in ("question", "null_threshold"):
        if getattr(arguments, name) is not None:
            sys.exit(f"{model} is a {architecture}, which answers no questions: leave --{name} away.")
    if config.is_encoder_decoder and not architecture.endswith(heads):
        return translated(model, texts, arguments.batch_size, arguments.trust_remote_code)
    kinds = {"ForTokenClassification": "token-classification", "ForSequenceClassification": "text-classification"}
    task = next((task for ending, task in kinds.items() if architecture.endswith(ending)), None)
    if task is None:
        sys.exit(
            f"{model} is a {architecture}: a model for token or text classification, answers or translation is needed."
        )
    return labelled(given if task == "token-classification" else texts, task, config, arguments)


def classified_by_terms(texts: list[Any], arguments: argparse.Namespace) -> Iterator[tuple[Text, Any]]:
    """Each text with its labels by TF-IDF, of which there is nothing to ask but texts."""
    import numpy as np

    from modeling_star.tasks.tfidf_baseline import TfidfClassifier

    asked = {
        "--pairs": arguments.pairs,
        "--question": arguments.question,
        "--null_threshold": arguments.null_threshold,
        "--threshold": arguments.threshold,
    }
    for flag in (flag for flag, value in asked.items() if value not in (None, False)):
        sys.exit(f"{arguments.model} is TF-IDF, which classifies single texts: leave {flag} away.")
    model = TfidfClassifier.load(Path(arguments.model))

    def labels(scores: Any) -> list[dict[str, Any]]:
        return [
            {"label": model.labels[place], "score": round(float(scores[place]), 4)} for place in (-scores).argsort()
        ]

    return ((text, labels(scores)) for text, scores in zip(texts, np.exp(model.log_probabilities(texts)), strict=True))


def answered(texts: list[Any], arguments: argparse.Namespace) -> Iterator[tuple[Text, Any]]:
    """Each text with the best answer that it gives to the question."""
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    from modeling_star import answer_question

    remote = {"trust_remote_code": arguments.trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, **remote)
    model = AutoModelForQuestionAnswering.from_pretrained(arguments.model, **remote)

    def answers(text: Any) -> list[dict[str, Any]]:
        question, context = (arguments.question, text) if isinstance(text, str) else text
        found = answer_question(question, context, model, tokenizer, null_threshold=arguments.null_threshold)
        return [
            {"start": answer.start, "end": answer.end, "text": answer.text, "score": round(answer.score, 4)}
            for answer in found
            if answer.text
        ]

    return ((text, answers(text)) for text in texts)


def labelled(
    texts: list[Text], task: str, config: Any, arguments: argparse.Namespace
) -> Iterator[tuple[Text, list[dict[str, Any]]]]:
    """
    Each text or pair with its entities or labels; of what is longer than the model reads, the beginning counts. A
    tagger reads words as words, as in training, and the entities are told in the text of them.
    """
    from transformers import AutoTokenizer, pipeline

    from modeling_star.data.prediction_inputs import joined
    from modeling_star.data.tokenizers import max_length_or_none
    from modeling_star.data.writing_systems import between_words
    from modeling_star.inference.pipelines import BestPathPipeline, aggregation_for
    from modeling_star.models.modeling_encoder import longest_input

    remote = {"trust_remote_code": arguments.trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, **remote)
    tokenizer.model_max_length = min(tokenizer.model_max_length, longest_input(config) or sys.maxsize)
    limit = max_length_or_none(tokenizer.model_max_length)
    options: dict[str, Any] = {"top_k": None}
    if task == "token-classification":
        options = {"aggregation_strategy": aggregation_for(tokenizer), "pipeline_class": BestPathPipeline}
        if limit is not None:
            # A long text is read in windows, those in which the tagger was scored.
            options["stride"] = trained_with(arguments).get("stride") or limit // 8
    elif limit is not None:
        options["truncation"] = True
        sides = [[text] if isinstance(text, str) else text for text in texts]
        lengths = [len(tokenizer(*side, verbose=False)["input_ids"]) for side in sides]
        long = sum(length > limit for length in lengths)
        if long:
            told = f"{long} of {len(texts)} texts are longer than the {limit} tokens that"
            print(f"run_predict.py: {told} {arguments.model} reads: they are cut there.", file=sys.stderr)
    run = pipeline(task, arguments.model, tokenizer=tokenizer, **remote, **options)
    between = between_words(text for text in texts if isinstance(text, list))

    def entities(text: Any, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                "label": entity["entity_group"],
                "start": int(entity["start"]),
                "end": int(entity["end"]),
                "text": text[entity["start"] : entity["end"]],
                "score": round(float(entity["score"]), 4),
            }
            for entity in found
        ]

    def labels(_: Any, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if config.problem_type == "regression" and len(found) == 1:  # a number, whose label is a mere LABEL_0
            return [{"value": round(float(found[0]["score"]), 4)}]
        told = [{"label": label["label"], "score": round(float(label["score"]), 4)} for label in found]
        if config.problem_type == "multi_label_classification":
            threshold = 0.5 if arguments.threshold is None else arguments.threshold
            told = [
                {**one, "predicted": float(label["score"]) > threshold} for one, label in zip(told, found, strict=True)
            ]
        return told

    told_of = entities if task == "token-classification" else labels

    def results() -> Iterator[Any]:
        for are_words, several in groupby(texts, lambda text: isinstance(text, list)):
            inputs = [{"text": text[0], "text_pair": text[1]} if isinstance(text, tuple) else text for text in several]
            split = {"is_split_into_words": True, "delimiter": between} if are_words else {}
            yield from run(inputs, batch_size=arguments.batch_size, **split)

    return ((text, told_of(text, found)) for text, found in zip(joined(texts), results(), strict=True))


def translated(
    model: str, texts: list[Any], batch_size: int, trust_remote_code: bool
) -> Iterator[tuple[Text, list[dict[str, Any]]]]:
    """Each text with its translation (`text`)."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from modeling_star import translate

    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(model, trust_remote_code=trust_remote_code)

    def read() -> Iterator[tuple[Text, list[dict[str, Any]]]]:
        for text, found in zip(texts, translate(texts, loaded, tokenizer, batch_size=batch_size), strict=True):
            yield text, [{"text": found}]

    return read()


def readable(text: str, found: list[dict[str, Any]]) -> str:
    """Lines for a reader: the text, and what was found below it."""
    lines = [text]
    for entry in found:
        if "value" in entry:
            lines.append(f"    {entry['value']:.4g}")
            continue
        if "score" not in entry:
            lines.append(f"    {entry['text']}")
            continue
        place = f"{entry['start']:>4}-{entry['end']:<4} {entry['text']!r} " if "start" in entry else ""
        label = f"{entry['label']} " if "label" in entry else ""
        if "predicted" in entry:
            label = ("* " if entry["predicted"] else "  ") + label
        lines.append(f"    {place}{label} {entry['score']:.2f}")
    return "\n".join(lines if found else [*lines, "    (nothing)"])


if __name__ == "__main__":
    main()
