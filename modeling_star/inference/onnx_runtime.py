"""Exported models for a `Predictor`: ONNX Runtime, numpy and tokenizers, without torch and transformers."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError
from ..files import MANIFEST
from .saved_model import SavedModel


if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions

_NO_LIMIT = 10**30  # as transformers writes it


class FileTokenizer:
    """The tokenizer.json of an exported model, with what a `Predictor` uses of a tokenizer of transformers."""

    pad_token_type_id = 0
    model_input_names = ("input_ids", "token_type_ids", "attention_mask")

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        try:
            self.backend_tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing else
            raise UserError(f"{path} cannot be read ({error}): export the model again.") from error
        backend = self.backend_tokenizer
        truncation, padding = backend.truncation or {}, backend.padding or {}
        self.model_max_length = truncation.get("max_length", _NO_LIMIT)
        self.truncation_side = truncation.get("direction", "right").lower()
        self.padding_side = padding.get("direction", "right").lower()
        self.pad_token_id = padding.get("pad_id", 0)
        unknown = getattr(backend.model, "unk_token", None)
        self.unk_token_id = None if unknown is None else backend.token_to_id(unknown)

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size(with_added_tokens=True)

    def get_vocab(self) -> dict[str, int]:
        """The number of each entry."""
        return self.backend_tokenizer.get_vocab(with_added_tokens=True)

    def get_added_vocab(self) -> dict[str, int]:
        """The numbers of the entries that were added to the vocabulary of the model."""
        return {str(token): number for number, token in self.backend_tokenizer.get_added_tokens_decoder().items()}

    def convert_ids_to_tokens(self, numbers: Sequence[int]) -> list[str | None]:
        """The entries with some numbers."""
        return [self.backend_tokenizer.id_to_token(number) for number in numbers]

    def __call__(
        self, *sides: Sequence[str], truncation: bool = False, max_length: int | None = None, verbose: bool = True
    ) -> dict[str, list[list[int]]]:
        """The token ids and types of texts, or of pairs of texts; the longer text of a pair is truncated first."""
        backend = self.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        if truncation and max_length is not None:
            backend.enable_truncation(max_length, strategy="longest_first", direction=self.truncation_side)
        encodings = backend.encode_batch(list(zip(*sides, strict=True)) if len(sides) > 1 else list(sides[0]))
        return {
            "input_ids": [encoding.ids for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }


def load_tokenizer(saved: SavedModel) -> FileTokenizer:
    """The tokenizer of an exported model."""
    return FileTokenizer(_file(saved).parent)


def load(saved: SavedModel, dtype: str | None = None, instructions: str | None = None) -> "InferenceSession":
    """An exported model, in the precision of its file."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise UserError("onnxruntime is not installed: write pip install onnxruntime.") from None
    path, options = _file(saved), quiet()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))  # 0: a thread for each core
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's own kinds have no common base
        raise UserError(
            f"{path} cannot be loaded ({error}): export the model again, or copy its files again."
        ) from error


def _file(saved: SavedModel) -> Path:
    if saved.onnx is None:
        raise ValueError(f"{saved.name} is no exported model.")
    return saved.onnx


def instructions() -> None:
    """Of compiled layers, which an exported model has none of."""


def computation(session: "InferenceSession") -> str:
    """What computes, as `modeling_star.describe` says it of a model of PyTorch."""
    return "library: ONNX Runtime\nnumbers: those of the file\ncompiled: no, it is no model of PyTorch"


def run_model(session: "InferenceSession") -> Callable[..., dict[str, np.ndarray]]:
    """A function from the inputs of a batch, and others, to its outputs."""
    inputs, outputs = ([each.name for each in every] for every in (session.get_inputs(), session.get_outputs()))

    def run(**given: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(outputs, session.run(None, {name: given[name] for name in inputs}), strict=True))

    return run


def map_batches(session: "InferenceSession") -> Callable[..., Iterator[Any]]:
    """`map` over batches: a session has threads of its own."""
    return map


def quiet() -> "SessionOptions":
    """Options without the warning that an input has a default (ONNX Runtime 1.32), and others that ask for nothing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return options


CRF = "crf.json"
"""The file of the transitions of a CRF and of the entries of the vocabulary that carry no tag, see `SpanScorer`."""


def crf_tables(session: "InferenceSession", saved: SavedModel) -> dict[str, np.ndarray] | None:
    """The tables of a `SpanScorer` in an exported folder; `None` for a CRF that does not know its chain."""
    if "messages" not in [output.name for output in session.get_outputs()]:
        return None
    path, labels = _file(saved).parent / CRF, len(saved.labels)
    try:
        tables = json.loads(path.read_text(encoding="utf-8"))
        if tables is None:
            return None
        carries_no_tag = np.zeros(tables["vocab_size"], dtype=bool)
        carries_no_tag[tables["carry_no_tag"]] = True
        transitions = np.array(tables["transitions"], dtype=np.float64).reshape(labels, labels)
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise UserError(
            f"{path} cannot be read ({error!r}), and the scores of this tagger depend on it: export the model again, "
            "or copy its files again."
        ) from error
    return {"transitions": transitions, "carries_no_tag": carries_no_tag}


WEB = "web.json"
"""The file of what the page of an export reads."""
INSTALLED = ("node_modules", "package-lock.json")
"""What npm writes for the page."""
_FILES = {
    *("model.onnx", "tokenizer.json", "config.json", "arguments.json", "predict.py", CRF),
    *(MANIFEST, "index.html", "predict.js", "package.json", WEB, *INSTALLED),
}


def check_output_dir(folder: Path) -> None:
    """Raise a UserError where an export would overwrite something else than an earlier one."""
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= _FILES):
        raise UserError(f"{folder} is no earlier export: name a new folder, --output_dir {folder}-onnx.")
