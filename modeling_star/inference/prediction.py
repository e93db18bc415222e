"""Predict with a saved model of any task: entities, labels, numbers or answers."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..data.entities import EntityGroups
from ..data.in_memory import cells_of, inputs_of
from ..data.labels import short_repr
from ..data.text_types import QuestionContext, Text, joined
from ..data.windows import longest_run, shorten, tokenizing
from ..data.writing_systems import between_words
from ..errors import UserError
from ..version import __version__
from .batches import Batch, Outputs, check_ids, run_in_batches
from .classification import encode_texts, labelled, probabilities
from .decode import EntityDecoder
from .output_rows import Prediction
from .saved_model import SavedModel
from .tagging import TextTagger


# A model in ONNX Runtime needs neither torch nor transformers, and typed texts need no reader of files: what imports
# these is imported where it is used.
if TYPE_CHECKING:
    from datasets import Features
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_LEAST = 0.01  # probability of the spans that `n_best` lists
_LOADED = ("tokenizer", "model", "pytorch_model", "_run_model", "_map", "_tagger", "longest_run")

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


class Predictor:
    """
    Predictions of a saved model, in batches of texts of similar length.

    A predictor is a function from the columns of a batch to columns, as `datasets.Dataset.map(batched=True)` calls it.
    It can be pickled; each process loads the weights when it first predicts.

    A folder of `modeling-star export` runs in ONNX Runtime, without torch and transformers. On a CPU with compiled
    layers a BERT of transformers, or one of its kin, is computed as a BiG-Transformer of radius 128; `instructions =
    None`, at any time, leaves it as it is.

    Args:
        model: a folder or Hub name, or `SavedModel.load` of it.
        text_column_name: the column of the texts, or two with a comma between them for pairs or for questions and
            their contexts; `None`: that of the training, or one with a known name.
        pairs: whether texts are pairs; `None`: as in training.
        question: for question answering, about every text; `None`: each text has its question.
        null_threshold: for question answering, see `answer_question`.
        threshold: for several labels per text, predict those with a higher probability; `None`: 0.5.
        min_probability: for a tagger with a CRF, list all spans with at least this probability, overlapping ones too,
            in place of the best path; with `n_best` 0.01 by default.
        n_best: list at most so many spans of a text, the most probable ones.
        batch_size: the most texts predicted at once; questions are answered one by one.
        dtype: "auto": that of the saved weights, and compiled layers in bfloat16 on a CPU that has it; `None`: that of
            the saved weights throughout; "float32", "bfloat16" or "float16". An exported model has float32.

    Raises:
        UserError: an option has no effect on such a model, or one that it needs is missing.

    Example:

    ```python
    >>> from datasets import load_dataset
    >>> from modeling_star.inference import Predictor

    >>> rows = load_dataset("csv", data_files="new.csv", split="train")  # doctest: +SKIP
    >>> rows.map(Predictor("outputs/reviews"), batched=True).to_parquet("predicted.parquet")  # doctest: +SKIP
    ```
    """

    def __init__(
        self,
        model: "str | Path | SavedModel",
        *,
        text_column_name: str | None = None,
        pairs: bool | None = None,
        question: str | None = None,
        null_threshold: float | None = None,
        threshold: float | None = None,
        min_probability: float | None = None,
        n_best: int | None = None,
        batch_size: int = 128,
        dtype: Dtype | None = "auto",
    ) -> None:
        saved = model if isinstance(model, SavedModel) else SavedModel.load(str(model))
        self.saved = saved
        self.pairs = saved.task == "text-classification" and bool(saved.takes_pairs) if pairs is None else pairs
        self.question = question
        self.null_threshold = null_threshold
        self.threshold = 0.5 if threshold is None else threshold
        self.text_column_name = text_column_name
        self.batch_size = batch_size
        self.dtype = dtype
        self.delimiter: str | None = None
        """Separates the words of a text in its plain form; `None`: found for each batch."""
        self.texts_seen = self.texts_cut = 0
        if saved.onnx is not None and dtype not in (None, "auto", "float32"):
            raise UserError(f"--dtype {dtype} has no effect on {saved.name}, an exported model: omit it.")
        given = {"question": question, "null_threshold": null_threshold, "threshold": threshold}
        given |= {"min_probability": min_probability, "n_best": n_best, "pairs": self.pairs or None}
        _check_effects(saved, [name for name, value in given.items() if value is not None])
        if saved.task == "text-classification" and saved.takes_pairs not in (None, self.pairs):
            advice = (
                'pairs: write --pairs "A text." "Another text."' if saved.takes_pairs else "single texts: omit --pairs"
            )
            raise UserError(f"{saved.name} was trained on {advice}")
        if min_probability is not None and not 0 < min_probability <= 1:
            raise UserError(f"--min_probability {min_probability:g} is given: write one above 0 and up to 1, as 0.1.")
        if n_best is not None and (n_best < 1 or n_best % 1):
            raise UserError(f"--n_best {n_best} is given: write a whole number, 1 or more.")
        if saved.onnx is not None and (bound := getattr(saved.config, "entity_bound", None)):
            logger.warning(
                f"{saved.name} has an entity_bound of an earlier version, which is ignored: write --min_probability "
                f"{bound} to list all spans above it."
            )
        self.min_probability = _LEAST if min_probability is None and n_best is not None else min_probability
        self.n_best = n_best

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model."""
        return self.saved.fingerprint()

    @cached_property
    def instructions(self) -> str | None:
        """Those of compiled layers, such as "avx2"; `None`, which can be set: PyTorch."""
        return self._runtime.instructions()

    @property
    def computation(self) -> str:
        """What computes the predictions, in three lines: `modeling_star.describe` of the model."""
        return self._runtime.computation(self.model)

    @property
    def options(self) -> dict[str, Any]:
        """What the predictions of a text depend on."""
        names = ("fingerprint", "pairs", "question", "null_threshold", "threshold", "batch_size", "dtype")
        more = ("instructions", "min_probability", "n_best")
        return {"version": __version__, **{name: getattr(self, name) for name in (*names, *more)}}

    def __setattr__(self, name: str, value: Any) -> None:
        """What is loaded with other options is loaded again."""
        if name in ("instructions", "dtype", "min_probability", "n_best"):
            for each in _LOADED:
                vars(self).pop(each, None)
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in _LOADED}
        # A part of the state, so that `datasets` does not take the cached predictions of another model.
        return {**state, "fingerprint": self.fingerprint, "instructions": self.instructions}

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """
        The columns of a batch, and `found`, the list of predictions of each row; empty for a row without text.

        Raises:
            UserError: a column is no list or has no texts, or columns have different lengths.
        """
        from ..data.columns import text_columns
        from ..data.first_rows import FirstRows

        batch = {name: list(cells) if isinstance(cells, Iterator) else cells for name, cells in batch.items()}
        rows = cells_of(batch)
        if not any(rows.values()):
            return {**batch, "found": []}
        trained = self.saved.arguments
        # A column without a cell may be that of the texts.
        typed = {name: cells if any(cell is not None for cell in cells) else [""] for name, cells in rows.items()}
        columns = text_columns(
            FirstRows(typed),
            self.text_column_name,
            trained.get("text_column_name") or trained.get("source_column"),
            pairs=self.pairs,
            contexts=self.question is not None,
            questions=self.saved.task == "question-answering" and self.question is None,
        )
        cells = [rows[name] for name in columns]
        filled = [number for number, row in enumerate(zip(*cells, strict=True)) if all(row)]
        texts: list[Text] = [cells[0][number] for number in filled]
        if len(columns) == 2:
            make = QuestionContext if self.saved.task == "question-answering" else lambda *pair: pair
            sides = [joined([side[number] for number in filled]) for side in cells]
            texts = [make(*pair) for pair in zip(*sides, strict=True)]
        found: list[list[Prediction]] = [[] for _ in cells[0]]
        for number, (_, predictions) in zip(
            filled, self._predict(texts, [number + 1 for number in filled]), strict=True
        ):
            found[number] = predictions
        return {**batch, "found": found}

    def features(self, features: "Features") -> "Features":
        """The columns of predictions, for `map(..., features=...)`, where whole batches may have no entity."""
        from datasets import Features, List, Value

        return Features({**features, "found": List({name: Value(kind) for name, kind in self.fields.items()})})

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a prediction and their types."""
        span = {"start": "int64", "end": "int64", "text": "string"}
        match self.saved.task:
            case "token-classification":
                return {"label": "string", **span, "score": "float64"}
            case "question-answering":
                return {**span, "score": "float64"}
        if self.saved.config.problem_type == "regression" and self.saved.config.num_labels == 1:
            return {"value": "float64"}
        several = self.saved.config.problem_type == "multi_label_classification"
        return {"label": "string", "score": "float64", **({"predicted": "bool"} if several else {})}

    @property
    def has_several(self) -> bool:
        """Whether a text has several labels, or a number for each label."""
        problem = self.saved.config.problem_type
        return problem == "multi_label_classification" or (problem == "regression" and "label" in self.fields)

    def predict(self, texts: Sequence[Text]) -> list[tuple[Text, list[Prediction]]]:
        """
        Predict texts, pairs of texts, lists of words, or questions with their contexts.

        Returns:
            Each text, words joined, with its predictions, in the given order.

        Raises:
            UserError: these are no list, or one of them is no such text.
        """
        return self._predict(texts)

    def labels(self, texts: Sequence[Text]) -> list[Any]:
        """
        The best label of each text, as a column of a table: of several labels those that are predicted, a list, of a
        regression the number, and `None` of a text, or of one of a pair, that is empty, None or NaN.

        Raises:
            UserError: as `predict`; the model is no classifier.
        """
        rows = self._checked(texts, "text-classification", with_missing=True)
        predicted = iter(self._predict([text for text in rows if text is not None]))
        found = [None if text is None else next(predicted)[1] for text in rows]
        if "predicted" in self.fields:
            return [each and [entry["label"] for entry in each if entry["predicted"]] for each in found]
        return [each and each[0]["value" if "value" in self.fields else "label"] for each in found]

    def _predict(
        self, texts: Sequence[Text], numbers: Sequence[int] | None = None
    ) -> list[tuple[Text, list[Prediction]]]:
        """`predict`; messages name the texts by `numbers`."""
        texts = inputs_of(texts, self.saved.task, self.pairs, self.saved.name, numbers)
        if not texts:
            return []
        delimiter = self.delimiter
        if delimiter is None:
            delimiter = between_words(text for text in texts if isinstance(text, list))
        plain = joined(texts, delimiter)
        match self.saved.task:
            case "token-classification":
                found = self._tag(texts, plain, delimiter)
            case "text-classification":
                found = self._classify(plain)
            case _:
                found = [self._answer(text) for text in plain]
        self.texts_seen += len(texts)
        return list(zip(plain, found, strict=True))

    def _checked(self, texts: Sequence[Any], task: str, with_missing: bool = False) -> list[Any]:
        """The texts, for a model of this task alone; see `inputs_of`."""
        if self.saved.task != task:
            raise UserError(f"{self.saved.name} is a model for {self.saved.task}, not {task}: write predict(texts).")
        return inputs_of(texts, task, self.pairs, self.saved.name, with_missing=with_missing)

    def load(self) -> None:
        """Load tokenizer and weights, which otherwise the first texts do."""
        for name in ("tokenizer", "model", *(["_tagger"] if self.saved.task == "token-classification" else [])):
            getattr(self, name)

    def warn_about_cuts(self) -> None:
        """Log how many of the texts so far were truncated."""
        if self.texts_cut:
            limit = self.tokenizer.model_max_length
            logger.warning(
                f"{self.texts_cut} of {self.texts_seen} texts are longer than the {limit} tokens of the model: "
                "truncated."
            )

    # ------ what is loaded

    @property
    def _runtime(self) -> Any:
        """The module that loads and runs such a model: both have the same functions."""
        if self.saved.onnx is not None:
            from . import onnx_runtime

            return onnx_runtime
        from . import torch_runtime

        return torch_runtime

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The tokenizer; of an exported model a `FileTokenizer`, which has what is needed of one."""
        return self._runtime.load_tokenizer(self.saved)

    @cached_property
    def model(self) -> "PreTrainedModel":
        """The model, in eval mode; of an exported one its session."""
        return self._runtime.load(self.saved, self.dtype, self.instructions)

    @cached_property
    def pytorch_model(self) -> "PreTrainedModel":
        """The model with layers, which have gradients, attention weights and weights to save: `model`, or another."""
        from ..kernels.compiled import is_compiled

        return self._runtime.load(self.saved, self.dtype, None) if is_compiled(self.model) else self.model

    @cached_property
    def _run_model(self) -> Callable[..., Outputs]:
        """A function from the inputs of a batch, `[b, n]` each, to the outputs, in float32."""
        return self._runtime.run_model(self.model)

    @cached_property
    def _map(self) -> Callable[..., Iterator[Any]]:
        """`map`, over batches: in threads, where each computes alone."""
        return self._runtime.map_batches(self.model)

    @cached_property
    def longest_run(self) -> int | None:
        """The most letters and digits in a row that the tokenizer is given."""
        return longest_run(self.tokenizer)

    @cached_property
    def _tagger(self) -> TextTagger:
        tables = self._runtime.crf_tables(self.model, self.saved)
        decoder = EntityDecoder(self.saved.labels, self.tokenizer, tables, self.min_probability, self.n_best)
        return TextTagger(self.tokenizer, decoder, self._run, self.saved.arguments.get("stride"), self.longest_run)

    @property
    def entity_groups(self) -> EntityGroups:
        """How the labels of a tagger form entities."""
        return self._tagger.decoder.groups

    @property
    def score_is(self) -> str:
        """What the score of an entity is: "span probability" with a CRF, else "product of token probabilities"."""
        return "product of token probabilities" if self._tagger.decoder.scorer is None else "span probability"

    # ------ tasks

    def _tag(self, texts: Sequence[Text], plain: Sequence[str], delimiter: str) -> list[list[Prediction]]:
        """Entities of texts or lists of words."""
        if self.min_probability is not None and self._tagger.decoder.scorer is None:
            raise UserError(
                f"The CRF of {self.saved.name} does not know its vocabulary, so spans have no probabilities: call "
                "model.set_vocabulary(tokenizer), and save it again."
            )
        return self._tagger.entities(texts, plain, delimiter)

    def tag_words(self, sentences: Sequence[list[str]]) -> list[list[str | None]]:
        """The label of each word of some sentences, `None` for a word that the tokenizer drops."""
        sentences = self._checked(sentences, "token-classification")
        if text := next((text for text in sentences if isinstance(text, str)), None):
            raise UserError(f"{short_repr(text)} is a text, and lists of words are needed: write {text.split()[:3]}.")
        return self._tagger.tags(sentences, self.saved.config.id2label)

    def logits(self, texts: Sequence[Text]) -> np.ndarray:
        """A classifier's scores before softmax, in the order of its labels, `[n, k]`; long texts are truncated."""
        texts = joined(self._checked(texts, "text-classification"), self.delimiter)
        self.texts_seen += len(texts)
        return self._scores(texts, lambda logits: logits)

    def _classify(self, texts: Sequence[Text]) -> list[list[Prediction]]:
        """The probabilities of all labels, the best first, or a number; long texts are truncated."""
        labels, problem = self.saved.config.id2label, self.saved.config.problem_type
        scores = self._scores(texts, lambda logits: probabilities(logits, problem)).tolist()
        return [labelled(of_text, labels, problem, self.threshold) for of_text in scores]

    def _scores(self, texts: Sequence[Text], change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """What `change` makes of the logits of texts, `[n, k]`."""
        scores = np.zeros((len(texts), self.saved.config.num_labels), dtype=np.float32)
        if len(texts):
            columns, cut = encode_texts(texts, self.tokenizer, self.longest_run, self.pairs)
            self.texts_cut += cut
            for batch, _, (values,) in self._run(columns, lambda outputs: (change(outputs["logits"]),)):
                scores[batch] = values
        return scores

    def _run(
        self, columns: Mapping[str, Sequence[Any]], reduce: Callable[[Outputs], tuple[np.ndarray, ...]]
    ) -> Iterator[Batch]:
        """Batches of rows of token ids, see `run_in_batches`; scores that are no numbers are an error."""
        check_ids(columns["input_ids"], self.saved.config)
        options = (self.tokenizer, self.batch_size, self._run_model)
        for batch in run_in_batches(columns, *options, reduce, self._map):
            if not all(np.isfinite(values).all() for values in batch[-1]):
                raise _not_finite(self.saved)
            yield batch

    def _answer(self, text: Any) -> list[Prediction]:
        """The best answer to a question about its context; empty for "no answer"."""
        if not isinstance(text, QuestionContext) and self.question is None:
            raise UserError(f'{self.saved.name} answers questions: write --question "Who moved to Oslo?"')
        question, context = text if isinstance(text, QuestionContext) else (self.question, text)
        from .question_answering import answer_question

        short = shorten(context, self.longest_run)
        with tokenizing([question, context]):
            answers = answer_question(
                *(shorten(question, self.longest_run).text, short.text, self.model, self.tokenizer),
                null_threshold=self.null_threshold,
            )
        found = [answer for answer in answers if answer.text]
        spans = [short.in_whole(np.array([answer.start, answer.end])).tolist() for answer in found]
        return [
            {"start": start, "end": end, "text": context[start:end], "score": answer.score}
            for answer, (start, end) in zip(found, spans, strict=True)
        ]


def _check_effects(saved: SavedModel, names: Sequence[str]) -> None:
    """Raise a UserError where one of these options has no effect on such a model."""
    effective = {
        "text-classification": ["pairs"],
        "question-answering": ["question", "null_threshold"],
        "token-classification": ["min_probability", "n_best"],
    }
    if saved.config.problem_type == "multi_label_classification":
        effective["text-classification"].append("threshold")
    for name in names:
        if name not in effective.get(saved.task, []):
            raise UserError(f"--{name} has no effect on {saved.name}, a model for {saved.task}: omit it.")
        if name in effective["token-classification"] and not getattr(saved.config, "use_crf", False):
            raise UserError(f"--{name} needs a CRF, which {saved.name} does not have: omit it.")


def _not_finite(saved: SavedModel) -> UserError:
    if saved.onnx is not None:  # its weights were finite when it was exported
        return UserError(
            f"The scores of {saved.name} are NaN or infinite: its file may be damaged. Copy it or export it again."
        )
    return UserError(
        f"The scores of {saved.name} are NaN or infinite: its weights are too large. Train it again with a lower "
        "--learning_rate, or name another model."
    )
