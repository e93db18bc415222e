#!/usr/bin/env python
"""
What the first layer starts from: scores and attention of each encoder, as it was and with norms on what it reads.

    OMP_NUM_THREADS=1 python experiments/first_layer.py DATA

Each run trains on a part of a data set and is scored on validation rows; no test rows are read. A run that
`experiments/results/first_layer.jsonl` has is not run again; `experiments/first_layer/results.md` is made from that
file (`--page`: without any run). Some runs: `--tasks MR sst2 --systems star_plus star_plus_2 --seeds 1`.

Of each layer a run has, at the start and after training, over the first validation rows:

- `entropy`: of the weights over its maximum, the logarithm of the number of candidates; 1 is a mean of all.
- `deviation`: of the scores of one softmax.
- `gradient`: norm of the gradient of W_Q, of the loss for label 0 everywhere; at the start alone.
"""

import argparse
import contextlib
import io
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from lab.kept_runs import RunFile, check_arguments, read_counts, write_counts
from lab.launching import AVX2, environment
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel

from modeling_star.commands.parser import from_values
from modeling_star.evaluation.bootstrap import bootstrap_mean, count_examples
from modeling_star.evaluation.compare import read_system
from modeling_star.evaluation.reports import markdown_table
from modeling_star.runs.run import run
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training.arguments import (
    ClassificationArguments,
    ClassificationModelArguments,
    LabelRunArguments,
    TaggingArguments,
    TaggingModelArguments,
)


RESULTS = Path("experiments/results/first_layer.jsonl")
PAGE = Path("experiments/first_layer/results.md")
PROBED = 32  # validation rows whose attention is measured
SHAPES = "configuration/models"

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Data:
    """A part of a data set, and how it is trained on: arguments of the command beside those of all runs."""

    title: str
    folder: str
    arguments: Arguments
    metric: str = "accuracy"
    columns: tuple[str, ...] = ("text",)
    vectors: str | None = None

    @property
    def is_tagged(self) -> bool:
        """Whether each word has a label."""
        return self.columns == ("tokens",)


@dataclass(frozen=True)
class System:
    """A shape, with other fields of the configuration."""

    title: str
    shape: str
    fields: Arguments = field(default_factory=dict)


REVIEWS = {"num_train_epochs": 4, "max_seq_length": 128}
SHORT = {"num_train_epochs": 4, "max_seq_length": 64, "max_train_samples": 3000}
CHINESE = {**SHORT, "max_seq_length": 128, "num_train_epochs": 3, "tokenizer_kind": "character"}
WEIBO = {"label_column_name": "ner_tags", "num_train_epochs": 10, "learning_rate": 1e-3, "tokenizer_kind": "character"}
GLOVE, TENCENT = "glove.6B.50d.subset.txt.gz", "tencent_char.200d.subset.txt.gz"
TASKS = {
    "MR": Data("MR", "mtl16/MR", REVIEWS),
    "books": Data("Books", "mtl16/books", REVIEWS),
    "kitchen": Data("Kitchen", "mtl16/kitchen_housewares", REVIEWS),
    "imdb": Data("IMDB", "mtl16/imdb", REVIEWS),
    "sst2": Data("SST-2, 3,000 sentences", "sst2", SHORT),
    "sst2_vectors": Data("the same on frozen GloVe", "sst2", SHORT, vectors=GLOVE),
    "snli": Data(
        "SNLI, 5,000 pairs",
        "snli",
        {**SHORT, "num_train_epochs": 3, "max_train_samples": 5000, "max_eval_samples": 2000},
        columns=("sentence1", "sentence2"),
    ),
    "ewt": Data(
        "EWT parts of speech, 2,500 sentences",
        "ud_english_ewt",
        {"label_column_name": "pos_tags", "num_train_epochs": 4, "max_train_samples": 2500, "max_eval_samples": 700},
        columns=("tokens",),
    ),
    "wnut17": Data(
        "WNUT-17 entities",
        "wnut17",
        {"label_column_name": "ner_tags", "num_train_epochs": 6, "learning_rate": 1e-3},
        "entity_f1",
        ("tokens",),
    ),
    "weibo": Data("Weibo entities", "weibo_ner", WEIBO, "entity_f1", ("tokens",)),
    "weibo_vectors": Data("the same on frozen Tencent", "weibo_ner", WEIBO, "entity_f1", ("tokens",), TENCENT),
    "chnsenticorp": Data("ChnSentiCorp, 3,000 texts", "chnsenticorp", CHINESE),
    "chnsenticorp_vectors": Data("the same on frozen Tencent", "chnsenticorp", CHINESE, vectors=TENCENT),
}
NORM = {"embedding_norm": True}
WINDOW = {"local_connection": "window"}
NGRAMS = {"ngram_buckets": 262144}
SYSTEMS = {
    "star_plus": System("star-plus", "star-plus"),
    "star_plus_norm": System("star-plus, norm on the embeddings", "star-plus", NORM),
    "star_plus_2": System("star-plus-2", "star-plus-2"),
    "start_1": System("star-plus, embeddings of deviation 1", "star-plus", {"initializer_range": 1.0}),
    "ngrams": System("star-plus with n-grams", "star-plus", NGRAMS),
    "ngrams_2": System("star-plus-2 with n-grams", "star-plus-2", NGRAMS),
    "star": System("Star", "star-base"),
    "star_norm": System("Star, both norms", "star-base", {**NORM, "relay_start_norm": True}),
    "big": System("BiG, four neighbours", "big-whole-word", WINDOW),
    "big_norm": System("BiG, norm on the embeddings", "big-whole-word", {**WINDOW, **NORM}),
    "vanilla": System("standard Transformer", "vanilla-base"),
    "vanilla_norm": System("standard Transformer, norm on the embeddings", "vanilla-base", NORM),
    "no_relay": System("star-plus, no relay", "star-plus", {"use_radial": False}),
    "no_relay_2": System("star-plus-2, no relay", "star-plus-2", {"use_radial": False}),
    "no_ring": System("star-plus, no ring", "star-plus", {"use_ring": False}),
    "no_ring_2": System("star-plus-2, no ring", "star-plus-2", {"use_ring": False}),
}
# (a, b): the page has the differences a minus b.
PAIRS = (
    *(("star_plus_2", "star_plus"), ("star_plus_norm", "star_plus"), ("start_1", "star_plus"), ("ngrams_2", "ngrams")),
    *(("star_norm", "star"), ("big_norm", "big"), ("vanilla_norm", "vanilla"), ("star_plus_2", "vanilla_norm")),
    *(
        ("star_plus", "no_relay"),
        ("star_plus_2", "no_relay_2"),
        ("star_plus", "no_ring"),
        ("star_plus_2", "no_ring_2"),
    ),
)
WIDTH: Arguments = {"hidden_size": 192}
OF_ALL: Arguments = {
    "config_overrides": WIDTH,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
    "warmup_steps": 0.1,
    "save_strategy": "no",
    "eval_strategy": "no",
    "load_best_model_at_end": False,
    "train_sampling_strategy": "group_by_length",
    "dataloader_pin_memory": False,
    "disable_tqdm": True,
}


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="folder with one folder for each data set")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"the kept runs (default: {RESULTS})")
    parser.add_argument("--page", type=Path, nargs="?", const=PAGE, help=f"only write the page (default: {PAGE})")
    arguments = parser.parse_args()
    runs = RunFile(arguments.results)
    for name, value in AVX2.items():  # read when torch first computes
        os.environ.setdefault(name, value)
    if arguments.page is None:
        if arguments.data is None:
            parser.error("name the folder with the data sets, or write --page")
        for seed in arguments.seeds:
            for task in arguments.tasks:
                for system in arguments.systems:
                    train_once(runs, arguments.data, task, system, seed)
    page = arguments.page or PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(results_page(runs.read_all()), encoding="utf-8")
    print(page.read_text(encoding="utf-8"))


def train_once(runs: RunFile, data: Path, task_name: str, system_name: str, seed: int) -> None:
    """Train, score and measure one run, unless it is kept."""
    name, task, system = f"{task_name}/{system_name}-seed{seed}", TASKS[task_name], SYSTEMS[system_name]
    given = {**OF_ALL, **task.arguments, "config_name": f"{SHAPES}/{system.shape}.json", "seed": seed}
    given["config_overrides"] = {**WIDTH, **system.fields}
    for split in ("train", "validation"):
        given[f"{split}_file"] = f"$DATA/{task.folder}/{split}.jsonl.gz"
    if task.is_tagged:
        given["config_overrides"]["use_crf"] = False
    else:
        given |= {"tfidf_baseline": False, "text_column_name": ",".join(task.columns)}
    if task.vectors is not None:
        vectors = {"embeddings_name_or_path": f"$DATA/embeddings/{task.vectors}", "embeddings_mode": "vectors"}
        given |= {**vectors, "freeze_embeddings": True, "tokenizer_kind": given.get("tokenizer_kind", "word")}
    if (kept := runs.read(name)) is not None:
        check_arguments(f"{runs.path}, run {name},", kept["arguments"], given)
        return
    with tempfile.TemporaryDirectory(prefix="first_layer_") as folder:
        result = trained(task, given, data, Path(folder) / "model")
    runs.keep({name: {**result, "arguments": given, "environment": environment()}})
    print(name, f"{result['validation']:.4f}", result["end"], f"{result['training_seconds']:.0f} s", flush=True)


def trained(task: Data, given: Arguments, data: Path, folder: Path) -> dict[str, Any]:
    """The scores and the attention of a model that is trained in `folder`."""
    values = {key: x.replace("$DATA", str(data)) if isinstance(x, str) else x for key, x in given.items()}
    values["config_overrides"] = json.dumps(given["config_overrides"])
    values |= {"output_dir": str(folder), "do_train": True, "do_eval": True, "do_predict": False}
    kinds: tuple[type, ...] = (ClassificationModelArguments, ClassificationArguments, LabelRunArguments)
    if task.is_tagged:
        kinds = (TaggingModelArguments, TaggingArguments, LabelRunArguments)
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    with contextlib.redirect_stdout(io.StringIO()):
        _, results = run(TaggingTask if task.is_tagged else ClassificationTask, *from_values(kinds, values))
    system = read_system(folder, "validation")
    counts = count_examples(task.metric, system.references, system.predictions[0])
    model, inputs = load(task, folder, values["validation_file"])
    return {
        "validation": results["eval_f1" if task.metric == "entity_f1" else f"eval_{task.metric}"],
        "counts": write_counts(counts),
        "start": measure(fresh_copy(model, given["seed"]), inputs, with_gradient=True),
        "end": measure(model, inputs),
        "parameters": results["parameters"],
        "training_seconds": results["train_runtime"],
    }


# ------ attention


def load(task: Data, folder: Path, file: str) -> tuple[PreTrainedModel, Any]:
    """A trained model, and the first rows of a file as its inputs."""
    rows = datasets.load_dataset("json", data_files=file, split=f"train[:{PROBED}]")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    head = "AutoModelForTokenClassification" if task.is_tagged else "AutoModelForSequenceClassification"
    model = getattr(transformers, head).from_pretrained(folder)
    inputs = tokenizer(
        *(rows[column][:] for column in task.columns),
        is_split_into_words=task.is_tagged,
        padding=True,
        truncation=True,
        max_length=128,
        return_token_type_ids=len(task.columns) == 2,
        return_tensors="pt",
    )
    return model.eval(), inputs


def fresh_copy(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """A model of the same shape with fresh weights, on the same frozen embeddings."""
    transformers.set_seed(seed)
    fresh = type(model)(model.config).eval()
    if model.config.freeze_embeddings:
        fresh.get_input_embeddings().load_state_dict(model.get_input_embeddings().state_dict())
    return fresh


def measure(model: PreTrainedModel, inputs: Any, with_gradient: bool = False) -> dict[str, dict[str, list[float]]]:
    """Entropy, deviation and gradient of each layer: tokens' attention, and the relay's if there is one."""
    with torch.no_grad():
        output = model.base_model(**inputs, output_attentions=True)
    mask = inputs["attention_mask"].bool()
    measured = {"tokens": _of_weights([weights.transpose(1, 2)[mask] for weights in output.attentions])}
    if output.relay_attentions is not None:
        measured["relay"] = _of_weights(output.relay_attentions)
    if with_gradient:
        logits = model(**inputs).logits
        logits = logits[mask] if logits.dim() == 3 else logits
        nn.functional.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.long)).backward()
        for kind in measured:
            measured[kind]["gradient"] = [_rounded(float(weight.grad.norm())) for weight in _queries(model, kind)]
    return measured


def _of_weights(layers: Any) -> dict[str, list[float]]:
    """Means over tokens and heads of layers of weights `[..., r]`; a weight of 0 is no candidate."""
    found: dict[str, list[float]] = {"entropy": [], "deviation": []}
    for weights in layers:
        exists = weights > 0
        count = exists.sum(-1)
        several = count > 1
        logs = weights.clamp_min(1e-30).log() * exists
        entropy = -(weights * logs).sum(-1) / count.clamp_min(2).log()
        centred = (logs - (logs.sum(-1) / count.clamp_min(1))[..., None]) * exists
        deviation = (centred.square().sum(-1) / count.clamp_min(1)).sqrt()
        found["entropy"].append(_rounded(float(entropy[several].mean())))
        found["deviation"].append(_rounded(float(deviation[several].mean())))
    return found


def _queries(model: PreTrainedModel, kind: str) -> list[Tensor]:
    """W_Q of each layer; of the standard Transformer, in whose W_Q, W_K and W_V are one weight, all three."""
    relays = {name: weight for name, weight in model.named_parameters() if "relay_attention" in name}
    others = {name: weight for name, weight in model.named_parameters() if name not in relays}
    chosen = relays if kind == "relay" else others
    return [
        weight
        for name, weight in chosen.items()
        if name.endswith(("projections.query.weight", "in_proj_weight")) and weight.grad is not None
    ]


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


# ------ page


HEADING = """# What the first layer starts from

Made by `python experiments/first_layer.py --page` from [the kept runs](../results/first_layer.jsonl);
[the script](../first_layer.py) says what is measured. Scores are of validation rows, encoders have two layers of width
192, trained for 3 to 10 epochs. The number of seeds is in parentheses; intervals (95 %) are over rows, and over seeds
where there are several.
"""


def results_page(kept: dict[str, dict[str, Any]]) -> str:
    """The page: scores, differences, attention."""
    seeds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, result in kept.items():
        task, system = name.rpartition("-seed")[0].split("/")
        seeds.setdefault((task, system), []).append(result)
    systems = [system for system in SYSTEMS if any((task, system) in seeds for task in TASKS)]
    tasks = [task for task in TASKS if any((task, system) in seeds for system in systems)]
    scores = [[TASKS[task].title, *(_score(seeds.get((task, system))) for system in systems)] for task in tasks]
    attention = [
        [SYSTEMS[system].title, TASKS[task].title, *_attention(seeds[task, system])]
        for system in systems
        for task in tasks
        if (task, system) in seeds
    ]
    parts = [
        HEADING,
        "## Scores\n",
        markdown_table(["", *(SYSTEMS[system].title for system in systems)], scores),
        "\n## Differences\n",
        "Means over the sets that both systems were trained on, with as many seeds.\n",
        markdown_table(["", "sets", "runs", "difference"], _differences(seeds)),
        "\n## Attention\n",
        "Entropy over its maximum in layers 1 and 2 before and after training, the deviation of scores at the start, "
        "and the gradient of W_Q in layer 1 over that in layer 2 at the start. One seed.\n",
        markdown_table(
            ["", "set", "tokens, before", "after", "relay, before", "after", "deviation", "gradient"], attention
        ),
    ]
    return "\n".join(parts) + "\n"


def _score(results: list[dict[str, Any]] | None) -> str:
    if results is None:
        return ""
    return f"{100 * np.mean([result['validation'] for result in results]):.1f} ({len(results)})"


def _differences(seeds: dict[tuple[str, str], list[dict[str, Any]]]) -> list[list[str]]:
    """A row for each of PAIRS that was run."""
    rows = []
    for one, other in PAIRS:
        shared = [task for task in TASKS if (task, one) in seeds and (task, other) in seeds]
        compared = []
        for task in shared:
            a, b = ([read_counts(result["counts"]) for result in seeds[task, system]] for system in (one, other))
            number = min(len(a), len(b))
            compared.append((TASKS[task].metric, a[:number], b[:number]))
        if compared:
            difference, low, high = (100 * value for value in bootstrap_mean(compared))
            title = f"{SYSTEMS[one].title} minus {SYSTEMS[other].title}"
            count = sum(len(runs) for _, runs, _ in compared)
            rows.append([title, str(len(shared)), str(count), f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]"])
    return rows


def _attention(results: list[dict[str, Any]]) -> list[str]:
    first = results[0]
    cells = []
    for kind in ("tokens", "relay"):
        for moment in ("start", "end"):
            entropies = first[moment].get(kind, {}).get("entropy", [])
            cells.append(", ".join(f"{entropy:.3f}" for entropy in entropies))
    start = first["start"]["tokens"]
    cells.append(", ".join(f"{deviation:.2g}" for deviation in start["deviation"]))
    cells.append(f"{start['gradient'][0] / start['gradient'][1]:.2g}")
    return cells


if __name__ == "__main__":
    main()
