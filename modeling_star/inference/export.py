"""
Export of a trained model to ONNX Runtime, compared with PyTorch.

Axes: b batch  n columns
"""

import json
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript.optimizer import fold_constants
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data.entities import EntityGroups
from ..data.windows import max_length_or_none
from ..errors import UserError
from ..files import MODEL_FILES, no_empty_folder, write_json, write_manifest
from ..loading import load_config, load_model, load_tokenizer
from ..models.modeling_encoder import longest_input
from ..models.saving import AUTO_CLASSES
from .onnx_runtime import CRF, INSTALLED, WEB, check_output_dir, quiet
from .torch_runtime import crf_tables


logger = logging.getLogger(__name__)

TOLERANCE = 1e-4
"""The largest difference to PyTorch that is accepted."""
SAMPLES: tuple[str, ...] = (
    "Fine.",
    "The film begins slowly, and then it does not end.",
    "Angela Merkel met Barack Obama in Berlin on Tuesday, said Reuters.",
    "玛丽亚去年搬到了奥斯陆，她在那里的一所大学学习。",
    "The 2nd edition (2019) costs $12.50 at https://example.org/shop?id=7; the 3rd, with 415 pages, isn't out yet!",
)
"""Texts that exported models are compared on."""
_LONG = 512  # words of one more sample
_MAX_BATCH = 8


def load(name: str, trust_remote_code: bool = False) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A saved model, in float32 and eval mode, and its tokenizer; a UserError where it cannot be exported."""
    config = load_config(name, trust_remote_code=trust_remote_code)
    architecture = (config.architectures or [""])[0]
    auto = next((auto for auto, ending in AUTO_CLASSES.items() if architecture.endswith(ending)), None)
    if config.is_encoder_decoder or auto is None:
        raise UserError(
            f"{name} is a {architecture}. Only encoders are exported ({', '.join(AUTO_CLASSES.values())}): "
            "`generate` is a loop around the graph."
        )
    options = {"trust_remote_code": trust_remote_code}
    tokenizer = load_tokenizer(name, **options)
    if not tokenizer.is_fast:
        raise UserError(f"{name} has a {type(tokenizer).__name__}; a fast one is needed, which has a tokenizer.json.")
    model = load_model(auto, name, dtype=torch.float32, **options)
    limit = min(max_length_or_none(tokenizer.model_max_length) or sys.maxsize, longest_input(config) or sys.maxsize)
    backend = tokenizer.backend_tokenizer
    if limit < sys.maxsize:
        backend.enable_truncation(limit, direction=tokenizer.truncation_side)
    else:
        backend.no_truncation()
    backend.enable_padding(
        direction=tokenizer.padding_side, pad_id=tokenizer.pad_token_id or 0, pad_token=tokenizer.pad_token or "[PAD]"
    )
    return model, tokenizer


def input_names(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The inputs of the graph: those that the tokenizer makes."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    return [name for name in names if name != "token_type_ids" or name in tokenizer.model_input_names]


@torch.no_grad()
def export_onnx(model: PreTrainedModel, names: Sequence[str], path: Path) -> None:
    """Write a model for any number of rows of any length, `[b, n]` each; a UserError where torch cannot export it."""
    # A size of 1, or equal sizes, might be exported as a constant. Values do not matter.
    shape = (2, 7)
    example = {name: (torch.zeros if name == "token_type_ids" else torch.ones)(shape).long() for name in names}
    sizes = {name: {0: "batch", 1: "tokens"} for name in example}
    outputs = list(model(**example, return_dict=True).keys())
    try:
        with warnings.catch_warnings(action="ignore"):  # of torch, about itself and axes of one name (2.13)
            program = torch.onnx.export(
                model, (), kwargs=example, dynamic_shapes=sizes, output_names=outputs, dynamo=True, verbose=False
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = str(error).strip().splitlines()[-1]
        raise UserError(f"torch {torch.__version__} cannot export a {type(model).__name__}: {reason}") from error
    # Weights that are joined in the graph become constants.
    fold_constants(program.model, input_size_limit=_ANY_SIZE, output_size_limit=_ANY_SIZE)
    ClearMetadataAndDocStringPass()(program.model)  # paths of this machine, in every node
    program.save(path, external_data=False)


_ANY_SIZE = 2**31


def sample_batches(
    tokenizer: PreTrainedTokenizerBase, names: Sequence[str], texts: Sequence[str]
) -> Iterator[dict[str, np.ndarray]]:
    """Inputs to compare on, `[b, n]` each: every text alone, a text of a few hundred words, and padded batches."""
    words = " ".join(texts).split(" ")
    longer = " ".join((words * (_LONG // len(words) + 1))[:_LONG])
    texts = [*texts, longer]
    batches = [[text] for text in texts]
    batches += [list(texts[start : start + _MAX_BATCH]) for start in range(0, len(texts), _MAX_BATCH)]
    for batch in batches:
        rows = list(zip(batch, [*batch[1:], batch[0]], strict=True)) if "token_type_ids" in names else batch
        encodings = tokenizer.backend_tokenizer.encode_batch(rows)
        columns = {
            "input_ids": [encoding.ids for encoding in encodings],
            "attention_mask": [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        yield {name: np.array(columns[name], dtype=np.int64) for name in names}


@torch.no_grad()
def compare(model: PreTrainedModel, path: Path, batches: Sequence[dict[str, np.ndarray]]) -> float:
    """The largest difference to PyTorch on inputs `[b, n]`, at real tokens; relative to values above 1."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, quiet())
    outputs = [output.name for output in session.get_outputs()]
    largest = 0.0
    for inputs in batches:
        expected = model(**{name: torch.from_numpy(values) for name, values in inputs.items()}, return_dict=True)
        mask = torch.from_numpy(inputs["attention_mask"]).bool()
        for name, values in zip(outputs, map(torch.from_numpy, session.run(None, inputs)), strict=True):
            actual, correct = (_real(x, mask) for x in (values, expected[name]))
            if actual.is_floating_point():
                if actual.isnan().any():
                    raise UserError(f"{path.name} gives numbers that are NaN: nothing is written.")
                largest = max(largest, float(((actual - correct).abs() / correct.abs().clamp(min=1)).max()))
    return largest


def _real(values: Tensor, mask: Tensor) -> Tensor:
    """The rows that count of an output: those of texts, or those of real tokens."""
    return values[mask] if values.dim() == 3 or not values.is_floating_point() else values


# ------ the folder


def write_export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    output_dir: Path,
    texts: Sequence[str] = SAMPLES,
    web: bool = False,
) -> float:
    """
    Write a folder with everything that ONNX Runtime needs: `model.onnx`, `tokenizer.json`, `config.json` with the
    labels, `arguments.json` with the columns of the training, and `predict.py`; with `web` also a page that predicts
    in the browser.

    The folder appears when all files are written and compared; until then an earlier export stays.

    Args:
        model, tokenizer: from `load`.
        output_dir: new, or an earlier export.
        texts: to compare outputs on.
        web: also write `index.html`, its script, what that reads, and `package.json` for what it imports.

    Returns:
        The largest difference to PyTorch, relative where an output is above 1.

    Raises:
        UserError: the model cannot be exported, `output_dir` has other files, the file differs by more than
            TOLERANCE, or the page cannot run such a model.
    """
    check_output_dir(output_dir)
    if web:
        check_for_web(model, tokenizer)
    names = input_names(tokenizer)
    batches = list(sample_batches(tokenizer, names, texts))
    with no_empty_folder(output_dir.parent):
        return _write(model, tokenizer, output_dir, names, batches, web)


def _write(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    output_dir: Path,
    names: Sequence[str],
    batches: Sequence[dict[str, np.ndarray]],
    web: bool,
) -> float:
    # In the same folder: only within one file system a folder is renamed in one step.
    temporary = output_dir.with_name(f".{output_dir.name}.{os.getpid()}.tmp")
    temporary.mkdir()
    try:
        export_onnx(model, names, temporary / "model.onnx")
        largest = compare(model, temporary / "model.onnx", batches)
        if not largest <= TOLERANCE:
            raise UserError(
                f"The exported {type(model).__name__} differs from PyTorch by {largest:.2g}, and at most {TOLERANCE} "
                "is allowed: nothing is written. Please report this model's config.json."
            )
        tokenizer.backend_tokenizer.save(str(temporary / "tokenizer.json"))
        fields = model.config.to_dict()
        fields.pop("_name_or_path", None)  # a folder of this machine
        write_json(temporary / "config.json", fields)
        write_json(temporary / "arguments.json", _arguments(model.name_or_path))
        if getattr(model, "crf", None) is not None:
            (temporary / CRF).write_text(json.dumps(_crf_json(model)), encoding="utf-8")
        shutil.copyfile(Path(__file__).with_name("onnx_script.py"), temporary / "predict.py")
        if web:
            shutil.copytree(_PAGE, temporary, dirs_exist_ok=True)
            write_json(temporary / WEB, _web_json(model))
        write_manifest(temporary, MODEL_FILES)
        if output_dir.exists():
            replaced = Path(tempfile.mkdtemp(prefix=f".{output_dir.name}.", dir=output_dir.parent))
            output_dir.replace(replaced)
            temporary.replace(output_dir)
            for name in INSTALLED:
                if web and (replaced / name).exists():
                    (replaced / name).replace(output_dir / name)
            shutil.rmtree(replaced)
        else:
            temporary.replace(output_dir)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return largest


_ARGUMENTS = ("text_columns", "text_column_name", "source_column", "column_names", "stride")


def _crf_json(model: PreTrainedModel) -> dict[str, Any] | None:
    """What `onnx_runtime.crf_tables` reads; `None` for a CRF that does not know its chain."""
    tables = crf_tables(model)
    if tables is None:
        return None
    table = tables["carries_no_tag"]
    numbers = {"vocab_size": len(table), "carry_no_tag": np.flatnonzero(table).tolist()}
    return {"transitions": tables["transitions"].tolist(), **numbers}


_PAGE = Path(__file__).with_name("web")


def check_for_web(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise a UserError where the page cannot run the model, or find its tokens in the text by their length."""
    name = type(model).__name__
    if not name.endswith(("ForTokenClassification", "ForSequenceClassification")):
        raise UserError(
            f"--web writes a page for taggers and classifiers, and {model.name_or_path} is a {name}: omit it."
        )
    columns = _arguments(model.name_or_path).get("text_columns", [])
    if len(columns) == 2 or getattr(model.config, "pair_mode", None) == "siamese":
        raise UserError(f"--web writes a page for single texts, and {model.name_or_path} reads pairs: omit it.")
    file = json.loads(tokenizer.backend_tokenizer.to_str())
    kinds = [(file[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model", "post_processor")]
    if any(kind not in allowed for kind, allowed in zip(kinds, _READABLE, strict=True)):
        raise UserError(
            f"--web reads tokenizers that were trained here and those of BERT, and that of {model.name_or_path} has "
            f"{', '.join(map(str, kinds))}: omit it."
        )


_READABLE = (  # normalizers, what splits texts, models, what adds special tokens
    (None, "Lowercase", "BertNormalizer"),
    ("Sequence", "BertPreTokenizer"),
    ("WordLevel", "WordPiece"),
    ("TemplateProcessing", "BertProcessing"),
)


def _web_json(model: PreTrainedModel) -> dict[str, Any]:
    """What the page needs to know of a tagger or a classifier."""
    labels = list(model.config.id2label.values())
    if not type(model).__name__.endswith("ForTokenClassification"):
        return {"labels": labels, "problem": model.config.problem_type}
    groups = EntityGroups(labels)
    return {
        "labels": labels,
        "tags": groups.tags,
        "kinds": [groups.kind(label) for label in range(len(labels))],
        "outside": groups.outside,
        "has_crf": crf_tables(model) is not None,
        "stride": _arguments(model.name_or_path).get("stride"),
    }


def _arguments(name: str) -> dict[str, Any]:
    """What predictions depend on of the arguments of a training, where the folder has them."""
    path = Path(name, "arguments.json")
    arguments = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: arguments[name] for name in _ARGUMENTS if arguments.get(name) is not None}
