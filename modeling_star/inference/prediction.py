"""Predict with a saved model of any task: entities, labels, numbers, answers or translations of texts."""

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    pipeline,
)

from ..data.prediction_inputs import QuestionContext, Text, joined
from ..data.tokenizers import max_length_or_none
from ..data.writing_systems import between_words
from ..errors import UserError
from ..models.modeling_encoder import longest_input
from .pipelines import BestPathPipeline, aggregation_for
from .question_answering import answer_question
from .translation import translate


logger = logging.getLogger(__name__)

Prediction = dict[str, Any]
"""An entity or answer (`label`, `start`, `end`, `text`, `score`), a label (`label`, `score`; of several per text also
`predicted`), a number (`value`), or a translation (`text`)."""

_TASKS = {
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForQuestionAnswering": "question-answering",
}


@dataclass(frozen=True)
class SavedModel:
    """
    A saved model before its weights are loaded.

    Args:
        name: folder or Hub name.
        task: "token-classification", "text-classification", "question-answering", "translation" or "tfidf".
        arguments: of its training, where the folder has them.
        config: of a model of transformers.
        remote: `trust_remote_code` for `from_pretrained`.
    """

    name: str
    task: str
    arguments: dict[str, Any] = field(default_factory=dict)
    config: PreTrainedConfig = field(default_factory=PreTrainedConfig)
    remote: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def load(cls, name: str, trust_remote_code: bool = False) -> "SavedModel":
        """
        Read the configuration of a model, and the arguments of its training.

        Raises:
            UserError: it is a model for another task.
        """
        path = Path(name) / "arguments.json"
        arguments = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if arguments.get("model_type") == "tfidf":
            return cls(name, "tfidf", arguments)
        config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
        architecture = (config.architectures or [""])[0]
        task = next((task for ending, task in _TASKS.items() if architecture.endswith(ending)), None)
        if task is None and not config.is_encoder_decoder:
            raise UserError(f"{name} is a {architecture}, which tags, classifies, answers or translates nothing.")
        return cls(name, task or "translation", arguments, config, {"trust_remote_code": trust_remote_code})

    @property
    def takes_pairs(self) -> bool | None:
        """Whether a classifier was trained on pairs of texts; `None` where that is not known."""
        columns = self.arguments.get("text_columns")
        is_siamese = getattr(self.config, "pair_mode", None) == "siamese"
        return True if is_siamese else len(columns) == 2 if columns else None

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer, which truncates at the model's limit."""
        tokenizer = AutoTokenizer.from_pretrained(self.name, **self.remote)
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest_input(self.config) or sys.maxsize)
        return tokenizer


def predict(
    model: SavedModel,
    texts: Sequence[Text],
    *,
    pairs: bool = False,
    question: str | None = None,
    null_threshold: float | None = None,
    threshold: float | None = None,
    batch_size: int = 32,
) -> Iterator[tuple[Text, list[Prediction]]]:
    """
    Predict with a saved model.

    Args:
        model: from `SavedModel.load`.
        texts: texts, pairs of texts, lists of words, or questions with their contexts.
        pairs: whether texts are pairs.
        question: for question answering, about every text; `None`: each text has its question.
        null_threshold: for question answering, see `answer_question`.
        threshold: for several labels per text, predict those with a higher probability; `None`: 0.5.
        batch_size: texts predicted at once; questions are answered one by one.

    Returns:
        Each text, words joined, with its predictions.

    Raises:
        UserError: an option has no effect on such a model, or one that it needs is missing.
    """
    effective = {"text-classification": ["pairs"], "question-answering": ["question", "null_threshold"]}
    if model.config.problem_type == "multi_label_classification":
        effective["text-classification"].append("threshold")
    given = {"pairs": pairs or None, "question": question, "null_threshold": null_threshold, "threshold": threshold}
    for name in (name for name, value in given.items() if value is not None):
        if name not in effective.get(model.task, []):
            raise UserError(f"--{name} has no effect on {model.name}, a model for {model.task}: omit it.")
    if model.task == "text-classification" and model.takes_pairs is not None and model.takes_pairs != pairs:
        advice = (
            'pairs: write --pairs "A text." "Another text."' if model.takes_pairs else "single texts: omit --pairs"
        )
        raise UserError(f"{model.name} was trained on {advice}")
    have_questions = question is not None or all(isinstance(text, QuestionContext) for text in texts)
    if model.task == "question-answering" and not have_questions:
        raise UserError(f'{model.name} answers questions: write --question "Who moved to Oslo?"')
    plain = joined(texts)
    match model.task:
        case "token-classification":
            predictions = _tag(model, texts, plain, batch_size)
        case "text-classification":
            predictions = _classify(model, plain, 0.5 if threshold is None else threshold, batch_size)
        case "question-answering":
            pairs_of_texts = [text if isinstance(text, QuestionContext) else (question, text) for text in plain]
            predictions = _answer(model, pairs_of_texts, null_threshold)
        case "translation":
            predictions = _translate(model, plain, batch_size)
        case _:
            predictions = _classify_by_terms(model, plain)
    return zip(plain, predictions, strict=True)


def _tag(model: SavedModel, texts: Sequence[Text], plain: list[str], batch_size: int) -> Iterator[list[Prediction]]:
    """Entities of texts or lists of words, with offsets in the plain text; long texts are read in windows."""
    tokenizer = model.tokenizer()
    limit = max_length_or_none(tokenizer.model_max_length)
    tagger = pipeline(
        "token-classification",
        model.name,
        tokenizer=tokenizer,
        pipeline_class=BestPathPipeline,
        aggregation_strategy=aggregation_for(tokenizer),
        # The windows of the evaluation.
        stride=None if limit is None else model.arguments.get("stride") or limit // 8,
        **model.remote,
    )
    remaining = iter(plain)
    delimiter = between_words(text for text in texts if isinstance(text, list))
    for are_words, group in groupby(texts, lambda text: isinstance(text, list)):
        split = {"is_split_into_words": True, "delimiter": delimiter} if are_words else {}
        for entities in tagger(list(group), batch_size=batch_size, **split):
            text = next(remaining)
            yield [
                {
                    "label": entity["entity_group"],
                    "start": int(entity["start"]),
                    "end": int(entity["end"]),
                    "text": text[entity["start"] : entity["end"]],
                    "score": round(float(entity["score"]), 4),
                }
                for entity in entities
            ]


def _classify(
    model: SavedModel, texts: Sequence[Text], threshold: float, batch_size: int
) -> Iterator[list[Prediction]]:
    """The probabilities of all labels, or a number; long texts are truncated."""
    tokenizer = model.tokenizer()
    limit = max_length_or_none(tokenizer.model_max_length)
    if limit is not None:
        sides = [text if isinstance(text, tuple) else (text,) for text in texts]
        long = sum(len(tokenizer(*side, verbose=False)["input_ids"]) > limit for side in sides)
        if long:
            logger.warning(f"{long} of {len(texts)} texts are longer than the {limit} tokens of the model: truncated.")
    classifier = pipeline("text-classification", model.name, tokenizer=tokenizer, top_k=None, **model.remote)
    inputs = [{"text": text[0], "text_pair": text[1]} if isinstance(text, tuple) else text for text in texts]
    for scores in classifier(inputs, batch_size=batch_size, truncation=limit is not None):
        if model.config.problem_type == "regression" and len(scores) == 1:
            yield [{"value": round(float(scores[0]["score"]), 4)}]
            continue
        labels = [{"label": score["label"], "score": round(float(score["score"]), 4)} for score in scores]
        if model.config.problem_type == "multi_label_classification":
            for label, score in zip(labels, scores, strict=True):
                label["predicted"] = float(score["score"]) > threshold
        yield labels


def _answer(
    model: SavedModel, texts: Sequence[tuple[str, str]], null_threshold: float | None
) -> Iterator[list[Prediction]]:
    """The best answer to each question about its context; empty for "no answer"."""
    tokenizer = AutoTokenizer.from_pretrained(model.name, **model.remote)
    reader = AutoModelForQuestionAnswering.from_pretrained(model.name, **model.remote)
    for question, context in texts:
        answers = answer_question(question, context, reader, tokenizer, null_threshold=null_threshold)
        yield [
            {"start": answer.start, "end": answer.end, "text": answer.text, "score": round(answer.score, 4)}
            for answer in answers
            if answer.text
        ]


def _translate(model: SavedModel, texts: list[str], batch_size: int) -> Iterator[list[Prediction]]:
    tokenizer = AutoTokenizer.from_pretrained(model.name, **model.remote)
    translator = AutoModelForSeq2SeqLM.from_pretrained(model.name, **model.remote)
    for translation in translate(texts, translator, tokenizer, batch_size=batch_size):
        yield [{"text": translation}]


def _classify_by_terms(model: SavedModel, texts: list[str]) -> Iterator[list[Prediction]]:
    """The probabilities of all labels by TF-IDF, the best first."""
    from ..tasks.tfidf_baseline import TfidfClassifier

    classifier = TfidfClassifier.load(Path(model.name))
    for scores in np.exp(classifier.log_probabilities(texts)):
        order = (-scores).argsort()
        yield [{"label": classifier.labels[place], "score": round(float(scores[place]), 4)} for place in order]
