"""The scripts that fine-tune from the command line, on tiny synthetic data."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from script_runner import ROOT, SCRIPTS, ScriptRunner
from script_samples import (
    QUICK,
    SIZES,
    TINY,
    assert_card_has_the_results,
    files,
    hashes,
    log_of,
    read_rows,
    results_of,
    write_rows,
    write_vectors,
)


ACCELERATE = ROOT / "configuration" / "accelerate"


def launch(config: str, script: str, *arguments: Any, folder: Path, **environment: str) -> subprocess.CompletedProcess:
    """accelerate launch --config_file configuration/accelerate/CONFIG run_scripts/SCRIPT ARGUMENTS"""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(ACCELERATE / config)]
    return subprocess.run(
        [*command, str(SCRIPTS / script), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "HF_HOME": str(folder / "hf"), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )


# A whole run


def test_accelerate_launch_leaves_a_model_with_its_scores_tables_plots_and_card(corpora: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    flags = (TINY[0], f"{TINY[1]},use_crf=false", *QUICK)  # so that the largest logits are the predictions
    done = launch("cpu.yaml", "run_ner.py", *files(corpora / "entities"), *flags, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "outputs" / "run_ner"
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"),
        *("arguments.json", "manifest.json", "code", "report"),
    }
    assert {path.name for path in (folder / "report").iterdir()} >= {
        *("all_results.json", "trainer_state.json", "training_curves.png"),
        *("predictions_test.jsonl", "entities_test.md", "entities_validation.md"),
    }
    results = results_of(folder)
    assert results["train_samples"] == SIZES["train"]
    assert results["test_samples"] == SIZES["test"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert_card_has_the_results(card, results)
    assert re.search(r"accelerate launch --num_processes 1 \S*run_ner\.py", card)
    assert (folder / "report" / "entities_test.md").read_text(encoding="utf-8").strip() in card

    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    assert type(model).__name__ == "StarTransformerForTokenClassification"
    assert set(model.config.label2id) >= {"O", "B-PER", "I-PER"}
    # What the saved model says is what the file of predictions holds.
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row in read_rows(folder / "report" / "predictions_test.jsonl")[:5]:
        encoding = tokenizer([row["tokens"]], is_split_into_words=True, return_tensors="pt")
        labels = model(**encoding).logits[0].argmax(-1).tolist()
        words = encoding.word_ids()
        first = {word: place for place, word in reversed(list(enumerate(words))) if word is not None}
        assert [model.config.id2label[labels[first[word]]] for word in range(len(row["tokens"]))] == row["predicted"]
        assert len(row["labels"]) == len(row["tokens"])


@pytest.mark.parametrize(("metric", "best"), [("accuracy", max), ("loss", min)])
@pytest.mark.slow
def test_the_best_model_by_the_chosen_score_is_kept(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, metric: str, best: Callable[[list[float]], float]
) -> None:
    flags = (f"--metric_for_best_model={metric}", "--num_train_epochs=4", f"--output_dir={tmp_path}/run")
    scripts.check("run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, *flags)
    scores = [entry[f"eval_{metric}"] for entry in log_of(tmp_path / "run") if f"eval_{metric}" in entry]
    assert len(scores) == 4
    assert len(set(scores)) > 1
    assert results_of(tmp_path / "run")[f"eval_{metric}"] == pytest.approx(best(scores))


@pytest.mark.slow
def test_the_mean_of_the_last_checkpoints_takes_the_place_of_the_best(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    folder = tmp_path / "run"
    # The learning rate rises to one that spoils the model.
    worse = (
        "--model_type=star_transformer",
        "--metric_for_best_model=loss",
        "--learning_rate=9",
        "--warmup_steps=20",
        "--num_train_epochs=5",
    )
    flags = ("--average_checkpoints=2", "--save_total_limit=2", f"--output_dir={folder}")
    scripts.check("run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, *worse, *flags)
    losses = [entry["eval_loss"] for entry in log_of(folder) if "eval_loss" in entry]
    assert losses.index(min(losses)) < 3
    saved = load_file(folder / "model.safetensors")
    steps = sorted(int(path.name.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*"))
    assert steps == [16, 20], "the last two of five, the best one not among them"
    checkpoints = [load_file(folder / f"checkpoint-{step}" / "model.safetensors") for step in steps]
    for name, tensor in saved.items():
        mean = sum(checkpoint[name].double() for checkpoint in checkpoints) / 2
        assert tensor.equal(mean.to(tensor.dtype)), name
    assert not any(
        saved["classifier.dense.weight"].equal(checkpoint["classifier.dense.weight"]) for checkpoint in checkpoints
    )
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| checkpoints averaged | `2` |" in card
    assert_card_has_the_results(card, results_of(folder))


@pytest.mark.parametrize("words", ["file", pytest.param("whole_word", marks=pytest.mark.slow)])
def test_a_big_transformer_is_saved_with_its_words(
    scripts: ScriptRunner, corpora: Path, bert: Path, tmp_path: Path, words: str
) -> None:
    from transformers import AutoModelForTokenClassification

    flags = ["--lexicon=whole_word", f"--embeddings_from={bert}", "--embeddings_mode=contextual"]
    if words == "file":
        rows = read_rows(corpora / "entities" / "train.jsonl")
        pairs = sorted({f"{a} {b}" for row in rows for a, b in pairwise(row["tokens"])})
        (tmp_path / "words.txt").write_text("\n".join(pairs) + "\n", encoding="utf-8")
        flags = [f"--lexicon={tmp_path}/words.txt"]
    flags += ["--model_type=big_transformer", f"--output_dir={tmp_path}/run"]
    # With two processes DDP would complain of a parameter without a gradient.
    processes = 2 if words == "whole_word" else 1
    scripts.check("run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *flags, processes=processes)
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "run")
    kind = "words" if words == "file" else words
    assert (model.config.lexicon_kind, model.base_model.matcher.kind) == (kind, kind)
    assert model.config.lexicon_size > 100


@pytest.mark.slow
def test_a_tagger_with_a_crf_and_characters_predicts_its_best_paths(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    fields = "hidden_size=16,num_attention_heads=2,use_crf=true,crf_constraints=auto,char_features=true"
    flags = ["--tokenizer_kind=wordpiece", "--vocab_size=300", "--lower_case=false", f"--config_overrides={fields}"]
    folder = tmp_path / "run"
    longer = ["--num_train_epochs=15", "--per_device_train_batch_size=8", f"--output_dir={folder}"]
    scripts.check("run_ner.py", *files(corpora / "entities"), *QUICK, *flags, *longer)
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = read_rows(folder / "report" / "predictions_test.jsonl")
    for row in rows:
        encoding = tokenizer([row["tokens"]], is_split_into_words=True, return_tensors="pt")
        words = encoding.word_ids()
        path = model.decode(**encoding)[0].tolist()
        labels = [model.config.id2label[path[words.index(word)]] for word in range(len(row["tokens"]))]
        assert labels == row["predicted"]
        # The constraints hold for all tokens but those that carry no tag, such as "##e".
        idle = model.crf.carries_no_tag[encoding["input_ids"][0]].tolist()
        chain = [model.config.id2label[tag] for tag, outside in zip(path, idle, strict=True) if not outside]
        for before, after in pairwise(["O", *chain]):
            assert not after.startswith("I-") or before[2:] == after[2:]
    assert len({label for row in rows for label in row["predicted"]}) > 2
    assert_card_has_the_results((folder / "README.md").read_text(encoding="utf-8"), results_of(folder))
    # The entities of run_predict.py are those of the words.
    text = " ".join(rows[0]["tokens"])
    entities = json.loads(scripts.check("run_predict.py", folder, text, "--json").out)["found"]
    begins = [label for label in rows[0]["predicted"] if label.startswith("B-")]
    assert [f"B-{entity['label']}" for entity in entities] == begins
    assert all(text[entity["start"] : entity["end"]] == entity["text"] for entity in entities)


def test_tfidf_is_trained_scored_and_read_like_a_model(scripts: ScriptRunner, corpora: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    scripts.check("run_glue.py", *files(corpora / "sentiment"), "--model_type=tfidf", f"--output_dir={folder}")
    rows = read_rows(folder / "report" / "predictions_test.jsonl")
    accuracy = sum(row["predicted"] == row["label"] for row in rows) / len(rows)
    assert results_of(folder)["test_accuracy"] == pytest.approx(accuracy)
    assert results_of(folder)["eval_accuracy"] > 0.6
    done = scripts.check("run_predict.py", folder, "--json", *(row["text"] for row in rows[:5]))
    for line, row in zip(done.out.splitlines(), rows, strict=False):
        best, *others = json.loads(line)["found"]
        assert best["label"] == row["predicted"]
        assert best["score"] == pytest.approx(row["score"], abs=1e-4)
        assert all(other["score"] <= best["score"] for other in others)
    refused = scripts.run("run_predict.py", folder, "--question=Who?", "a text")
    assert refused.code != 0
    assert "--question" in refused.error


@pytest.mark.parametrize(
    ("shape", "fields", "expected"),
    [
        ("sentiment", [], {"problem_type": "single_label_classification"}),
        ("topics", [], {"problem_type": "multi_label_classification"}),
        ("numbers", [], {"problem_type": "regression", "num_labels": 1}),
        ("pairs", [], {"pair_mode": "cross", "type_vocab_size": 2}),
        pytest.param("pairs", ["pair_mode=siamese"], {"pair_mode": "siamese"}, marks=pytest.mark.slow),
    ],
    ids=["single", "multi-label", "regression", "cross pair", "siamese pair"],
)
def test_run_glue_infers_the_problem_from_the_data(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, shape: str, fields: list[str], expected: dict[str, Any]
) -> None:
    from transformers import AutoConfig

    folder = tmp_path / "run"
    overrides = ",".join(["--config_overrides=hidden_size=16,num_attention_heads=2", *fields])
    # Groups by length and uneven batches: predictions must still belong to their rows.
    groups = ["--train_sampling_strategy=group_by_length", "--per_device_eval_batch_size=7"]
    scripts.check("run_glue.py", *files(corpora / shape), *QUICK, overrides, *groups, f"--output_dir={folder}")
    results, rows = results_of(folder), read_rows(folder / "report" / "predictions_test.jsonl")
    assert_card_has_the_results((folder / "README.md").read_text(encoding="utf-8"), results)
    config = AutoConfig.from_pretrained(folder)
    assert {name: getattr(config, name) for name in expected} == expected
    given = [list(row.values())[-1] for row in read_rows(corpora / shape / "test.jsonl")]
    if shape == "numbers":
        assert [row["label"] for row in rows] == pytest.approx(given)
        squares = [(row["label"] - row["predicted"]) ** 2 for row in rows]
        assert sum(squares) / len(rows) == pytest.approx(results["test_mse"], rel=1e-5)
    else:
        as_set = set if shape == "topics" else lambda label: {label}
        assert [as_set(row["label"]) for row in rows] == [as_set(label) for label in given]
        right = sum(as_set(row["label"]) == as_set(row["predicted"]) for row in rows)
        assert right / len(rows) == pytest.approx(results["test_accuracy"])
    # A saved model knows the problem where the data have no labels.
    again = [f"--model_name_or_path={folder}", "--do_predict", "--disable_tqdm=true", f"--output_dir={tmp_path}/plain"]
    scripts.check("run_glue.py", *files(corpora / shape, "plain"), *again)
    plain = [row["predicted"] for row in read_rows(tmp_path / "plain" / "report" / "predictions_test.jsonl")]
    predicted = [row["predicted"] for row in rows]
    assert plain == (pytest.approx(predicted, abs=1e-6) if shape == "numbers" else predicted)


def test_mnli_is_scored_on_both_of_its_splits(scripts: ScriptRunner, corpora: Path, tmp_path: Path) -> None:
    for split in ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"):
        rows = read_rows(corpora / "pairs" / f"{split.split('_')[0]}.jsonl")
        rows = rows[:9] if split.endswith("_mismatched") else rows
        named = [{"premise": r["sentence1"], "hypothesis": r["sentence2"], "label": r["label"]} for r in rows]
        write_rows(tmp_path / "mnli" / "data" / f"{split}-00000-of-00001.jsonl", named)
    flags = [f"--dataset_name={tmp_path}/mnli", "--task_name=mnli", f"--output_dir={tmp_path}/run"]
    scripts.check("run_glue.py", *TINY, *QUICK, *flags)
    results = results_of(tmp_path / "run")
    assert (results["eval_samples"], results["eval_mismatched_samples"]) == (SIZES["validation"], 9)
    assert {"eval_mismatched_accuracy", "test_accuracy", "test_mismatched_accuracy"} <= results.keys()


@pytest.mark.parametrize("mode", ["static", "contextual", pytest.param("vectors", marks=pytest.mark.slow)])
def test_given_embeddings_are_saved_with_the_model(
    scripts: ScriptRunner, corpora: Path, bert: Path, tmp_path: Path, mode: str
) -> None:
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer, BertModel

    source, flags = bert, [f"--embeddings_mode={mode}", "--freeze_embeddings", f"--output_dir={tmp_path}/run"]
    if mode == "vectors":  # of a word that the training split does not have
        source = write_vectors(tmp_path / "vectors.txt", [{"tokens": ["quokka"]}], width=4)
        flags += ["--tokenizer_kind=word", "--lower_case=true", "--vocabulary_from=vectors"]
    embeddings = f"--embeddings_from={source}"
    scripts.check("run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *flags, embeddings)
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    table = model.get_input_embeddings().weight
    assert (model.config.backbone_config is not None) is (mode == "contextual")
    if mode == "vectors":
        numbers = [float(x) for x in source.read_text(encoding="utf-8").split()[1:]]
        assert torch.equal(table[tokenizer.get_vocab()["quokka"]], torch.tensor(numbers))
    else:
        assert torch.equal(table, BertModel.from_pretrained(bert).get_input_embeddings().weight)
        assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(bert).get_vocab()


def test_a_saved_bert_is_fine_tuned(scripts: ScriptRunner, corpora: Path, bert: Path, tmp_path: Path) -> None:
    from transformers import AutoConfig

    before = hashes(bert)
    name = f"--model_name_or_path={bert}"
    scripts.check("run_ner.py", *files(corpora / "entities"), *QUICK, name, f"--output_dir={tmp_path}/run")
    config = AutoConfig.from_pretrained(tmp_path / "run")
    assert config.architectures == ["BertForTokenClassification"]
    assert "B-PER" in config.label2id
    assert hashes(bert) == before


def test_do_predict_alone_reads_a_saved_model_and_leaves_its_folder_alone(
    scripts: ScriptRunner, corpora: Path, tagger: Path, tmp_path: Path
) -> None:
    before = hashes(tagger)
    flags = [f"--model_name_or_path={tagger}", "--do_predict", "--disable_tqdm=true"]
    scripts.check("run_ner.py", *files(corpora / "entities", "test"), *flags, f"--output_dir={tmp_path}/scored")
    scripts.check("run_ner.py", *files(corpora / "entities", "plain"), *flags, f"--output_dir={tmp_path}/plain")
    scored, plain = tmp_path / "scored", tmp_path / "plain"
    assert results_of(scored)["test_f1"] == pytest.approx(results_of(tagger)["test_f1"])
    assert not (scored / "model.safetensors").exists()
    # Labels are no part of a prediction.
    predictions = [
        [row["predicted"] for row in read_rows(f / "report" / "predictions_test.jsonl")]
        for f in (tagger, scored, plain)
    ]
    assert predictions[0] == predictions[1] == predictions[2]
    assert "test_f1" not in results_of(plain)

    assert hashes(tagger) == before


def test_without_a_validation_split_part_of_train_is_held_out(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    flags = ["--validation_fraction=0.2", f"--output_dir={tmp_path}/run"]
    scripts.check("run_ner.py", *files(corpora / "entities", "train", "plain"), *TINY, *QUICK, *flags)
    results = results_of(tmp_path / "run")
    assert (results["train_samples"], results["eval_samples"]) == (48, 12)
    assert "eval_f1" in results
    assert "test_f1" not in results  # the test split has no labels
    assert len(read_rows(tmp_path / "run" / "report" / "predictions_test.jsonl")) == SIZES["test"]


def test_long_inputs_are_predicted_in_windows(scripts: ScriptRunner, corpora: Path, tmp_path: Path) -> None:
    flags = ["--max_seq_length=8", "--stride=2", f"--output_dir={tmp_path}/run"]
    scripts.check("run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *flags)
    rows = read_rows(corpora / "entities" / "test.jsonl")
    predicted = read_rows(tmp_path / "run" / "report" / "predictions_test.jsonl")
    assert [(row["tokens"], row["labels"]) for row in predicted] == [(row["tokens"], row["ner_tags"]) for row in rows]
    # Every word is scored once, however many windows hold it.
    right = sum(a == b for row in predicted for a, b in zip(row["labels"], row["predicted"], strict=True))
    accuracy = right / sum(len(row["tokens"]) for row in rows)
    assert results_of(tmp_path / "run")["test_accuracy"] == pytest.approx(accuracy)


@pytest.mark.slow
def test_several_seeds_have_a_mean_and_resume_where_they_were_interrupted(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "seeds"
    flags = ["--seeds", 1, 2, "--class_weights=balanced", "--early_stopping_patience=1", f"--output_dir={folder}"]
    command = ["run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, "--num_train_epochs=9", *flags]
    scripts.check(*command)
    each = [results_of(folder / f"seed-{seed}") for seed in (1, 2)]
    summary = results_of(folder)["test_accuracy"]
    assert summary["values"] == [results["test_accuracy"] for results in each]
    assert summary["mean"] == pytest.approx(sum(summary["values"]) / 2)
    assert each[0]["train_loss"] != each[1]["train_loss"]
    assert any(results["epoch"] < 9 for results in each)  # stopped early
    before = hashes(folder / "seed-1")
    for path in (folder / "seed-2").glob("*.json"):
        path.unlink()
    scripts.check(*command, "--resume_from_checkpoint=last")
    assert hashes(folder / "seed-1") == before
    assert results_of(folder)["test_accuracy"] == summary


# Interrupted runs


@pytest.mark.parametrize(
    ("script", "shape"),
    [("run_ner.py", "entities"), ("run_qa.py", "reading")],
)
@pytest.mark.slow
def test_a_killed_run_resumed_ends_with_the_weights_of_one_never_killed(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, script: str, shape: str
) -> None:
    steps = ["--save_strategy=steps", "--save_steps=7", "--eval_strategy=steps", "--eval_steps=7"]
    dropout = [
        "--config_overrides=hidden_size=16,num_attention_heads=2,hidden_dropout_prob=0.3,embedding_dropout_prob=0.3"
    ]
    quick = [*QUICK, "--per_device_train_batch_size=4", "--num_train_epochs=6", "--warmup_steps=0.1"]
    quick += ["--train_sampling_strategy=group_by_length"]
    command = [script, *files(corpora / shape), *steps, *quick, *dropout]
    scripts.check(*command, f"--output_dir={tmp_path}/straight")
    killed = tmp_path / "killed"
    scripts.kill_when(killed / "checkpoint-21" / "trainer_state.json", *command, f"--output_dir={killed}")
    assert not (killed / "report" / "all_results.json").exists()  # it was killed in time
    last = max(int(path.name.split("-")[1]) for path in killed.glob("checkpoint-*"))
    assert last % 15  # 60 rows in batches of 4: in the middle of an epoch
    # As if it had been killed while it wrote: such a checkpoint is passed over.
    (killed / "checkpoint-85").mkdir()
    (killed / "checkpoint-85" / "model.safetensors").write_bytes(b"half")
    resume = [*command, f"--output_dir={killed}", "--resume_from_checkpoint=last"]
    before = hashes(killed)
    before.pop("running.lock", None)  # of the killed process
    for flags, named in (
        ([f"--train_file={corpora / shape / 'test.jsonl'}"], "other"),
        ([f"{dropout[0]},residual=false"], "residual"),
    ):
        refused = scripts.run(*resume, *flags)
        assert refused.code == 1
        assert named in refused.error, refused.error
        assert hashes(killed).items() >= before.items()

    scripts.check(*resume)
    for name in ("model.safetensors", "tokenizer.json", "report/predictions_test.jsonl"):
        assert (killed / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
    resumed, straight = ([e for e in log_of(f) if "eval_f1" in e] for f in (killed, tmp_path / "straight"))
    assert [entry["eval_loss"] for entry in resumed] == [entry["eval_loss"] for entry in straight]


# Several processes


def losses_and_scores(folder: Path) -> tuple[list[float], dict[str, float]]:
    results = results_of(folder)
    losses = [entry["loss"] for entry in log_of(folder) if "loss" in entry]
    unlike = ("runtime", "per_second", "train_")
    return losses, {name: value for name, value in results.items() if not any(word in name for word in unlike)}


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ("entities", []),
        pytest.param("entities", ["use_crf=true", "char_features=true"], marks=pytest.mark.slow),
        *(pytest.param(shape, [], marks=pytest.mark.slow) for shape in ("sentiment", "topics", "numbers", "reading")),
    ],
    ids=["entities", "entities, CRF and characters", "sentiment", "topics", "numbers", "reading"],
)
def test_two_processes_log_the_losses_of_one_with_twice_the_batch(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, shape: str, fields: list[str]
) -> None:
    dropouts = ("embedding_dropout_prob", "hidden_dropout_prob", "attention_probs_dropout_prob")
    overrides = ",".join(["hidden_size=16,num_attention_heads=2", *fields, *(f"{name}=0" for name in dropouts)])
    flags = ["--gradient_accumulation_steps=2", "--logging_steps=1", f"--config_overrides={overrides}"]
    # 48 rows are 3 updates of 16; 21 and 15 rows to score do not divide by two processes times a batch of 4.
    data = [*files(corpora / shape), "--max_train_samples=48", "--per_device_eval_batch_size=4"]
    script = {"entities": "run_ner.py", "reading": "run_qa.py"}.get(shape, "run_glue.py")
    outcomes = []
    for processes, batch in ((1, 8), (2, 4)):
        folder = tmp_path / f"processes-{processes}"
        size = f"--per_device_train_batch_size={batch}"
        scripts.check(script, *data, *QUICK, *flags, size, f"--output_dir={folder}", processes=processes)
        outcomes.append(losses_and_scores(folder))
    (one_losses, one_scores), (two_losses, two_scores) = outcomes
    assert len(one_losses) == 6
    assert max(one_losses) - min(one_losses) > 1e-3  # something was learnt: equal losses say something
    assert two_losses == pytest.approx(one_losses, abs=1e-5)
    assert two_scores == pytest.approx(one_scores, abs=1e-5)
    assert one_scores["eval_samples"] == 21
    if shape != "numbers":
        one, two = (read_rows(tmp_path / f"processes-{n}" / "report" / "predictions_test.jsonl") for n in (1, 2))
        assert [row["predicted"] for row in one] == [row["predicted"] for row in two]


@pytest.mark.slow
def test_accelerate_launch_starts_two_processes_on_the_cpu(corpora: Path, tmp_path: Path) -> None:
    done = launch("multi_cpu.yaml", "run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    card = (tmp_path / "outputs" / "run_glue" / "README.md").read_text(encoding="utf-8")
    assert "| processes | `2` |" in card
