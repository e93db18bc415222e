"""Flags and recipes of the scripts: what is read, what is refused, and what --help imports."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.summation_arguments import SUMMATION_DEFAULTS
from script_runner import ROOT, SCRIPTS

from modeling_star.training.arguments import (
    FRESH_LEARNING_RATE,
    PRETRAINING_DEFAULTS,
    ClassificationArguments,
    FileArguments,
    ModelArguments,
    ReadingArguments,
    ReadingRunArguments,
    RepeatArguments,
    RunArguments,
    TaggingArguments,
    TaggingModelArguments,
    TextArguments,
    TranslationArguments,
    TranslationModelArguments,
    parse,
)
from modeling_star.training.builders import parse_overrides
from modeling_star.training.distillation_arguments import AnyDistillationArguments


def parsed(monkeypatch: pytest.MonkeyPatch, *arguments: Any, kind: type = TaggingArguments) -> tuple[Any, ...]:
    """Model, data, run and training arguments of a command line."""
    monkeypatch.setattr(sys, "argv", ["run_scripts/run_ner.py", *map(str, arguments)])
    return parse((ModelArguments, kind, RunArguments), "A script.")


def refused(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> str:
    """The one line that a command line is refused with."""
    with pytest.raises(SystemExit) as stop:
        parsed(monkeypatch, *arguments)
    message = str(stop.value)
    assert "\n" not in message
    return message


def recipe(folder: Path, **keys: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(keys), encoding="utf-8")
    return path


FINE_TUNING = ("--train_file", "--learning_rate", "--embeddings_from", "--seeds")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("run_ner.py", FINE_TUNING),
        ("run_glue.py", FINE_TUNING),
        ("run_qa.py", (*FINE_TUNING, "--doc_stride", "--version_2_with_negative")),
        ("run_mlm.py", (*FINE_TUNING, "--streaming", "--mask_unit")),
        (
            "run_translation.py",
            (*FINE_TUNING, "--average_checkpoints", "--length_penalty", "(default: 64)", "(default: 0.1)"),
        ),
        ("masked_summation.py", ("--lengths", "100 200 400 800", "--learning_rate", "(default: 0.001)")),
    ],
)
def test_help_imports_nothing_heavy(script: str, told: tuple[str, ...], tmp_path: Path) -> None:
    program = (
        "import runpy, sys\n"
        f"sys.argv = [{str(SCRIPTS / script)!r}, '--help']\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'transformers', 'datasets', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    # The scripts find their neighbour as Python does when it starts one of them.
    environment = {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert [words for words in told if words not in done.stdout] == []
    assert max(map(len, done.stdout.splitlines())) <= 119


@pytest.mark.parametrize(("script", "rate"), [("run_glue.py", FRESH_LEARNING_RATE), ("masked_summation.py", 1e-3)])
def test_all_flags_are_told_with_the_scripts_own_defaults(
    script: str, rate: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--help_all"])
    defaults = SUMMATION_DEFAULTS if script == "masked_summation.py" else None
    with pytest.raises(SystemExit):
        parse((FileArguments,), "", defaults)
    told = " ".join(capsys.readouterr().out.split())
    assert f"learning rate for the optimizer. (default: {rate})" in told
    assert f"(default: outputs/{Path(script).stem})" in told


def test_the_command_line_overrides_the_recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    overrides = {"hidden_size": 20, "position_embedding_type": "ring", "attention_window": [64, 64], "x": "a,b"}
    path = recipe(
        tmp_path,
        learning_rate=1e-3,
        num_train_epochs=7,
        seeds=[1, 2, 3],
        lower_case=False,
        config_overrides=overrides,
        train_file=None,
    )
    model, data, run, training = parsed(monkeypatch, path, "--learning-rate", "2e-3", "--seeds", 4, 5)
    assert (training.learning_rate, training.num_train_epochs) == (2e-3, 7)
    assert run.seeds == [4, 5]
    assert model.lower_case is False
    assert parse_overrides(model.config_overrides) == overrides
    assert data.train_file is None
    assert training.output_dir == "outputs/run_ner"


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ([], (True, True, True)),
        (["--do_predict"], (False, False, True)),
        (["--do_eval", "true", "--do_predict=yes"], (False, True, True)),
        (["--do_train", "false"], (False, True, True)),
        (["--do_train=false", "--do_eval=no"], (False, False, True)),
        (["--do_train", "--do_eval", "false"], (True, False, False)),
    ],
)
def test_what_is_declined_leaves_the_rest(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], parts: tuple[bool, bool, bool]
) -> None:
    training = parsed(monkeypatch, "--train_file=a.jsonl", *flags)[-1]
    assert (training.do_train, training.do_eval, training.do_predict) == parts
    assert training.eval_strategy == ("epoch" if parts[:2] == (True, True) else "no")


def test_a_saved_model_takes_the_place_of_a_recipes_fresh_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = recipe(
        tmp_path,
        config_name="shape.json",
        config_overrides={"hidden_size": 8},
        embeddings_from="bert",
        tokenizer_kind="character",
        num_train_epochs=3,
        stride=7,
    )
    model, data, _, training = parsed(monkeypatch, path, "--model_name_or_path=saved")
    assert model == ModelArguments(model_name_or_path="saved")
    assert (data.stride, training.num_train_epochs) == (7, 3)
    fresh, *_ = parsed(monkeypatch, path)
    assert (fresh.config_name, fresh.embeddings_from, fresh.tokenizer_kind) == ("shape.json", "bert", "character")
    both, *_ = parsed(monkeypatch, path, "--model_name_or_path=saved", "--config_name=own.json")
    assert both.config_name == "own.json", "what is typed is kept, and refused later"


def test_a_tagger_keeps_capitals_and_pieces_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["run_ner.py"])
    model = parse((TaggingModelArguments, TaggingArguments, RunArguments), "A script.")[0]
    assert (model.tokenizer_kind, model.lower_case) == ("wordpiece", False)


def test_a_recipe_may_be_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps({"lr_scheduler_kwargs": {"min_lr": 0.1}, "bf16": False, "seed": 5}), encoding="utf-8")
    training = parsed(monkeypatch, path)[-1]
    assert (training.lr_scheduler_kwargs, training.seed) == ({"min_lr": 0.1}, 5)


def test_a_fresh_model_learns_faster_than_a_saved_one_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed(monkeypatch)[-1].learning_rate == 5e-4
    assert parsed(monkeypatch, "--model_name_or_path=x")[-1].learning_rate == 5e-5


def test_files_of_running_text_are_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    data = parsed(monkeypatch, "--train_file", "a.txt", "b.txt.gz", "--validation_file=c.txt", kind=TextArguments)[1]
    assert (data.train_file, data.validation_file, data.test_file) == (["a.txt", "b.txt.gz"], ["c.txt"], None)


def test_what_a_script_sets_itself_gives_way_to_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(*flags: str) -> tuple[str, float]:
        monkeypatch.setattr(sys, "argv", ["run_scripts/run_mlm.py", *flags])
        training = parse((ModelArguments, TextArguments), "A script.", PRETRAINING_DEFAULTS)[-1]
        return str(training.eval_strategy.value), training.eval_steps

    assert steps("--train_file=a.txt") == ("steps", 500)
    assert steps("--train_file=a.txt", "--eval_strategy=epoch", "--eval_steps=3") == ("epoch", 3)
    assert steps("--do_eval")[0] == "no"


def test_everything_is_done_unless_a_part_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(*flags: str) -> tuple[bool, bool, bool, str]:
        training = parsed(monkeypatch, *flags)[-1]
        return training.do_train, training.do_eval, training.do_predict, str(training.eval_strategy.value)

    assert parts("--train_file=a.jsonl") == (True, True, True, "epoch")
    assert parts("--dataset_name=x") == (True, True, True, "epoch")
    assert parts("--task_name=sst2") == (True, True, True, "epoch")  # GLUE's own
    assert not parts("--task_name=sst2", "--test_file=a.jsonl")[0]
    assert parts("--test_file=a.jsonl") == (False, True, True, "no")  # there is nothing to train on
    assert parts("--train_file=a.jsonl", "--do_predict") == (False, False, True, "no")
    assert parts("--train_file=a.jsonl", "--do_train", "--do_eval") == (True, True, False, "epoch")
    assert parts("--test_file=a.jsonl", "--do_train")[0]  # which the run then refuses


def test_what_is_mistyped_is_named_with_what_was_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = recipe(tmp_path, num_train_epoch=3)
    message = refused(monkeypatch, path)
    assert str(path) in message
    assert "'num_train_epoch'" in message
    assert "Did you mean num_train_epochs?" in message
    assert "Did you mean --learning_rate?" in refused(monkeypatch, "--learning_rat", "1e-3")
    for given, meant in (
        ("--lr=1e-3", "learning_rate"),
        ("--epochs=2", "num_train_epochs"),
        ("--batch-size=8", "per_device_train_batch_size"),
        ("--patience=3", "early_stopping_patience"),
        ("--no_cuda", "use_cpu"),
    ):
        assert f"Did you mean --{meant}?" in refused(monkeypatch, given)
    # No abbreviations: this would be --do_predict, unseen by the defaults.
    assert "Did you mean --do_predict?" in refused(monkeypatch, "--do_pred")
    assert "Nothing is overwritten: delete the folder" in refused(monkeypatch, "--overwrite_output_dir")


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"tokenizer_kind": "words"}, ["tokenizer_kind", "words", "wordpiece"]),
        ({"max_seq_length": "long"}, ["max_seq_length", "long"]),
        ({"lower_case": "perhaps"}, ["perhaps"]),
        ({"eval_strategy": "sometimes"}, ["eval_strategy", "sometimes", "epoch"]),
    ],
)
def test_a_recipe_is_checked_like_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: dict[str, Any], named: list[str]
) -> None:
    message = refused(monkeypatch, recipe(tmp_path, **keys))
    assert not [word for word in named if word not in message], message


def test_a_recipe_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken, listed = tmp_path / "broken.yaml", tmp_path / "list.yaml"
    broken.write_text("a: [1", encoding="utf-8")
    listed.write_text("- a\n", encoding="utf-8")
    assert "There is no recipe" in refused(monkeypatch, tmp_path / "none.yaml")
    assert "broken.yaml cannot be read" in refused(monkeypatch, broken)
    assert "holds list" in refused(monkeypatch, listed)
    assert "comes first" in refused(monkeypatch, "--seed=1", recipe(tmp_path))
    assert "belongs to no flag" in refused(monkeypatch, "train.jsonl")


def test_flags_that_do_not_fit_together_are_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "eval_steps" in refused(monkeypatch, "--eval_strategy=steps", "--eval_steps=0", "--logging_steps=0")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configuration" / "recipes").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_recipe_is_read_by_its_script(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    kinds = {"run_glue": ClassificationArguments, "run_qa": ReadingArguments, "run_mlm": TextArguments}
    kinds["run_distill"] = AnyDistillationArguments
    kind = next((kind for script, kind in kinds.items() if script in text), TaggingArguments)
    if "run_translation" in text:
        monkeypatch.setattr(sys, "argv", ["run_scripts/run_translation.py", str(path)])
        groups = (TranslationModelArguments, TranslationArguments, RepeatArguments)
        model, data, _, training = parse(groups, "A script.", {}, "", "Seq2SeqTrainingArguments")
    else:
        model, data, _, training = parsed(monkeypatch, path, kind=kind)
    assert model.config_name is None or (ROOT / model.config_name).is_file()
    assert training.output_dir.startswith("outputs/")
    assert data.train_file or data.dataset_name or "--train_file" in text


def test_help_lists_no_flag_that_the_script_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run_qa.py", "--help"])
    with pytest.raises(SystemExit):
        parse((ModelArguments, ReadingArguments, ReadingRunArguments), "A script.")
    told = capsys.readouterr().out
    assert "--answer_language" in told
    assert not re.search("class_weights|task_name|column_names|tfidf|SUPPRESS", told)
    monkeypatch.setattr(sys, "argv", ["run_qa.py", "--train_file=x.json", "--class_weights=balanced"])
    assert parse((ModelArguments, ReadingArguments, ReadingRunArguments), "A script.")[2].class_weights == "balanced"
