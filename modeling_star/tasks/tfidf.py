"""
TF-IDF of a classification task, by one linear model (tfidf_terms.py): a member of an ensemble with the trained
encoder, the baseline of every classifier, and, with a share of 1, the model of `--model_type tfidf`.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import EvalPrediction, PreTrainedTokenizerBase, TrainingArguments

from ..data.classification import tokenize_texts
from ..errors import UserError
from ..evaluation.reports import score_prefix
from ..files import REPORT
from ..models.configuration_star import StarTransformerConfig
from ..models.heads import ForSequenceClassification
from ..models.token_runs import TfidfTerms
from ..training.build import build_parts
from ..training.checkpoints import seal_model
from ..training.losses import class_weights
from ..training.task import Task, is_scored
from .tfidf_terms import Rows, calibrated, fit_terms, linear_logits, longest_term


logger = logging.getLogger(__name__)

# Of more training texts a fit would take minutes.
MOST_TEXTS = 100_000
_NO_LIMIT = int(1e30)  # of tokens, as transformers writes it
_NO_WORD = "no word is in two training texts, but not in all"
# The encoder of a model whose share is 0: the smallest one, for texts of any length.
_NO_ENCODER = (
    "hidden_size=8,num_attention_heads=1,num_hidden_layers=1,position_embedding_type=none,classifier_hidden_size=8"
)


def run_tfidf(task: Task, training: TrainingArguments) -> dict[str, Any]:
    """Fit, score, report and save a classifier in which the encoder has no share; the content of all_results.json."""
    data = task.data
    if training.push_to_hub:
        raise UserError("--model_type tfidf is not uploaded by a training: omit --push_to_hub.")
    if len(data.text_columns) != 1 or task.metrics.task != "single_label_classification":
        raise UserError("--model_type tfidf classifies single texts with one label each: name a neural model.")
    if not _has_labels(task):
        raise UserError("--model_type tfidf needs --train_file and --validation_file with labels, or --dataset_name.")
    started = time.perf_counter()
    builder = copy(task)
    fields: dict[str, Any] = {"model_type": StarTransformerConfig.model_type, "config_overrides": _NO_ENCODER}
    builder.model_args = replace(task.model_args, **fields)
    tokenizer, model = build_parts(builder)
    try:
        terms, rows, labels = _fitted(task, tokenizer, data.splits)
    except ValueError as error:
        raise UserError(f"--model_type tfidf cannot be fitted to {data.text_columns[0]!r}: {error}.") from None
    model.set_tfidf(replace(terms, share=1.0))
    tokenizer.model_max_length = _NO_LIMIT
    results: dict[str, Any] = {
        "train_runtime": time.perf_counter() - started,
        "train_samples": len(rows["train"]),
        "parameters": terms.weight.numel() + terms.bias.numel(),
    }
    folder = Path(training.output_dir)
    for split in sorted(rows, key=lambda split: not split.startswith("validation")):
        if is_scored(split, training):
            logits = linear_logits(terms, rows[split])
            if split in labels:
                results |= _scores(task, split, logits, labels[split])
            task.report(folder / REPORT, split, data.splits[split], logits)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    seal_model(folder)
    return results


def tfidf_scores(task: Task, tokenizer: PreTrainedTokenizerBase, training: TrainingArguments) -> dict[str, float]:
    """
    The scores of TF-IDF on the splits that a run scores, such as `tfidf_eval_accuracy`, on the tokens of a model; of
    pairs it reads both texts as one, of long texts all of it. Empty where there is nothing to fit or to compare.
    """
    data = task.data
    names = [split for split in data.splits if is_scored(split, training) and data.is_labelled(split)]
    if task.metrics.task != "single_label_classification" or not _has_labels(task) or not names:
        return {}
    if len(data.splits["train"]) > MOST_TEXTS:
        logger.info(f"TF-IDF is not fitted: the train split has more than {MOST_TEXTS:,} texts.")
        return {}
    try:
        terms, rows, labels = _fitted(task, tokenizer, {"train", "validation", *names})
    except ValueError as error:
        logger.info(f"TF-IDF is not fitted: {error}.")
        return {}
    scores: dict[str, float] = {}
    for split in names:
        scores |= _scores(task, split, linear_logits(terms, rows[split]), labels[split])
    return {f"tfidf_{name}": value for name, value in scores.items()}


def _has_labels(task: Task) -> bool:
    """Whether both the training and the validation split are there, with labels."""
    return all(split in task.data.splits and task.data.is_labelled(split) for split in ("train", "validation"))


def _fitted(
    task: Task, tokenizer: PreTrainedTokenizerBase, splits: Iterable[str]
) -> tuple[TfidfTerms, dict[str, Rows], dict[str, np.ndarray]]:
    """
    The terms of the training texts; of each of some splits the token ids of its texts, and the classes if it has any.

    Raises:
        ValueError: there is nothing to fit.
    """
    data, tokenizer = task.data, copy(tokenizer)
    tokenizer.model_max_length = _NO_LIMIT
    features = {
        split: tokenize_texts(data.splits[split], tokenizer, *data.text_columns, split=split) for split in splits
    }
    rows = {split: of_split["input_ids"][:] for split, of_split in features.items()}
    labels = {split: np.array(data.splits[split][data.label_column]) for split in rows if data.is_labelled(split)}
    if len(np.unique(labels["train"])) < 2:
        raise ValueError(f"all rows of the train split have one label in {data.label_column!r}, only one class")
    terms = _fit(task, rows, labels)
    if terms is None:
        raise ValueError(_NO_WORD)
    return terms, rows, labels


def _fit(task: Task, rows: Mapping[str, Rows], labels: Mapping[str, np.ndarray]) -> TfidfTerms | None:
    """The terms of training texts, with the weights of classes that the arguments set; `None`: there are none."""
    longest = longest_term(task.data.splits["train"][task.data.text_columns[0]][:200])
    names = tuple(task.data.label_list)
    weights = class_weights(task.run_args.class_weights, names, task.data.counts("train"))
    by_class = None if weights is None else dict(enumerate(weights.tolist()))
    return fit_terms(rows["train"], labels["train"], len(names), longest, by_class)


def _scores(task: Task, split: str, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The task's scores, with the prefix of a split."""
    scores = task.metrics(EvalPrediction(predictions=logits, label_ids=labels))
    return {f"{score_prefix(split)}_{name}": value for name, value in scores.items()}


# ------ the ensemble


def take_vote(trainer: Any) -> bool:
    """Remove the vote of a saved model that is trained, whose encoder alone chooses epochs; whether there was one."""
    if not trainer.args.do_train or not getattr(trainer.model.config, "tfidf_terms", 0):
        return False
    trainer.model.set_tfidf(None)
    return True


def add_vote(task: Task, trainer: Any, had_vote: bool) -> None:
    """Let TF-IDF vote in a trained classifier where the arguments want it and it can; otherwise say why not."""
    model = trainer.model
    if not _is_wanted(task, had_vote):
        return
    if obstacle := _obstacle(task, trainer):
        _say_no_vote(task, obstacle)
        return
    splits = {"train": trainer.train_dataset, "validation": trainer.eval_dataset}
    rows = {split: features["input_ids"][:] for split, features in splits.items()}
    labels = {split: np.array(features["labels"][:]) for split, features in splits.items()}
    terms = _fit(task, rows, labels)
    if terms is None:
        _say_no_vote(task, _NO_WORD)
        return
    predictions = trainer.predict(trainer.eval_dataset).predictions
    encoder = np.asarray(predictions[0] if isinstance(predictions, tuple) else predictions, dtype=np.float64)
    linear = linear_logits(terms, rows["validation"])
    terms = calibrated(terms, encoder, linear, labels["validation"])
    model.set_tfidf(terms)
    name = task.metrics.metric_for_best_model
    alone, of_tfidf = (
        task.metrics(EvalPrediction(predictions=logits, label_ids=labels["validation"]))[name]
        for logits in (encoder, linear)
    )
    logger.info(
        f"TF-IDF of {len(terms.keys):,} terms votes with the encoder, with a share of {terms.share:.2f} (validation "
        f"{name} alone: encoder {alone:.3f}, TF-IDF {of_tfidf:.3f}); without it: --tfidf_vote false"
    )


def _say_no_vote(task: Task, obstacle: str) -> None:
    """A warning where --tfidf_vote asks for the vote; else a line of the log."""
    level = logging.WARNING if task.data_args.tfidf_vote else logging.INFO
    logger.log(level, f"TF-IDF does not vote with the encoder: {obstacle}.")


def _is_wanted(task: Task, had_vote: bool) -> bool:
    """Whether the arguments ask for a vote, or name neither a model nor its shape."""
    if task.data_args.tfidf_vote is not None:
        return task.data_args.tfidf_vote
    names = ("model_name_or_path", "config_name", "model_type", "config_overrides", "embeddings_name_or_path")
    is_default = not any(getattr(task.model_args, name) for name in names) and task.data_args.teacher is None
    return had_vote or is_default


def _obstacle(task: Task, trainer: Any) -> str | None:
    """Why TF-IDF cannot vote, if it cannot."""
    data = task.data
    if not isinstance(trainer.model, ForSequenceClassification):
        return f"a {trainer.model.config.model_type} is no encoder of this package"
    if data.problem_type == "regression":
        return "numbers are predicted"
    if len(data.text_columns) != 1:
        return "it does not compare the two texts of a pair"
    if trainer.eval_dataset is None:
        return "without a validation split nothing says how far to trust either"
    if len(trainer.train_dataset) > MOST_TEXTS:
        return f"the train split has more than {MOST_TEXTS:,} texts"
    if trainer.is_fsdp_enabled:
        return "the model is sharded"
    return None
