"""The models that arguments name, before one is built: their folders, configurations and labels."""

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from ..errors import UserError, is_bug
from ..sources import check_exists, check_folder, did_you_mean_source
from .arguments import ModelArguments


@contextmanager
def loading(flag: str, name: str) -> Iterator[None]:
    """Name the flag in errors from `from_pretrained`."""
    check_exists(flag, name)
    check_folder(flag, name)
    try:
        yield
    except Exception as error:  # damaged files raise many kinds
        if isinstance(error, UserError) or is_bug(error):
            raise
        is_usual = isinstance(error, (OSError, ValueError, ImportError))
        reason = str(error) if is_usual else f"{type(error).__name__}: {error}"
        hint = "" if Path(name).exists() else did_you_mean_source(name)
        if lacks_type(Path(name)):
            reason = f"{Path(name) / 'config.json'} has no model_type, such as star_transformer"
        elif "trust_remote_code" in reason:
            reason = "it runs code of its own. Inspect that code, then add --trust_remote_code"
        raise UserError(
            f"{flag} {name} could not be loaded: {reason.rstrip('.')}.{hint} Name a model's folder, or a model of the "
            "Hub: bert-base-cased"
        ) from error


@contextmanager
def as_typed() -> Iterator[None]:
    """Say what to type, where errors of `from_encoder` have what to write in Python."""
    try:
        yield
    except ValueError as error:
        message = re.sub(r"layers=\[([\d, ]*)\]", lambda found: f"--layers {found[1].replace(',', '')}", str(error))
        message = re.sub(r'\w+\.from_encoder\((".*?")\)', r"modeling-star convert \1 OUTPUT", message)
        raise UserError(message) from error


def lacks_type(folder: Path) -> bool:
    """Whether a folder has a configuration that does not name its kind of model."""
    path = folder / "config.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError:
        return False
    return isinstance(fields, dict) and "model_type" not in fields


def check_names(arguments: ModelArguments) -> None:
    """Raise a UserError where names of models exclude each other, or one is neither here nor on the Hub."""
    if arguments.layers is not None and arguments.pretrained is None:
        raise UserError("--layers chooses those of --pretrained NAME: add it, or omit --layers.")
    given = "pretrained" if arguments.model_name_or_path is None else "model_name_or_path"
    if arguments.encoder is not None:
        for flag in ("embeddings_name_or_path", "config_name", "model_type", "word_vectors", "pretrained"):
            if getattr(arguments, flag) is not None and flag != given:
                raise UserError(f"--{flag} is for a new model, which --{given} is not: omit it.")
    for flag in ("model_name_or_path", "pretrained", "config_name", "tokenizer_name", "embeddings_name_or_path"):
        check_exists(f"--{flag}", getattr(arguments, flag))


def parse_overrides(text: str | None) -> dict[str, Any]:
    """
    The configuration fields in --config_overrides: `name=value,name=value`, each value JSON or else a plain word; or a
    JSON object. Labels are a UserError: they come from the data.
    """
    overrides: dict[str, Any] = {}
    if (text or "").lstrip().startswith("{"):
        try:
            overrides = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"--config_overrides {text} is not JSON ({error}): write name=value,name=value") from None
    else:
        for part in filter(None, (text or "").split(",")):
            name, equals, value = part.partition("=")
            if not equals:
                raise UserError(f"--config_overrides has the part {part!r}: write name=value,name=value")
            try:
                overrides[name.strip()] = json.loads(value)
            except json.JSONDecodeError:
                overrides[name.strip()] = value.strip()
    for name in ("num_labels", "id2label", "label2id"):
        if name in overrides:
            raise UserError(f"--config_overrides sets {name}, and labels come from the data: omit it.")
    return overrides


def config_fields(name: str) -> dict[str, Any]:
    """The configuration fields of a JSON file, a saved model's folder or a model of the Hub."""
    with loading("--config_name", name):
        return PreTrainedConfig.get_config_dict(name)[0]


def saved_config(arguments: ModelArguments, *, of_any_head: bool = False) -> PreTrainedConfig | None:
    """The configuration of a saved model, if `of_any_head` also of one whose head is replaced; else `None`."""
    if arguments.model_name_or_path is None or (arguments.ignore_mismatched_sizes and not of_any_head):
        return None
    with loading("--model_name_or_path", arguments.model_name_or_path):
        return AutoConfig.from_pretrained(
            arguments.model_name_or_path,
            revision=arguments.model_revision,
            trust_remote_code=arguments.trust_remote_code,
        )


def saved_labels(arguments: ModelArguments, splits: Collection[str]) -> tuple[str, ...] | None:
    """The labels of a saved model; `None` without one, or if it is trained here and its labels have no names."""
    from ..data.labels import has_names  # needs `datasets`, which predictions of typed texts do not

    config = saved_config(arguments)
    if config is None:
        return None
    names = tuple(config.id2label[index] for index in sorted(config.id2label))
    return names if has_names(names) or "train" not in splits else None
