"""
TF-IDF of a classification task, by one linear model (tfidf_terms.py): the model of `--model_type tfidf`, what
`classify` trains first, a member of an ensemble with a trained encoder, and the baseline of every classifier.
"""

import logging
import time
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from transformers import EvalPrediction, PreTrainedTokenizerBase, TrainingArguments

from ..data.classification import tokenize_texts
from ..errors import UserError
from ..evaluation.reports import score_prefix
from ..models.configuration_star import StarTransformerConfig
from ..models.heads import ForSequenceClassification
from ..models.token_runs import TfidfTerms
from ..training.build import make_model
from ..training.losses import class_weights
from ..training.named_models import saved_config
from ..training.task import Task, is_scored
from .tfidf_terms import Rows, calibrated, fit_terms, linear_logits, log_losses, longest_term, mixed, temperature_of


logger = logging.getLogger(__name__)

# Of more training texts a fit would take minutes.
MOST_TEXTS = 100_000
# Of fewer the standard error says nothing.
FEWEST_HELD_OUT = 10
_NO_LIMIT = int(1e30)  # of tokens, as transformers writes it
# The encoder of a model in which TF-IDF classifies alone: the smallest one, for texts of any length.
_NO_ENCODER = (
    "hidden_size=8,num_attention_heads=1,num_hidden_layers=1,position_embedding_type=none,classifier_hidden_size=8"
)
_NAMES = ("model_name_or_path", "config_name", "model_type", "config_overrides", "embeddings_name_or_path")


# ------ what is trained


def why_alone(task: Task) -> str | None:
    """Why TF-IDF classifies without an encoder; `None`: an encoder is trained."""
    arguments, data = task.model_args, task.data
    flag = None
    if arguments.model_type == "tfidf" and arguments.model_name_or_path is None:
        flag, reason = "--model_type tfidf", "--model_type tfidf is written"
    elif getattr(saved_config(arguments, of_any_head=True), "tfidf_alone", False):
        flag, reason = "--model_name_or_path", f"{arguments.model_name_or_path} has none"
    if flag is not None:
        if task.data_args.tfidf_vote is not None:
            raise UserError(f"--tfidf_vote is about an encoder, and {reason}: omit --tfidf_vote, or {flag}.")
        return reason
    is_open = _is_default(task) and arguments.pretrained is None and task.data_args.tfidf_vote is None
    has_classes = len(data.text_columns) == 1 and data.problem_type != "regression"
    if is_open and has_classes and "train" in data.splits and len(data.splits["train"]) <= MOST_TEXTS:
        # A randomly initialised one hardly adds to it: experiments/pages/tfidf_vote.md.
        return "for a pretrained one write --pretrained NAME, for a new one --tfidf_vote true"
    return None


def _is_default(task: Task) -> bool:
    """Whether the arguments name neither a model nor its shape, or a pretrained encoder; and no teacher."""
    is_open = task.model_args.pretrained or not any(getattr(task.model_args, name) for name in _NAMES)
    return bool(is_open) and task.data_args.teacher is None


def without_encoder(task: Task) -> Task:
    """The task, with arguments that build a model for TF-IDF alone; of a saved one with its tokenizer."""
    builder, given = copy(task), task.model_args
    fields: dict[str, Any] = {"model_type": StarTransformerConfig.model_type, "config_overrides": _NO_ENCODER}
    fields |= {"tokenizer_name": given.tokenizer_name or given.encoder}
    fields |= dict.fromkeys(("model_name_or_path", "pretrained", "layers", "config_name", "embeddings_name_or_path"))
    builder.model_args = replace(given, **fields)
    return builder


class LinearModel:
    """
    TF-IDF of a run, fitted to the train split as the model reads it, whose scores on validation it logs.

    Args:
        task: a classification.
        trainer: with the features of train and validation.
        is_asked: whether TF-IDF stays whatever it adds: a flag says so, or the model that is trained had it.
        reason: why there is no encoder; `None` where one is trained.
    """

    def __init__(self, task: Task, trainer: Any, is_asked: bool, reason: str | None) -> None:
        self.task, self.is_asked, self.reason = task, is_asked, reason
        began = time.perf_counter()
        splits = {"train": trainer.train_dataset, "validation": trainer.eval_dataset}
        data = {name: (task.data.splits[name], split) for name, split in splits.items() if split is not None}
        # A student's training texts begin with the labelled ones.
        self.rows = {name: split["input_ids"][: len(given)] for name, (given, split) in data.items()}
        self.labels = {name: np.array(given[task.data.label_column][:]) for name, (given, _) in data.items()}
        try:
            self.terms = _fit(task, self.rows["train"], self.labels["train"])
        except UserError as error:
            instead = " in place of --model_type tfidf" if task.model_args.model_type == "tfidf" else ""
            raise UserError(f"{error}. To train an encoder without it, write --tfidf_vote false{instead}") from None
        self.seconds = time.perf_counter() - began
        self.logits = {name: linear_logits(self.terms, rows) for name, rows in self.rows.items() if name != "train"}
        shown = f", validation {self.metric} {self.score(self.logits['validation']):.3f}" if self.logits else ""
        logger.info(f"TF-IDF of {len(self.terms.keys):,} terms in {self.seconds:.1f} s{shown}.")

    @property
    def metric(self) -> str:
        """The name of the score that chooses models."""
        return self.task.metrics.metric_for_best_model

    def score(self, logits: np.ndarray) -> float:
        """That score on validation."""
        return self.task.metrics(EvalPrediction(predictions=logits, label_ids=self.labels["validation"]))[self.metric]

    def join(self, trainer: Any, seconds: float) -> dict[str, Any]:
        """
        Put the terms into the trained model; a model without an encoder replaces it where it adds nothing. Returns
        more results of the run.
        """
        if self.reason is not None:
            self._alone(trainer)
            self.closing = (
                f"TF-IDF, trained in {self.seconds:.1f} s without an encoder, so that epochs, learning rate and batch "
                f"size have no effect: {self.reason}"
            )
            return {"train_runtime": self.seconds, "parameters": self._parameters}
        expected, linear = self.labels["validation"], self.logits["validation"]
        predictions = trainer.predict(trainer.eval_dataset).predictions
        encoder = np.asarray(predictions[0] if isinstance(predictions, tuple) else predictions, dtype=np.float64)
        self.terms = calibrated(self.terms, encoder, linear, expected)
        both = mixed(encoder / self.terms.temperature, linear, self.terms.share, expected.ndim == 1)
        loss = log_losses(both, expected)
        # With a temperature, as the encoder has one: otherwise a gain may be calibration alone.
        tempered = linear / temperature_of(linear, expected)
        gain, error = self.gain = _mean_and_error(log_losses(tempered, expected) - loss)
        more, error_of_more = _mean_and_error(log_losses(encoder / self.terms.temperature, expected) - loss)
        scores = f"validation {self.metric} {self.score(both):.3f} of both, {self.score(linear):.3f} of TF-IDF"
        losses = f"log loss {loss.mean():.3f} and {loss.mean() + gain:.3f} (difference {-gain:+.3f} ± {error:.3f})"
        cost = f"{losses}; {seconds:.0f} s, TF-IDF {self.seconds:.1f} s"
        if self.is_asked or gain > error:
            share = f"TF-IDF has the share {self.terms.share:.2f}"
            self.closing = f"The encoder is in the ensemble, {share}: {scores}, {cost}"
            if self.is_asked or more > error_of_more:
                trainer.model.set_tfidf(self.terms)
            else:
                alone = f"validation {self.metric} {self.score(encoder):.3f} of the encoder"
                self.closing = f"The encoder classifies alone, as TF-IDF adds nothing to it: {alone}, {scores}, {cost}"
            return {}
        advice = "next time leave out --pretrained, or write --tfidf_vote false for the encoder alone"
        self.closing = f"The encoder is not kept, as it adds no more than chance: {scores}, {cost}; {advice}"
        trainer.model = trainer.model_wrapped = make_model(without_encoder(self.task), trainer.processing_class)
        trainer.model.to(trainer.args.device)
        self._alone(trainer)
        return {"parameters": self._parameters}

    def _alone(self, trainer: Any) -> None:
        self.terms = replace(self.terms, share=1.0)
        trainer.model.set_tfidf(self.terms)

    @property
    def _parameters(self) -> int:
        return self.terms.weight.numel() + self.terms.bias.numel()

    def refit(self, trainer: Any) -> None:
        """Fit the terms to all labelled texts, those of validation too, once that is scored."""
        if self.logits and trainer.model.config.tfidf_terms:
            rows = [row for part in self.rows.values() for row in part]
            terms = _fit(self.task, rows, np.concatenate([*self.labels.values()]), self.terms)
            self.terms = replace(terms, share=self.terms.share, temperature=self.terms.temperature)
            trainer.model.set_tfidf(self.terms)
            logger.info(f"TF-IDF is fitted again, to all {len(rows):,} labelled texts.")


def _fit(task: Task, rows: Rows, labels: np.ndarray, like: TfidfTerms | None = None) -> TfidfTerms:
    """
    The terms of labelled texts, with the weights of classes that the arguments set.

    Raises:
        UserError: there is nothing to fit.
    """
    column, names = task.data.text_columns[0], tuple(task.data.label_list)
    weights = class_weights(task.run_args.class_weights, names, task.data.counts("train"))
    by_class = None if weights is None else dict(enumerate(weights.tolist()))
    longest = longest_term(task.data.splits["train"][column][:200])
    terms = None
    if any(len(np.unique(column)) > 1 for column in np.atleast_2d(labels.T)):
        terms = fit_terms(rows, labels, len(names), longest, by_class, like)
    if terms is None:
        raise UserError(
            f"TF-IDF cannot be fitted to {column!r}: no word is in two training texts, but not in all, or there is "
            "only one class"
        )
    return terms


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


def take_vote(trainer: Any) -> bool:
    """Remove the vote of a saved model that is trained, whose encoder alone chooses epochs; whether there was one."""
    if not trainer.args.do_train or not getattr(trainer.model.config, "tfidf_terms", 0):
        return False
    trainer.model.set_tfidf(None)
    return True


def linear_model(task: Task, trainer: Any, had_vote: bool, reason: str | None) -> LinearModel | None:
    """TF-IDF where arguments and data ask for it and it can be fitted; otherwise `None`, and the log says why."""
    is_wanted = had_vote or _is_default(task) if task.data_args.tfidf_vote is None else task.data_args.tfidf_vote
    if not trainer.args.do_train or not (is_wanted or reason):
        return None
    is_asked = bool(task.data_args.tfidf_vote or had_vote)
    if obstacle := _obstacle(task, trainer, reason, is_asked):
        task.closing = f"The encoder, a {trainer.model.config.model_type}, classifies without TF-IDF: {obstacle}"
        if task.data_args.tfidf_vote:
            logger.warning(f"{task.closing}.")
        return None
    return LinearModel(task, trainer, is_asked, reason)


def _obstacle(task: Task, trainer: Any, reason: str | None, is_asked: bool) -> str | None:
    """Why TF-IDF cannot vote, or unasked should not, if so; a UserError where it was to classify alone."""
    if task.data.problem_type == "regression":
        if reason is not None:
            raise UserError("--model_type tfidf predicts classes, and the labels are numbers: name a neural model.")
        return "numbers are predicted"
    if reason is not None:
        return None
    if not isinstance(trainer.model, ForSequenceClassification):
        return f"a {trainer.model.config.model_type} is no encoder of this package"
    if len(task.data.text_columns) != 1:
        return "it does not compare the two texts of a pair"
    if trainer.eval_dataset is None:
        return "without a validation split nothing says how far to trust either"
    if len(trainer.eval_dataset) < FEWEST_HELD_OUT and not is_asked:
        return f"fewer than {FEWEST_HELD_OUT} validation texts do not say how far to trust either"
    if len(trainer.train_dataset) > MOST_TEXTS:
        return f"the train split has more than {MOST_TEXTS:,} texts"
    if trainer.is_fsdp_enabled:
        return "the model is sharded"
    return None


# ------ the baseline


def tfidf_scores(
    task: Task, tokenizer: PreTrainedTokenizerBase, training: TrainingArguments, linear: LinearModel | None
) -> dict[str, float]:
    """
    The scores of TF-IDF on the splits that a run scores, such as `tfidf_eval_accuracy`, on the tokens of a model; of
    pairs it reads both texts as one, of long texts all of it. Empty where there is nothing to fit or to compare.
    """
    data = task.data
    names = [split for split in data.splits if is_scored(split, training) and data.is_labelled(split)]
    has_labels = all(split in data.splits and data.is_labelled(split) for split in ("train", "validation"))
    if task.metrics.task != "single_label_classification" or not has_labels or not names:
        return {}
    if len(data.splits["train"]) > MOST_TEXTS:
        logger.info(f"TF-IDF is not fitted: the train split has more than {MOST_TEXTS:,} texts.")
        return {}
    tokenizer = copy(tokenizer)
    tokenizer.model_max_length = _NO_LIMIT

    def read(split: str) -> Rows:
        return tokenize_texts(data.splits[split], tokenizer, *data.text_columns, split=split)["input_ids"][:]

    labels = {name: np.array(data.splits[name][data.label_column][:]) for name in ("train", *names)}
    try:
        terms = _fit(task, read("train"), labels["train"]) if linear is None else linear.terms
    except UserError as error:
        logger.info(str(error))
        return {}
    scores: dict[str, float] = {}
    for split in names:
        logits = linear.logits.get(split) if linear is not None else None
        predictions = linear_logits(terms, read(split)) if logits is None else logits
        found = task.metrics(EvalPrediction(predictions=predictions, label_ids=labels[split]))
        scores |= {f"tfidf_{score_prefix(split)}_{name}": value for name, value in found.items()}
    return scores
