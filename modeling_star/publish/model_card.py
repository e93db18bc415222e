"""Model cards: README.md of a trained model, filled with the measured numbers."""

import importlib.metadata
import json
import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..data.entities import is_plain_iob
from ..data.windows import max_length_or_none
from ..evaluation.metrics import is_entity_scheme
from ..evaluation.reports import escaped, markdown_table
from ..files import write_text


TEMPLATE = Path(__file__).with_name("card_template.md")
FAMILIES = {
    "star_transformer": "Star-Transformer ([Guo et al., 2019](https://arxiv.org/abs/1902.09113))",
    "big_transformer": "BiG-Transformer ([Shu et al., 2020](https://openreview.net/forum?id=xulJokm5GeE))",
    "vanilla_transformer": "standard Transformer encoder ([Vaswani et al., 2017](https://arxiv.org/abs/1706.03762))",
    "disan": "DiSAN ([Shen et al., 2018](https://arxiv.org/abs/1709.04696))",
    "bilstm": "BiLSTM ([Hochreiter and Schmidhuber, 1997](https://doi.org/10.1162/neco.1997.9.8.1735))",
    "window_modernbert": "ModernBERT with windows ([Warner et al., 2024](https://arxiv.org/abs/2412.13663))",
    "tfidf": "linear model of TF-IDF",
    "bert": "BERT ([Devlin et al., 2019](https://arxiv.org/abs/1810.04805))",
}
_VERSIONS = ("modeling-star", "transformers", "torch", "tokenizers", "datasets")
# Our metrics in the Hub's collection, and on the card.
_HUB_METRICS = {"pearson": "pearsonr", "macro_f1": "f1", "micro_f1": "f1", "weighted_f1": "f1"}


@dataclass
class CardContent:
    """The content of a model card. All numbers in `results` have to be measured."""

    model_name: str
    model_type: str
    task: str  # transformers' name of the pipeline
    dataset_name: str  # "synthetic" in it marks generated data
    results: Mapping[str, Mapping[str, float]]  # of each split; numbers that are not finite are omitted
    seed: int
    command: str  # nothing where another program than one of this package trained
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    dataset_id: str | None = None  # on the Hub
    base_model: str | None = None
    # Texts, pairs of texts, or questions with contexts, from the data; without any, the code shows an invented one.
    examples: Sequence[str | Sequence[str]] = ()
    is_pair: bool = False  # whether the model reads two texts
    mask_token: str = "[MASK]"
    language: str | None = None  # code of ISO 639-1
    label_list: Sequence[str] = ()
    aggregation: Literal["first", "simple"] = "first"  # for taggers, see `aggregation_for`
    regression: bool = False
    usage_options: Mapping[str, Any] = field(default_factory=dict)  # arguments of the call under "Use"
    tables: Mapping[str, str] = field(default_factory=dict)  # more Markdown tables, by heading
    pictures: Mapping[str, str] = field(default_factory=dict)  # files by description; absent files are omitted
    repo_id: str | None = None  # on the Hub

    @property
    def is_synthetic(self) -> bool:
        """Whether the data are generated."""
        return "synthetic" in self.dataset_name.lower()


def write_model_card(folder: str | Path, content: CardContent) -> Path:
    """
    Write `README.md` into the folder of a saved model, with the Hub's metadata on top; needs no network. An earlier
    card is replaced when the new one is complete.
    """
    folder = Path(folder)
    measured = {
        split: {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        for split, metrics in content.results.items()
    }
    measured = {split: metrics for split, metrics in measured.items() if metrics}
    is_binary = content.task == "text-classification" and len(content.label_list) == 2
    card = ModelCard.from_template(
        _card_data(content, measured),
        template_str=TEMPLATE.read_text(encoding="utf-8"),
        content=content,
        model_name=escaped(content.model_name),
        dataset=escaped(content.dataset_name),
        family=FAMILIES.get(content.model_type, f"`{content.model_type}`"),
        base_model=_code(shown_path(content.base_model)) if content.base_model else None,
        usage=usage_code(folder, content),
        positive=_code(content.label_list[1])
        if is_binary and any("f1" in each for each in measured.values())
        else None,
        results=_results_table(measured),
        pictures=[(text, file) for text, file in content.pictures.items() if (folder / file).is_file()],
        command=content.command.strip(),
        hyperparameters=markdown_table(
            ["setting", "value"], ((name, _code(str(value))) for name, value in content.hyperparameters.items())
        ),
        versions=", ".join([f"Python {platform.python_version()}", *_versions()]),
    )
    # The template's loops and conditions leave empty lines.
    card.text = re.sub(r"\n{3,}", "\n\n", re.sub(r"(?m)^(- .*)\n\n(?=- )", r"\1\n", card.text))
    return write_text(folder / "README.md", str(card).rstrip() + "\n")


_PIPELINE = """\
from transformers import pipeline

model = pipeline("{task}", model={name}{options}{remote})
print(model({inputs}))"""
USAGE = {
    "text-classification": _PIPELINE,
    "fill-mask": _PIPELINE,
    "token-classification": """\
{imports}from transformers import pipeline

model = pipeline("token-classification", model={name}{options}{remote})
text = {text}
for entity in model(text):
    print(text[entity["start"] : entity["end"]], entity["{label}"], entity["score"])""",
    # transformers 5 has no pipeline for answers.
    "question-answering": """\
from modeling_star import answer_question
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name}{remote})
model = AutoModelForQuestionAnswering.from_pretrained({name}{remote})
question = {text}
context = {second}
for answer in answer_question(question, context, model, tokenizer{options}):
    print(answer.text, answer.start, answer.end, answer.score)""",
}
"""The code under "Use" by task."""


def usage_code(folder: str | Path, content: CardContent) -> str:
    """Python code that loads the model and prints its output for the first example."""
    folder = Path(folder)
    texts = _first_example(content)
    inputs = _as_input(texts)
    values = {"options": "", "imports": "", "label": ""}
    if content.task == "token-classification":
        values = _tagger_values(content)
    elif content.task == "question-answering":
        values["options"] = "".join(f", {key}={value!r}" for key, value in content.usage_options.items())
    else:
        values["options"] = ', function_to_apply="none"' if content.regression else ""
        values["options"] += ", truncation=True" if _has_limit(folder) else ""
    return USAGE[content.task].format(
        task=content.task,
        name=quoted(content.repo_id or shown_path(str(folder))),
        remote=", trust_remote_code=True" if _needs_remote_code(folder) else "",
        inputs=quoted(inputs if len(texts) > 1 else texts[0]),
        text=quoted(texts[0]),
        second=quoted(texts[-1]),
        **values,
    )


def _first_example(content: CardContent) -> list[str]:
    """A text, or two that belong together."""
    if content.examples:
        first = content.examples[0]
        return [first] if isinstance(first, str) else list(first)
    if content.task == "question-answering":
        return ["A question?", "A text with the answer."]
    if content.task == "fill-mask":
        return [f"A {content.mask_token}."]
    return ["A text.", "Another text."] if content.is_pair else ["A text."]


def _tagger_values(content: CardContent) -> dict[str, str]:
    """Of the code of a tagger: the options of its pipeline, what it imports, and the name of a label."""
    is_grouped = not content.label_list or is_entity_scheme(content.label_list) or content.aggregation == "first"
    options, imports = f', aggregation_strategy="{content.aggregation}"' if is_grouped else "", ""
    if is_grouped and not is_plain_iob(content.label_list):  # which the stock pipeline does not group
        imports = "from modeling_star.inference.pipelines import BestPathPipeline\n"
        options += ", pipeline_class=BestPathPipeline"
    return {"options": options, "imports": imports, "label": "entity_group" if is_grouped else "entity"}


def quoted(value: Any) -> str:
    """Strings, and dictionaries of strings, as Python source in double quotes, with readable Chinese."""
    return json.dumps(value, ensure_ascii=False)


def _code(text: str) -> str:
    """A value in Markdown's typewriter face, unless it has the sign that ends it."""
    return escaped(text) if "`" in text else f"`{text}`"


def _as_input(example: str | Sequence[str], second: str = "text_pair") -> dict[str, str]:
    """A text, or two, as pipelines and the Hub's widget take them."""
    return dict(zip(("text", second), [example] if isinstance(example, str) else example, strict=False))


def _has_limit(folder: Path) -> bool:
    """Whether the saved tokenizer limits the length of its inputs."""
    saved = folder / "tokenizer_config.json"
    limit = json.loads(saved.read_text(encoding="utf-8")).get("model_max_length") if saved.is_file() else None
    return max_length_or_none(limit) is not None


def _needs_remote_code(folder: Path) -> bool:
    """Whether the saved model ships its code; assumed without a config.json."""
    config = folder / "config.json"
    return not config.is_file() or "auto_map" in json.loads(config.read_text(encoding="utf-8"))


def _card_data(content: CardContent, measured: Mapping[str, Mapping[str, float]]) -> ModelCardData:
    """The metadata block of the card."""
    slug = re.sub(r"[^a-z0-9]+", "-", content.dataset_name.lower()).strip("-")
    results = [
        EvalResult(
            task_type=content.task,
            task_name=content.task.replace("-", " ").capitalize(),
            dataset_type=_on_the_hub(content.dataset_id) or slug or "data",
            dataset_name=content.dataset_name,
            dataset_split=split,
            metric_type=_HUB_METRICS.get(name, name),
            metric_name=name[0].upper() + name[1:].replace("_", " ").replace("f1", "F1"),
            metric_value=round(value, 6),
        )
        for split, metrics in measured.items()
        for name, value in metrics.items()
    ]
    second = "context" if content.task == "question-answering" else "text_pair"
    return ModelCardData(
        language=[content.language] if content.language else None,
        model_name=content.model_name,
        library_name="transformers",
        pipeline_tag=content.task,
        base_model=_on_the_hub(content.base_model),
        datasets=[content.dataset_id] if _on_the_hub(content.dataset_id) else None,
        tags=[content.model_type.replace("_", "-"), *(["synthetic-data"] if content.is_synthetic else [])],
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        eval_results=results or None,
        widget=[_as_input(example, second) for example in content.examples] or None,
    )


def _on_the_hub(name: str | None) -> str | None:
    """A name that the Hub may know; it refuses a card that names local folders and files."""
    if name is None or Path(name).exists() or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name, re.ASCII):
        return None
    return name


def shown_path(word: str) -> str:
    """A path without the folders of this machine: relative to the working folder, or the last part alone."""
    path = Path(word)
    if not path.is_absolute():
        return word
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name or word


def _results_table(measured: Mapping[str, Mapping[str, float]]) -> str:
    if not measured:
        return ""
    names = dict.fromkeys(name for metrics in measured.values() for name in metrics)
    rows = [
        [name, *(f"{metrics[name]:.4f}" if name in metrics else "–" for metrics in measured.values())]
        for name in names
    ]
    return markdown_table(["metric", *measured], rows)


def _versions() -> Iterator[str]:
    for name in _VERSIONS:
        with suppress(importlib.metadata.PackageNotFoundError):  # a checkout that is not installed
            yield f"{name} {importlib.metadata.version(name)}"
