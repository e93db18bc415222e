"""
The commands of the package, `modeling-star NAME ...`: a module with a `main` for each.

Nothing heavy is imported here, so that `--help` answers at once.
"""

import argparse
import difflib
import functools
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..errors import missing_package
from ..training.arguments import RunArguments
from ..version import __version__
from .parser import load_recipe, parse


COMMANDS = {
    "classify": "train a classifier of texts or pairs of texts (also: glue)",
    "tag": "train a tagger: entities, parts of speech (also: ner)",
    "qa": "train a model for question answering",
    "mlm": "pretrain an encoder by masked language modelling",
    "distill": "distil a fine-tuned model into a small one",
    "convert": "make a BiG-Transformer of a BERT",
    "predict": "tag or classify texts, or answer questions in them, with a saved model",
    "export": "write a model for ONNX Runtime",
    "explain": "show what a prediction follows from, as a page",
    "demo": "try a classifier or a tagger in the browser",
    "compare": "compare finished runs on the same test file",
    "push": "upload a trained model to the Hub",
}
ALIASES = {"glue": "classify", "ner": "tag"}
"""Earlier names of commands, which remain; their modules have them."""
_MODULES = {name: alias for alias, name in ALIASES.items()}
LOG_LEVELS = ("passive", "info", "debug")
LOG_LEVEL_HELP = "info: what the libraries print too; debug: the traceback of an error too (default: passive)"
_EXTRAS = {"export": "train,onnx", "demo": "train,demo"}  # what the others need is in "train"


PUBLISHED = ("chnsenticorp", "ewt_pos", "resume", "sst2", "weibo_ner", "wnut17")
"""Recipes of published results that score below the commands without a recipe; the files are `paper_NAME.yaml`."""


def main() -> None:
    """Run the command that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print("usage: modeling-star COMMAND ...; modeling-star COMMAND --help lists its arguments; --version\n")
        print("\n".join(f"  {command:<12} {text}" for command, text in COMMANDS.items()))
        return
    if name == "--version":
        print(f"modeling-star {__version__}")
        return
    if name not in (*COMMANDS, *ALIASES):
        hint = _like(name, (*COMMANDS, *ALIASES))
        raise SystemExit(f"modeling-star: there is no command {name!r}. Write one of {', '.join(COMMANDS)}.{hint}")
    sys.argv = [f"modeling-star {name}", *sys.argv[2:]]
    run(name)


def run(name: str) -> None:
    """Run a command with the arguments of `sys.argv`. A package that is not installed is named with its extra."""
    RunArguments.typed = tuple(sys.argv)
    try:
        importlib.import_module(f".{_MODULES.get(name, name)}", __name__).main()
    except KeyboardInterrupt:  # while packages are imported, or a command has nothing to continue
        print(f"\n{Path(sys.argv[0]).name}: interrupted.", file=sys.stderr)
        raise SystemExit(130) from None
    except ModuleNotFoundError as error:
        extras = _EXTRAS.get(name, "train")
        raise SystemExit(f"modeling-star {name}: {missing_package(error, extras)}") from error
    finally:
        RunArguments.typed = ()


def parse_run(
    groups: tuple[type, ...],
    description: str,
    defaults: Mapping[str, Any] | None = None,
    *,
    typed: list[str] | None = None,
    **options: Any,
) -> tuple[Any, ...]:
    """
    `parser.parse` for recipes and configurations that can be names of files in `configuration/`, which is in the
    wheel: `conll2003`, or `--config_name star-plus`. A recipe is the first argument, or the value of --recipe.
    """
    typed = _with_recipe(sys.argv[1:] if typed is None else typed)
    parsed = parse(groups, description, defaults, typed=typed, checks_files=True, **options)
    for group in parsed[:-1]:
        for name in (field.name for field in fields(group)):
            value = getattr(group, name)
            if isinstance(value, str) and name == "config_name":
                setattr(group, name, _shape(value))
            elif isinstance(value, str) and value.startswith("configuration/"):
                setattr(group, name, shipped(value))
    return parsed


def recipe_of(typed: list[str]) -> dict[str, Any]:
    """The content of the recipe that a command line names; nothing without one."""
    first = _with_recipe(typed)[:1]
    return load_recipe(Path(first[0])) if first and not first[0].startswith("-") else {}


def _with_recipe(typed: list[str]) -> list[str]:
    """The arguments with the recipe, if any, first and as a file."""
    recipe, typed = take_flag(typed, "--recipe")
    if recipe is not None:
        return [_recipe(recipe), *typed]
    return [_recipe(typed[0]), *typed[1:]] if typed and not typed[0].startswith("-") else typed


def take_flag(typed: list[str], flag: str) -> tuple[str | None, list[str]]:
    """The value of a flag, and the other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(flag, dest="value")
    found, others = parser.parse_known_args(typed)
    return found.value, others


def _recipe(name: str) -> str:
    stem = Path(name).stem
    if stem in PUBLISHED and name in (stem, f"configuration/recipes/{stem}.yaml") and not Path(name).is_file():
        _advise(stem)
        name = f"paper_{stem}"
    path = shipped(name, "recipes", ".yaml")
    names = _names("recipes")
    if Path(path).suffix not in (".yaml", ".yml", ".json") or not Path(path).is_file():
        if Path(name).is_file():
            raise SystemExit(f"{name} is no recipe, which is YAML or JSON: write --train_file {name} for data.")
        listed = ", ".join(names)
        raise SystemExit(
            f"There is no recipe {name}: name a YAML or JSON file, or one of {listed}.{_like(name, names)}"
        )
    return path


@functools.cache
def _advise(recipe: str) -> None:
    print(
        f"{recipe} has the form of the papers: write paper_{recipe} for it, or no recipe, which scores higher.",
        file=sys.stderr,
    )


def _shape(name: str) -> str:
    """The file of a shape, or any other name as it is, which may be a folder or of the Hub."""
    path = shipped(name, "models", ".json")
    hint = _like(name, _names("models")) if "/" not in name or name.startswith("configuration/") else ""
    if hint and not Path(path).exists():
        raise SystemExit(f"{Path(sys.argv[0]).name}: --config_name {name} does not exist.{hint}")
    return path


def _names(kind: str) -> list[str]:
    return sorted(file.stem for file in (CONFIGURATION / kind).iterdir())


def _like(name: str, names: Sequence[str]) -> str:
    """A sentence that names what a mistyped name may mean: letters differ, or the end is missing."""
    stem = Path(name).stem if Path(name).suffix in (".json", ".yaml", ".yml") else Path(name).name
    similar = difflib.get_close_matches(stem.lower(), names, n=1, cutoff=0.7)
    similar = similar or [each for each in names if each.startswith(f"{stem.lower()}-")]
    return f" Did you mean {similar[0]}?" if similar else ""


def shipped(name: str, kind: str = "", ending: str = "") -> str:
    """The path of a file in `configuration/` that a name or a path means; any other name or existing path as it is."""
    relative = name.removeprefix("configuration/") if name.startswith("configuration/") else f"{kind}/{name}{ending}"
    path = CONFIGURATION / relative
    # A recipe is a file: a folder with its name has the data. A model may be either.
    exists = Path(name).is_file() if kind == "recipes" else Path(name).exists()
    return str(path) if not exists and path.is_file() else name


_PACKAGE = Path(__file__).resolve().parents[1]
CONFIGURATION = next(
    (path for path in (_PACKAGE / "configuration", _PACKAGE.parent / "configuration") if path.is_dir()), _PACKAGE
)
"""The folder of recipes and model shapes: in the wheel, or in a checkout."""
