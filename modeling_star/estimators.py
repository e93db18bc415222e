"""A classifier and a tagger with the interface of scikit-learn: a thin layer over the tasks of the scripts."""

import contextlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, compute_class_weight
from sklearn.utils.validation import check_is_fitted

from .commands.parser import from_values
from .data.columns import check_classes
from .data.in_memory import check_lengths, labels_of, repetitions, sentences_of, tags_of, texts_of
from .data.labels import short_repr
from .data.splits import check_fraction, hold_out
from .data.writing_systems import between_words
from .errors import UserError
from .evaluation.metrics import count_examples, is_entity_scheme, score_counts
from .evaluation.reports import baseline_lines
from .files import check_new, write_json
from .inference.prediction import Dtype, Prediction, Predictor
from .inference.saved_model import SavedModel
from .runs.run import run
from .runs.terminal import quiet_libraries
from .tasks.distillation import DistillClassificationTask, DistillTaggingTask
from .tasks.sequence_classification import ClassificationTask
from .tasks.token_classification import TaggingTask
from .training.arguments import (
    ClassificationArguments,
    ClassificationModelArguments,
    LabelRunArguments,
    TaggingArguments,
    TaggingModelArguments,
)
from .training.task import Task


ESTIMATOR = "estimator.json"
"""The file with the parameters and classes of a saved estimator."""

Words = Sequence[str]
Self = TypeVar("Self", bound="StarEstimator")
logger = logging.getLogger(__name__)
_ROW = "row_given"


class ModelFiles:
    """The files of a model, in a temporary folder that lives as long as this object. A pickle holds their content."""

    def __init__(self, source: str | Path) -> None:
        self.folder = self._new_folder()
        # What else training writes are its checkpoints, and a pickle with its arguments.
        ignored = shutil.ignore_patterns("checkpoint-*", "*.lock", "*.bin", ESTIMATOR)
        shutil.copytree(source, self.folder, dirs_exist_ok=True, ignore=ignored)

    def _new_folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="modeling_star_"))
        weakref.finalize(self, _remove, folder, os.getpid())
        return folder

    def __deepcopy__(self, memo: dict[int, Any]) -> "ModelFiles":
        return self  # nothing changes the files

    def __getstate__(self) -> dict[str, Any]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {"files": {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in files}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.folder = self._new_folder()
        for name, content in state["files"].items():
            path = self.folder / name
            if self.folder.resolve() not in path.resolve().parents:
                raise UserError(f"The saved estimator has a file outside its folder, {name!r}: fit it again.")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _remove(folder: Path, process: int) -> None:
    """Remove a folder, but not in a fork of the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(eq=False, repr=False)  # scikit-learn has both
class StarEstimator(BaseEstimator):
    """
    What both estimators share. A fitted one holds the files of its model, and so do its pickles and copies.

    Args:
        model_name_or_path: a saved model to fine-tune; `None`: what the command trains without one.
        config_overrides: configuration fields to set, such as "hidden_size=128,use_crf=false".
        num_train_epochs: passes over the training data; `None`: 5, of `arguments={"pretrained": NAME}` the command's.
        learning_rate: peak; `None`: 5e-4 for a new model, 5e-5 for a saved one.
        batch_size: texts per update.
        validation_fraction: part of the texts that is held out to choose the best epoch; 0 keeps the last one.
        seed: of the weights, the order of the texts and dropout.
        arguments: any other argument of the training command by its name, such as
            `{"embeddings_name_or_path": "bert-base-cased", "max_seq_length": 256}`.
        verbose: show progress, the score of each epoch and all warnings; otherwise a fit prints one line.
        dtype: the precision of predictions, as of a `Predictor`.

    Attributes:
        classes_: the labels or tags, sorted, `[k]`.
        results_: the scores and times of the training, as in all_results.json.
        predictor_: a `Predictor` of the model, loaded when it is first used.
    """

    task: ClassVar[type[Task]]
    distillation: ClassVar[type[Task]]
    groups: ClassVar[tuple[type, ...]]
    text_column: ClassVar[str]

    classes_: np.ndarray = field(init=False)
    results_: dict[str, Any] = field(init=False)
    _files: ModelFiles = field(init=False)
    _between = " "

    model_name_or_path: str | None = None
    config_overrides: str | None = None
    num_train_epochs: float | None = None
    learning_rate: float | None = None
    batch_size: int = 32
    validation_fraction: float = 0.1
    seed: int = 42
    arguments: dict[str, Any] | None = None
    verbose: bool = False
    dtype: Dtype | None = "auto"

    def save(self, folder: str | Path) -> None:
        """
        Save the model, which every command and pipeline reads, and the parameters of the estimator.

        Raises:
            UserError: the folder is not empty.
        """
        check_is_fitted(self)
        check_new(Path(folder))
        shutil.copytree(self._files.folder, folder, dirs_exist_ok=True)
        params = self.get_params()
        if isinstance(params.get("class_weight"), Mapping):  # JSON has no keys but texts
            params["class_weight"] = [
                [*np.array([label]).tolist(), weight] for label, weight in params["class_weight"].items()
            ]
        state = {"classes": self.classes_.tolist(), "dtype": self.classes_.dtype.str, "between": self._between}
        write_json(Path(folder) / ESTIMATOR, {"estimator": type(self).__name__, "params": params, **state})

    @classmethod
    def load(cls: type[Self], folder: str | Path) -> Self:
        """
        Load a saved estimator, or any saved model of its task, such as one that a command trained.

        Raises:
            UserError: the folder has another estimator, or no model of this task with one label each.
        """
        path = Path(folder) / ESTIMATOR
        if not path.is_file():
            saved = SavedModel.load(str(folder))
            several = saved.takes_pairs or saved.config.problem_type in ("regression", "multi_label_classification")
            if saved.task != cls.task.pipeline or several:
                raise UserError(f"{folder} is no model for a {cls.__name__}: write Predictor({str(folder)!r}).")
            estimator = cls()
            estimator.classes_, estimator._files = np.array(sorted(saved.labels)), ModelFiles(folder)
            return estimator
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["estimator"] != cls.__name__:
            raise UserError(f"{folder} is a saved {content['estimator']}: write {content['estimator']}.load(...).")
        params = content["params"]
        if isinstance(params.get("class_weight"), list):
            params["class_weight"] = dict(params["class_weight"])
        estimator = cls(**params)
        estimator.classes_ = np.array(content["classes"], dtype=content.get("dtype"))
        estimator._between = content["between"]
        estimator._files = ModelFiles(folder)
        return estimator

    @cached_property
    def predictor_(self) -> Predictor:
        check_is_fitted(self)
        predictor = Predictor(self._files.folder, dtype=self.dtype)
        with _quiet():
            predictor.load()
        return predictor

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_files")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "predictor_"}

    def _fit(
        self,
        rows: Dataset,
        sample_weight: Sequence[float] | None,
        teacher: str | None,
        unlabeled: Sequence[Any] | None,
        classes: str | None = None,
        **given: Any,
    ) -> None:
        """Train on rows with the task in a temporary folder, and keep the model's files; arguments as of `fit`."""
        if unlabeled is not None and teacher is None:
            raise UserError("unlabeled texts are learned from a teacher: add teacher=FOLDER, or omit them.")
        counts = None if sample_weight is None else repetitions(sample_weight, len(rows), self.seed)
        with (
            tempfile.TemporaryDirectory(prefix="modeling_star_", ignore_cleanup_errors=True) as name,
            _messages(self.verbose) as warned,
            contextlib.nullcontext() if self.verbose else _quiet(),
        ):
            folder, arguments = Path(name), self.arguments or {}
            if files := {"train_file", "validation_file", "test_file", "dataset_name"} & arguments.keys():
                raise UserError(
                    f"arguments has {', '.join(sorted(files))}, and fit trains on what it is given: omit it; "
                    "validation_fraction holds some of it out."
                )
            epochs = 5 if self.num_train_epochs is None and "pretrained" not in arguments else self.num_train_epochs
            given = {
                "model_name_or_path": self.model_name_or_path,
                "config_overrides": self.config_overrides,
                "num_train_epochs": epochs,
                "learning_rate": self.learning_rate,
                "validation_fraction": self.validation_fraction,
                "per_device_train_batch_size": self.batch_size,
                "per_device_eval_batch_size": 64,
                "warmup_steps": 0.1,
                "seed": self.seed,
                "drop_empty": True,
                "dataset_title": "data given to fit",
                "output_dir": str(folder / "model"),
                "do_train": True,
                "do_eval": True,
                "do_predict": False,
                "disable_tqdm": not self.verbose,
                "save_total_limit": 1,
                **given,
                **arguments,
            }
            task = self.task if teacher is None else self.distillation
            if teacher is not None:
                given |= {"teacher": str(teacher), "teacher_cache": str(folder / "teacher")}
            if unlabeled is not None:
                file = folder / "unlabeled.jsonl"
                lines = (json.dumps({self.text_column: text}, ensure_ascii=False) for text in unlabeled)
                file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
                given["unlabeled_file"] = [str(file)]
            parsed = from_values(self.groups, {name: value for name, value in given.items() if value is not None})
            splits = DatasetDict({"train": rows.add_column(_ROW, range(len(rows)))})
            fraction = parsed[1].validation_fraction
            check_fraction(fraction)
            if fraction:
                splits = hold_out(splits, fraction, classes=classes)
            if counts is not None:  # not before: the validation split shares no text with train
                train = splits["train"]
                splits["train"] = train.select(np.repeat(np.arange(len(train)), counts[train[_ROW][:]]))
            model_args, data_args, run_args, training = parsed
            splits = splits.remove_columns(_ROW)
            done, self.results_ = run(task, model_args, data_args, run_args, training, splits=splits)
            self._closing = None if done.closing is None or done.why_untrained else _in_python(done.closing)
            self._files = ModelFiles(given["output_dir"])
            self.__dict__.pop("predictor_", None)
            self.predictor_.load()
        self._warnings = 0 if self.verbose else warned.count

    def _report(self, score: str) -> None:
        """Print the score on the held-out part, with that of TF-IDF, and the number of warnings."""
        parts = []
        if f"eval_{score}" in self.results_:
            lines = baseline_lines(self.results_, score)
            parts.append(lines[0] if lines else f"validation {score} {self.results_[f'eval_{score}']:.3f}")
        if self._closing:
            parts.append(self._closing)
        if self._warnings:
            parts.append(f"{self._warnings} warning{'s' * (self._warnings > 1)}, shown with verbose=True")
        if parts:
            print("; ".join(parts))


@dataclass(eq=False, repr=False)
class StarClassifier(ClassifierMixin, StarEstimator):
    """
    A text classifier, TF-IDF, an encoder or both as in `classify`, or a saved model, behind scikit-learn's interface.

    The parameters are those of `StarEstimator`, and:

    Args:
        class_weight: "balanced", or the weights of labels in the loss by label, `{"spam": 10.0}`; others have 1.

    Example:

    ```python
    >>> from sklearn.model_selection import cross_val_score
    >>> from modeling_star import StarClassifier

    >>> cross_val_score(StarClassifier(), texts, labels, cv=3)  # doctest: +SKIP
    >>> classifier = StarClassifier().fit(texts, labels)  # doctest: +SKIP
    >>> classifier.predict(["A fine film."])  # doctest: +SKIP
    ```
    """

    task = ClassificationTask
    distillation = DistillClassificationTask
    groups = (ClassificationModelArguments, ClassificationArguments, LabelRunArguments)
    text_column = "text"

    class_weight: Mapping[Any, float] | str | None = None

    def fit(
        self,
        texts: Iterable[str],
        labels: Iterable[Any],
        sample_weight: Sequence[float] | None = None,
        *,
        teacher: str | None = None,
        unlabeled: Iterable[str] | None = None,
    ) -> "StarClassifier":
        """
        Train from the beginning, and print the validation accuracy with that of TF-IDF.

        Args:
            texts: a list, an array, or a column of a DataFrame, `[n]`.
            labels: strings, whole numbers or booleans, one for each text, `[n]`.
            sample_weight: how often each text is trained on in an epoch, relative to the others, `[n]`; fractions are
                rounded up or down at random.
            teacher: folder or Hub name of a fine-tuned classifier with the same labels, to learn from.
            unlabeled: further texts for the teacher to label.

        Raises:
            UserError: the arguments or the data cannot be used.
        """
        rows = texts_of(texts, "texts", "fit([{}], labels)")
        if labels is None:
            raise UserError(
                "StarClassifier requires y to be passed, but the target y is None: write fit(texts, labels)."
            )
        values = labels_of(labels, "labels", "fit(texts, [{}])")
        check_lengths("texts", rows, "labels", values)
        if not rows:
            raise UserError("There are no texts to train on: texts is empty.")
        if not any(map(str.strip, rows)):
            raise UserError(f"All {len(rows)} texts are blank: write fit(texts, labels) with texts that have words.")
        classes, codes = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            raise UserError(
                f"The labels have {len(classes)} class, {short_repr(classes.tolist())}, and two are needed: add texts "
                "of another label."
            )
        check_classes(values.tolist(), rows, "fit has", "Write fit(texts, labels).")
        given = {}
        if self.class_weight is not None:
            weights = compute_class_weight(self.class_weight, classes=classes, y=values)
            given["class_weights"] = ",".join(map(repr, weights.tolist()))
        features = Features({"text": Value("string"), "label": ClassLabel(names=_names(classes))})
        data = Dataset.from_dict({"text": rows, "label": codes}, features=features)
        more = None if unlabeled is None else texts_of(unlabeled, "unlabeled", "unlabeled=[{}]")
        self._fit(data, sample_weight, teacher, more, "label", problem_type="single_label_classification", **given)
        self.classes_ = classes
        self._report("accuracy")
        return self

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """The label of each text, `[n]`."""
        best = self.predict_proba(texts).argmax(-1)
        return self.classes_[best]

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """The probabilities of the labels in the order of `classes_`, `[n, k]`."""
        check_is_fitted(self)
        logits = self.predictor_.logits(texts_of(texts, "texts", "predict([{}])"))
        label2id = self.predictor_.saved.config.label2id
        return softmax(logits[:, [label2id[name] for name in _names(self.classes_)]].astype(np.float64), axis=-1)


class StarTagger(StarEstimator):
    """
    A tagger of words: entities, with a CRF, or any other tags. The parameters are those of `StarEstimator`.

    Example:

    ```python
    >>> from modeling_star import StarTagger

    >>> tagger = StarTagger().fit([["Ann", "moved"]], [["B-PER", "O"]])  # doctest: +SKIP
    >>> tagger.predict([["Ann", "stayed"]])  # doctest: +SKIP
    >>> tagger.entities(["Ann stayed."])  # doctest: +SKIP
    ```
    """

    task = TaggingTask
    distillation = DistillTaggingTask
    groups = (TaggingModelArguments, TaggingArguments, LabelRunArguments)
    text_column = "tokens"

    def fit(
        self,
        sentences: Iterable[Words],
        tags: Iterable[Sequence[Any]],
        sample_weight: Sequence[float] | None = None,
        *,
        teacher: str | None = None,
        unlabeled: Iterable[Words] | None = None,
    ) -> "StarTagger":
        """
        Train from the beginning, and print the validation score: F1 of entities, or accuracy.

        Args:
            sentences: lists of words; of characters for a language without blanks.
            tags: a tag for each word, strings or whole numbers.
            sample_weight: how often each sentence is trained on in an epoch, relative to the others, `[n]`; fractions
                are rounded up or down at random.
            teacher: folder or Hub name of a fine-tuned tagger with the same tags, to learn from.
            unlabeled: further lists of words for the teacher to tag.

        Raises:
            UserError: the arguments or the data cannot be used.
        """
        rows = sentences_of(sentences, "sentences", "fit([words], [tags])")
        labels = tags_of(tags, "tags", "fit([words], [tags])")
        check_lengths("sentences", rows, "tags", labels)
        for row, (words, own) in enumerate(zip(rows, labels, strict=True)):
            check_lengths(f"sentences[{row}]", words, f"tags[{row}]", own)
        more = None if unlabeled is None else sentences_of(unlabeled, "unlabeled", "unlabeled=[words]")
        data = Dataset.from_dict({"tokens": rows, "tags": [list(map(str, own)) for own in labels]})
        self._fit(data, sample_weight, teacher, more)
        self.classes_ = np.unique(list(itertools.chain.from_iterable(labels)))
        self._between = between_words(rows)
        self._report("f1" if self._has_entities else "accuracy")
        return self

    def predict(self, texts: Iterable[Words | str]) -> list[list[Any]]:
        """The tags of lists of words; a text is split at blanks, or into characters as in training."""
        check_is_fitted(self)
        rows = sentences_of(texts, "texts", "predict([{}])", takes_texts=True)
        sentences = [self._split(text) if isinstance(text, str) else text for text in rows]
        if len(rows) > 1 and all(isinstance(text, str) and len(text.split()) == 1 for text in rows):
            logger.warning(f"Each of the {len(rows)} texts is one word: write predict([words]) for one sentence.")
        tags = dict(zip(_names(self.classes_), self.classes_.tolist(), strict=True))
        filler = "O" if "O" in tags else _names(self.classes_)[0]  # for a word without tokens
        found = self.predictor_.tag_words(sentences) if sentences else []
        return [[tags[tag or filler] for tag in row] for row in found]

    def entities(
        self, texts: Iterable[str | Words], *, min_probability: float | None = None
    ) -> list[list[Prediction]]:
        """
        The entities of each text: `label`, `start`, `end` (characters), `text` and `score`.

        Args:
            texts: plain ones, or lists of words.
            min_probability: as of a `Predictor`; each call with one loads the model again.
        """
        check_is_fitted(self)
        rows = sentences_of(texts, "texts", "entities([{}])", takes_texts=True)
        predictor = self.predictor_
        if min_probability is not None:
            predictor = Predictor(self._files.folder, dtype=self.dtype, min_probability=min_probability)
        return [predictions for _, predictions in predictor.predict(rows)] if rows else []

    def score(self, sentences: Iterable[Words], tags: Iterable[Sequence[Any]]) -> float:
        """F1 of entities, or the accuracy of other tags."""
        predicted, expected = self.predict(sentences), tags_of(tags, "tags", "score([words], [tags])")
        check_lengths("sentences", predicted, "tags", expected)
        metric = "entity_f1" if self._has_entities else "accuracy"
        return score_counts(metric, count_examples(metric, expected, predicted))

    @property
    def _has_entities(self) -> bool:
        return is_entity_scheme(_names(self.classes_))

    def _split(self, text: str) -> list[str]:
        return text.split() if self._between else list("".join(text.split()))


def _names(classes: np.ndarray) -> list[str]:
    return [str(label) for label in classes.tolist()]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Within it, training prints no scores of steps, no warnings of transformers and shows no progress bars."""
    with quiet_libraries(), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of scores on few rows
        yield


class _Warnings(logging.Handler):
    """Counts the warnings of this package, and shows them with the names of Python's parameters if `shows`."""

    def __init__(self, shows: bool) -> None:
        super().__init__(logging.WARNING)
        self.shows = shows
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if self.shows:
            record.msg, record.args = _in_python(record.getMessage()), None
            logging.getLogger().callHandlers(record)


@contextlib.contextmanager
def _messages(verbose: bool) -> Iterator[_Warnings]:
    """Warnings and errors of a fit name parameters, not flags; warnings are counted, and shown if `verbose`."""
    package = logging.getLogger(__package__)
    handler, propagates = _Warnings(verbose), package.propagate
    package.addHandler(handler)
    package.propagate = False
    try:
        yield handler
    except UserError as error:
        raise UserError(_in_python(str(error))) from error
    finally:
        package.removeHandler(handler)
        package.propagate = propagates


_PARAMETERS = {"per_device_train_batch_size": "batch_size", "class_weights": "class_weight"}
_FLAG = re.compile(r"`?--([a-z]\w*)(?: (-?\d[\d.,e-]*\d|-?\d|true|false|none|[A-Z_]{2,}))?`?")


def _in_python(message: str) -> str:
    """A message about flags, `--learning_rate 1`, as one about parameters, `learning_rate=1`."""

    def parameter(flag: re.Match[str]) -> str:
        name = _PARAMETERS.get(flag[1], flag[1])
        if name in StarClassifier().get_params():
            return name if flag[2] is None else f"{name}={flag[2]}"
        is_switch = any(getattr(group, name, None) is False for group in StarClassifier.groups)
        bare = "True" if is_switch else "..."
        value = {None: bare, "true": "True", "false": "False"}.get(flag[2], flag[2])
        return f'arguments={{"{name}": {value}}}'

    return _FLAG.sub(parameter, message)


__all__ = ["StarClassifier", "StarTagger"]
