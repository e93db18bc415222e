"""The task of run_qa.py: the span of a context that answers a question."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from transformers import DataCollatorWithPadding, EvalPrediction, PreTrainedTokenizerBase, TrainingArguments

from ..data.squad import ReadingData, flatten_squad, prepare_reading, window_features, windows_of
from ..errors import UserError
from ..evaluation.squad import Language, answer_language, score_answers
from ..files import write_json, write_json_lines
from ..inference.question_answering import DEFAULTS, Answer, find_answers
from ..publish.run_card import CONTEXT_CHARACTERS
from ..training.arguments import ReadingArguments
from ..training.losses import MetricsWithLoss, SpanLoss
from ..training.task import Task, first_rows


@dataclass(frozen=True)
class QAPrediction:
    """The answers to a question, the best first, and the score of "no answer" minus that of the best span."""

    answers: list[Answer]
    null_difference: float

    @property
    def text(self) -> str:
        """The best answer; empty where there is none."""
        return self.answers[0].text if self.answers else ""


@dataclass(frozen=True)
class ReadingMetrics:
    """
    Exact match and F1, from 0 to 1; the same interface as `TaskMetrics`. "No answer" is predicted where it beats the
    best span by more than `null_threshold`; `None`: every question has an answer.
    """

    language: Language
    n_best_size: int = 20
    max_answer_length: int = 30
    null_threshold: float | None = None
    task: str = "reading"
    metric_for_best_model: str = "f1"

    def score_names(self) -> list[str]:
        """The names of the scores from `compute`."""
        names = ["exact_match", "f1"]
        if self.null_threshold is not None:
            names += ["has_answer_exact_match", "has_answer_f1", "no_answer_accuracy"]
        return names

    def read(self, examples: Dataset, features: Dataset, logits: np.ndarray) -> list[QAPrediction]:
        """The answers to all questions of a split, from start and end logits `[windows, n, 2]`."""
        scores = torch.from_numpy(np.ascontiguousarray(logits))
        windows_by_example = windows_of(features)
        predictions = []
        for index, context in enumerate(examples["context"]):
            rows, windows = zip(*windows_by_example[index], strict=True)
            answers, difference = find_answers(
                context,
                windows,
                [scores[row] for row in rows],
                top_k=self.n_best_size,
                max_answer_tokens=self.max_answer_length,
                null_threshold=self.null_threshold,
            )
            predictions.append(QAPrediction(answers, difference))
        return predictions

    def compute(self, examples: Dataset, predictions: list[QAPrediction]) -> dict[str, float]:
        """The scores of a labelled split."""
        truth = [answers["text"] for answers in examples["answers"]]
        texts = [prediction.text for prediction in predictions]
        exact, f1 = score_answers(texts, truth, self.language)
        scores = {"exact_match": float(exact.mean()), "f1": float(f1.mean())}
        if self.null_threshold is None:
            return scores
        has_answer = np.array([bool(answers) for answers in truth])
        # A split that lacks one of the two kinds of questions has no score for it.
        parts = {
            "has_answer_exact_match": exact[has_answer],
            "has_answer_f1": f1[has_answer],
            "no_answer_accuracy": exact[~has_answer],
        }
        return scores | {name: float(part.mean()) for name, part in parts.items() if len(part)}


class ReadingTask(Task[ReadingArguments]):
    """Predict a span of the context for every question, or none."""

    head = "AutoModelForQuestionAnswering"
    pipeline = "question-answering"
    loss_class = SpanLoss
    collate = DataCollatorWithPadding
    held_out_together = "context"  # several questions share one
    data_args: ReadingArguments
    data: ReadingData
    metrics: ReadingMetrics

    @classmethod
    def check_arguments(cls, data_args: ReadingArguments, training: TrainingArguments) -> None:
        if data_args.null_score_diff_threshold and not data_args.version_2_with_negative:
            raise UserError(
                f"--null_score_diff_threshold {data_args.null_score_diff_threshold:g} is for questions that may have "
                "no answer: add --version_2_with_negative, or omit it."
            )

    def prepare(self, splits: DatasetDict) -> ReadingData:
        options = self.data_args
        return prepare_reading(
            first_rows(DatasetDict({split: flatten_squad(rows) for split, rows in splits.items()}), options),
            text_column_name=options.text_column_name,
            label_column_name=options.label_column_name,
            version_2=options.version_2_with_negative,
            drop_empty=options.drop_empty,
        )

    def describe(self) -> None:
        options = self.data_args
        labelled = [rows for split, rows in self.data.splits.items() if self.data.is_labelled(split)]
        given = chain.from_iterable(answers["text"] for rows in labelled for answers in rows["answers"])
        self.metrics = ReadingMetrics(
            language=options.answer_language or answer_language(given),
            n_best_size=options.n_best_size,
            max_answer_length=options.max_answer_length,
            null_threshold=options.null_score_diff_threshold if options.version_2_with_negative else None,
        )
        self.labels = {"num_labels": 2}  # start and end
        self.input_columns = ("question", "context")
        self.config_defaults = {"type_vocab_size": 2}  # the question and the context
        self.needs_types = self.model_args.model_name_or_path is None  # a saved model takes what its tokenizer gives

    def scorer(self, split: str, features: Dataset) -> Callable[[EvalPrediction], dict[str, float]]:
        examples = self.data.splits[split]

        def score(prediction: EvalPrediction) -> dict[str, float]:
            return self.metrics.compute(examples, self.metrics.read(examples, features, prediction.predictions[0]))

        return MetricsWithLoss(score)

    def training_texts(self) -> Any:
        train = self.data.splits["train"]
        # Each context once, though several questions share it: vocabularies count words.
        return chain(train["question"], dict.fromkeys(train["context"]))

    def example_texts(self) -> list[Any]:
        split = "test" if "test" in self.data.splits else "validation"
        rows = self.data.splits.get(split)
        if rows is None:
            return []
        # The card cuts long contexts, perhaps before the answer.
        lengths = [len(context) for context in rows["context"]]
        short = [row for row, length in enumerate(lengths) if length <= CONTEXT_CHARACTERS][:3] or [0]
        return [(row["question"], row["context"]) for row in rows.select(short)]

    def features(self, split: str, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Dataset:
        options = self.data_args
        self.saved_options = {
            "max_answer_tokens": options.max_answer_length,
            "max_length": None if options.max_seq_length is None else limit,
            "stride": options.doc_stride,
            "null_threshold": self.metrics.null_threshold,
        }
        self.usage_options = {name: value for name, value in self.saved_options.items() if value != DEFAULTS[name]}
        return window_features(
            self.data.splits[split],
            tokenizer,
            max_seq_length=limit,
            doc_stride=options.doc_stride,
            labelled=self.data.is_labelled(split),
            split=split,
        )

    def report(self, folder: Path, split: str, features: Dataset, predictions: np.ndarray) -> dict[str, str]:
        examples = self.data.splits[split]
        answers = self.metrics.read(examples, features, predictions)
        rows = [self._row(*pair) for pair in zip(examples, answers, strict=True)]
        if self.data.is_labelled(split):
            truth = [answers["text"] for answers in examples["answers"]]
            exact, f1 = score_answers([row["predicted"] for row in rows], truth, self.metrics.language)
            for row, label, exact_match, overlap in zip(rows, truth, exact.tolist(), f1.tolist(), strict=True):
                row |= {"label": label, "exact_match": exact_match, "f1": overlap}
        write_json_lines(folder / f"predictions_{split}.jsonl", rows)
        # The format of the evaluation scripts of SQuAD, DRCD and CMRC.
        write_json(folder / f"answers_{split}.json", {row["id"]: row["predicted"] for row in rows})
        return {}

    def _row(self, example: dict[str, Any], prediction: QAPrediction) -> dict[str, Any]:
        """A line of predictions_SPLIT.jsonl."""
        best = [{**asdict(answer), "score": round(answer.score, 6)} for answer in prediction.answers]
        first = best[0] if best else {"text": "", "start": 0, "end": 0, "score": 0.0}
        row = {"id": example["id"], "question": example["question"], "predicted": first["text"]}
        row |= {name: first[name] for name in ("start", "end", "score")}
        if self.metrics.null_threshold is not None:
            # Infinite, which JSON does not have, where a context has no token.
            row["null_difference"] = prediction.null_difference if np.isfinite(prediction.null_difference) else None
        return row | {"n_best": best}
