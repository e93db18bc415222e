"""
Tables of experiments: many runs of the scripts under one protocol, each finished run kept as a small file.

A table (configuration/tables/*.yaml) names tasks, settings (which embeddings), systems and configurations. For each
cell, a system on a task in a setting, every configuration runs with the first seed, the one with the best validation
score goes on with the other seeds, and its test score is the one that is told; a table to choose by (`split:
validation`) tells none. Where a table is tuned on some of its tasks (`tuned_on`), their mean validation score chooses
one configuration of a system for all tasks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .data_files import DataError
from .table_checks import check_table


@dataclass(frozen=True)
class Configuration:
    """
    One system on one task in one setting, with one of its configurations.

    Args:
        task, setting, system: their names in the table.
        number: which configuration, from 0.
        arguments: all that the script is given, but the seed and the output folder.
    """

    task: str
    setting: str
    system: str
    number: int
    arguments: dict[str, Any] = field(compare=False, hash=False)

    @property
    def cell(self) -> str:
        """`task/setting/system`, as `--only` takes it."""
        return f"{self.task}/{self.setting}/{self.system}"


@dataclass(frozen=True)
class Table:
    """A table's file, read. `Table.read` checks it."""

    name: str
    content: dict[str, Any]
    path: Path | None = None

    @property
    def called(self) -> str:
        """What reproduce.py is given for it: the name of one of the project's own, the file of another."""
        own = self.path is None or self.path.parent == Path("configuration/tables")
        return self.name if own else str(self.path)

    @classmethod
    def read(cls, path: Path) -> "Table":
        """
        Read a table's file, such as `configuration/tables/NAME.yaml`.

        Raises:
            DataError: there is no such file, or it is no table (`check_table`).
        """
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml"))) or "none"
            raise DataError(f"There is no table {path.stem}; {path.parent} has {known}.")
        try:
            text = path.read_text(encoding="utf-8")
            _check_keys(yaml.compose(text, Loader=yaml.SafeLoader))
            table = cls(path.stem, yaml.safe_load(text), path)
        except (ValueError, yaml.YAMLError) as error:
            raise DataError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
        check_table(path, table.content)
        return table

    @classmethod
    def begun(cls, tables: Path, results: Path) -> "Iterator[Table]":
        """The tables of a folder that have finished runs in another, by name."""
        return (cls.read(path) for path in sorted(tables.glob("*.y*ml")) if (results / path.stem).is_dir())

    @property
    def seeds(self) -> list[int]:
        """All seeds; the first one chooses among configurations."""
        return self.content["seeds"]

    def metric(self, task: str) -> str:
        """What a task is scored by."""
        return self.content["tasks"][task]["metric"]

    def seeds_of(self, system: str) -> list[int]:
        """Those of one system: of one without chance, such as TF-IDF, the first tells all."""
        return self.content["systems"][system].get("seeds", self.seeds)

    @property
    def compared(self) -> list[str]:
        """The systems that the others' differences are told from; pictures show those from the first."""
        against = self.content["against"]
        return [against] if isinstance(against, str) else against

    @property
    def split(self) -> str:
        """The split whose scores are told: "test", or "validation" where the table is there to choose by."""
        return self.content.get("split", "test")

    @property
    def before(self) -> dict[str, dict[str, Any]]:
        """What runs first: by the name that arguments call its model, as `$NAME`, its script, recipe and arguments."""
        return self.content.get("before", {})

    def arguments_before(self, name: str) -> dict[str, Any]:
        """What the script of one of these is given."""
        told = self.before[name]
        return merged(read_recipe(told["recipe"]), told.get("arguments", {}))

    def tuning_tasks(self, task: str) -> list[str]:
        """The tasks whose validation scores choose a system's configuration for a task."""
        return self.content.get("tuned_on") or [task]

    def configurations(self, task: str, setting: str, system: str) -> list[Configuration]:
        """
        Those of one cell; none where the system has no place in the setting or the task.

        Raises:
            DataError: the table tells test scores, and a configuration takes the test file away.
        """
        tasks, settings, systems = (self.content[kind] for kind in ("tasks", "settings", "systems"))
        own = systems[system]
        if setting not in own.get("settings", settings) or task not in own.get("tasks", tasks):
            return []
        if task not in settings[setting].get("tasks", tasks):
            return []
        arguments = read_recipe(tasks[task]["recipe"])
        splits = ("train", "validation", "test")
        arguments |= {f"{split}_file": f"$DATA/{tasks[task]['data']}/{split}.jsonl.gz" for split in splits}
        layers = [self.content, tasks[task], settings[setting], own]
        for layer in [
            *(layer.get("arguments", {}) for layer in layers),
            settings[setting].get("tasks", {}).get(task) or {},
        ]:
            arguments = merged(arguments, layer)
        found = [
            Configuration(task, setting, system, number, merged(merged(arguments, chosen), own.get("last", {})))
            for number, chosen in enumerate(self.grid(setting, system))
        ]
        if self.split == "test" and not all("test_file" in configuration.arguments for configuration in found):
            raise DataError(
                f"{self.name}: {found[0].cell} has test_file: null, and the table tells test scores: leave that away, "
                "or write split: validation"
            )
        return found

    def grid(self, setting: str, system: str) -> list[dict[str, Any]]:
        """What the configurations of a system in a setting differ in."""
        return self.content["systems"][system].get("grid") or self.content["settings"][setting].get("grid") or [{}]

    def cells(self) -> Iterator[list[Configuration]]:
        """The configurations of every cell that there is, in the table's order."""
        for setting in self.content["settings"]:
            for task in self.content["tasks"]:
                for system in self.content["systems"]:
                    configurations = self.configurations(task, setting, system)
                    if configurations:
                        yield configurations


def _check_keys(node: yaml.Node | None) -> None:
    """
    Raises:
        ValueError: a key is written twice, of which yaml takes the later without a word: a system would be lost.
    """
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        twice = next((key for place, key in enumerate(keys) if key in keys[:place]), None)
        if twice is not None:
            raise ValueError(f"line {node.start_mark.line + 1} begins entries of which two are called {twice}")
        for _, value in node.value:
            _check_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_keys(value)


def read_recipe(name: str) -> dict[str, Any]:
    """
    The arguments of `configuration/recipes/NAME.yaml`.

    Raises:
        DataError: there is no such file.
    """
    path = Path("configuration/recipes") / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.yaml")))
        there = f"there are {known}" if known else "call the script from the project's folder"
        raise DataError(f"There is no recipe {path}: {there}.")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`below` overridden by `above`, mappings within them likewise; `None` takes a key away."""
    result = dict(below)
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


__all__ = ["Configuration", "Table", "merged", "read_recipe"]
