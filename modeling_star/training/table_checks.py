"""What stands in the file of a table of experiments is checked before hours are spent on its runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from .data_files import DataError
from .scored_runs import MADE_BY, SCORED_BY


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
        DataError: a key lacks, is none of a table's or holds what it cannot; or one names a task, setting or system
            that there is not, or a metric that its script does not tell. It names the place, and what may stand there.
    """
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no table: write keys and values in YAML, as the tables beside it have them.")
    _check_entry(path, "", content)
    for kind in ("tasks", "settings", "systems", "before"):
        for name, entry in content.get(kind, {}).items():
            if not isinstance(name, str) or "/" in name:
                raise DataError(f"{path}: {kind}: {name} is no name: write a text without /, a number in quotes.")
            if kind == "before" and Template(f"${name}").get_identifiers() != [name]:
                raise DataError(f"{path}: before: {name} is no name for $NAME: letters, digits and _ make one.")
            _check_entry(path, kind, {} if entry is None else entry, f"{kind}: {name}: ")
    for place, kind, names in _named(content):
        unknown = [name for name in names if name not in content[kind]]
        if unknown:
            there = ", ".join(content[kind])
            raise DataError(f"{path}: {place} names {', '.join(unknown)}; the {kind} are {there}.")
    for name, task in content["tasks"].items():
        told = SCORED_BY[MADE_BY[task["script"]]]
        if task["metric"] not in told:
            raise DataError(
                f"{path}: tasks: {name}: metric: {task['metric']} is given; with {task['script']} a table has "
                f"{' or '.join(told)}."
            )


def _check_entry(path: Path, kind: str, entry: Any, place: str = "") -> None:
    required, optional = _KEYS[kind]
    if not isinstance(entry, dict):
        raise DataError(f"{path}: {place}{entry} is given; write keys and values: {', '.join(required)}.")
    known = required | optional
    unknown = [str(key) for key in entry if key not in known]
    if unknown:
        raise DataError(f"{path}: {place}{', '.join(unknown)} is no key there: {', '.join(known)} are.")
    lacking = [key for key in required if key not in entry]
    if lacking:
        raise DataError(f"{path}: {place}{', '.join(lacking)} lacks; docs/data.md says what stands there.")
    for key, value in entry.items():
        if not known[key].is_one(value):
            raise DataError(f"{path}: {place}{key}: {value} is given; write {known[key].words} (docs/data.md).")


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


__all__ = ["check_table"]
