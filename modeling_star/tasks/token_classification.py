"""The task of run_ner.py: a label for every word, such as entities and parts of speech."""

import logging
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import DataCollatorForTokenClassification, PreTrainedTokenizerBase, TrainingArguments

from ..data.tagging import (
    TaggingData,
    as_sentences,
    predictions_to_words,
    prepare_tagging,
    tokenize_and_align,
    warn_of_other_tokens,
)
from ..data.tokenizers import max_length_or_none
from ..data.writing_systems import between_words
from ..evaluation.error_page import (
    Confusion,
    Mistake,
    entity_confusion,
    marked_words,
    write_error_page,
)
from ..evaluation.metrics import entities_in, entity_report, labelled_words
from ..evaluation.reports import (
    classes_report,
    confusion_counts,
    per_entity_table,
)
from ..evaluation.task_metrics import TaskMetrics, metrics_for
from ..files import write_json_lines, write_text
from ..models.tag_schemes import IGNORE_INDEX, may_follow, tag_scheme, typed_labels
from ..training.arguments import TaggingArguments
from ..training.named_models import config_fields, parse_overrides, saved_labels
from ..training.task import Task, first_rows, label_fields
from .calibration import TaggedSplit, calibrate_tagger, can_calibrate, tagger_report
from .tagging_baseline import baseline_scores


logger = logging.getLogger(__name__)

_SENTENCES_COMPARED = 500
# Where F1 is less and accuracy more, almost all words are O, and the model finds few entities.
_LOW_F1, _HIGH_ACCURACY = 0.3, 0.8


class TaggingTask(Task[TaggingArguments]):
    """Predict a label for every word."""

    head = "AutoModelForTokenClassification"
    pipeline = "token-classification"
    collate = DataCollatorForTokenClassification
    cuts_inputs = True
    reads_spans = True
    advice = (
        "word vectors, --embeddings_name_or_path VECTORS.txt --embeddings_mode vectors --config_overrides "
        "char_features=true, or an encoder, --pretrained bert-base-cased"
    )
    data_args: TaggingArguments
    data: TaggingData
    metrics: TaskMetrics
    _trainer: Any = None
    _fitted: float = 1.0

    def prepare(self, splits: DatasetDict) -> TaggingData:
        options = self.data_args
        names = options.text_column_name, options.label_column_name
        splits = first_rows(as_sentences(splits, *names, nested=options.nested_entities), options)
        return prepare_tagging(
            splits,
            text_column_name=options.text_column_name,
            label_column_name=options.label_column_name,
            label_list=saved_labels(self.model_args, splits),
            drop_empty=options.drop_empty,
        )

    def describe(self) -> None:
        self.metrics = metrics_for("tagging", self.data.label_list)
        self.labels = label_fields(self.data)
        self.input_columns = (self.data.text_column,)
        self.config_defaults = self._fresh_defaults()

    def _fresh_defaults(self) -> dict[str, Any]:
        """
        Of a new tagger of entities a CRF, with constraints unless the training labels break them. Of a new tagger
        whose shape and embeddings the arguments leave open, characters, unless the words are single ones.
        """
        arguments = self.model_args
        is_fresh = arguments.model_name_or_path is None and "train" in self.data.splits
        if not is_fresh or self.data_args.teacher is not None:  # which gives a distribution for each word
            return {}
        named = parse_overrides(arguments.config_overrides)
        if arguments.config_name is not None:
            named = config_fields(arguments.config_name) | named
        fields: dict[str, Any] = {}
        if self.metrics.task == "entities" and "use_crf" not in named:
            fields = {"use_crf": True, "crf_constraints": "auto" if self._labels_keep_their_scheme() else None}
        is_open = (arguments.config_name, arguments.model_type, arguments.source) == (None,) * 3
        if is_open and between_words(self.data.splits["train"][self.data.text_column][:_SENTENCES_COMPARED]):
            fields["char_features"] = True
        return fields

    def _labels_keep_their_scheme(self) -> bool:
        """Whether every label of the training split may follow the one before it, if both are known."""
        names = typed_labels(self.data.label_list)
        scheme, rows = tag_scheme(names), self.data.splits["train"][self.data.label_column]
        pairs = {pair for tags in rows for pair in pairwise(tags) if IGNORE_INDEX not in pair}
        forbidden = [(names[a], names[b]) for a, b in sorted(pairs) if not may_follow(names[a], names[b], scheme)]
        if forbidden:
            logger.warning(
                f"train: {forbidden[0][1]!r} follows {forbidden[0][0]!r}, which {scheme} forbids: the CRF has no "
                "constraints. Fix the labels, or write --config_overrides crf_constraints=auto."
            )
        return not forbidden

    def training_texts(self) -> Any:
        return self.data.splits["train"][self.data.text_column]

    def example_texts(self) -> list[Any]:
        split = "test" if "test" in self.data.splits else "validation"
        rows = self.data.splits.get(split, [])
        sentences = rows[self.data.text_column][:] if rows else []
        return list(map(between_words(sentences).join, sentences[:3]))

    def features(self, split: str, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Dataset:
        options = self.data_args
        if split == "train" and tokenizer.is_fast:
            sentences = self.data.splits[split][self.data.text_column][:]
            warn_of_other_tokens(sentences[:_SENTENCES_COMPARED], between_words(sentences), tokenizer, split)
        stride = options.stride
        longest = max_length_or_none(min(limit or tokenizer.model_max_length, tokenizer.model_max_length))
        if stride is None and split != "train" and longest is not None:
            stride = longest // 8  # long inputs are scored in windows, as run_predict.py reads them
        return tokenize_and_align(
            self.data.splits[split],
            tokenizer,
            tokens_column=self.data.text_column,
            tags_column=self.data.label_column if self.data.is_labelled(split) else None,
            max_seq_length=limit,
            stride=stride,
            split=split,
        )

    def prepare_trainer(self, trainer: Any) -> None:
        self._trainer = trainer

    def calibrate(self, trainer: Any) -> None:
        self._fitted = calibrate_tagger(self, trainer)

    def report(self, folder: Path, split: str, features: Dataset, predictions: np.ndarray) -> dict[str, str]:
        data, names = self.data.splits[split], self.data.label_list
        words = data[self.data.text_column]
        predicted = predictions_to_words(features, predictions, names, fill="O" if "O" in names else names[0])
        rows: list[dict[str, Any]] = [{"tokens": w, "predicted": p} for w, p in zip(words, predicted, strict=True)]
        sections: dict[str, str] = {}
        if self.data.is_labelled(split):
            tagged = data[self.data.label_column]
            expected = [[None if tag == IGNORE_INDEX else names[tag] for tag in tags] for tags in tagged]
            for row, tags in zip(rows, expected, strict=True):
                row["labels"] = tags
            references, guesses = labelled_words(expected, predicted)
            sections = self._tables(folder, split, references, guesses)
            self._write_mistakes(folder, split, words[:], expected, predicted)
            if self._trainer is not None and can_calibrate(self._trainer):
                model = self._trainer.model
                tagged = TaggedSplit(model, features, self.collate(self._trainer.processing_class))
                sections |= tagger_report(folder, split, model, tagged, self._fitted)
        write_json_lines(folder / f"predictions_{split}.jsonl", rows)
        write_text(folder / f"predictions_{split}.conll", "".join(map(_conll, rows)))
        return sections

    def baselines(self, training: TrainingArguments) -> dict[str, float]:
        return baseline_scores(self, training)

    def weakness(self, results: Mapping[str, Any]) -> str | None:
        f1, accuracy = results.get("eval_f1", np.inf), results.get("eval_accuracy", 0.0)
        if f1 >= _LOW_F1 or accuracy <= _HIGH_ACCURACY:
            return None
        return (
            f"the accuracy {accuracy:.3f} counts the many words outside of entities; of the entities themselves the "
            f"F1 is {f1:.3f}"
        )

    def _tables(self, folder: Path, split: str, expected: Sequence[Any], predicted: Sequence[Any]) -> dict[str, str]:
        if self.metrics.task == "entities":
            scores = entity_report(expected, predicted)
            table = per_entity_table(scores)
            write_text(folder / f"entities_{split}.md", table + "\n")
            return {f"Entities of the {split} split": table}
        truth, guess = (list(chain.from_iterable(tags)) for tags in (expected, predicted))
        table = classes_report(truth, guess, self.data.label_list)
        write_text(folder / f"classes_{split}.md", table + "\n")
        return {f"Classes of the {split} split": table}

    def _write_mistakes(
        self,
        folder: Path,
        split: str,
        sentences: list[list[str]],
        expected: list[list[str | None]],
        predicted: list[list[str]],
    ) -> None:
        """Write the page of mistakes; words without a label are left out."""
        between = between_words(sentences)
        labels, guesses = labelled_words(expected, predicted)
        _, words = labelled_words(expected, sentences)
        if self.metrics.task == "entities":
            order = "by their wrong entities"
            truth, found = map(entities_in, (labels, guesses))
            confusion = entity_confusion(truth, found)
        else:
            order = "by their wrong words"
            truth, found = (
                [{(tag, i, i + 1) for i, tag in enumerate(tags)} for tags in rows] for rows in (labels, guesses)
            )
            all_labels, all_guesses = (list(chain.from_iterable(rows)) for rows in (labels, guesses))
            counts, names = confusion_counts(all_labels, all_guesses, self.data.label_list)
            confusion = Confusion(counts, names, names)

        def mistake(row: int) -> Mistake:
            def lines(entities: set[tuple[str, int, int]]) -> list[str]:
                in_order = sorted(entities, key=lambda entity: entity[1:])
                return [f"{between.join(words[row][first:end])}: {kind}" for kind, first, end in in_order]

            wrong = [a != b for a, b in zip(labels[row], guesses[row], strict=True)]
            right = set() if self.metrics.task == "entities" else truth[row] & found[row]
            parts = marked_words(words[row], wrong, between)
            return Mistake(row, parts, lines(truth[row] - right), lines(found[row] - right))

        losses = {i: float(len(a ^ b)) for i, (a, b) in enumerate(zip(truth, found, strict=True)) if a != b}
        path, title = folder / f"errors_{split}.html", f"Mistakes in the {split} split"
        write_error_page(path, title, len(sentences), losses, mistake, confusion, order)


def _conll(row: dict[str, Any]) -> str:
    """
    A sentence in the format of conlleval: one word per line with its label, if known, and its prediction, separated by
    blanks, then an empty line. Words without a label are not scored, and are left out.
    """
    labels = row.get("labels")
    columns = [row["tokens"], row["predicted"]] if labels is None else [row["tokens"], labels, row["predicted"]]
    lines = [cells for cells in zip(*columns, strict=True) if None not in cells]
    # A word may contain blanks.
    text = "".join(" ".join("_".join(cell.split()) or "_" for cell in cells) + "\n" for cells in lines)
    return text and text + "\n"
