"""Read the file of a table of experiments, and list the runs that it describes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import translation.scores  # noqa: F401  # makes BLEU and chrF known to the tables of metrics
import yaml
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError

from modeling_star.errors import UserError
from modeling_star.evaluation.compare import reported_names


# Flags that were renamed -> the names that stored runs have.
STORED_NAMES = {"embeddings_name_or_path": "embeddings_from", "sample_by": "text_unit"}
# The script that writes predictions of a kind, a key of `evaluation.compare.KINDS`.
MADE_BY = {"run_glue.py": "index", "run_ner.py": "tokens", "run_qa.py": "n_best", "run_translation.py": "source"}


@dataclass(frozen=True)
class Configuration:
    """One system on one task in one setting, with one of its configurations."""

    task: str
    setting: str
    system: str
    number: int
    arguments: dict[str, Any] = field(compare=False, hash=False)

    @property
    def cell(self) -> str:
        """`task/setting/system`, as `--only` takes it."""
        return f"{self.task}/{self.setting}/{self.system}"


# The entries of a table's file. Keys are the fields; experiments/README.md describes them.


@strict
@dataclass
class Task:
    """A data set, the script that trains on it, and the metric."""

    title: str
    metric: str
    script: str
    data: str
    recipe: str | None = None
    repeated: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


@strict
@dataclass
class Setting:
    """The embeddings that all systems get."""

    title: str
    tasks: list[str] | dict[str, dict[str, Any] | None] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    grid: list[dict[str, Any]] | None = None


@strict
@dataclass
class System:
    """An encoder, or another model that is compared with it."""

    title: str
    script: str | None = None
    tasks: list[str] | None = None
    settings: list[str] | None = None
    seeds: list[int] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    grid: list[dict[str, Any]] | None = None
    last: dict[str, Any] = field(default_factory=dict)


@strict
@dataclass
class Prerequisite:
    """A model that is trained before the table's runs, under the key `before`."""

    title: str
    script: str
    recipe: str
    data: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


ENTRIES = {"tasks": Task, "settings": Setting, "systems": System, "prerequisites": Prerequisite}


@strict
@dataclass
class Table:
    """A table of experiments. `Table.read` reads its file, `path`; `name` is the file's stem."""

    name: str
    title: str
    about: str
    against: list[str]
    seeds: list[int]
    tasks: dict[str, Task]
    settings: dict[str, Setting]
    systems: dict[str, System]
    prerequisites: dict[str, Prerequisite]
    split: Literal["test", "validation"] = "test"
    tuned_on: list[str] = field(default_factory=list)
    averages: dict[str, list[str] | None] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, dict[str, int | float]] = field(default_factory=dict)
    notes: str = ""
    path: Path | None = None

    @classmethod
    def read(cls, path: Path) -> "Table":
        """Read a table's file, such as `experiments/tables/NAME.yaml`."""
        if not path.is_file():
            names = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml"))) or "none"
            raise UserError(f"There is no table {path.stem}; {path.parent} has {names}.")
        try:
            return cls.from_content(path.stem, yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys), path)
        except (ValueError, TypeError, yaml.YAMLError, StrictDataclassError) as error:
            raise UserError(f"{path}: {' '.join(str(error).split())}. experiments/README.md has all keys.") from error

    @classmethod
    def from_content(cls, name: str, content: Any, path: Path | None = None) -> "Table":
        """A table from the content of its file."""
        if not isinstance(content, dict):
            raise TypeError("it holds no mapping of keys to values")
        fields = {("prerequisites" if key == "before" else key): value for key, value in content.items()}
        fields.setdefault("prerequisites", {})
        if isinstance(fields.get("against"), str):
            fields["against"] = [fields["against"]]
        for kind, entry_class in ENTRIES.items():
            entries = fields.get(kind)
            if not isinstance(entries, dict):
                raise TypeError(f"{kind} has to hold entries with names, not {entries}")
            fields[kind] = {entry: _entry(entry_class, kind, entry, value) for entry, value in entries.items()}
        table = cls(name=name, path=path, **fields)
        table._check_references()
        return table

    def _check_references(self) -> None:
        entries: list[Any] = [*self.settings.values(), *self.systems.values()]
        names = {
            "systems": [*self.against, *self.paper],
            "settings": [name for system in self.systems.values() for name in system.settings or ()],
            "tasks": [
                *self.tuned_on,
                *(name for names in self.averages.values() for name in names or ()),
                *(name for scores in self.paper.values() for name in scores),
                *(name for entry in entries for name in entry.tasks or ()),
            ],
        }
        for kind, referred in names.items():
            for name in referred:
                if name not in getattr(self, kind):
                    raise ValueError(f"{name} is not among the {kind}, {', '.join(getattr(self, kind))}")
        for name, task in self.tasks.items():
            metrics = reported_names(MADE_BY[task.script]) if task.script in MADE_BY else {}
            if task.metric not in metrics:
                raise ValueError(f"tasks: {name}: {task.script} has the metrics {', '.join(metrics) or 'of no table'}")
        for seeds in (self.seeds, *(system.seeds or [] for system in self.systems.values())):
            if len(set(seeds)) < len(seeds):
                raise ValueError(f"seeds: {seeds} has one twice")

    @classmethod
    def begun(cls, tables: Path, results: Path) -> "Iterator[Table]":
        """The tables of a folder that have finished runs in another, by name."""
        names = {path.stem for path in results.glob("*.jsonl")}
        return (cls.read(path) for path in sorted(tables.glob("*.y*ml")) if path.stem in names)

    @property
    def argument(self) -> str:
        """The argument of reproduce.py: the name of one of the project's tables, the file of another."""
        ours = self.path is None or self.path.parent == Path("experiments/tables")
        return self.name if ours else str(self.path)

    def seeds_of(self, system: str) -> list[int]:
        """The seeds of a system: its own, as of one without randomness, or the table's."""
        return self.systems[system].seeds or self.seeds

    def script_of(self, configuration: Configuration) -> str:
        """The script of a configuration: its system's, or the task's."""
        return self.systems[configuration.system].script or self.tasks[configuration.task].script

    def prerequisite_arguments(self, name: str) -> dict[str, Any]:
        """The arguments of a prerequisite's script."""
        prerequisite = self.prerequisites[name]
        files = {} if prerequisite.data is None else split_files(prerequisite.data)
        return merged(read_recipe(prerequisite.recipe) | files, prerequisite.arguments)

    def tuning_tasks(self, task: str) -> list[str]:
        """The tasks whose validation scores choose a system's configuration for a task."""
        return self.tuned_on or [task]

    def configurations(self, task: str, setting: str, system: str) -> list[Configuration]:
        """The configurations of one cell; none where the table does not have the system in the setting or the task."""
        of_task, of_setting, of_system = self.tasks[task], self.settings[setting], self.systems[system]
        named = [(setting, of_system.settings), (task, of_system.tasks), (task, of_setting.tasks)]
        if any(names is not None and name not in names for name, names in named):
            return []
        arguments = ({} if of_task.recipe is None else read_recipe(of_task.recipe)) | split_files(of_task.data)
        for layer in (self, of_task, of_setting, of_system):
            arguments = merged(arguments, layer.arguments)
        if isinstance(of_setting.tasks, dict):
            arguments = merged(arguments, of_setting.tasks[task] or {})
        configurations = [
            Configuration(task, setting, system, number, merged(merged(arguments, chosen), of_system.last))
            for number, chosen in enumerate(self.grid(setting, system))
        ]
        if self.split == "test" and any("test_file" not in each.arguments for each in configurations):
            raise UserError(
                f"{self.name}: {configurations[0].cell} has test_file: null, and the table reports test scores. Write "
                "split: validation"
            )
        return configurations

    def grid(self, setting: str, system: str) -> list[dict[str, Any]]:
        """The arguments in which the configurations of a system in a setting differ."""
        return self.systems[system].grid or self.settings[setting].grid or [{}]

    def cells(self) -> Iterator[list[Configuration]]:
        """The configurations of every cell, in the table's order."""
        for setting in self.settings:
            for task in self.tasks:
                for system in self.systems:
                    configurations = self.configurations(task, setting, system)
                    if configurations:
                        yield configurations


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that is given twice, of which yaml would silently take the later."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if len(set(keys)) < len(keys):
            raise yaml.constructor.ConstructorError(None, None, f"one of {', '.join(keys)} is twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _entry(entry_class: type, kind: str, name: str, value: Any) -> Any:
    try:
        return entry_class(**value)
    except (TypeError, StrictDataclassError) as error:
        raise TypeError(f"{kind}: {name}: {error}") from error


def split_files(data: str) -> dict[str, str]:
    """The arguments that name the three splits in a folder below `$DATA`."""
    return {f"{split}_file": f"$DATA/{data}/{split}.jsonl.gz" for split in ("train", "validation", "test")}


def with_stored_names(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments under the names that stored runs have."""
    return {STORED_NAMES.get(name, name): value for name, value in arguments.items()}


def read_recipe(name: str) -> dict[str, Any]:
    """The arguments of a recipe: a file, or `configuration/recipes/NAME.yaml`."""
    # Without the `use_crf: false` of taggers, the default when stored runs were made: `Runner` adds it.
    path = Path(name) if name.endswith(".yaml") else Path("configuration/recipes") / f"{name}.yaml"
    if not path.is_file():
        names = ", ".join(sorted(each.stem for each in path.parent.glob("*.yaml")))
        raise UserError(f"There is no recipe {path}; there are {names or 'none: run from the project folder'}.")
    arguments = with_stored_names(yaml.safe_load(path.read_text(encoding="utf-8")))
    overrides = {name: value for name, value in arguments.pop("config_overrides", {}).items() if name != "use_crf"}
    return arguments | ({"config_overrides": overrides} if overrides else {})


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`below` overridden by `above`, mappings within them likewise; `None` removes a key."""
    result = dict(below)
    for key, value in with_stored_names(above).items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result
