"""What stands in the file of a table of experiments is checked before hours are spent on its runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import yaml

from modeling_star.errors import UserError
from modeling_star.evaluation.compare import MADE_BY, SCORED_BY


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
        own = self.path is None or self.path.parent == Path("experiments/tables")
        return self.name if own else str(self.path)

    @classmethod
    def read(cls, path: Path) -> "Table":
        """
        Read a table's file, such as `experiments/tables/NAME.yaml`.

        Raises:
            UserError: there is no such file, or it is no table (`check_table`).
        """
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml"))) or "none"
            raise UserError(f"There is no table {path.stem}; {path.parent} has {known}.")
        try:
            text = path.read_text(encoding="utf-8")
            _check_keys(yaml.compose(text, Loader=yaml.SafeLoader))
            table = cls(path.stem, yaml.safe_load(text), path)
        except (ValueError, yaml.YAMLError) as error:
            raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
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
            UserError: the table tells test scores, and a configuration takes the test file away.
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
            raise UserError(
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
        UserError: there is no such file.
    """
    path = Path("configuration/recipes") / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.yaml")))
        there = f"there are {known}" if known else "call the script from the project's folder"
        raise UserError(f"There is no recipe {path}: {there}.")
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


@dataclass(frozen=True)
class _Value:
    """What stands at a key: in words, and whether a value is such."""

    words: str
    is_one: Callable[[Any], bool]


def _all_are(kind: type, values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(type(value) is kind for value in values)


def _are_scores(value: Any) -> bool:
    of_systems = list(value.values()) if isinstance(value, dict) else [None]
    return all(
        isinstance(scores, dict) and all(type(score) in (int, float) for score in scores.values())
        for scores in of_systems
    )


_TEXT = _Value("a text", lambda value: isinstance(value, str) and value != "")
_NAMES = _Value("a list of names", lambda value: _all_are(str, value))
_NAME_OR_NAMES = _Value("a name or a list of names", lambda value: _TEXT.is_one(value) or _NAMES.is_one(value))
_NUMBERS = _Value(
    "a list of numbers, each once, such as [1, 2, 3]",
    lambda value: _all_are(int, value) and len(set(value)) == len(value),
)
_FLAGS = _Value("flags with their values, or the key is left out", lambda value: isinstance(value, dict))
_CONFIGURATIONS = _Value("a list of configurations, flags with their values each", lambda value: _all_are(dict, value))
_SCORES = _Value("for each system a number for each task", _are_scores)
_SPLIT = _Value("test or validation", lambda value: value in ("test", "validation"))
_SCRIPT = _Value(", ".join(MADE_BY), lambda value: value in MADE_BY)
_ANY_SCRIPT = _Value(f"{_SCRIPT.words} or run_mlm.py", lambda value: value in (*MADE_BY, "run_mlm.py"))
_ENTRIES = _Value("entries with their names", lambda value: isinstance(value, dict) and bool(value))
_OF_TASKS = _Value(
    "a list of tasks, or flags with their values for each",
    lambda value: (
        _NAMES.is_one(value)
        or (isinstance(value, dict) and all(type(own) in (dict, type(None)) for own in value.values()))
    ),
)

# The keys of a table's file and of each entry below tasks, settings, systems and before: first those that must stand
# there. docs/data.md says what each means.
_KEYS: dict[str, tuple[dict[str, _Value], dict[str, _Value]]] = {
    "": (
        {
            "title": _TEXT,
            "about": _TEXT,
            "against": _NAME_OR_NAMES,
            "seeds": _NUMBERS,
            "tasks": _ENTRIES,
            "settings": _ENTRIES,
            "systems": _ENTRIES,
        },
        {
            "split": _SPLIT,
            "tuned_on": _NAMES,
            "average": _TEXT,
            "arguments": _FLAGS,
            "before": _ENTRIES,
            "paper": _SCORES,
            "collection": _TEXT,
        },
    ),
    "tasks": (
        {"title": _TEXT, "metric": _TEXT, "script": _SCRIPT, "recipe": _TEXT, "data": _TEXT},
        {"repeated": _TEXT, "arguments": _FLAGS},
    ),
    "settings": ({"title": _TEXT}, {"tasks": _OF_TASKS, "arguments": _FLAGS, "grid": _CONFIGURATIONS}),
    "systems": (
        {"title": _TEXT},
        {
            "tasks": _NAMES,
            "settings": _NAMES,
            "seeds": _NUMBERS,
            "arguments": _FLAGS,
            "grid": _CONFIGURATIONS,
            "last": _FLAGS,
        },
    ),
    "before": ({"title": _TEXT, "script": _ANY_SCRIPT, "recipe": _TEXT}, {"arguments": _FLAGS}),
}


def check_table(path: Path, content: Any) -> None:
    """
    Args:
        path: of the table, for the message.
        content: what stands in it.

    Raises:
        UserError: a key lacks, is none of a table's or holds what it cannot; or one names a task, setting or system
            that there is not, or a metric that its script does not tell. It names the place, and what may stand there.
    """
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no table: write keys and values in YAML, as the tables beside it have them.")
    _check_entry(path, "", content)
    for kind in ("tasks", "settings", "systems", "before"):
        for name, entry in content.get(kind, {}).items():
            if not isinstance(name, str) or "/" in name:
                raise UserError(f"{path}: {kind}: {name} is no name: write a text without /, a number in quotes.")
            if kind == "before" and Template(f"${name}").get_identifiers() != [name]:
                raise UserError(f"{path}: before: {name} is no name for $NAME: letters, digits and _ make one.")
            _check_entry(path, kind, {} if entry is None else entry, f"{kind}: {name}: ")
    for place, kind, names in _named(content):
        unknown = [name for name in names if name not in content[kind]]
        if unknown:
            there = ", ".join(content[kind])
            raise UserError(f"{path}: {place} names {', '.join(unknown)}; the {kind} are {there}.")
    for name, task in content["tasks"].items():
        told = SCORED_BY[MADE_BY[task["script"]]]
        if task["metric"] not in told:
            raise UserError(
                f"{path}: tasks: {name}: metric: {task['metric']} is given; with {task['script']} a table has "
                f"{' or '.join(told)}."
            )


def _check_entry(path: Path, kind: str, entry: Any, place: str = "") -> None:
    required, optional = _KEYS[kind]
    if not isinstance(entry, dict):
        raise UserError(f"{path}: {place}{entry} is given; write keys and values: {', '.join(required)}.")
    known = required | optional
    unknown = [str(key) for key in entry if key not in known]
    if unknown:
        raise UserError(f"{path}: {place}{', '.join(unknown)} is no key there: {', '.join(known)} are.")
    lacking = [key for key in required if key not in entry]
    if lacking:
        raise UserError(f"{path}: {place}{', '.join(lacking)} lacks; docs/data.md says what stands there.")
    for key, value in entry.items():
        if not known[key].is_one(value):
            raise UserError(f"{path}: {place}{key}: {value} is given; write {known[key].words} (docs/data.md).")


def _named(content: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Where names of tasks, settings or systems stand, which of these, and the names."""
    against = content["against"]
    yield "against", "systems", [against] if isinstance(against, str) else against
    yield "tuned_on", "tasks", content.get("tuned_on", [])
    yield "paper", "systems", list(content.get("paper", {}))
    for system, scores in content.get("paper", {}).items():
        yield f"paper: {system}", "tasks", list(scores)
    for kind in ("settings", "systems"):
        for name, entry in content[kind].items():
            for key in ("tasks", "settings"):
                yield f"{kind}: {name}: {key}", key, list(entry.get(key, []))


__all__ = [
    "Configuration",
    "Table",
    "check_table",
    "merged",
    "read_recipe",
]
