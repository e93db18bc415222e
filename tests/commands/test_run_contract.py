"""
What every training command promises: a run leaves a whole folder, predicts again what it has predicted, resumes to the
same bytes after a kill, and computes in two processes what it computes in one.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from script_runner import ScriptRunner
from script_samples import (
    QUICK,
    SIZES,
    assert_card_has_the_results,
    files,
    hashes,
    log_of,
    read_rows,
    results_of,
    write_bert,
)

from modeling_star.inference import Predictor


SHAPE = "--config_overrides=hidden_size=16,num_attention_heads=2"
LOG = ("--logging_steps=1",)
MLM = ("--max_seq_length=32", "--tokenizer_kind=wordpiece", "--vocab_size=300", "--mask_unit=whole_word")


@dataclass(frozen=True)
class Run:
    """A script, the corpus that it learns, its flags, and the fields of the model's configuration that follow."""

    script: str
    corpus: str
    flags: tuple[str, ...] = ()
    config: tuple[tuple[str, Any], ...] = ()


RUNS = {
    "tag": Run("run_ner.py", "entities", ("--max_seq_length=12", "--stride=2"), (("use_crf", True),)),
    "classify": Run("run_glue.py", "sentiment", (), (("problem_type", "single_label_classification"),)),
    "answer": Run("run_qa.py", "reading", ("--max_seq_length=64", "--doc_stride=16"), (("type_vocab_size", 2),)),
    "pretrain": Run("run_mlm.py", "texts", MLM),
    "topics": Run("run_glue.py", "topics", (), (("problem_type", "multi_label_classification"),)),
    "numbers": Run("run_glue.py", "numbers", (), (("problem_type", "regression"), ("num_labels", 1))),
    "pairs": Run("run_glue.py", "pairs", (), (("pair_mode", "cross"), ("type_vocab_size", 2))),
    "tag spelled words": Run("run_ner.py", "entities", ("--tokenizer_kind=wordpiece", "--vocab_size=300")),
    "distil": Run("run_distill.py", "sentiment", ("--teacher=TEACHER", "--alpha=0.3", "--loss=kl")),
}
PREDICTING = [name for name, run in RUNS.items() if run.script != "run_mlm.py"]
FAST = ("tag", "classify", "answer", "pretrain")


def runs(names: Any, fast: tuple[str, ...] = FAST) -> Any:
    """Parameters; those that are not `fast` are slow."""
    slow = pytest.mark.slow
    return pytest.mark.parametrize("name", [pytest.param(each, marks=[slow] * (each not in fast)) for each in names])


@pytest.fixture(scope="module")
def teacher(scripts: ScriptRunner, corpora: Path) -> Path:
    """A BERT that was fine-tuned for a moment."""
    texts = [row["text"] for row in read_rows(corpora / "sentiment" / "train.jsonl")]
    bert = write_bert(scripts.folder / "bert", texts)
    scripts.check(
        *("run_glue.py", *files(corpora / "sentiment", "train", "validation"), f"--model_name_or_path={bert}"),
        *("--max_steps=2", "--disable_tqdm=true", "--output_dir=teacher"),
    )
    return scripts.folder / "teacher"


@pytest.fixture(scope="module")
def command(corpora: Path, request: pytest.FixtureRequest) -> Callable[..., list[str]]:
    """The command line of a run."""

    def line(name: str, *flags: str, splits: tuple[str, ...] = ()) -> list[str]:
        run = RUNS[name]
        own = [*run.flags]
        if name == "distil":
            own[0] = f"--teacher={request.getfixturevalue('teacher')}"
        return [run.script, *files(corpora / run.corpus, *splits), SHAPE, *QUICK, *own, *flags]

    return line


@pytest.fixture(scope="module")
def folder_of(scripts: ScriptRunner, command: Callable[..., list[str]]) -> Callable[[str], Path]:
    """The output folder of a run, which is made once."""

    @functools.cache
    def made(name: str) -> Path:
        # Groups by length and uneven batches: predictions must still belong to their rows.
        groups = () if name == "pretrain" else ("--train_sampling_strategy=group_by_length",)
        scripts.check(*command(name, *groups, "--per_device_eval_batch_size=7", *LOG, f"--output_dir={name}"))
        return scripts.folder / name

    return made


def predictions_of(folder: Path) -> list[dict[str, Any]]:
    return read_rows(folder / "report" / "predictions_test.jsonl")


# ------ the folder


@runs(RUNS)
def test_a_run_leaves_a_model_with_its_scores_curves_and_card(name: str, folder_of: Callable[[str], Path]) -> None:
    from transformers import AutoConfig, AutoTokenizer

    folder = folder_of(name)
    for file in ("model.safetensors", "tokenizer.json", "manifest.json", "arguments.json", "code/modeling_star.py"):
        assert (folder / file).is_file(), file
    assert not list(folder.glob("checkpoint-*"))
    assert (folder / "report" / "training_curves.png").read_bytes().startswith(b"\x89PNG")
    results = results_of(folder)
    if name != "pretrain":
        assert (results["eval_samples"], results["test_samples"]) == (SIZES["validation"], SIZES["test"])
    assert_card_has_the_results((folder / "README.md").read_text(encoding="utf-8"), results)
    losses = [entry["loss"] for entry in log_of(folder) if "loss" in entry]
    assert losses
    assert all(loss > 0 for loss in losses)
    config = AutoConfig.from_pretrained(folder)
    assert {name: getattr(config, name) for name, _ in RUNS[name].config} == dict(RUNS[name].config)
    # No truncation was saved with the tokenizer, whatever the run truncated.
    assert len(AutoTokenizer.from_pretrained(folder)("good " * 100, truncation=False)["input_ids"]) > 64


def scores_of(name: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """A score of predictions by plain loops."""
    if "tag" in name:
        right = [a == b for row in rows for a, b in zip(row["labels"], row["predicted"], strict=True)]
        return {"test_accuracy": sum(right) / len(right)}
    if name == "answer":
        return {f"test_{score}": sum(row[score] for row in rows) / len(rows) for score in ("exact_match", "f1")}
    if name == "numbers":
        return {"test_mse": sum((row["label"] - row["predicted"]) ** 2 for row in rows) / len(rows)}
    as_set: Any = set if name == "topics" else lambda label: {label}
    return {"test_accuracy": sum(as_set(row["label"]) == as_set(row["predicted"]) for row in rows) / len(rows)}


@runs(PREDICTING)
def test_every_row_of_the_test_file_is_predicted_once_and_scored(
    name: str, folder_of: Callable[[str], Path], corpora: Path
) -> None:
    folder, given = folder_of(name), read_rows(corpora / RUNS[name].corpus / "test.jsonl")
    rows, results = predictions_of(folder), results_of(folder)
    assert len(rows) == len(given)
    for row, example in zip(rows, given, strict=True):
        named = {key: value for key, value in example.items() if key in ("tokens", "text", "id", "question")}
        assert {key: row[key] for key in named if key in row} == {key: named[key] for key in named if key in row}
    for score, value in scores_of(name, rows).items():
        assert results[score] == pytest.approx(value, rel=1e-4), score


@runs(PREDICTING)
def test_a_predictor_of_the_folder_predicts_what_the_run_has_predicted(
    name: str, folder_of: Callable[[str], Path], corpora: Path
) -> None:
    folder, given = folder_of(name), read_rows(corpora / RUNS[name].corpus / "test.jsonl")
    rows, predictor = predictions_of(folder), Predictor(folder, dtype="float32", batch_size=4)
    predicted = [row["predicted"] for row in rows]
    if "tag" in name:
        assert predictor.tag_words([row["tokens"] for row in given]) == predicted
        return
    texts: list[Any] = [
        (row["question"], row["context"]) if "question" in row
        else (row["sentence1"], row["sentence2"]) if "sentence1" in row
        else row["text"]
        for row in given
    ]  # fmt: skip
    found = [each for _, each in predictor.predict(texts)]
    if name == "answer":
        assert [each[0]["text"] for each in found] == predicted
    elif name == "numbers":
        assert [each[0]["value"] for each in found] == pytest.approx(predicted, abs=1e-4)
    elif name == "topics":
        assert [{one["label"] for one in each if one["predicted"]} for each in found] == [*map(set, predicted)]
    else:
        assert [each[0]["label"] for each in found] == predicted


@runs([name for name in PREDICTING if name != "distil"], fast=("tag",))
def test_do_predict_alone_predicts_the_same_and_leaves_the_folder_alone(
    name: str,
    folder_of: Callable[[str], Path],
    scripts: ScriptRunner,
    command: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    folder = folder_of(name)
    before = hashes(folder)
    for split in ("test", "plain"):
        line = [word for word in command(name, splits=(split,)) if word not in (SHAPE, *QUICK[:-1])]
        saved = [f"--model_name_or_path={folder}", "--do_predict", f"--output_dir={tmp_path / split}"]
        scripts.check(*[word for word in line if "tokenizer_kind" not in word and "vocab_size" not in word], *saved)
        again = [row["predicted"] for row in predictions_of(tmp_path / split)]
        expected = [row["predicted"] for row in predictions_of(folder)]
        assert again == (pytest.approx(expected, abs=1e-5) if name == "numbers" else expected)
        assert any(re.match("test_(accuracy|mse|f1)", key) for key in results_of(tmp_path / split)) == (
            split == "test"
        )
        assert not (tmp_path / split / "model.safetensors").exists()
    assert hashes(folder) == before


# ------ interruptions


@runs([name for name in RUNS if name not in ("topics", "numbers", "pairs")], fast=("classify",))
def test_a_killed_run_resumed_ends_with_the_bytes_of_one_never_killed(
    name: str, scripts: ScriptRunner, command: Callable[..., list[str]], tmp_path: Path
) -> None:
    steps = ["--save_strategy=steps", "--save_steps=7", "--eval_strategy=steps", "--eval_steps=7", "--logging_steps=1"]
    steps += ["--per_device_train_batch_size=4", "--max_steps=32", "--num_train_epochs=9", "--warmup_steps=0.1"]
    steps += [f"{SHAPE},hidden_dropout_prob=0.3,embedding_dropout_prob=0.3", "--save_total_limit=9"]
    if name != "pretrain":
        steps += ["--train_sampling_strategy=group_by_length"]
    line = command(name, *steps)
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    scripts.check(*line, f"--output_dir={straight}")
    scripts.kill_when(killed / "checkpoint-21" / "trainer_state.json", *line, f"--output_dir={killed}")
    assert not (killed / "report" / "all_results.json").exists(), "it was killed in time"
    # As if it had been killed while it wrote: such a checkpoint is passed over.
    (killed / "checkpoint-85").mkdir()
    (killed / "checkpoint-85" / "model.safetensors").write_bytes(b"half")
    before = hashes(killed)
    before.pop("running.lock", None)  # of the killed process
    refused = scripts.run(*line, f"--output_dir={killed}", "--resume_from_checkpoint=last", f"{SHAPE},residual=false")
    assert refused.code == 1
    assert "residual" in refused.error
    assert hashes(killed).items() >= before.items()
    scripts.check(*line, f"--output_dir={killed}", "--resume_from_checkpoint=last")
    same = ["model.safetensors", "tokenizer.json"]
    for file in [*same, *(["report/predictions_test.jsonl"] if name != "pretrain" else [])]:
        assert (killed / file).read_bytes() == (straight / file).read_bytes(), file
    losses = [[(e["step"], e.get("loss"), e.get("eval_loss")) for e in log_of(each)] for each in (killed, straight)]
    assert losses[0][:-1] == losses[1][:-1]


@pytest.mark.parametrize("name", ["classify"])
def test_a_finished_run_is_not_repeated_and_its_last_line_works(
    name: str, folder_of: Callable[[str], Path], scripts: ScriptRunner, command: Callable[..., list[str]]
) -> None:
    folder = folder_of(name)
    before = hashes(folder)
    line = command(name, "--train_sampling_strategy=group_by_length", "--per_device_eval_batch_size=7", *LOG)
    again = scripts.check(*line, f"--output_dir={folder}", "--resume_from_checkpoint=last").out
    results = results_of(folder)
    assert f"{results['test_accuracy']:.3f}" in again
    for more, named in ((["--resume_from_checkpoint=last", "--num_train_epochs=3"], "num_train_epochs"), ([], "")):
        refused = scripts.run(*line, f"--output_dir={folder}", *more)
        assert refused.code == 1
        assert named in refused.error
    assert hashes(folder) == before
    _, *arguments = again.strip().splitlines()[-1].partition("modeling-star ")[2].replace('"', "").split()
    assert "positive" in scripts.check("run_predict.py", *arguments).out


# ------ several processes


@runs([name for name in RUNS if name != "tag spelled words"], fast=("tag",))
def test_two_processes_log_the_losses_of_one_with_twice_the_batch(
    name: str, scripts: ScriptRunner, command: Callable[..., list[str]], tmp_path: Path
) -> None:
    none = ",".join(f"{kind}_dropout_prob=0" for kind in ("embedding", "hidden", "attention_probs"))
    flags = ["--gradient_accumulation_steps=2", "--logging_steps=1", "--max_steps=6", f"{SHAPE},{none}"]
    # 48 rows are 3 updates of 16; 21 and 15 rows to score do not divide by two processes times a batch of 4.
    flags += ["--max_train_samples=48", "--per_device_eval_batch_size=4"]
    outcomes = []
    for processes, batch in ((1, 8), (2, 4)):
        folder = tmp_path / f"processes-{processes}"
        size = f"--per_device_train_batch_size={batch}"
        scripts.check(*command(name, *flags, size, f"--output_dir={folder}"), processes=processes)
        unlike = ("runtime", "per_second", "train_", "model_preparation")
        scores = {key: x for key, x in results_of(folder).items() if not any(word in key for word in unlike)}
        outcomes.append(([entry["loss"] for entry in log_of(folder) if "loss" in entry], scores))
    (one_losses, one_scores), (two_losses, two_scores) = outcomes
    assert len(one_losses) == 6
    assert max(one_losses) - min(one_losses) > 1e-3, "something was learnt: equal losses say something"
    assert two_losses == pytest.approx(one_losses, abs=1e-5)
    assert two_scores == pytest.approx(one_scores, abs=1e-5)
    if name in ("tag", "classify", "answer"):
        one, two = (predictions_of(tmp_path / f"processes-{processes}") for processes in (1, 2))
        assert [row["predicted"] for row in one] == [row["predicted"] for row in two]
