"""What is known of a saved model before its weights are loaded: its task, its configuration, its training."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..errors import UserError
from ..files import check_files, check_labels, read_fields


_TASKS = {
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForQuestionAnswering": "question-answering",
}
_MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "arguments.json")


@dataclass(frozen=True)
class SavedModel:
    """
    A saved model before its weights are loaded.

    Args:
        name: folder or Hub name.
        task: "token-classification", "text-classification" or "question-answering".
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
        if (folder / "tfidf.json").is_file():
            raise UserError(f"{name} is a TF-IDF of version 0.2: train it again, modeling-star classify.")
        if onnx is None and not as_written:
            from ..loading import load_config
            from ..sources import check_exists

            check_exists("MODEL", name)
            config = load_config(name, trust_remote_code=trust_remote_code)
        else:
            config = read_config(folder)
        architecture = (config.architectures or [""])[0]
        task = next((task for ending, task in _TASKS.items() if architecture.endswith(ending)), None)
        if task is None:
            raise UserError(
                f"{name} is a {architecture}, which has no head that predicts labels or answers: fine-tune it first, "
                f"modeling-star classify --pretrained {name} --train_file train.csv"
            )
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

    @property
    def labels(self) -> list[str]:
        """Their names, by their numbers."""
        return list(self.config.id2label.values())

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
    """The fields of the configuration of a model, as its file has them; a UserError where it has no labels."""
    fields = read_fields(folder / "config.json")
    if not fields.get("id2label"):
        raise UserError(f"{folder / 'config.json'} has no id2label, the names of the labels: export the model again.")
    config = SimpleNamespace(**{"problem_type": None, "architectures": None, "label2id": None, **fields})
    check_labels(str(folder), config)
    config.num_labels = len(config.id2label)
    return config
