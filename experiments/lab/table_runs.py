"""The runs of a table of experiments: which are missing, one after the other through its script, and what is kept."""

import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from string import Template
from typing import Any

import numpy as np
import yaml
from filelock import FileLock, Timeout
from transformers import AutoModel

from lab.launching import (
    LOG,
    USUAL,
    environment,
    launch_settings,
    read_environment,
    run_to_the_end,
    still_runs,
)
from lab.tables import Configuration, Table
from modeling_star.data.splits import load_splits, take_first
from modeling_star.errors import UserError
from modeling_star.evaluation.bootstrap import count_examples, score_counts
from modeling_star.evaluation.compare import MADE_BY, SCORED_BY, read_system
from modeling_star.evaluation.reports import metrics_only, write_json, write_text
from modeling_star.training.arguments import current_names
from modeling_star.training.checkpoints import differences, last_checkpoint


_BEGAN_FROM = "began_from.json"


class BeforeError(UserError):
    """What has to run before a table's runs has failed: so would each of them."""


def check_arguments(path: Path, made_with: dict[str, Any] | None, asked: dict[str, Any]) -> None:
    """
    Args:
        path: of what was made.
        made_with: the arguments that made it; `None` where none are known.
        asked: what they should be.

    Raises:
        UserError: they differ; it names the file and what differs.
    """
    other = "" if made_with is None else differences(current_names(made_with), current_names(asked))
    if other:
        raise UserError(f"{path} was made with other arguments ({other}): delete it to make it anew.")


@dataclass(frozen=True)
class FinishedRuns:
    """
    The runs of a table that are kept, one file each: `TABLE/TASK/SETTING/SYSTEM-CONFIGURATION-seedN.json`.

    Args:
        table: the table.
        folder: of all tables' runs.
    """

    table: Table
    folder: Path

    def path(self, configuration: Configuration, seed: int) -> Path:
        """Where a run is kept."""
        name = f"{configuration.system}-{configuration.number}-seed{seed}.json"
        return self.folder / self.table.name / configuration.task / configuration.setting / name

    def read(self, configuration: Configuration, seed: int) -> dict[str, Any] | None:
        """
        What is kept of a run, or `None`.

        Raises:
            UserError: it was made with other arguments than the table gives now, or scored by another metric.
        """
        path = self.path(configuration, seed)
        if not path.is_file():
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        check_arguments(path, kept.get("arguments"), {**configuration.arguments, "seed": seed})
        metric = self.table.metric(configuration.task)
        if kept.get("metric", metric) != metric:  # early runs tell none
            raise UserError(f"{path} tells {kept['metric']}, the table {metric}: delete it to make it anew.")
        return kept

    def check_same_rows(self, configuration: Configuration, run: dict[str, Any]) -> None:
        """
        Args:
            configuration: of a run.
            run: what it measured.

        Raises:
            UserError: a kept run that it is compared with was measured on other test rows.
        """
        for path in sorted(self.path(configuration, 0).parent.glob("*-seed*.json")):
            kept = json.loads(path.read_text(encoding="utf-8"))
            if are_of_other_rows(run, kept):
                raise UserError(
                    f"{configuration.cell} was measured on other test rows ({count_rows(run)}) than {path} "
                    f"({count_rows(kept)}), and no mean or interval is of both: give all systems the same data, or "
                    "keep runs on others apart, --results NAME --work NAME. Nothing of it is kept."
                )

    def path_before(self, name: str) -> Path:
        """Where what ran before all runs is kept."""
        return self.folder / self.table.name / "before" / f"{name}.json"

    def read_before(self, name: str) -> dict[str, Any] | None:
        """
        What is kept of it, or `None`.

        Raises:
            BeforeError: it was made with other arguments than the table gives now.
        """
        path = self.path_before(name)
        if not path.is_file():
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        try:
            check_arguments(path, kept["arguments"], self.table.arguments_before(name))
        except UserError as error:
            raise BeforeError(f"{error} The runs beside it began from that model: delete them as well.") from None
        return kept

    def check_same_model(self, name: str, words: str) -> None:
        """
        Args:
            name: of the model that runs begin from, without its `$`.
            words: its `fingerprint`.

        Raises:
            UserError: a kept run of the table began from another model of that name.
        """
        for path in sorted((self.folder / self.table.name).glob("*/*/*-seed*.json")):
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept.get("began_from", {}).get(name, words) != words:  # early runs tell none
                raise UserError(
                    f"${name} is another model than that which {path} began from: their words have other vectors, and "
                    "no mean or interval is of both. Keep runs from another model apart: write --results NAME --work "
                    "NAME"
                )

    def elsewhere(self, arguments: dict[str, Any], metric: str, began_from: dict[str, str]) -> dict[str, Any] | None:
        """What another table keeps of a run with the same arguments, seed, metric and first model; or `None`."""
        for path in sorted(self.folder.glob(f"*/*/*/*-seed{arguments['seed']}.json")):
            kept = json.loads(path.read_text(encoding="utf-8"))
            same = kept.get("metric", metric) == metric and kept.get("began_from", began_from) == began_from
            if same and current_names(kept.get("arguments", {})) == current_names(arguments):
                return kept
        return None

    def best(self, configurations: list[Configuration]) -> Configuration | None:
        """The configuration of a cell that validation chooses, or `None` while one of several has not run."""
        if len(configurations) == 1:
            return configurations[0]
        own = configurations[0]
        tuning = [
            self.table.configurations(task, own.setting, own.system) for task in self.table.tuning_tasks(own.task)
        ]
        scores = []
        for number in range(len(configurations)):
            runs = [self.read(task[number], self.table.seeds[0]) for task in tuning if task]
            if not all(runs):
                return None
            scores.append(fmean(run["validation"] for run in runs))
        return configurations[max(range(len(scores)), key=scores.__getitem__)]


@dataclass(frozen=True)
class Runner:
    """
    Runs what is missing of a table.

    Args:
        table: the table.
        results: folder of the finished runs, one file each.
        work: folder of the runs' models and logs.
        names: what `$DATA`, `$MINILM` and the like stand for here.
        launcher: what stands before the script: `accelerate launch ...`.
        keep_models: do not delete a run's model once it is measured.
    """

    table: Table
    results: Path
    work: Path
    names: dict[str, str]
    launcher: list[str]
    keep_models: bool = False

    @property
    def finished(self) -> FinishedRuns:
        """The runs that are there."""
        return FinishedRuns(self.table, self.results)

    def missing(
        self, configurations: list[Configuration], seeds: list[int] | None
    ) -> Iterator[tuple[Configuration, int]]:
        """
        The runs of a cell that are not there, each as it is due: the best configuration is known only later.

        Args:
            configurations: those of the cell.
            seeds: what the best configuration is to run with, but those that its system has no use for; `None`: all of
                its system's. The table's first seed chooses it.
        """
        own = configurations[0]
        if len(configurations) > 1 and own.task in self.table.tuning_tasks(own.task):
            for configuration in configurations:
                if self.finished.read(configuration, self.table.seeds[0]) is None:
                    yield configuration, self.table.seeds[0]
        best = self.finished.best(configurations)
        named = "seeds" in self.table.content["systems"][own.system]
        of_system = self.table.seeds_of(own.system)
        for seed in of_system if seeds is None else [seed for seed in seeds if not named or seed in of_system]:
            if best is not None and self.finished.read(best, seed) is None:
                yield best, seed

    def waits_for(self, configurations: list[Configuration]) -> list[str]:
        """The other tasks that have to run before a cell's configuration is known."""
        if self.finished.best(configurations) is not None:
            return []
        own = configurations[0].task
        return [task for task in self.table.tuning_tasks(own) if task != own]

    def add_repeated(self, configurations: list[Configuration]) -> None:
        """Tell the kept runs of a cell which test rows are in train, where the table has come to ask since."""
        for configuration in configurations:
            for seed in self.table.seeds_of(configuration.system):
                kept = self.finished.read(configuration, seed) or {}
                repeated = self._repeated(configuration.task, kept)
                if repeated:
                    write_json(self.finished.path(configuration, seed), kept | repeated)

    def run(self, configuration: Configuration, seed: int) -> dict[str, Any] | None:
        """
        One run of a script, or the rest of one that was interrupted; keeps its result. What another table has run
        with the same arguments is taken over.

        Returns:
            What is kept, or `None` where another process is at this run.

        Raises:
            UserError: the script failed; its log is named.
        """
        arguments = {**configuration.arguments, "seed": seed}
        first = [name for name in self.table.before if name in _names_in(arguments)]
        # What ran before another table may have the same name, and be another model.
        metric, began_from = self.table.metric(configuration.task), self._began_from(arguments)
        known = None if first else self.finished.elsewhere(arguments, metric, began_from)
        if known is not None:
            write_json(self.finished.path(configuration, seed), known | self._repeated(configuration.task, known))
            return self.finished.read(configuration, seed)
        folder = self.work / self.table.name / configuration.cell / f"{configuration.number}-seed{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder / "running.lock", timeout=0):
                for name in first:
                    self._run_before(name)
                # Another process may have ended it since it was found missing.
                return self.finished.read(configuration, seed) or self._run(configuration, seed, arguments, folder)
        except Timeout:
            return None

    def _run_before(self, name: str) -> None:
        """
        The run that leaves the model `$NAME`, or the rest of it; keeps what it measured. Another process that needs it
        waits.

        Raises:
            BeforeError: it failed, or was made with other arguments.
        """
        told = self.table.before[name]
        model = Path(self._model_before(name))
        model.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(model.parent / "running.lock"):
            before = self.finished.read_before(name)
            arguments = self.table.arguments_before(name)
            resumed = False
            if before is None or not (model / "all_results.json").is_file():
                try:
                    resumed = self._run_script(name, told["script"], arguments, model.parent)
                except UserError as error:
                    raise BeforeError(str(error)) from None
            scores = json.loads((model / "all_results.json").read_text(encoding="utf-8"))
            measured = metrics_only({key: value for key, value in scores.items() if key.startswith("eval_")})
            if before is not None:
                if before["scores"] != measured:
                    raise BeforeError(
                        f"{model} is another model than the finished runs began from: its scores are {measured}, "
                        f"those in {self.finished.path_before(name)} {before['scores']}. Keep runs of both apart: "
                        "write --results NAME --work NAME"
                    )
                return
            state = json.loads((model / "trainer_state.json").read_text(encoding="utf-8"))
            kept = {
                "scores": measured,
                "parameters": scores["parameters"],
                "training_seconds": None if resumed else _seconds(scores),
                "tokens_per_second": None if resumed else scores.get("train_tokens_per_second"),
                "arguments": arguments,
                "environment": read_environment(model.parent),
                "log_history": [
                    {key: entry[key] for key in ("step", "loss", "eval_loss") if key in entry}
                    for entry in state["log_history"]
                    if "loss" in entry or "eval_loss" in entry
                ],
            }
            write_json(self.finished.path_before(name), kept)

    def _model_before(self, name: str) -> str:
        return str(self.work / self.table.name / "before" / name / "model")

    def _run(self, configuration: Configuration, seed: int, arguments: dict[str, Any], folder: Path) -> dict[str, Any]:
        """A run that nobody else is at, in its folder."""
        model = folder / "model"
        script = self.table.content["tasks"][configuration.task]["script"]
        resumed = self._run_script(f"{configuration.cell}, seed {seed}", script, arguments, folder)
        result = {**self._measured(configuration, arguments, model), "environment": read_environment(folder)}
        self.finished.check_same_rows(configuration, result)
        if resumed:
            result["training_seconds"] = None  # those of the last part alone would mislead
        write_json(self.finished.path(configuration, seed), result)
        if not self.keep_models:
            for path in sorted(model.rglob("*.safetensors")) + sorted(model.rglob("optimizer.pt")):
                path.unlink()
        return result

    def _run_script(self, title: str, script: str, arguments: dict[str, Any], folder: Path) -> bool:
        """
        Run a script, or the rest of it, into `folder/model`, unless it is finished there; whether it was gone on with.

        Raises:
            UserError: the script failed; its log is named. Or it still runs, and who began it was killed.
        """
        running = still_runs(folder)
        if running is not None:
            raise UserError(
                f"{title} is being run by process {running}, which a reproduce.py that was killed has left behind: "
                f"call this again when it has ended, or end it: kill -- -{running}"
            )
        model, recipe, asked = folder / "model", folder / "recipe.yaml", folder / "arguments.json"
        here = {name: self._filled(value) for name, value in arguments.items()}
        here |= {"output_dir": str(model), "resume_from_checkpoint": "last"}
        finished = (model / "all_results.json").is_file()  # what a run writes last
        resumed = not finished and last_checkpoint(model) is not None
        if asked.is_file() and (finished or resumed):  # without the names of this machine's folders
            check_arguments(folder, json.loads(asked.read_text(encoding="utf-8")), arguments)
        began_from, began = self._began_from(arguments), folder / _BEGAN_FROM
        if began.is_file() and (finished or resumed):
            there = json.loads(began.read_text(encoding="utf-8"))
            if there != began_from:
                raise UserError(
                    f"{folder} began from another model called {', '.join(f'${name}' for name in there)}: delete it, "
                    "or keep runs from another model apart: write --results NAME --work NAME"
                )
        if finished:
            return False
        write_json(began, began_from)
        if not resumed:  # stopped before there was anything to go on from
            shutil.rmtree(model, ignore_errors=True)
        launch = launch_settings(self.launcher)
        now = environment(bool(here.get("use_cpu") or launch.get("use_cpu")))
        # Neither is an argument, and both make another training of the same arguments.
        now |= {name: launch[name] for name, usual in USUAL.items() if launch.get(name, usual) != usual}
        if resumed and read_environment(folder) != now:
            now["commit"] = None  # no single one made it
        write_json(folder / "environment.json", now)
        write_json(asked, arguments)
        write_text(recipe, yaml.safe_dump(here, allow_unicode=True))
        command = [*self.launcher, f"run_scripts/{script}", str(recipe)]
        code = run_to_the_end(command, folder)
        if code:
            tail = (folder / LOG).read_text(encoding="utf-8").strip().splitlines()[-3:]
            raise UserError(f"{title} stopped with {code}; {folder / LOG}: {tail}")
        return resumed

    def _filled(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if not isinstance(value, str):
            return value
        meant = {**self.names, **{name: self._model_before(name) for name in self.table.before}}
        return Template(value).safe_substitute(meant)

    def _measured(self, configuration: Configuration, arguments: dict[str, Any], model: Path) -> dict[str, Any]:
        """
        What is kept of a run: its scores, and what each test example added to them.

        Raises:
            UserError: its predictions have another score than the script told.
        """
        task = self.table.content["tasks"][configuration.task]
        metric = task["metric"]
        name, full = SCORED_BY[MADE_BY[task["script"]]][metric]
        scores = json.loads((model / "all_results.json").read_text(encoding="utf-8"))
        asked = [f"eval_{name}", *([f"test_{name}"] if "test_file" in arguments else [])]
        lacking = [score for score in asked if score not in scores]
        if lacking:
            raise UserError(f"{model}: {task['script']} told no {', '.join(lacking)}. Nothing of it is kept.")
        result = {
            "metric": metric,
            "validation": scores[f"eval_{name}"] / full,
            "parameters": scores["parameters"],
            "training_seconds": _seconds(scores),
            "arguments": arguments,
        }
        began_from = self._began_from(arguments)
        result |= {"began_from": began_from} if began_from else {}
        if "test_file" not in arguments:
            return result
        run = read_system(model)
        counts = count_examples(metric, run.references, run.predictions[0], arguments.get("answer_language"))
        told = scores[f"test_{name}"] / full
        if not math.isclose(score_counts(metric, counts), told, abs_tol=1e-4):
            raise UserError(
                f"{model}: the test score is {told}, that of its predictions {score_counts(metric, counts)}: "
                "intervals are made of the predictions and would be those of another score. Nothing of it is kept."
            )
        result |= {"test": told, "counts": write_counts(counts), "references": fingerprint(run.references)}
        return result | self._repeated(configuration.task, result)

    def check_same_models(self, configurations: Iterable[Configuration]) -> None:
        """
        Args:
            configurations: what is to run.

        Raises:
            UserError: a kept run of the table began from another model of the same name, or one cannot be read.
        """
        asked = [self._began_from(configuration.arguments) for configuration in configurations]
        for name, words in sorted({item for began_from in asked for item in began_from.items()}):
            self.finished.check_same_model(name, words)

    def _began_from(self, arguments: dict[str, Any]) -> dict[str, str]:
        """Of each saved model that arguments name, or those of what runs before, the fingerprint of its words."""
        asked = _names_in(arguments) - {"DATA"}
        for name in asked & self.table.before.keys():
            asked |= _names_in(self.table.arguments_before(name)) - {"DATA"}
        named = {name: meant for name, meant in self.names.items() if name in asked}
        return {name: _fingerprint_of_words(meant) for name, meant in named.items()}

    def _repeated(self, task: str, run: dict[str, Any]) -> dict[str, str]:
        """For each test row of a run 1 where its text occurs in train too, else 0; nothing if told or not asked."""
        column = self.table.content["tasks"][task].get("repeated")
        if column is None or "counts" not in run or "arguments" not in run:
            return {}
        if "repeated" in run and run.get("repeated_by", column) == column:  # early runs do not tell by what
            return {}
        arguments = run["arguments"]
        files = {split: self._filled(arguments[f"{split}_file"]) for split in ("train", "test")}
        splits = load_splits(files=files)
        known = set(map(_hashable, take_first(splits["train"], arguments.get("max_train_samples"))[column]))
        asked = take_first(splits["test"], arguments.get("max_predict_samples"))[column]
        return {"repeated": "".join(str(int(_hashable(text) in known)) for text in asked), "repeated_by": column}


def _names_in(arguments: dict[str, Any]) -> set[str]:
    """What arguments call `$NAME`."""
    return set(Template(json.dumps(arguments)).get_identifiers())


def count_rows(run: dict[str, Any]) -> int:
    """How many test rows a kept run was measured on."""
    return len(run.get("counts", "").split(";")[0].split())


def are_of_other_rows(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two runs, of which both tell test scores, were measured on rows that differ in number or in labels."""
    if "counts" not in one or "counts" not in other:
        return False
    of_both = [run["references"] for run in (one, other) if "references" in run]  # early runs have none
    return count_rows(one) != count_rows(other) or len(set(of_both)) > 1


def fingerprint(references: Any) -> str:
    """A few letters that differ where the labels of the test rows do."""
    return hashlib.sha256(json.dumps(references, ensure_ascii=False, default=str).encode()).hexdigest()[:16]


@cache
def _fingerprint_of_words(model: str) -> str:
    """
    A few letters that differ where the vectors of a saved model's words do, as those of a fine-tuned one do.

    Raises:
        UserError: there is no such model.
    """
    try:
        words = AutoModel.from_pretrained(model).get_input_embeddings().weight
    except (OSError, ValueError) as error:
        raise UserError(f"{model} cannot be read: {error}") from None
    return hashlib.sha256(words.detach().float().numpy().tobytes()).hexdigest()[:16]


def _hashable(text: Any) -> Any:
    """A text, or the words of one."""
    return tuple(text) if isinstance(text, list) else text


def _seconds(scores: dict[str, Any]) -> float | None:
    """How long a run trained; of one that was resumed nobody knows."""
    seconds = scores.get("train_runtime")
    return None if seconds is None else round(seconds, 1)


def write_counts(counts: np.ndarray) -> str:
    """`[examples, k]` as text, a column after the other, to the last digit."""
    return "; ".join(" ".join(_number(float(number)) for number in column) for column in counts.T)


def _number(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


def read_counts(text: str) -> np.ndarray:
    """`[examples, k]`, from `write_counts`."""
    return np.array([[float(number) for number in column.split()] for column in text.split(";")]).T


__all__ = ["BeforeError", "FinishedRuns", "Runner", "are_of_other_rows", "count_rows", "read_counts", "write_counts"]
