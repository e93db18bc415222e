"""Predict with a saved model of any task: entities, labels, numbers or answers."""

import hashlib
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..data.entities import EntityGroups, aggregation_for
from ..data.in_memory import cells_of, inputs_of
from ..data.labels import short_repr
from ..data.text_types import QuestionContext, Text, joined
from ..data.windows import Shortened, Window, cut_windows, longest_run, max_length_or_none, shorten, tokenizing
from ..data.writing_systems import between_words
from ..errors import UserError
from ..files import check_files, check_labels, read_fields
from ..version import __version__
from .output_rows import Prediction
from .span_probabilities import SpanScorer


# A model in ONNX Runtime needs neither torch nor transformers, and typed texts need no reader of files: what imports
# these is imported where it is used.
if TYPE_CHECKING:
    from datasets import Features
    from tokenizers import Encoding
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_TASKS = {
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForQuestionAnswering": "question-answering",
}
_MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "arguments.json")
# Of a batch, padding included: a limit on memory, and on what a processor's caches must hold.
_TOKENS_AT_ONCE = 8192
_LONG = 50_000  # tokens of a text that has a warning: 12 kB each at a width of 300
_LEAST = 0.01  # probability of the spans that `n_best` lists


Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class SavedModel:
    """
    A saved model before its weights are loaded.

    Args:
        name: folder or Hub name.
        task: "token-classification", "text-classification", "question-answering" or "tfidf".
        arguments: of its training, where the folder has them.
        config: of a model of transformers, or the fields of its file.
        remote: `trust_remote_code` for `from_pretrained`.
        onnx: the file for ONNX Runtime, of an exported model.
    """

    name: str
    task: str
    arguments: dict[str, Any] = field(default_factory=dict)
    config: Any = field(default_factory=lambda: SimpleNamespace(problem_type=None))
    remote: dict[str, bool] = field(default_factory=dict)
    onnx: Path | None = None

    @classmethod
    def load(cls, name: str, trust_remote_code: bool = False, as_written: bool = False) -> "SavedModel":
        """
        Read the configuration of a model, and the arguments of its training.

        Args:
            name: folder or Hub name; a folder of `modeling-star export`.
            trust_remote_code: run the code in the folder.
            as_written: read config.json without transformers, whose import takes seconds.

        Raises:
            UserError: it is a model for another task, or its tables of labels are wrong.
        """
        onnx = exported_file(name)
        folder = Path(name) if onnx is None else onnx.parent
        if onnx is not None:
            check_files(str(folder))
        path = folder / "arguments.json"
        arguments = read_fields(path) if path.is_file() else {}
        if arguments.get("model_type") == "tfidf":
            return cls(name, "tfidf", arguments)
        if onnx is None and not as_written:
            from ..loading import load_config
            from ..training.sources import check_exists

            check_exists("MODEL", name)
            config = load_config(name, trust_remote_code=trust_remote_code)
        else:
            config = read_config(folder)
        architecture = (config.architectures or [""])[0]
        task = next((task for ending, task in _TASKS.items() if architecture.endswith(ending)), None)
        if task is None:
            raise UserError(f"{name} is a {architecture}, which tags, classifies or answers nothing.")
        if onnx is not None and task == "question-answering":
            raise UserError(
                f"{name} is an exported model for questions, whose windows need PyTorch: name the folder of its "
                f"training, or write python {folder / 'predict.py'} --pairs QUESTION CONTEXT"
            )
        return cls(name, task, arguments, config, {"trust_remote_code": trust_remote_code}, onnx)

    @property
    def takes_pairs(self) -> bool | None:
        """Whether a classifier was trained on pairs of texts; `None` where that is not known."""
        columns = self.arguments.get("text_columns")
        is_siamese = getattr(self.config, "pair_mode", None) == "siamese"
        return True if is_siamese else len(columns) == 2 if columns else None

    def fingerprint(self) -> str:
        """A hash of the weights, the configuration and the tokenizer; of a model on the Hub, its commit."""
        folder = Path(self.name) if self.onnx is None else self.onnx.parent
        if not folder.is_dir():
            # transformers has no public name for it (seen in 5.23)
            return f"{self.name}@{self.config._commit_hash}"
        content = hashlib.blake2b(digest_size=16)
        for path in sorted(folder.iterdir()):
            is_weights = path.suffix in (".safetensors", ".bin") if self.onnx is None else path == self.onnx
            if is_weights or path.name in _MODEL_FILES:
                with open(path, "rb") as file:
                    content.update(path.name.encode() + hashlib.file_digest(file, "blake2b").digest())
        return content.hexdigest()


class Predictor:
    """
    Predictions of a saved model, in batches of texts of similar length.

    A predictor is a function from the columns of a batch to columns, as `datasets.Dataset.map(batched=True)` calls it.
    It can be pickled; each process loads the weights when it first predicts.

    A folder of `modeling-star export` runs in ONNX Runtime, without torch and transformers.

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
        dtype: "auto": that of the saved weights, and compiled layers in bfloat16 on a CPU with AMX; `None`: that of
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
        if saved.onnx is not None and dtype not in (None, "auto", "float32"):
            raise UserError(f"--dtype {dtype} has no effect on {saved.name}, an exported model: omit it.")
        self.dtype = dtype
        self.delimiter: str | None = None
        """Separates the words of a text in its plain form; `None`: found for each batch."""
        self.texts_seen = self.texts_cut = 0
        tagging = {"min_probability": min_probability, "n_best": n_best}
        effective = {
            "text-classification": ["pairs"],
            "question-answering": ["question", "null_threshold"],
            "token-classification": list(tagging),
        }
        if saved.config.problem_type == "multi_label_classification":
            effective["text-classification"].append("threshold")
        given = {"question": question, "null_threshold": null_threshold, "threshold": threshold, **tagging}
        for name, value in {"pairs": self.pairs or None, **given}.items():
            if value is not None and name not in effective.get(saved.task, []):
                raise UserError(f"--{name} has no effect on {saved.name}, a model for {saved.task}: omit it.")
        if saved.task == "text-classification" and saved.takes_pairs not in (None, self.pairs):
            advice = (
                'pairs: write --pairs "A text." "Another text."' if saved.takes_pairs else "single texts: omit --pairs"
            )
            raise UserError(f"{saved.name} was trained on {advice}")
        for name, value in tagging.items():
            if value is not None and not getattr(saved.config, "use_crf", False):
                raise UserError(f"--{name} needs a CRF, which {saved.name} does not have: omit it.")
        if min_probability is not None and not 0 < min_probability <= 1:
            raise UserError(f"--min_probability {min_probability:g} is given: write one above 0 and up to 1, as 0.1.")
        if n_best is not None and (n_best < 1 or n_best % 1):
            raise UserError(f"--n_best {n_best} is given: write a whole number, 1 or more.")
        if saved.onnx is not None and (bound := getattr(saved.config, "entity_bound", None)):
            logger.warning(
                f"{saved.name} has an entity_bound of an earlier version, which is ignored: write --min_probability "
                f"{bound} to list all spans above it."
            )
        least = None if n_best is None else _LEAST
        self.min_probability = least if min_probability is None else min_probability
        self.n_best = n_best

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model."""
        return self.saved.fingerprint()

    @cached_property
    def instructions(self) -> str | None:
        """Those of compiled layers, such as "avx2"; `None`: PyTorch, which can be set before the model is loaded."""
        if self.saved.onnx is not None or self.saved.task == "tfidf":
            return None
        from .torch_runtime import instructions

        return instructions()

    @property
    def computation(self) -> str:
        """What computes the predictions, in three lines: `modeling_star.describe` of the model."""
        if self.saved.onnx is not None or self.saved.task == "tfidf":
            library = "ONNX Runtime" if self.saved.onnx is not None else "scikit-learn"
            return f"library: {library}\nnumbers: those of the file\ncompiled: no, it is no model of PyTorch"
        from ..kernels.compiled import describe

        return describe(self.model)

    @property
    def options(self) -> dict[str, Any]:
        """What the predictions of a text depend on."""
        names = ("fingerprint", "pairs", "question", "null_threshold", "threshold", "batch_size", "dtype")
        more = ("instructions", "min_probability", "n_best")
        return {"version": __version__, **{name: getattr(self, name) for name in (*names, *more)}}

    def __getstate__(self) -> dict[str, Any]:
        loaded = (
            "tokenizer",
            "model",
            "pytorch_model",
            "_run_model",
            "_map",
            "entity_groups",
            "_scorer",
            "token_lengths",
            "longest_run",
        )
        state = {name: value for name, value in vars(self).items() if name not in loaded}
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

    def _predict(
        self, texts: Sequence[Text], numbers: Sequence[int] | None = None
    ) -> list[tuple[Text, list[Prediction]]]:
        """`predict`; messages name the texts by `numbers`."""
        texts = inputs_of(texts, self.saved.task, self.pairs, self.saved.name, numbers)
        if not texts:
            return []
        plain = joined(texts, self.delimiter)
        match self.saved.task:
            case "token-classification":
                found = self._tag(texts, plain)
            case "text-classification":
                found = self._classify(plain)
            case "question-answering":
                found = [self._answer(text) for text in plain]
            case _:
                found = list(_classify_by_terms(self.saved, plain))
        self.texts_seen += len(texts)
        return list(zip(plain, found, strict=True))

    def _checked(self, texts: Sequence[Any], task: str) -> list[Any]:
        """The texts, for a model of this task alone."""
        if self.saved.task != task:
            raise UserError(f"{self.saved.name} is a model for {self.saved.task}, not {task}: write predict(texts).")
        return inputs_of(texts, task, self.pairs, self.saved.name)

    def load(self) -> None:
        """Load tokenizer and weights, which otherwise the first texts do."""
        for name in () if self.saved.task == "tfidf" else ("tokenizer", "model", "_scorer"):
            getattr(self, name)

    def warn_about_cuts(self) -> None:
        """Log how many of the texts so far were truncated."""
        if self.texts_cut:
            limit = self.tokenizer.model_max_length
            logger.warning(
                f"{self.texts_cut} of {self.texts_seen} texts are longer than the {limit} tokens of the model: "
                "truncated."
            )

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The tokenizer; of an exported model a `FileTokenizer`, which has what is needed of one."""
        if self.saved.onnx is not None:
            from .onnx_runtime import FileTokenizer

            return FileTokenizer(self.saved.onnx.parent, [each.name for each in self.model.get_inputs()])
        from ..loading import load_tokenizer
        from ..models.modeling_encoder import longest_input

        tokenizer = load_tokenizer(self.saved.name, **self.saved.remote)
        if self.saved.task in ("token-classification", "text-classification"):
            limit = longest_input(self.saved.config) or sys.maxsize
            tokenizer.model_max_length = min(tokenizer.model_max_length, limit)
        return tokenizer

    @cached_property
    def model(self) -> "PreTrainedModel":
        """The model, in eval mode; of an exported one its session."""
        if self.saved.onnx is not None:
            from .onnx_runtime import open_session

            return open_session(self.saved.onnx)
        from .torch_runtime import load

        return load(self.saved, self.dtype, self.instructions)

    @cached_property
    def pytorch_model(self) -> "PreTrainedModel":
        """The model with layers, which have gradients, attention weights and weights to save: `model`, or another."""
        from ..kernels.compiled import is_compiled
        from .torch_runtime import load

        return load(self.saved, self.dtype, None) if is_compiled(self.model) else self.model

    @cached_property
    def _run_model(self) -> Callable[..., dict[str, np.ndarray]]:
        """A function from the inputs of a batch, `[b, n]` each, to the outputs, in float32."""
        if self.saved.onnx is not None:
            from .onnx_runtime import run_session

            return run_session(self.model)
        from .torch_runtime import run_model

        return run_model(self.model)

    @cached_property
    def _map(self) -> Callable[..., Iterator[Any]]:
        """`map`, over batches: in threads, where each computes alone."""
        if self.saved.onnx is not None:
            return map
        from .torch_runtime import map_batches

        return map_batches(self.model)

    @cached_property
    def entity_groups(self) -> EntityGroups:
        return EntityGroups(list(self.saved.config.id2label.values()))

    @cached_property
    def _scorer(self) -> SpanScorer | None:
        """Probabilities of spans by the CRF; `None` without one."""
        if self.saved.onnx is not None:
            from .onnx_runtime import crf_tables as of_folder

            tables = of_folder(self.saved.onnx.parent, self.model, len(self.saved.config.id2label))
        else:
            from .torch_runtime import crf_tables

            tables = crf_tables(self.model)
        return None if tables is None else SpanScorer(self.entity_groups, **tables)

    @property
    def score_is(self) -> str:
        """What the score of an entity is: "span probability" with a CRF, else "product of token probabilities"."""
        return "product of token probabilities" if self._scorer is None else "span probability"

    @cached_property
    def longest_run(self) -> int | None:
        """The most letters and digits in a row that the tokenizer is given."""
        return longest_run(self.tokenizer)

    @cached_property
    def token_lengths(self) -> np.ndarray | None:
        """
        The number of characters of each vocabulary entry, `[V]`, marker included: a token that has another number of
        characters in the text continues a word. `None` where each token is a word; empty for tokenizers without a
        marker of continuations.
        """
        if aggregation_for(self.tokenizer) == "simple":
            return None
        if not getattr(self.tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None):
            return np.zeros(0, dtype=np.int64)
        return np.array(
            [len(token or "") for token in self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))]
        )

    def _tag(self, texts: Sequence[Text], plain: Sequence[str]) -> list[list[Prediction]]:
        """Entities of texts or lists of words, with offsets in the plain text; long texts are read in windows."""
        if self.min_probability is not None and self._scorer is None:
            raise UserError(
                f"The CRF of {self.saved.name} does not know its vocabulary, so spans have no probabilities: call "
                "model.set_vocabulary(tokenizer), and save it again."
            )
        delimiter = self.delimiter
        if delimiter is None:
            delimiter = between_words(text for text in texts if isinstance(text, list))
        found: list[list[Prediction]] = [[] for _ in texts]
        tagged: list[_Tagged] = []
        for are_words in (False, True):
            members = [number for number, text in enumerate(texts) if isinstance(text, list) == are_words]
            encodings = self._encode([texts[number] for number in members], are_words)
            for row, labels, scores, *of_crf in self._token_labels(encodings):
                if self.min_probability is None and (labels == self.entity_groups.outside).all():
                    continue
                number, begins = members[row], None
                if are_words:
                    begins = np.cumsum([0, *(len(word) + len(delimiter) for word in texts[number])])
                words = self._words(plain[number], texts[number], encodings[row], begins)
                if self.min_probability is None:
                    found[number] = self._entities(words, labels, scores)
                if of_crf and len(words.firsts):
                    tagged.append(_Tagged(found[number], words, np.array(encodings[row].ids), labels, *of_crf))
        if tagged and self.min_probability is None:
            _score_spans(tagged, self._scorer, self.entity_groups)
        elif tagged:
            _list_spans(tagged, self._scorer, self.entity_groups, self.min_probability, self.n_best)
        return found

    def tag_words(self, sentences: Sequence[list[str]]) -> list[list[str | None]]:
        """The label of each word of some sentences, `None` for a word that the tokenizer drops."""
        names = self.saved.config.id2label
        sentences = self._checked(sentences, "token-classification")
        if text := next((text for text in sentences if isinstance(text, str)), None):
            raise UserError(f"{short_repr(text)} is a text, and lists of words are needed: write {text.split()[:3]}.")
        tags: list[list[str | None]] = [[None] * len(words) for words in sentences]
        encodings = self._encode(sentences, are_words=True)
        for row, labels, *_ in self._token_labels(encodings):
            words = encodings[row].word_ids
            for column in reversed(range(len(words))):  # the first token of a word decides
                if words[column] is not None:
                    tags[row][words[column]] = names[int(labels[column])]
        return tags

    def _encode(self, texts: Sequence[Any], are_words: bool) -> list["Encoding"]:
        # Not by the tokenizer's own call: lists of offsets are needed only where there are entities.
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        short = [
            [self._shortened(word).text for word in text] if are_words else self._shortened(text).text
            for text in texts
        ]
        with tokenizing(texts):
            return backend.encode_batch(short, is_pretokenized=are_words)

    def _shortened(self, text: str) -> Shortened:
        return shorten(text, self.longest_run)

    def _token_labels(self, encodings: Sequence["Encoding"]) -> Iterator[tuple[Any, ...]]:
        """
        The row of a text, and the label and its probability for each of its tokens `[n]`, short texts first; with a
        CRF also the log marginals and the messages `[n, k]`. Texts beyond the model's limit are read in windows, as in
        the evaluation of a training; then those of special tokens are 0.
        """
        limit = max_length_or_none(self.tokenizer.model_max_length)
        stride = self.saved.arguments.get("stride") or (limit or 0) // 8
        from_end = self.tokenizer.truncation_side == "left"
        columns: dict[str, list[np.ndarray]] = {"input_ids": [], "token_type_ids": []}
        windows: list[tuple[int, Window]] = []
        for row, encoding in enumerate(encodings):
            ids, types = np.array(encoding.ids), np.array(encoding.type_ids)
            is_content = np.array(encoding.special_tokens_mask) == 0
            for window in cut_windows(is_content, limit, stride, from_end=from_end):
                windows.append((row, window))
                columns["input_ids"].append(ids[window.tokens])
                columns["token_type_ids"].append(types[window.tokens])
        waiting = Counter(row for row, _ in windows)
        whole: dict[int, list[np.ndarray]] = {}
        for number, *parts in self._labels(columns, range(len(windows))):
            row, window = windows[number]
            length = len(encodings[row].ids)
            if len(window.tokens) < length:
                read = window.tokens[window.read]
                joined = whole.setdefault(
                    row, [np.zeros_like(part, shape=(length, *part.shape[1:])) for part in parts]
                )
                for part, of_window in zip(joined, parts, strict=True):
                    part[read] = of_window[window.read]
                parts = joined
            waiting[row] -= 1
            if not waiting[row]:
                yield row, *whole.pop(row, parts)

    def _labels(self, columns: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """What `_token_labels` gives for some rows, shorter rows first."""
        has_scorer = self._scorer is not None

        def best(outputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
            probabilities = _softmax(outputs["logits"])
            paths, messages = outputs.get("paths"), outputs.get("messages")
            labels = probabilities.argmax(-1) if paths is None else paths.clip(min=0)
            scores = np.take_along_axis(probabilities, labels[..., None], -1)[..., 0]
            return (labels, scores, outputs["logits"], messages) if has_scorer else (labels, scores)

        for batch, mask, outputs in self._forward(columns, rows, best):
            ends = mask.sum(1).cumsum()[:-1]
            parts = (np.split(values[mask], ends) for values in outputs)
            yield from zip(batch, *parts, strict=True)

    def _words(self, text: str, given: Any, encoding: "Encoding", begins: np.ndarray | None) -> "_Words":
        """The words of a plain text, `given` as such or as words, whose first characters are `begins`."""
        content = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)
        if not len(content):
            return _Words(text, content, content, content, content)
        ids, offsets = np.array(encoding.ids)[content], np.array(encoding.offsets)[content]
        if begins is None:
            offsets = self._shortened(text).in_whole(offsets)
        else:
            words = [encoding.word_ids[column] for column in content]
            inside = [self._shortened(given[word]).in_whole(pair) for word, pair in zip(words, offsets, strict=True)]
            offsets = np.array(inside) + begins[words][:, None]
        lengths = self.token_lengths
        firsts = np.arange(len(ids))
        if lengths is not None:
            if len(lengths):
                continues = lengths[ids] != offsets[:, 1] - offsets[:, 0]
            else:
                continues = np.array([start > 0 and " " not in text[start - 1 : start + 1] for start in offsets[:, 0]])
            continues[ids == self.tokenizer.unk_token_id] = False
            continues[0] = False
            firsts = np.flatnonzero(~continues)
        lasts = np.append(firsts[1:], len(ids)) - 1
        return _Words(text, content[firsts], content[lasts], offsets[firsts, 0], offsets[lasts, 1])

    def _entities(self, words: "_Words", labels: np.ndarray, scores: np.ndarray) -> list[Prediction]:
        """The entities of a text from the labels and scores of its tokens, `[n]` each."""
        labels, scores = labels[words.firsts], scores[words.firsts].astype(np.float64)
        return [  # without a CRF labels are independent
            words.entity(kind, first, last - 1, scores[first:last].prod())
            for kind, first, last in self.entity_groups(labels)
        ]

    def logits(self, texts: Sequence[Text]) -> np.ndarray:
        """A classifier's scores before softmax, in the order of its labels, `[n, k]`; long texts are truncated."""
        texts = joined(self._checked(texts, "text-classification"), self.delimiter)
        logits = np.zeros((len(texts), self.saved.config.num_labels), dtype=np.float32)
        if len(texts):
            encoded = self._encode_to_classify(texts)
            for batch, _, (values,) in self._forward(encoded, range(len(texts)), lambda outputs: (outputs["logits"],)):
                logits[batch] = values
            self.texts_seen += len(texts)
        return logits

    def _encode_to_classify(self, texts: Sequence[Text]) -> Mapping[str, Sequence[Any]]:
        """The columns of token ids; long texts are truncated."""
        limit = max_length_or_none(self.tokenizer.model_max_length)
        given: list[list[Any]] = [*map(list, zip(*texts, strict=True))] if self.pairs else [list(texts)]
        sides = [[self._shortened(text).text for text in side] for side in given]
        with tokenizing(texts):
            encoded = self.tokenizer(*sides, verbose=False)
        if limit is not None:
            cut = sum(len(ids) > limit for ids in encoded["input_ids"])
            self.texts_cut += cut
            encoded = self.tokenizer(*sides, truncation=True, max_length=limit) if cut else encoded
        return encoded

    def _classify(self, texts: Sequence[Text]) -> list[list[Prediction]]:
        """The probabilities of all labels, the best first, or a number; long texts are truncated."""
        config = self.saved.config
        found: list[list[Prediction]] = [[] for _ in texts]

        def probabilities(outputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray]:
            # As the pipeline "text-classification" does.
            logits = outputs["logits"]
            if config.problem_type == "regression":
                return (logits,)
            if config.problem_type == "multi_label_classification" or config.num_labels == 1:
                return (_sigmoid(logits),)
            return (_softmax(logits),)

        for batch, _, (scores,) in self._forward(self._encode_to_classify(texts), range(len(texts)), probabilities):
            for row, values in zip(batch, scores.tolist(), strict=True):
                found[row] = self._labelled(values)
        return found

    def _labelled(self, scores: list[float]) -> list[Prediction]:
        config = self.saved.config
        if config.problem_type == "regression" and len(scores) == 1:
            return [{"value": scores[0]}]
        order = sorted(range(len(scores)), key=lambda label: -scores[label])
        labels: list[Prediction] = [{"label": config.id2label[each], "score": scores[each]} for each in order]
        if config.problem_type == "multi_label_classification":
            for label, each in zip(labels, order, strict=True):
                label["predicted"] = scores[each] > self.threshold
        return labels

    def _forward(
        self,
        columns: Mapping[str, Sequence[Any]],
        rows: Sequence[int],
        reduce: Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, ...]],
    ) -> Iterator[tuple[list[int], np.ndarray, tuple[np.ndarray, ...]]]:
        """The rows of each batch, the mask `[b, n]` of their tokens, and what `reduce` makes of the outputs."""
        fillers = {"input_ids": self.tokenizer.pad_token_id or 0, "token_type_ids": self.tokenizer.pad_token_type_id}
        names = [name for name in fillers if name in columns and name in self.tokenizer.model_input_names]
        lengths = [len(ids) for ids in columns["input_ids"]]
        if (longest := max(lengths, default=0)) > _LONG:
            logger.warning(
                f"A text has {longest:,} tokens, and memory and time grow with it: divide it, or train with "
                "--max_seq_length 512."
            )
        run_model = self._run_model

        def run(batch: list[int]) -> tuple[list[int], np.ndarray, tuple[np.ndarray, ...]]:
            counts = np.array([lengths[row] for row in batch])
            mask = np.arange(counts.max()) < counts[:, None]
            if self.tokenizer.padding_side == "left":
                mask = mask[:, ::-1]
            inputs = {"attention_mask": mask.astype(np.int64)}
            for name in names:
                inputs[name] = np.full(mask.shape, fillers[name])
                inputs[name][mask] = np.concatenate([columns[name][row] for row in batch])
            reduced = reduce(run_model(**inputs))
            if not all(np.isfinite(values).all() for values in reduced):
                raise _not_finite(self.saved)
            return batch, mask, reduced

        yield from self._map(run, length_sorted_batches(rows, lengths, self.batch_size))

    def _answer(self, text: Any) -> list[Prediction]:
        """The best answer to a question about its context; empty for "no answer"."""
        if not isinstance(text, QuestionContext) and self.question is None:
            raise UserError(f'{self.saved.name} answers questions: write --question "Who moved to Oslo?"')
        question, context = text if isinstance(text, QuestionContext) else (self.question, text)
        from .question_answering import answer_question

        short = self._shortened(context)
        with tokenizing([question, context]):
            answers = answer_question(
                *(self._shortened(question).text, short.text, self.model, self.tokenizer),
                null_threshold=self.null_threshold,
            )
        found = [answer for answer in answers if answer.text]
        spans = [short.in_whole(np.array([answer.start, answer.end])).tolist() for answer in found]
        return [
            {"start": start, "end": end, "text": context[start:end], "score": answer.score}
            for answer, (start, end) in zip(found, spans, strict=True)
        ]


def length_sorted_batches(rows: Sequence[int], lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Batches of some rows, short ones first; with fewer than `batch_size` rows where they are long."""
    batch: list[int] = []
    for row in sorted(rows, key=lambda row: lengths[row]):
        if batch and (len(batch) == batch_size or lengths[row] * (len(batch) + 1) > _TOKENS_AT_ONCE):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def exported_file(name: str) -> Path | None:
    """The file of a model in ONNX Runtime: one that is named, or that of a folder without other weights."""
    path = Path(name)
    if path.suffix == ".onnx":
        if not path.is_file():
            raise UserError(f"There is no file {name}: name the folder that modeling-star export wrote.")
        return path
    is_export = (path / "model.onnx").is_file() and not any(path.glob("*.safetensors"))
    return path / "model.onnx" if is_export else None


def outline(name: str) -> SavedModel | None:
    """What the files of a folder say of its model, without an import of transformers; `None` if that is too little."""
    if exported_file(name) is not None:
        return SavedModel.load(name)
    try:
        return SavedModel.load(name, as_written=True)
    except UserError:
        return None


def read_config(folder: Path) -> SimpleNamespace:
    """
    The fields of the configuration of a model, as its file has them.

    Raises:
        UserError: there is none, or it has no labels.
    """
    fields = read_fields(folder / "config.json")
    if not fields.get("id2label"):
        raise UserError(f"{folder / 'config.json'} has no id2label, the names of the labels: export the model again.")
    config = SimpleNamespace(**{"problem_type": None, "architectures": None, "label2id": None, **fields})
    check_labels(str(folder), config)
    config.num_labels = len(config.id2label)
    return config


def _softmax(logits: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # what is no number becomes an error of its own
        powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -logits))  # without overflow


@dataclass
class _Words:
    """The words of a plain text: the first and the last token of each, and its characters, `[w]`."""

    text: str
    firsts: np.ndarray
    lasts: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def entity(self, label: str, first: int, last: int, score: float) -> Prediction:
        """An entity of some words, the last one included."""
        start, end = int(self.starts[first]), int(self.ends[last])
        return {"label": label, "start": start, "end": end, "text": self.text[start:end], "score": float(score)}


@dataclass
class _Tagged:
    """
    The entities of a text, and what their probabilities follow from.

    Args:
        entities: as `predict` gives them.
        words: of the text.
        ids, labels: `[n]`, of the tokens.
        log_marginals, messages: `[n, k]`, of the CRF.
    """

    entities: list[Prediction]
    words: _Words
    ids: np.ndarray
    labels: np.ndarray
    log_marginals: np.ndarray
    messages: np.ndarray


def _chains(
    tagged: Sequence[_Tagged], scorer: SpanScorer
) -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Which tokens of each text the chain has, and log marginals, messages and text numbers of all chains."""
    chains = [scorer.chain(text.ids) for text in tagged]
    pairs = list(zip(tagged, chains, strict=True))
    log_marginals = np.concatenate([text.log_marginals[chain] for text, chain in pairs])
    messages = np.concatenate([text.messages[chain] for text, chain in pairs])
    return chains, (log_marginals, messages, np.repeat(np.arange(len(tagged)), [chain.sum() for chain in chains]))


def _score_spans(tagged: Sequence[_Tagged], scorer: SpanScorer, groups: EntityGroups) -> None:
    """Set the scores of entities to the probabilities of their spans, those of all texts at once."""
    chains, arrays = _chains(tagged, scorer)
    entities, spans, begin = [], [], 0
    for text, chain in zip(tagged, chains, strict=True):
        index = chain.cumsum() - 1 + begin  # in the chains of all texts; of a token outside, that before it
        begin += int(chain.sum())
        words = text.words
        for entity, (_, first, last) in zip(text.entities, groups(text.labels[words.firsts]), strict=True):
            column = words.firsts[first]
            if chain[column]:  # a piece that the vocabulary calls a continuation, and the text a word, has no tag
                entities.append(entity)
                spans.append((index[column], index[words.lasts[last - 1]], text.labels[column]))
    if spans:
        probabilities = scorer(*arrays, *np.array(spans).T)
        for entity, probability in zip(entities, probabilities.tolist(), strict=True):
            entity["score"] = probability


def _list_spans(
    tagged: Sequence[_Tagged], scorer: SpanScorer, groups: EntityGroups, bound: float, most: int | None
) -> None:
    """Add to the entities of each text all spans with a probability of at least `bound`, the `most` probable ones."""
    chains, arrays = _chains(tagged, scorer)
    columns = np.concatenate([np.flatnonzero(chain) for chain in chains])
    firsts, lasts, labels, probabilities = scorer.above(bound, *arrays)
    ends = np.searchsorted(arrays[-1][firsts], np.arange(len(tagged) + 1))
    for text, begin, end in zip(tagged, ends, ends[1:], strict=False):
        best = begin + np.argsort(-probabilities[begin:end], kind="stable")[:most]
        for span in np.sort(best):
            tokens = columns[[firsts[span], lasts[span]]]
            first, last = np.searchsorted(text.words.firsts, tokens, side="right") - 1
            text.entities.append(text.words.entity(groups.kind(labels[span]), first, last, probabilities[span]))


def _not_finite(saved: SavedModel) -> UserError:
    if saved.onnx is not None:  # its weights were finite when it was exported
        return UserError(
            f"The scores of {saved.name} are NaN or infinite: its file may be damaged. Copy it or export it again."
        )
    return UserError(
        f"The scores of {saved.name} are NaN or infinite: its weights are too large. Train it again with a lower "
        "--learning_rate, or name another model."
    )


def _classify_by_terms(model: SavedModel, texts: list[str]) -> Iterator[list[Prediction]]:
    """The probabilities of all labels by TF-IDF, the best first."""
    from .tfidf import TfidfClassifier

    classifier = TfidfClassifier.load(Path(model.name))
    probabilities = np.exp(classifier.log_probabilities(texts))
    if not np.isfinite(probabilities).all():
        raise _not_finite(model)
    for scores in probabilities:
        order = (-scores).argsort()
        yield [{"label": classifier.labels[number], "score": float(scores[number])} for number in order]
