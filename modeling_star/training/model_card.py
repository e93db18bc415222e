"""Model cards whose numbers are the measured ones: README.md beside a model, from the template in model_cards/."""

import importlib.metadata
import importlib.resources
import json
import math
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..data.tokenizers import max_length_or_none
from ..evaluation.metrics import is_entity_scheme
from ..evaluation.reports import markdown_table, write_text
from ..inference.pipelines import is_plain_iob


TEMPLATE = "model_cards/TEMPLATE.md"
_VERSIONS = ("modeling-star", "transformers", "torch", "tokenizers", "datasets")
# Names of the Hub's metric collection for ours.
HUB_METRICS = {"pearson": "pearsonr", "macro_f1": "f1", "micro_f1": "f1", "weighted_f1": "f1"}
_NAMES = {"bleu": "BLEU", "chrf": "chrF"}
_NO_TEXT = "Write a sentence here."
_NO_QUESTION = "Write a question here."
# What a summary calls a task, where its pipeline's name says less.
# Encoders whose pooled vector has weights of its own.
_POOLED_BY_WEIGHTS = ("star_transformer", "disan")
_TASKS = {"fill-mask": "masked language modelling"}
FAMILIES = {
    "star_transformer": "Star-Transformer ([Guo et al., 2019](https://arxiv.org/abs/1902.09113))",
    "big_transformer": "BiG-Transformer ([Shu et al., 2020](https://openreview.net/forum?id=xulJokm5GeE))",
    "vanilla_transformer": "standard Transformer encoder ([Vaswani et al., 2017](https://arxiv.org/abs/1706.03762))",
    "disan": "DiSAN ([Shen et al., 2018](https://arxiv.org/abs/1709.04696))",
    "bilstm": "BiLSTM ([Hochreiter and Schmidhuber, 1997](https://doi.org/10.1162/neco.1997.9.8.1735))",
    "marian": "standard Transformer ([Vaswani et al., 2017](https://arxiv.org/abs/1706.03762))",
    "text_encoder_decoder": "Transformer decoder on an encoder of this package",
    "bert": "BERT ([Devlin et al., 2019](https://arxiv.org/abs/1810.04805))",
}


@dataclass
class CardContent:
    """What a model card tells. Only `results` holds numbers about quality, and all of them have to be measured.

    Attributes:
        model_name: the title.
        model_type: of the configuration: "star_transformer", ...
        task: transformers' pipeline: "token-classification", "text-classification", "fill-mask", ...
        dataset_name: as people call it.
        results: for each split its metrics: numbers, or what `summarize_seeds` gives. Anything not finite is left out.
        seeds: those behind `results`.
        command: what was typed.
        hyperparameters: name and value, in the order of the table.
        dataset_id: the data set's name on the Hub, if it has one.
        synthetic: whether the data are generated; the card then says so in several places.
        language: ISO codes, "en", ["en", "zh"].
        license: the Hub's name of the licence, "apache-2.0".
        base_model: the pretrained model that this one starts from.
        examples: texts (pairs of texts, questions with contexts) to try: for the widget, and the first for the code
            under "Use".
        label_list: the names of the labels; decides how the code under "Use" reads tags.
        aggregation: of a tagger, what `aggregation_for` says of its tokenizer.
        regression: whether the model predicts a number.
        usage_options: arguments of the call under "Use", where the task has such.
        tables: more Markdown tables by their heading, such as `per_entity_table`.
        pictures: file names in the folder by what they show; files that do not exist are left out.
        limitations: sentences; those that follow from the data and the seeds are added.
        repo_id: the model's name on the Hub, if it has one.
        weights_published: False says so on the card.
    """

    model_name: str
    model_type: str
    task: str
    dataset_name: str
    results: Mapping[str, Mapping[str, Any]]
    seeds: Sequence[int]
    command: str
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    dataset_id: str | None = None
    synthetic: bool = False
    language: str | list[str] | None = None
    license: str | None = None
    base_model: str | None = None
    examples: Sequence[str | Sequence[str]] = ()
    label_list: Sequence[str] = ()
    aggregation: Literal["first", "simple"] = "first"
    regression: bool = False
    usage_options: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=lambda: {"Training curves": "training_curves.png"})
    limitations: Sequence[str] = ()
    repo_id: str | None = None
    weights_published: bool = True


def write_model_card(folder: str | Path, content: CardContent) -> Path:
    """Write `README.md` into a model's folder, with the Hub's metadata on top. Needs no network.

    Args:
        folder: the folder of the saved model; its config.json tells whether loading needs `trust_remote_code`.
        content: what to tell.

    Returns:
        The path of the card. A card that was there is replaced only when the new one is complete.

    Raises:
        ValueError: when `results` has numbers but `seeds` is empty.
        FileNotFoundError: when the template is missing.
    """
    folder = Path(folder)
    measured = {split: _measured(metrics) for split, metrics in content.results.items()}
    measured = {split: metrics for split, metrics in measured.items() if metrics}
    if measured and not content.seeds:
        raise ValueError("Results without seeds cannot be repeated: say which ones, seeds=[42].")
    dataset = f"{content.dataset_name} (synthetic)" if content.synthetic else content.dataset_name
    card = ModelCard.from_template(
        _card_data(content, dataset, measured),
        template_str=template_text(),
        model_name=content.model_name,
        summary=_summary(content, dataset),
        synthetic=content.synthetic,
        weights_published=content.weights_published,
        usage=usage_code(folder, content),
        results_note=_results_note(content, measured),
        results=_results_table(measured),
        tables=list(content.tables.items()),
        pictures=[(text, file) for text, file in content.pictures.items() if (folder / file).is_file()],
        command=content.command.strip(),
        hyperparameters=markdown_table(
            ["setting", "value"], ((k, _setting(v)) for k, v in content.hyperparameters.items())
        ),
        versions=_versions(),
        limitations=_limitations(content),
        licence=_licence(content),
    )
    # a template's loops and conditions leave empty lines behind
    card.text = re.sub(r"\n{3,}", "\n\n", re.sub(r"(?m)^(- .*)\n\n(?=- )", r"\1\n", card.text))
    return write_text(folder / "README.md", str(card).rstrip() + "\n")


def template_text() -> str:
    """The template: from the repository in a checkout, from the package where it was installed as a wheel."""
    checkout = Path(__file__).resolve().parents[2] / TEMPLATE
    if checkout.is_file():
        return checkout.read_text(encoding="utf-8")
    installed = importlib.resources.files("modeling_star.training") / "card_template.md"
    if not installed.is_file():
        raise FileNotFoundError(
            f"The card template is neither at {checkout} nor at {installed}: reinstall the package."
        )
    return installed.read_text(encoding="utf-8")


def usage_code(folder: str | Path, content: CardContent) -> str:
    """Python lines that load the model with transformers and print what it says about the first example."""
    if content.task == "question-answering":
        return _answering_code(folder, content)
    if content.task == "translation":
        return _translation_code(folder, content)
    tags = content.task == "token-classification"
    entities = not content.label_list or is_entity_scheme(content.label_list)
    grouped = tags and (entities or content.aggregation == "first")
    own = grouped and not is_plain_iob(content.label_list)
    arguments = [_python(content.task), f"model={_python(content.repo_id or str(folder))}"]
    if grouped:
        arguments.append(f'aggregation_strategy="{content.aggregation}"')
    if own:
        arguments.append("pipeline_class=BestPathPipeline")
    if content.regression:
        arguments.append('function_to_apply="none"')
    if not tags and _has_limit(Path(folder)):
        arguments.append("truncation=True")
    if _needs_remote_code(Path(folder)):
        arguments.append("trust_remote_code=True")
    lines = ["from modeling_star.inference.pipelines import BestPathPipeline"] if own else []
    lines += ["from transformers import pipeline", "", f"model = pipeline({', '.join(arguments)})"]
    example = _example(content.examples[0] if content.examples else _NO_TEXT)
    if not tags:
        lines.append(f"print(model({_python(example if len(example) > 1 else example['text'])}))")
        return "\n".join(lines)
    label = "entity_group" if grouped else "entity"
    lines.append(f"text = {_python(example['text'])}")
    lines.append("for found in model(text):")
    lines.append(f'    print(text[found["start"] : found["end"]], found["{label}"], found["score"])')
    return "\n".join(lines)


def _has_limit(folder: Path) -> bool:
    """Whether the saved tokenizer tells how much the model reads."""
    saved = folder / "tokenizer_config.json"
    told = json.loads(saved.read_text(encoding="utf-8")).get("model_max_length") if saved.is_file() else None
    return max_length_or_none(told) is not None


def _answering_code(folder: str | Path, content: CardContent) -> str:
    """transformers 5 has no pipeline for answers: this package's own call."""
    remote = ", trust_remote_code=True" if _needs_remote_code(Path(folder)) else ""
    name = _python(content.repo_id or str(folder))
    question, context = content.examples[0] if content.examples else (_NO_QUESTION, _NO_TEXT)
    options = "".join(f", {key}={value!r}" for key, value in content.usage_options.items())
    return "\n".join(
        [
            "from modeling_star import answer_question",
            "from transformers import AutoModelForQuestionAnswering, AutoTokenizer",
            "",
            f"tokenizer = AutoTokenizer.from_pretrained({name}{remote})",
            f"model = AutoModelForQuestionAnswering.from_pretrained({name}{remote})",
            f"question = {_python(question)}",
            f"context = {_python(context)}",
            f"for answer in answer_question(question, context, model, tokenizer{options}):",
            "    print(answer.text, answer.start, answer.end, answer.score)",
        ]
    )


def _translation_code(folder: str | Path, content: CardContent) -> str:
    """transformers 5 has no pipeline for translations; `generate` knows beams and length penalty from the folder."""
    remote = ", trust_remote_code=True" if _needs_remote_code(Path(folder)) else ""
    name = _python(content.repo_id or str(folder))
    return "\n".join(
        [
            "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
            "",
            f"tokenizer = AutoTokenizer.from_pretrained({name}{remote})",
            f"model = AutoModelForSeq2SeqLM.from_pretrained({name}{remote})",
            f"texts = [{_python(content.examples[0] if content.examples else _NO_TEXT)}]",
            'inputs = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)',
            "print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))",
        ]
    )


def _python(value: Any) -> str:
    """Strings, and dictionaries of them, as Python writes them: in double quotes, Chinese left readable."""
    return json.dumps(value, ensure_ascii=False)


def _example(example: str | Sequence[str], answers: bool = False) -> dict[str, str]:
    """A text, a pair of texts, or a question with its context, as pipelines and the Hub's widget take it."""
    texts = [example] if isinstance(example, str) else example
    return dict(zip(("text", "context" if answers else "text_pair"), texts, strict=False))


def _needs_remote_code(folder: Path) -> bool:
    """Whether the saved model ships code of its own; without a config.json, as models of this package do."""
    config = folder / "config.json"
    return not config.is_file() or "auto_map" in json.loads(config.read_text(encoding="utf-8"))


def _measured(metrics: Mapping[str, Any]) -> dict[str, tuple[float, float | None]]:
    """(value, deviation) of each metric that was measured."""
    kept = {}
    for name, value in metrics.items():
        mean, deviation = (value["mean"], value.get("std")) if isinstance(value, Mapping) else (value, None)
        if mean is not None and math.isfinite(mean):
            kept[name] = (float(mean), deviation)
    return kept


def _card_data(
    content: CardContent, dataset: str, measured: Mapping[str, Mapping[str, tuple[float, float | None]]]
) -> ModelCardData:
    """The metadata block on top of the card."""
    results = [
        EvalResult(
            task_type=content.task,
            task_name=content.task.replace("-", " ").capitalize(),
            dataset_type=_on_the_hub(content.dataset_id)
            or re.sub(r"[^a-z0-9]+", "-", content.dataset_name.lower()).strip("-")
            or "data",
            dataset_name=dataset,
            dataset_split=split,
            metric_type=HUB_METRICS.get(name, name),
            metric_name=_metric_title(name, content.seeds),
            metric_value=round(value, 6),
        )
        for split, metrics in measured.items()
        for name, (value, _) in metrics.items()
    ]
    names = dict.fromkeys(HUB_METRICS.get(name, name) for metrics in measured.values() for name in metrics)
    return ModelCardData(
        model_name=content.model_name,
        language=content.language,
        license=content.license,
        library_name="transformers",
        pipeline_tag=content.task,
        base_model=_on_the_hub(content.base_model),
        datasets=[content.dataset_id] if _on_the_hub(content.dataset_id) else None,
        tags=[content.model_type.replace("_", "-"), *(["synthetic-data"] if content.synthetic else [])],
        metrics=list(names) or None,
        eval_results=results or None,
        widget=[_example(example, answers=content.task == "question-answering") for example in content.examples]
        or None,
    )


def _on_the_hub(name: str | None) -> str | None:
    """A name that the Hub can have; folders and files here are none, and it refuses a card that names them so."""
    if name is None or Path(name).exists() or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name, re.ASCII):
        return None
    return name


def shown_path(word: str) -> str:
    """An absolute path as others may see it: below the working folder as from there, elsewhere its last name."""
    path = Path(word)
    if not path.is_absolute():
        return word
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name or word


def _metric_title(name: str, seeds: Sequence[int]) -> str:
    title = _NAMES.get(name) or name.replace("_", " ").replace("f1", "F1")
    title = title if name in _NAMES else title[0].upper() + title[1:]
    return f"{title} (mean of {len(seeds)} seeds)" if len(seeds) > 1 else title


def _summary(content: CardContent, dataset: str) -> str:
    family = FAMILIES.get(content.model_type, f"`{content.model_type}`")
    start = f"fine-tuned from `{shown_path(content.base_model)}`" if content.base_model else "trained"
    task = _TASKS.get(content.task, content.task.replace("-", " "))
    return f"A {family} {start} on {dataset} for {task}."


def _results_note(content: CardContent, measured: Mapping[str, Any]) -> str:
    if not measured:
        return "Nothing was measured in this run."
    seeds = ", ".join(map(str, content.seeds))
    of_one = content.task == "text-classification" and len(content.label_list) == 2
    whose = (
        f" `f1` is that of `{content.label_list[1]}`." if of_one and any("f1" in m for m in measured.values()) else ""
    )
    if len(content.seeds) > 1:
        return f"Mean ± standard deviation over the seeds {seeds}, measured by the command below.{whose}"
    return f"Measured by the command below with seed {seeds}.{whose}"


def _results_table(measured: Mapping[str, Mapping[str, tuple[float, float | None]]]) -> str:
    if not measured:
        return ""
    names = dict.fromkeys(name for metrics in measured.values() for name in metrics)
    rows = [[name, *(_score(metrics.get(name)) for metrics in measured.values())] for name in names]
    return markdown_table(["metric", *measured], rows)


def _score(value: tuple[float, float | None] | None) -> str:
    if value is None:
        return "–"
    mean, deviation = value
    return f"{mean:.4f}" if deviation is None else f"{mean:.4f} ± {deviation:.4f}"


def _setting(value: Any) -> str:
    """A setting as it would be typed: no thousands separators, no rounding."""
    return f"`{value}`"


def _versions() -> str:
    versions = [f"Python {platform.python_version()}"]
    for name in _VERSIONS:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
            continue
    return f"Versions: {', '.join(versions)}."


def _limitations(content: CardContent) -> list[str]:
    limitations = list(content.limitations)
    if content.synthetic:
        limitations.append("Trained on generated sentences: expect poor results on any other text.")
    else:
        limitations.append(f"Measured on {content.dataset_name} only: other sources, times or domains will differ.")
    if content.task == "fill-mask" and content.model_type in _POOLED_BY_WEIGHTS:
        limitations.append(
            "Masked words train no weights of the pooled vector: `AutoModel` begins with random ones, so that its "
            "`pooler_output` is of use after fine-tuning, `last_hidden_state` at once."
        )
    if len(content.seeds) == 1:
        limitations.append("Measured with one seed: another one gives somewhat different numbers.")
    return limitations


def _licence(content: CardContent) -> str:
    if content.license is None:
        return "Not stated. The terms of the training data may apply to the weights."
    return f"{content.license}. The terms of the training data may add to it."
