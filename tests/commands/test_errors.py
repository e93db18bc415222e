"""How commands end: errors in one line that change no file, interruptions, full disks."""

import errno
import json
import logging
import multiprocessing
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers
from script_runner import ScriptRunner
from script_samples import QUICK, TINY, files, hashes, read_rows, write_rows, write_vectors
from transformers import TrainingArguments

from modeling_star.errors import UserError
from modeling_star.files import write_json
from modeling_star.runs.cli_errors import as_user_error, command_messages, script_messages
from modeling_star.runs.terminal import TrainingLines
from modeling_star.sources import unreachable_errors


def bad_rows(corpora: Path, change: dict[str, Any], row: int = 2) -> list[dict[str, Any]]:
    rows = read_rows(corpora)
    rows[row] = {**rows[row], **change}
    return rows


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory, corpora: Path) -> Path:
    """Files that no run can use."""
    folder = tmp_path_factory.mktemp("bad")
    entities, reading = read_rows(corpora / "entities" / "train.jsonl"), corpora / "reading" / "train.jsonl"
    write_rows(folder / "lengths.jsonl", bad_rows(corpora / "entities" / "train.jsonl", {"ner_tags": ["O", "O"]}))
    write_rows(folder / "strange.jsonl", [*entities, {"tokens": ["Oslo"], "ner_tags": ["B-XYZ"]}])
    write_rows(folder / "pos.jsonl", [{**row, "ner_tags": ["PUNCT" for _ in row["tokens"]]} for row in entities[1:]])
    with (folder / "pos.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"tokens": ["Oslo"], "ner_tags": ["NOUN"]}) + "\n")
    vectors = write_vectors(folder / "vectors.txt", entities).read_text().splitlines()
    (folder / "width.txt").write_text("\n".join([*vectors[:6], vectors[6].rsplit(" ", 1)[0], *vectors[7:]]))
    (folder / "broken.jsonl").write_text('{"text": "fine", "label": "a"}\n{"text": "fine", "label"\n')
    (folder / "one.csv").write_text("text,label\n" + "a fine film,good\n" * 9)
    write_rows(folder / "elsewhere.jsonl", bad_rows(reading, {"answers": {"text": ["xyz"], "answer_start": [3]}}))
    write_rows(folder / "unanswered.jsonl", bad_rows(reading, {"answers": {"text": [], "answer_start": []}}))
    return folder


NER, GLUE, QA, MLM = "run_ner.py", "run_glue.py", "run_qa.py", "run_mlm.py"
# What is wrong -> script, flags, and what the message names.
BAD_INPUTS: dict[str, tuple[str, str, list[str]]] = {
    # Data
    "no data": (NER, "", ["--train_file"]),
    "missing file": (NER, "--train_file={bad}/none.jsonl", ["none.jsonl"]),
    "broken json": (GLUE, "--train_file={bad}/broken.jsonl", ["broken.jsonl"]),
    "missing column": (NER, "--train_file={entities} --label_column_name=tagz", ["tagz", "ner_tags"]),
    "unequal lengths": (NER, "--train_file={bad}/lengths.jsonl", ["row 3"]),
    "one class": (GLUE, "--train_file={bad}/one.csv", ["'good'", "--label_column_name"]),
    "an answer elsewhere": (QA, "--train_file={bad}/elsewhere.jsonl", ["'train-2'", "'xyz'"]),
    "no answer": (QA, "--train_file={bad}/unanswered.jsonl", ["'train-2'", "--version_2_with_negative"]),
    "a question too long": (QA, "--train_file={reading} --max_seq_length=6", ["--max_seq_length"]),
    # Tokenizer, embeddings and words
    "vectors of two widths": (
        NER,
        "--train_file={entities} --embeddings_mode=vectors --embeddings_from={bad}/width.txt",
        ["width.txt, line 7"],
    ),
    "token ids outside": (
        NER,
        "--train_file={entities} --model_name_or_path={tagger} --tokenizer_name={bert}",
        ["--tokenizer_name"],
    ),
    "nothing to train a tokenizer on": (NER, "--test_file={entities}", ["--model_name_or_path"]),
    "words are whole": (
        NER,
        "--train_file={entities} --model_type=big_transformer --lexicon=whole_word --tokenizer_kind=word",
        ["--tokenizer_kind wordpiece"],
    ),
    "no word list": (GLUE, "--train_file={sentiment} --lexicon={bad}/words.txt", ["--lexicon", "words.txt"]),
    "no word vectors": (NER, "--train_file={entities} --word_vectors={bad}/none.txt", ["--word_vectors", "none.txt"]),
    "a model without words": (NER, "--train_file={entities} --lexicon=jieba", ["--model_type big_transformer"]),
    # Model
    "no such model": (GLUE, "--train_file={sentiment} --model_name_or_path={bad}/none", ["--model_name_or_path"]),
    "unknown model type": (GLUE, "--train_file={sentiment} --model_type=stra", ["stra", "star_transformer"]),
    "unknown field": (
        GLUE,
        "--train_file={sentiment} --config_overrides=hiden_size=30",
        ["hiden_size", "hidden_size"],
    ),
    "fresh and saved": (
        NER,
        "--train_file={entities} --model_name_or_path={bert} --embeddings_from={bert}",
        ["--embeddings_name_or_path", "--model_name_or_path"],
    ),
    "a size that was saved": (
        NER,
        "--train_file={entities} --model_name_or_path={tagger} --config_overrides=hidden_size=32",
        ["--config_overrides hidden_size"],
    ),
    "a label the model lacks": (NER, "--train_file={bad}/strange.jsonl --model_name_or_path={tagger}", ["B-XYZ"]),
    "constraints on parts of speech": (
        NER,
        "--train_file={bad}/pos.jsonl --config_overrides=use_crf=true,crf_constraints=auto",
        ["crf_constraints"],
    ),
    "a CRF of texts": (GLUE, "--train_file={sentiment} --config_overrides=use_crf=true", ["use_crf", "taggers"]),
    "n-grams of tags": (
        NER,
        "--train_file={entities} --config_overrides=ngram_buckets=64",
        ["ngram_buckets", "classifiers"],
    ),
    "TF-IDF of answers": (QA, "--train_file={reading} --model_type=tfidf", ["tfidf"]),
    # The run
    "folder in use": (NER, "--train_file={entities} --output_dir={tagger}", ["{tagger}"]),
    "nothing to resume": (NER, "--train_file={entities} --resume_from_checkpoint=last --output_dir={bad}", ["{bad}"]),
    "no such metric": (GLUE, "--train_file={sentiment} --metric_for_best_model=f2", ["f2", "accuracy"]),
    "weights in a CRF": (
        NER,
        "--train_file={entities} --class_weights=balanced --config_overrides=use_crf=true",
        ["--class_weights", "use_crf"],
    ),
    "a threshold without negatives": (
        QA,
        "--train_file={reading} --null_score_diff_threshold=1.5",
        ["--null_score_diff_threshold 1.5", "--version_2_with_negative"],
    ),
    "a stream": (MLM, "--train_file=none.txt --streaming", ["--max_train_samples"]),
    "a student without a teacher": (GLUE, "--train_file={sentiment} --augment=2", ["--augment", "--teacher"]),
    "blocks by length": (
        MLM,
        "--train_file={bad}/one.csv --vocab_size=60 --train_sampling_strategy=group_by_length",
        ["group_by_length"],
    ),
    "every file is pushed": (
        GLUE,
        "--train_file={sentiment} --push_to_hub --hub_model_id=me/star --hub_strategy=every_save",
        ["--hub_strategy every_save"],
    ),
}


@pytest.mark.parametrize("what", BAD_INPUTS)
def test_bad_input_is_an_error_in_one_line_and_no_file_changes(
    scripts: ScriptRunner, corpora: Path, bad: Path, tagger: Path, bert: Path, tmp_path: Path, what: str
) -> None:
    script, flags, named = BAD_INPUTS[what]
    places = {"bad": bad, "tagger": tagger, "bert": bert}
    places |= {name: corpora / name / "train.jsonl" for name in ("entities", "sentiment", "reading")}
    shape = [] if "config_overrides" in flags else TINY
    output = [] if "--output_dir" in flags else [f"--output_dir={tmp_path}/run"]
    before = {folder: hashes(folder) for folder in (bad, tagger, bert)}
    done = scripts.run(script, *shape, *QUICK, *flags.format(**places).split(), *output)
    assert done.code == 1, done.out + done.error
    assert "Traceback" not in done.error, done.error
    (message,) = [line for line in done.error.splitlines() if line.startswith(f"{script}: ")]
    assert not [part for part in named if part.format(**places) not in message], message
    assert {folder: hashes(folder) for folder in before} == before
    assert not any((tmp_path / "run").glob("*"))


def test_one_of_two_processes_prints_the_error(scripts: ScriptRunner, tagger: Path, corpora: Path) -> None:
    before = hashes(tagger)
    done = scripts.run("run_ner.py", *files(corpora / "entities"), f"--output_dir={tagger}", processes=2)
    assert done.code == 1
    assert done.error.count("run_ner.py: ") == 1
    assert "Traceback" not in done.error
    assert hashes(tagger) == before


def arguments(folder: Path) -> TrainingArguments:
    return TrainingArguments(str(folder), use_cpu=True)


@pytest.mark.parametrize("place", ["checkpoint-5", "seed-2/checkpoint-5"])
def test_an_interrupted_run_says_how_to_resume(place: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped, script_messages(arguments(tmp_path)):
        raise KeyboardInterrupt
    assert stopped.value.code == 130
    assert "--resume_from_checkpoint" not in capsys.readouterr().err
    for name, content in (("trainer_state.json", {}), ("manifest.json", {"files": {}})):
        write_json(tmp_path / place / name, content)
    with pytest.raises(SystemExit), script_messages(arguments(tmp_path)):
        raise KeyboardInterrupt
    message = capsys.readouterr().err
    assert str(tmp_path / place) in message
    assert "--resume_from_checkpoint last" in message


def test_sigterm_is_treated_as_an_interruption(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as stopped, script_messages(arguments(tmp_path)):
            signal.raise_signal(signal.SIGTERM)
        with multiprocessing.get_context("fork").Pool(1) as pool:  # as datasets has, whose end sends SIGTERM
            assert pool.map(abs, [-1]) == [1]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stopped.value.code == 143
    message = capsys.readouterr().err
    assert "interrupted" in message
    assert "Traceback" not in message


def test_a_full_disk_is_reported_with_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("trainer_state.json", {}), ("manifest.json", {"files": {}})):
        write_json(tmp_path / "checkpoint-5" / name, content)
    words = r"full.*checkpoint-5.*--resume_from_checkpoint last"
    with pytest.raises(SystemExit, match=words), script_messages(arguments(tmp_path)):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(RuntimeError, match="unexpected pos"), script_messages(arguments(tmp_path / "run")):
        raise RuntimeError("unexpected pos 41152 vs 41040")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(SystemExit, match=words), script_messages(arguments(tmp_path)):
        raise RuntimeError("unexpected pos 41152 vs 41040")


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Restore the log levels that `script_messages` sets."""
    names = ("httpx", "httpcore", "filelock", "fsspec", "matplotlib")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


# ------ errors of the code


@pytest.mark.parametrize("error", [TypeError("x"), KeyError("x"), RuntimeError("x"), ZeroDivisionError()])
def test_an_error_of_the_code_is_not_changed(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as raised, command_messages("predict", tmp_path / "out.jsonl"):
        raise error
    assert raised.value is error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", unreachable_errors())
def test_a_hub_that_cannot_be_reached_is_no_error_of_the_code(kind: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"refused"), command_messages("predict", tmp_path / "out"), as_user_error():
        raise kind("Connection refused")
    assert not list(tmp_path.iterdir())


def test_a_traceback_is_one_flag_away(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for level, is_shown in (("info", False), ("debug", True)):
        with pytest.raises(SystemExit), command_messages("predict", tmp_path / "out", log_level=level):
            raise UserError("unforeseen")
        assert ("Traceback" in capsys.readouterr().err) == is_shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_says_what_it_does_next(
    number: signal.Signals, code: int, capsys: pytest.CaptureFixture
) -> None:
    # A shell that runs the tests in the background ignores SIGINT for them.
    handlers = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    try:
        with pytest.raises(SystemExit) as stopped, command_messages("predict", next_time=lambda: "It continues."):
            signal.raise_signal(number)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert stopped.value.code == code
    message = capsys.readouterr().err
    assert "It continues." in message
    assert "Traceback" not in message


def test_a_log_has_the_scores_and_the_time_that_is_left(capsys: pytest.CaptureFixture) -> None:
    lines, state = TrainingLines("f1"), transformers.TrainerState(max_steps=90)
    given: Any = (None, state, None)
    lines.on_log(*given, logs={"eval_loss": 2.0})
    lines.on_train_begin(*given)
    state.global_step, state.epoch = 30, 1.0
    lines.began = (0, time.monotonic() - 60)
    lines.on_log(*given, logs={"eval_loss": 0.25, "eval_f1": 0.5, "eval_runtime": 3.0})
    lines.on_log(*given, logs={"epoch": 1.0})
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("epoch 1.00: validation loss 0.25, validation f1 0.5")
    assert line.endswith("; 0:02:00 left")
