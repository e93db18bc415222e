"""The runs of a table of experiments: which are missing, how the script of each is run, and what is stored."""

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

import yaml
from filelock import FileLock
from transformers import AutoModel

from harness.launching import LOG, USUAL, environment, launch_settings, read_environment, run_to_the_end, script_path
from harness.stored_runs import RunFile, begin, check_arguments, check_resumed, claim, write_counts
from harness.tables import MADE_BY, Configuration, Table
from modeling_star.data.splits import load_splits, take_first
from modeling_star.errors import UserError
from modeling_star.evaluation.compare import read_system, reported_names
from modeling_star.evaluation.metrics import METRICS, count_examples, score_counts
from modeling_star.evaluation.reports import metrics_only
from modeling_star.files import find_report, write_text
from modeling_star.runs.output_folder import lock_output_dir
from modeling_star.training.checkpoints import last_checkpoint


# What a script writes last into its output folder.
SCORES = "all_results.json"


class PrerequisiteError(UserError):
    """A prerequisite of a table's runs has failed, and so would each of them."""


@dataclass(frozen=True)
class FinishedRuns:
    """The stored runs of a table: lines of `TABLE.jsonl` named `TASK/SETTING/SYSTEM-CONFIGURATION-seedN`."""

    table: Table
    folder: Path

    @property
    def file(self) -> RunFile:
        """The file of the table's runs."""
        return RunFile(self.folder / f"{self.table.name}.jsonl")

    def keep(self, configuration: Configuration, seed: int, run: dict[str, Any]) -> None:
        """Add a run, or replace it."""
        self.file.keep({run_name(configuration, seed): run})

    def read(self, configuration: Configuration, seed: int) -> dict[str, Any] | None:
        """A stored run, or `None`."""
        name = run_name(configuration, seed)
        run = self.file.read(name)
        if run is None:
            return None
        where = f"{self.file.path}, run {name},"
        requested = {**configuration.arguments, "seed": seed}
        check_arguments(where, run.get("arguments", requested), requested)
        other = {"metric": self.table.tasks[configuration.task].metric, "shape": fingerprint_of_shape(requested)}
        check_arguments(where, {name: run.get(name, value) for name, value in other.items()}, other)  # early ones
        return run

    def read_prerequisite(self, name: str) -> dict[str, Any] | None:
        """A stored prerequisite, or `None`."""
        run = self.file.read(f"before/{name}")
        if run is not None:
            where = f"{self.file.path}, run before/{name},"
            try:
                check_arguments(where, run["arguments"], self.table.prerequisite_arguments(name))
            except UserError as error:
                raise PrerequisiteError(f"{error} Delete the runs that began from it too.") from None
        return run

    def best(self, configurations: list[Configuration]) -> Configuration | None:
        """The configuration of a cell that validation chooses, or `None` while one of several has not run."""
        first = configurations[0]
        if len(configurations) == 1:
            return first
        tasks = self.table.tuning_tasks(first.task)
        tuning = [self.table.configurations(task, first.setting, first.system) for task in tasks]
        scores = []
        for number in range(len(configurations)):
            runs = [self.read(task[number], self.table.seeds[0]) for task in tuning if task]
            if not all(runs):
                return None
            scores.append(fmean(run["validation"] for run in runs if run))
        return configurations[max(range(len(scores)), key=scores.__getitem__)]


@dataclass(frozen=True)
class Runner:
    """
    Runs what is missing of a table.

    Args:
        table: the table.
        results: folder of the finished runs, one file for each table.
        work: folder of the runs' models and logs.
        names: values of `$DATA`, `$MINILM` and the like.
        launcher: the command before the script: `accelerate launch ...`.
    """

    table: Table
    results: Path
    work: Path
    names: dict[str, str]
    launcher: list[str]

    @property
    def finished(self) -> FinishedRuns:
        """The stored runs."""
        return FinishedRuns(self.table, self.results)

    def missing(
        self, configurations: list[Configuration], seeds: list[int] | None
    ) -> Iterator[tuple[Configuration, int]]:
        """The missing runs of a cell, each as it is due: the best configuration is known only later."""
        first, choosing_seed = configurations[0], self.table.seeds[0]
        if len(configurations) > 1 and first.task in self.table.tuning_tasks(first.task):
            for configuration in configurations:
                if self.finished.read(configuration, choosing_seed) is None:
                    yield configuration, choosing_seed
        best = self.finished.best(configurations)
        of_system = self.table.systems[first.system].seeds
        if seeds is None:
            seeds = of_system or self.table.seeds
        for seed in seeds if of_system is None else [seed for seed in seeds if seed in of_system]:
            if best is not None and self.finished.read(best, seed) is None:
                yield best, seed

    def waits_for(self, configurations: list[Configuration]) -> list[str]:
        """The other tasks that have to run before a cell's configuration is known."""
        if self.finished.best(configurations) is not None:
            return []
        task = configurations[0].task
        return [name for name in self.table.tuning_tasks(task) if name != task]

    def check_same_models(self, configurations: Iterable[Configuration]) -> None:
        """Raise UserError where a stored run began from another model of a name that configurations use."""
        models: dict[str, str] = {}
        for configuration in configurations:
            models |= self._began_from(configuration.arguments)
        for run, stored in self.finished.file.read_all("*/*/*-seed*").items():
            began_from = stored.get("began_from", {})  # early runs have none
            for name in began_from.keys() & models.keys():
                if began_from[name] != models[name]:
                    raise UserError(
                        f"{self.finished.file.path}, run {run}, began from another model named ${name}, and a mean of "
                        "both means nothing. Keep the runs apart: --results NAME --work NAME"
                    )

    def run(self, configuration: Configuration, seed: int) -> dict[str, Any] | None:
        """Run a script, or resume it, and store its result; `None` where another process is running it."""
        arguments = {**configuration.arguments, "seed": seed}
        prerequisites = [name for name in self.table.prerequisites if name in _placeholders(arguments)]
        folder = self.work / self.table.name / configuration.cell / f"{configuration.number}-seed{seed}"
        with claim(folder) as free:
            if not free:
                return None
            for name in prerequisites:
                self._run_prerequisite(name)
            # Another process may have finished it since it was missing.
            result = self.finished.read(configuration, seed)
            if result is None:
                result = self._run(configuration, seed, arguments, folder)
                self.finished.keep(configuration, seed, result)
                for weights in [*folder.rglob("*.safetensors"), *folder.rglob("optimizer.pt")]:
                    weights.unlink()
            return result

    def _run(self, configuration: Configuration, seed: int, arguments: dict[str, Any], folder: Path) -> dict[str, Any]:
        script = self.table.script_of(configuration)
        resumed = self._run_script(f"{configuration.cell}, seed {seed}", script, arguments, folder)
        result = {**self._scores(configuration, arguments, folder / "model"), "environment": read_environment(folder)}
        if resumed:
            result["training_seconds"] = None  # those of the last part alone would mislead
        return result

    def _run_prerequisite(self, name: str) -> None:
        """Train the model `$NAME`, or resume it, and store its scores. Another process that needs it waits."""
        model = Path(self._prerequisite_model(name))
        model.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(model.parent / "running.lock"):
            stored = self.finished.read_prerequisite(name)
            arguments = self.table.prerequisite_arguments(name)
            resumed = False
            if stored is None or not find_report(model, SCORES).is_file():
                try:
                    resumed = self._run_script(name, self.table.prerequisites[name].script, arguments, model.parent)
                except UserError as error:
                    raise PrerequisiteError(str(error)) from None
            results = json.loads(find_report(model, SCORES).read_text(encoding="utf-8"))
            scores = metrics_only(results, "eval_")
            if stored is not None:
                if stored["scores"] != scores:
                    raise PrerequisiteError(
                        f"{model} is another model than that of {self.finished.file.path}, run before/{name}: its "
                        f"scores are {scores}, not {stored['scores']}. Keep the runs apart: --results NAME --work NAME"
                    )
                return
            history = json.loads(find_report(model, "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
            on_test = metrics_only(results, "test_")
            result = {
                "scores": scores,
                **({"test_scores": on_test} if on_test else {}),
                "parameters": results["parameters"],
                "training_seconds": None if resumed else _training_seconds(results),
                "tokens_per_second": None if resumed else results.get("train_tokens_per_second"),
                "arguments": arguments,
                "environment": read_environment(model.parent),
                "log_history": [
                    {key: entry[key] for key in ("step", "loss", "eval_loss") if key in entry}
                    for entry in history
                    if "loss" in entry or "eval_loss" in entry
                ],
            }
            self.finished.file.keep({f"before/{name}": result})

    def _prerequisite_model(self, name: str) -> str:
        return str(self.work / self.table.name / "before" / name / "model")

    def _run_script(self, title: str, script: str, arguments: dict[str, Any], folder: Path) -> bool:
        """Run a script into `folder/model`, or resume it, unless it is finished there; whether it was resumed."""
        model, recipe = folder / "model", folder / "recipe.yaml"
        finished = find_report(model, SCORES).is_file()
        resumes = not finished and last_checkpoint(model) is not None
        # Without the names of this machine's folders, and with what identifies the models in them.
        made_by = arguments | {f"${name}": words for name, words in self._began_from(arguments).items()}
        check_resumed(folder, finished or resumes, made_by)
        if finished:
            return False
        if not resumes:  # stopped before its first checkpoint
            with lock_output_dir(model):  # not while a script is running whose reproduce.py was killed
                pass
            if model.is_dir():  # the lock removes an empty one
                shutil.rmtree(model)
        launch = launch_settings(self.launcher)
        now = environment(bool(arguments.get("use_cpu") or launch.get("use_cpu")))
        # Neither is an argument, and both change the training.
        now |= {name: launch[name] for name, usual in USUAL.items() if launch.get(name, usual) != usual}
        begin(folder, resumes, made_by, now)
        filled = {name: self._filled(value) for name, value in arguments.items()}
        if script == "run_ner.py" and "model_name_or_path" not in arguments:  # see `tables.read_recipe`
            filled["config_overrides"] = {"use_crf": False, **filled.get("config_overrides", {})}
        filled |= {"output_dir": str(model), "resume_from_checkpoint": "last"}
        write_text(recipe, yaml.safe_dump(filled, allow_unicode=True))
        code = run_to_the_end([*self.launcher, str(script_path(script)), str(recipe)], folder)
        if code:
            tail = (folder / LOG).read_text(encoding="utf-8").strip().splitlines()[-3:]
            raise UserError(f"{title} stopped with {code}; {folder / LOG}: {tail}")
        return resumes

    def _filled(self, value: Any) -> Any:
        """A value of an argument with `$NAME` replaced."""
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if not isinstance(value, str):
            return value
        models = {name: self._prerequisite_model(name) for name in self.table.prerequisites}
        return Template(value).safe_substitute({**self.names, **models})

    def _scores(self, configuration: Configuration, arguments: dict[str, Any], model: Path) -> dict[str, Any]:
        """The scores of a finished run, and what each test example adds to them."""
        task = self.table.tasks[configuration.task]
        name, full = reported_names(MADE_BY[task.script])[task.metric], METRICS[task.metric].full
        scores = json.loads(find_report(model, SCORES).read_text(encoding="utf-8"))
        needed = [f"eval_{name}", *([f"test_{name}"] if "test_file" in arguments else [])]
        absent = [score for score in needed if score not in scores]
        if absent:
            raise UserError(
                f"{find_report(model, SCORES)} has no {', '.join(absent)}: {task.script} does not report it."
            )
        result = {
            "metric": task.metric,
            "validation": scores[f"eval_{name}"] / full,
            "parameters": scores["parameters"],
            "training_seconds": _training_seconds(scores),
            "arguments": arguments,
        }
        shape = fingerprint_of_shape(arguments)
        result |= {"shape": shape} if shape else {}
        began_from = self._began_from(arguments)
        result |= {"began_from": began_from} if began_from else {}
        if "test_file" not in arguments:
            return result
        run = read_system(model)
        language = {"language": given} if (given := arguments.get("answer_language")) else {}
        counts = count_examples(task.metric, run.references, run.predictions[0], **language)
        score = scores[f"test_{name}"] / full
        if not math.isclose(score_counts(task.metric, counts), score, abs_tol=1e-4):
            raise UserError(
                f"{model}: the test score is {score}, that of its predictions {score_counts(task.metric, counts)}. "
                "Nothing is stored, since intervals would be those of another score."
            )
        result |= {"test": score, "counts": write_counts(counts), "references": _fingerprint(run.references)}
        return result | self._repeated(configuration.task, result)

    def _began_from(self, arguments: dict[str, Any]) -> dict[str, str]:
        """The fingerprint of each saved model that arguments, or those of prerequisites, name."""
        names = _placeholders(arguments)
        for name in names & self.table.prerequisites.keys():
            names |= _placeholders(self.table.prerequisite_arguments(name))
        models = {name: model for name, model in self.names.items() if name in names - {"DATA"}}
        return {name: _fingerprint_of_words(model) for name, model in models.items()}

    def _repeated(self, task: str, run: dict[str, Any]) -> dict[str, Any]:
        """The test rows of a run whose text occurs in train too, counted from 0; empty if the table has no column."""
        column = self.table.tasks[task].repeated
        if column is None or "counts" not in run:
            return {}
        arguments = run["arguments"]
        splits = load_splits(files={split: self._filled(arguments[f"{split}_file"]) for split in ("train", "test")})
        train = take_first(splits["train"], arguments.get("max_train_samples"))[column]
        test = take_first(splits["test"], arguments.get("max_predict_samples"))[column]
        texts = {json.dumps(text) for text in train}  # words are lists
        repeated = [number for number, text in enumerate(test) if json.dumps(text) in texts]
        return {"repeated": repeated, "repeated_by": column}


def run_name(configuration: Configuration, seed: int) -> str:
    """The name of a stored run."""
    setting = f"{configuration.task}/{configuration.setting}"
    return f"{setting}/{configuration.system}-{configuration.number}-seed{seed}"


def _placeholders(arguments: dict[str, Any]) -> set[str]:
    """The names of all `$NAME` in arguments."""
    return set(Template(json.dumps(arguments)).get_identifiers())


def fingerprint_of_shape(arguments: dict[str, Any]) -> str | None:
    """A short hash of the content of the model's file in `config_name`; `None` where that is no file."""
    path = Path(arguments.get("config_name") or "")
    if not path.is_file():
        return None
    fields = json.loads(path.read_text(encoding="utf-8"))
    if fields.pop("role_bias", False):  # as stored runs spell it
        fields["position_embedding_type"] = "ring"
    return _fingerprint(json.dumps(fields, sort_keys=True))


def _fingerprint(references: Any) -> str:
    """A short hash, as of the labels of the test rows."""
    return hashlib.sha256(json.dumps(references, ensure_ascii=False, default=str).encode()).hexdigest()[:16]


@cache
def _fingerprint_of_words(model: str) -> str:
    """A short hash of the word embeddings of a saved model, which fine-tuning changes."""
    try:
        words = AutoModel.from_pretrained(model).get_input_embeddings().weight
    except (OSError, ValueError) as error:
        raise UserError(f"{model} cannot be read: {error}") from None
    return hashlib.sha256(words.detach().float().numpy().tobytes()).hexdigest()[:16]


def _training_seconds(scores: dict[str, Any]) -> float | None:
    """Seconds of training; a resumed run does not know them."""
    seconds = scores.get("train_runtime")
    return None if seconds is None else round(seconds, 1)
