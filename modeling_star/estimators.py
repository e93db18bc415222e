"""A classifier and a tagger with the interface of scikit-learn: a thin layer over the tasks of the scripts."""

import contextlib
import io
import itertools
import json
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import datasets
import numpy as np
import transformers
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from .data.writing_systems import between_words
from .errors import UserError
from .evaluation.metrics import EntityScores, is_entity_scheme
from .evaluation.reports import baseline_lines, write_json
from .inference.prediction import Prediction, Predictor
from .tasks.distillation import DistillClassificationTask, DistillTaggingTask
from .tasks.sequence_classification import ClassificationTask
from .tasks.token_classification import TaggingTask
from .training.arguments import (
    ClassificationArguments,
    ClassificationModelArguments,
    LabelRunArguments,
    TaggingArguments,
    TaggingModelArguments,
    from_values,
)
from .training.checkpoints import check_new
from .training.distillation_arguments import DistillClassificationArguments, DistillTaggingArguments
from .training.run import run
from .training.task import Task


ESTIMATOR = "estimator.json"
"""The file with the parameters and classes of a saved estimator."""

Words = Sequence[str]
Self = TypeVar("Self", bound="StarEstimator")


class StarEstimator(BaseEstimator):
    """
    What both estimators share. A fitted one holds a temporary folder with the model, its scores, plots and card.

    Args:
        model_name_or_path: a saved model to fine-tune; `None`: a fresh star-plus.
        config_overrides: configuration fields to set, such as "hidden_size=128,use_crf=false".
        num_train_epochs: passes over the training data.
        learning_rate: peak; `None`: 5e-4 for a fresh model, 5e-5 for a saved one.
        batch_size: texts per update.
        validation_fraction: part of the texts that is held out to choose the best epoch; 0 keeps the last one.
        seed: of the weights, the order of the texts and dropout.
        arguments: any other argument of the training command by its name, such as
            `{"embeddings_name_or_path": "bert-base-cased", "class_weights": "balanced"}`.

    Attributes:
        classes_: the labels or tags, sorted, `[k]`.
        results_: the scores and times of the training, as in all_results.json.
        predictor_: a `Predictor` of the model.
    """

    task: ClassVar[type[Task]]
    distillation: ClassVar[type[Task]]
    groups: ClassVar[tuple[type, ...]]
    distillation_groups: ClassVar[tuple[type, ...]]
    text_column: ClassVar[str]

    classes_: np.ndarray
    results_: dict[str, Any]
    predictor_: Predictor
    _between = " "

    def __init__(
        self,
        model_name_or_path: str | None = None,
        config_overrides: str | None = None,
        num_train_epochs: float = 5,
        learning_rate: float | None = None,
        batch_size: int = 32,
        validation_fraction: float = 0.1,
        seed: int = 42,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        self.model_name_or_path = model_name_or_path
        self.config_overrides = config_overrides
        self.num_train_epochs = num_train_epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.seed = seed
        self.arguments = arguments

    def save(self, folder: str | Path) -> None:
        """
        Save the model, which every command and pipeline reads, and the parameters of the estimator.

        Raises:
            UserError: the folder is not empty.
        """
        check_new(Path(folder))
        source = self._fitted.saved.name
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("checkpoint-*", "*.lock"))
        state = {"classes": self.classes_.tolist(), "between": self._between}
        write_json(Path(folder) / ESTIMATOR, {"estimator": type(self).__name__, "params": self.get_params(), **state})

    @classmethod
    def load(cls: type[Self], folder: str | Path) -> Self:
        """
        Load a saved estimator.

        Raises:
            UserError: the folder has no ESTIMATOR, or that of another class.
        """
        path = Path(folder) / ESTIMATOR
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if content.get("estimator") != cls.__name__:
            raise UserError(f"{folder} is no saved {cls.__name__}: name a folder that {cls.__name__}.save wrote.")
        estimator = cls(**content["params"])
        estimator.classes_, estimator._between = np.array(content["classes"]), content["between"]
        estimator._load(folder)
        return estimator

    def _load(self, folder: str | Path) -> None:
        self.predictor_ = Predictor(folder)
        with _quiet():
            self.predictor_.load()

    @property
    def _fitted(self) -> Predictor:
        check_is_fitted(self, "predictor_")
        return self.predictor_

    def _fit(self, rows: Dataset, teacher: str | None, unlabeled: Sequence[Any] | None) -> None:
        """Train on rows with the task, in a new temporary folder."""
        folder = Path(tempfile.mkdtemp(prefix="modeling_star_"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        given: dict[str, Any] = {
            "model_name_or_path": self.model_name_or_path,
            "config_overrides": self.config_overrides,
            "num_train_epochs": self.num_train_epochs,
            "learning_rate": self.learning_rate,
            "validation_fraction": self.validation_fraction,
            "per_device_train_batch_size": self.batch_size,
            "per_device_eval_batch_size": 64,
            "warmup_steps": 0.1,
            "seed": self.seed,
            "dataset_title": "data given to fit",
            "output_dir": str(folder / "model"),
            "do_train": True,
            "do_eval": True,
            "do_predict": False,
            "disable_tqdm": True,
            "save_total_limit": 1,
            **(self.arguments or {}),
        }
        task, groups = self.task, self.groups
        if teacher is not None:
            task, groups = self.distillation, self.distillation_groups
            given |= {"teacher": str(teacher), "teacher_cache": str(folder / "teacher")}
            if unlabeled is not None:
                file = folder / "unlabeled.jsonl"
                lines = (json.dumps({self.text_column: text}, ensure_ascii=False) for text in unlabeled)
                file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
                given["unlabeled_file"] = [str(file)]
        elif unlabeled is not None:
            raise UserError("unlabeled texts are learned from a teacher: add teacher=FOLDER, or omit them.")
        parsed = from_values(groups, {name: value for name, value in given.items() if value is not None})
        task_class = type(task.__name__, (task,), {"load_splits": lambda _: DatasetDict({"train": rows})})
        with _quiet():
            self.results_ = run(task_class, *parsed)
            self._load(given["output_dir"])

    def _report(self, score: str) -> None:
        """Print the score on the held-out part, beside that of TF-IDF."""
        if f"eval_{score}" in self.results_:
            lines = baseline_lines(self.results_, score)
            print(lines[0] if lines else f"validation {score} {self.results_[f'eval_{score}']:.3f}")


class StarClassifier(ClassifierMixin, StarEstimator):
    """
    A text classifier: a star-plus with fresh weights, or any saved model, behind scikit-learn's interface.

    The parameters are those of `StarEstimator`.

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
    distillation_groups = (ClassificationModelArguments, DistillClassificationArguments, LabelRunArguments)
    text_column = "text"

    def fit(
        self,
        texts: Sequence[str],
        labels: Sequence[Any],
        *,
        teacher: str | None = None,
        unlabeled: Sequence[str] | None = None,
    ) -> "StarClassifier":
        """
        Train from the beginning, and print the validation accuracy beside that of TF-IDF.

        Args:
            texts, labels: of the same length; labels are strings or numbers.
            teacher: folder or Hub name of a fine-tuned classifier with the same labels, to learn from.
            unlabeled: further texts for the teacher to label.

        Raises:
            UserError: the arguments or the data cannot be used.
        """
        classes, codes = np.unique(np.asarray(labels), return_inverse=True)
        features = Features({"text": Value("string"), "label": ClassLabel(names=_names(classes))})
        rows = Dataset.from_dict({"text": list(texts), "label": codes}, features=features)
        self._fit(rows, teacher, unlabeled)
        self.classes_ = classes
        self._report("accuracy")
        return self

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """The label of each text, `[n]`."""
        best = self.predict_proba(texts).argmax(-1)
        return self.classes_[best]

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """The probabilities of the labels in the order of `classes_`, `[n, k]`."""
        found = [predictions for _, predictions in self._fitted.predict(list(texts))]
        rows = [{each["label"]: each["score"] for each in predictions} for predictions in found]
        scores = np.array([[row[name] for name in _names(self.classes_)] for row in rows])
        return scores / scores.sum(-1, keepdims=True)  # they are rounded


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
    distillation_groups = (TaggingModelArguments, DistillTaggingArguments, LabelRunArguments)
    text_column = "tokens"

    def fit(
        self,
        sentences: Sequence[Words],
        tags: Sequence[Sequence[str]],
        *,
        teacher: str | None = None,
        unlabeled: Sequence[Words] | None = None,
    ) -> "StarTagger":
        """
        Train from the beginning, and print the validation score: F1 of entities, or accuracy.

        Args:
            sentences: lists of words; of characters for a language without blanks.
            tags: a tag for each word.
            teacher: folder or Hub name of a fine-tuned tagger with the same tags, to learn from.
            unlabeled: further lists of words for the teacher to tag.

        Raises:
            UserError: the arguments or the data cannot be used.
        """
        self._fit(Dataset.from_dict({"tokens": list(sentences), "tags": list(tags)}), teacher, unlabeled)
        self.classes_ = np.unique(list(itertools.chain.from_iterable(tags)))
        self._between = between_words(sentences)
        self._report("f1" if self._has_entities else "accuracy")
        return self

    def predict(self, texts: Sequence[Words | str]) -> list[list[str]]:
        """The tags of lists of words; a text is split at blanks, or into characters as in training."""
        sentences = [self._split(text) if isinstance(text, str) else list(text) for text in texts]
        filler = "O" if "O" in self.classes_ else str(self.classes_[0])  # for a word without tokens
        return [[tag or filler for tag in tags] for tags in self._fitted.tag_words(sentences)]

    def entities(self, texts: Sequence[str | Words]) -> list[list[Prediction]]:
        """The entities of each text: `label`, `start`, `end` (characters), `text` and `score`."""
        plain = [text if isinstance(text, str) else list(text) for text in texts]
        return [predictions for _, predictions in self._fitted.predict(plain)]

    def score(self, sentences: Sequence[Words], tags: Sequence[Sequence[str]]) -> float:
        """F1 of entities, or the accuracy of other tags."""
        predicted = self.predict(sentences)
        if self._has_entities:
            expected = [list(row) for row in tags]
            return float(EntityScores().compute(references=expected, predictions=predicted)["overall_f1"])
        pairs = zip(itertools.chain.from_iterable(tags), itertools.chain.from_iterable(predicted), strict=True)
        return float(np.mean([tag == guess for tag, guess in pairs]))

    @property
    def _has_entities(self) -> bool:
        return is_entity_scheme(self.classes_.tolist())

    def _split(self, text: str) -> list[str]:
        return text.split() if self._between else list("".join(text.split()))


def _names(classes: np.ndarray) -> list[str]:
    return [str(label) for label in classes.tolist()]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Within it, training prints no scores of steps and shows no progress bars; warnings are logged as ever."""
    shown = transformers.utils.logging.is_progress_bar_enabled(), not datasets.are_progress_bars_disabled()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        if shown[0]:
            transformers.utils.logging.enable_progress_bar()
        if shown[1]:
            datasets.enable_progress_bars()


__all__ = ["StarClassifier", "StarTagger"]
