"""
Load saved models, whole or not at all. Everything that uses a saved model, and does not train it, loads it here.

`from_pretrained` fills weights that a file lacks with random numbers, and omits those that a model lacks, with a
warning alone: predictions of such a model look like any others.
"""

import re
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import utils as hub
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .errors import UserError, is_bug
from .files import ARGUMENTS, MANIFEST, check_files, check_labels, listed, read_fields


# `from_pretrained` replaces PreTrainedModel.tie_weights of the whole process, and puts back what it found: where two
# threads load at once, later models may not tie their weights (transformers 5.23).
_ONE_LOADS = threading.Lock()
_WITH_LABELS = ("ForTokenClassification", "ForSequenceClassification")
# Earlier versions of transformers saved the pooler of a BERT with heads that do not use it.
_UNUSED = re.compile(r"(^|\.)pooler\.")


@contextmanager
def quiet_transformers(log_level: str = "passive", *, downloads: bool = False) -> Iterator[None]:
    """
    Within it, transformers shows no bars and no warnings, such as the report on loaded weights, which the commands
    replace by checks of their own; `downloads` may have bars. --log_level warning shows warnings, SHOWING everything.
    """
    if log_level in SHOWING:
        yield
        return
    verbosity = transformers.logging.get_verbosity()
    bars, of_hub = transformers.logging.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    if log_level != "warning":
        transformers.logging.set_verbosity_error()
    _switch(bars, downloads and of_hub, on=False)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        _switch(bars, of_hub, on=True)


SHOWING = ("info", "debug", "detail")
"""The values of --log_level with which the libraries show everything."""


def _switch(bars: bool, of_hub: bool, *, on: bool) -> None:
    """Switch the bars of transformers, if they were on, which switches the Hub's too (5.23); then set those."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on an environment variable, which wins
        if bars:
            transformers.logging.enable_progress_bar() if on else transformers.logging.disable_progress_bar()
        hub.enable_progress_bars() if of_hub else hub.disable_progress_bars()


@contextmanager
def reading_model(part: str, name: str) -> Iterator[None]:
    """Name a saved model in a UserError, in place of the many kinds of errors that damaged files raise."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or is_bug(error):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"The {part} of {name} cannot be read: {reason}. Name the output folder of a finished training, or copy "
            "its files again."
        ) from error


def load_config(name: str, **options: Any) -> PreTrainedConfig:
    """The configuration of a saved model; a UserError where labels are unclear, or the training is not finished."""
    folder = Path(name)
    if not (folder / "config.json").is_file() and (begun := sorted(folder.glob("checkpoint-*"))):
        raise UserError(
            f"The training of {name} is not finished: repeat its command with --resume_from_checkpoint last, or name "
            f"its checkpoint, {max(begun, key=lambda path: path.stat().st_mtime)}"
        )
    if (folder / "config.json").is_file():
        check_files(name, ("config.json", ARGUMENTS))
        read_fields(folder / "config.json")
    try:
        config = AutoConfig.from_pretrained(name, **options)
    except StrictDataclassError as error:
        raise UserError(f"The configuration of {name} cannot be used: {error.__cause__ or error}") from error
    if (config.architectures or [""])[0].endswith(_WITH_LABELS):
        check_labels(name, config)
    return config


def load_tokenizer(name: str, **options: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a saved model."""
    with reading_model("tokenizer", name):
        return AutoTokenizer.from_pretrained(name, **options)


def load_model(auto: str, name: str, **options: Any) -> PreTrainedModel:
    """
    A saved model in eval mode, with all of its weights, by the class `auto` ("AutoModelForTokenClassification"). A
    UserError where weights are missing, left over, NaN, infinite or of another size, files are not those that were
    written, the folder is of `export`, or labels have no clear names.
    """
    check_files(name)
    if (Path(name) / "model.onnx").is_file() and not any(Path(name).glob("*.safetensors")):
        raise UserError(f"{name} is an exported model, which only predicts: name the folder that was exported.")
    with reading_model("weights", name), _ONE_LOADS:
        model, info = getattr(transformers, auto).from_pretrained(name, output_loading_info=True, **options)
    missing, more = info["missing_keys"], info["unexpected_keys"]
    if not is_own(name):
        more = {key for key in more if not _UNUSED.search(key)}
    check_whole(name, model, missing, more)
    if type(model).__name__.endswith(_WITH_LABELS):
        check_labels(name, model.config)
    return model.eval()


def check_whole(name: str, model: PreTrainedModel, missing: Collection[str], more: Collection[str] = ()) -> None:
    """Raise a UserError where weights are missing in a model's file, or it has more, or one is NaN or infinite."""
    kind = type(model).__name__
    advice = "Name the output folder of a finished training, or copy its files again."
    if missing:
        raise UserError(
            f"The weights of {name} are not all there: {listed(sorted(missing))} of a {kind} cannot be read from its "
            f"file, and would be random. {advice}"
        )
    if more:
        raise UserError(
            f"The weights of {name} are not those of its config.json: a {kind} of this shape has no "
            f"{listed(sorted(more))}. {advice}"
        )
    check_finite(name, model.state_dict())


def check_finite(name: str, weights: Mapping[str, Any]) -> None:
    """Make sure that no number of the weights, tensors or arrays by name, is NaN or infinite."""
    for key, tensor in weights.items():
        # NaN - NaN and inf - inf are NaN, which equals nothing; whole numbers and bools are finite.
        low, high = (tensor.min(), tensor.max()) if _is_real(tensor) else (0.0, 0.0)
        if not abs(float(low)) + abs(float(high)) < float("inf"):
            raise UserError(
                f"The weights of {name} cannot be used: {key} has numbers that are NaN or infinite. Train it again "
                "with a lower --learning_rate, or name another model."
            )


def _is_real(tensor: Any) -> bool:
    return str(tensor.dtype).removeprefix("torch.") in ("float64", "float32", "float16", "bfloat16") and 0 not in (
        tensor.shape
    )


# ------ files


def is_own(name: str) -> bool:
    """Whether a training of this package wrote a folder."""
    return any(Path(name, file).is_file() for file in (MANIFEST, "arguments.json"))
