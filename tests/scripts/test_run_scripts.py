"""The scripts that fine-tune from the command line, on tiny synthetic data."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loopback_hub import LoopbackHub, run_client
from script_runner import ROOT, SCRIPTS, ScriptRunner
from script_samples import (
    QUICK,
    SIZES,
    TINY,
    assert_card_tells_the_results,
    files,
    hashes,
    log_of,
    read_rows,
    results_of,
    write_rows,
    write_vectors,
)

from modeling_star.training.hub import files_to_share


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

    done = launch("cpu.yaml", "run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "outputs" / "run_ner"
    made = {path.name for path in folder.iterdir() if path.is_file()}
    assert made >= {
        *("config.json", "model.safetensors", "tokenizer.json", "modeling_star.py", "README.md"),
        *("all_results.json", "trainer_state.json", "training_curves.png"),
        *("predictions_test.jsonl", "entities_test.md", "entities_test.png", "entities_validation.md"),
    }
    results = results_of(folder)
    assert results["train_samples"] == SIZES["train"]
    assert results["test_samples"] == SIZES["test"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert_card_tells_the_results(card, results)
    assert "accelerate launch --config_file" in card
    assert "cpu.yaml" in card
    assert (folder / "entities_test.md").read_text(encoding="utf-8").strip() in card

    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    assert type(model).__name__ == "StarTransformerForTokenClassification"
    assert set(model.config.label2id) >= {"O", "B-PER", "I-PER"}
    # What the saved model says is what the file of predictions holds.
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row in read_rows(folder / "predictions_test.jsonl")[:5]:
        encoding = tokenizer([row["tokens"]], is_split_into_words=True, return_tensors="pt")
        told = model(**encoding).logits[0].argmax(-1).tolist()
        words = encoding.word_ids()
        first = {word: place for place, word in reversed(list(enumerate(words))) if word is not None}
        assert [model.config.id2label[told[first[word]]] for word in range(len(row["tokens"]))] == row["predicted"]
        assert len(row["labels"]) == len(row["tokens"])


@pytest.mark.parametrize(("metric", "best"), [("accuracy", max), pytest.param("loss", min, marks=pytest.mark.slow)])
def test_the_best_model_by_the_chosen_score_is_kept(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, metric: str, best: Callable[[list[float]], float]
) -> None:
    flags = (f"--metric_for_best_model={metric}", "--num_train_epochs=4", f"--output_dir={tmp_path}/run")
    scripts.check("run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, *flags)
    scores = [entry[f"eval_{metric}"] for entry in log_of(tmp_path / "run") if f"eval_{metric}" in entry]
    assert len(scores) == 4
    assert len(set(scores)) > 1
    assert results_of(tmp_path / "run")[f"eval_{metric}"] == pytest.approx(best(scores))


def test_the_mean_of_the_last_checkpoints_takes_the_place_of_the_best(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    folder = tmp_path / "run"
    # The learning rate rises to one that spoils the model.
    worse = ("--metric_for_best_model=loss", "--learning_rate=9", "--warmup_steps=20", "--num_train_epochs=5")
    flags = ("--average_checkpoints=2", f"--output_dir={folder}")
    scripts.check("run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, *worse, *flags)
    losses = [entry["eval_loss"] for entry in log_of(folder) if "eval_loss" in entry]
    assert losses.index(min(losses)) < 3
    saved = load_file(folder / "model.safetensors")
    steps = sorted(int(path.name.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*"))
    assert steps == [16, 20], "the last two of five, the best one not among them"
    kept = [load_file(folder / f"checkpoint-{step}" / "model.safetensors") for step in steps]
    for name, tensor in saved.items():
        mean = sum(checkpoint[name].double() for checkpoint in kept) / 2
        assert tensor.equal(mean.to(tensor.dtype)), name
    assert not any(
        saved["classifier.dense.weight"].equal(checkpoint["classifier.dense.weight"]) for checkpoint in kept
    )
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| checkpoints averaged | `2` |" in card
    assert_card_tells_the_results(card, results_of(folder))


@pytest.mark.parametrize("script", ["run_ner.py", "run_glue.py"])
def test_predictions_belong_to_their_rows_where_batches_are_grouped_by_length(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, script: str
) -> None:
    data = corpora / ("entities" if script == "run_ner.py" else "sentiment")
    flags = (
        "--train_sampling_strategy=group_by_length",
        "--dataloader_drop_last",
        "--per_device_eval_batch_size=7",
        f"--output_dir={tmp_path}/run",
    )
    scripts.check(script, *files(data), *TINY, *QUICK, *flags)
    told = read_rows(tmp_path / "run" / "predictions_test.jsonl")
    if script == "run_glue.py":
        right = [row["predicted"] == row["label"] for row in told]
        assert len(set(right)) == 2, "all right or all wrong would be so in any order"
        assert results_of(tmp_path / "run")["test_accuracy"] == pytest.approx(sum(right) / len(right))
    else:
        rows = read_rows(data / "test.jsonl")
        assert [(row["tokens"], row["labels"]) for row in told] == [(row["tokens"], row["ner_tags"]) for row in rows]
        assert [len(row["predicted"]) for row in told] == [len(row["tokens"]) for row in rows]


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        (["--lexicon", "words.txt"], "words"),
        (["--lexicon", "whole_word", "--embeddings_mode", "static"], "whole_word"),
        (["--lexicon", "whole_word", "--embeddings_mode", "contextual"], "whole_word"),
    ],
    ids=["a file of words", "whole words, static", "whole words, contextual"],
)
def test_a_big_transformer_is_saved_with_the_words_it_was_given(
    scripts: ScriptRunner, corpora: Path, bert: Path, tmp_path: Path, flags: list[str], kind: str
) -> None:
    from transformers import AutoModelForTokenClassification

    rows = read_rows(corpora / "entities" / "train.jsonl")
    words = sorted({f"{a} {b}" for row in rows for a, b in zip(row["tokens"], row["tokens"][1:], strict=False)})
    (scripts.folder / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    embeddings = ["--embeddings_from", bert] if kind == "whole_word" else []
    flags = [*flags, *embeddings, "--model_type=big_transformer", f"--output_dir={tmp_path}/run"]
    # Two processes, and no parameter without a gradient for DDP to complain of.
    processes = 2 if "contextual" in flags else 1
    scripts.check("run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *flags, processes=processes)
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "run")
    assert model.config.model_type == "big_transformer"
    assert model.config.lexicon_kind == kind
    assert model.base_model.matcher.kind == kind
    assert model.config.lexicon_size > 100


def test_a_lexicon_is_for_a_model_that_reads_words(scripts: ScriptRunner, corpora: Path, tmp_path: Path) -> None:
    flags = ("--lexicon=jieba", f"--output_dir={tmp_path}/run")
    refused = scripts.run("run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *flags)
    assert refused.code != 0
    assert "--model_type big_transformer" in refused.error


def test_a_tagger_with_a_crf_and_characters_predicts_its_best_paths(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    fields = "hidden_size=16,num_attention_heads=2,use_crf=true,crf_constraints=auto,char_features=true"
    flags = ["--tokenizer_kind=wordpiece", "--vocab_size=300", "--lower_case=false", f"--config_overrides={fields}"]
    folder = tmp_path / "run"
    longer = ["--num_train_epochs=15", "--per_device_train_batch_size=8", f"--output_dir={folder}"]
    scripts.check("run_ner.py", *files(corpora / "entities"), *QUICK, *flags, *longer)
    model, tokenizer = (
        AutoModelForTokenClassification.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    assert model.crf.carries_no_tag[tokenizer.convert_tokens_to_ids(["[CLS]", "##e"])].all()
    assert model.model.embeddings.characters.characters.any(1).sum() > 200
    names = model.config.id2label
    told = read_rows(folder / "predictions_test.jsonl")
    for row in told:
        encoding = tokenizer([row["tokens"]], is_split_into_words=True, return_tensors="pt")
        words = encoding.word_ids()
        first = {word: place for place, word in reversed(list(enumerate(words))) if word is not None}
        path = model.decode(**encoding)[0].tolist()
        assert [names[path[first[word]]] for word in range(len(row["tokens"]))] == row["predicted"]
        # The chain: also pieces that the vocabulary does not mark as such, as those behind a hyphen.
        idle = model.crf.carries_no_tag[encoding["input_ids"][0]].tolist()
        chain = [names[tag] for tag, outside in zip(path, idle, strict=True) if not outside]
        for before, after in zip(["O", *chain], chain, strict=False):
            assert not after.startswith("I-") or before[2:] == after[2:]
    # More than one kind of label, or the last lines say nothing.
    assert len({label for row in told for label in row["predicted"]}) > 2
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| CRF | `with constraints (auto)` |" in card
    assert_card_tells_the_results(card, results_of(folder))
    # Labels are no part of a prediction.
    again = [f"--model_name_or_path={folder}", "--do_predict", "--disable_tqdm=true", f"--output_dir={tmp_path}/plain"]
    scripts.check("run_ner.py", *files(corpora / "entities", "plain"), *again)
    plain = read_rows(tmp_path / "plain" / "predictions_test.jsonl")
    assert [row["predicted"] for row in plain] == [row["predicted"] for row in told]
    # Pieces of a word belong to its entity, and offsets to the text.
    text = " ".join(told[0]["tokens"])
    found = json.loads(scripts.check("run_predict.py", folder, text, "--json").out)["found"]
    labels = [label for label in told[0]["predicted"] if label.startswith("B-")]
    assert [f"B-{entity['label']}" for entity in found] == labels
    assert all(text[entity["start"] : entity["end"]] == entity["text"] for entity in found)


def test_tfidf_is_chosen_on_validation_and_scored_like_a_model(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    scripts.check("run_glue.py", *files(corpora / "sentiment"), "--model_type=tfidf", f"--output_dir={tmp_path}/run")
    results = results_of(tmp_path / "run")
    told = read_rows(tmp_path / "run" / "predictions_test.jsonl")
    assert results["test_accuracy"] == pytest.approx(sum(row["predicted"] == row["label"] for row in told) / len(told))
    assert results["eval_accuracy"] > 0.6
    read = scripts.check("run_predict.py", tmp_path / "run", "--json", *(row["text"] for row in told[:5]))
    for line, row in zip(read.out.splitlines(), told, strict=False):
        best, *others = json.loads(line)["found"]
        assert best == {"label": row["predicted"], "score": row["score"]}
        assert all(other["score"] <= best["score"] for other in others)
    asked = scripts.run("run_predict.py", tmp_path / "run", "--question=Who?", "a text")
    assert asked.code != 0
    assert "is TF-IDF, which classifies single texts: leave --question away" in asked.error
    unlabelled = [*files(corpora / "sentiment")[:2], f"--test_file={corpora / 'sentiment' / 'plain.jsonl'}"]
    scripts.check("run_glue.py", *unlabelled, "--model_type=tfidf", f"--output_dir={tmp_path}/plain")
    plain = read_rows(tmp_path / "plain" / "predictions_test.jsonl")
    assert [row["predicted"] for row in plain] == [row["predicted"] for row in told]
    assert not [name for name in results_of(tmp_path / "plain") if name.startswith("test_")]
    refused = scripts.run(
        "run_glue.py", *files(corpora / "pairs"), "--model_type=tfidf", f"--output_dir={tmp_path}/no"
    )
    assert refused.code != 0
    assert "single texts" in refused.error


@pytest.mark.parametrize(
    ("shape", "flags", "expected"),
    [
        ("sentiment", ["--model_type=vanilla_transformer"], {"problem_type": "single_label_classification"}),
        ("topics", [], {"problem_type": "multi_label_classification"}),
        ("numbers", [], {"problem_type": "regression", "num_labels": 1}),
        ("pairs", [], {"pair_mode": "cross", "type_vocab_size": 2}),
        (
            "pairs",
            ["--config_overrides=hidden_size=16,num_attention_heads=2,pair_mode=siamese"],
            {"pair_mode": "siamese"},
        ),
    ],
    ids=["single", "multi-label", "regression", "cross pair", "siamese pair"],
)
def test_run_glue_reads_the_kind_of_task_from_the_data(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, shape: str, flags: list[str], expected: dict[str, Any]
) -> None:
    from transformers import AutoModelForSequenceClassification

    scripts.check("run_glue.py", *files(corpora / shape), *TINY, *QUICK, *flags, f"--output_dir={tmp_path}/run")
    folder = tmp_path / "run"
    results = results_of(folder)
    metric = {"topics": "micro_f1", "numbers": "pearson"}.get(shape, "accuracy")
    assert {f"eval_{metric}", f"test_{metric}"} <= results.keys()
    assert_card_tells_the_results((folder / "README.md").read_text(encoding="utf-8"), results)
    config = AutoModelForSequenceClassification.from_pretrained(folder).config
    assert {name: getattr(config, name) for name in expected} == expected
    rows = read_rows(folder / "predictions_test.jsonl")
    assert len(rows) == SIZES["test"]
    given = [next(iter(reversed(row.values()))) for row in read_rows(corpora / shape / "test.jsonl")]
    if shape in ("sentiment", "pairs"):
        assert [row["label"] for row in rows] == given
        right = sum(row["label"] == row["predicted"] for row in rows)
        assert right / len(rows) == pytest.approx(results["test_accuracy"])
        assert (folder / "confusion_test.png").is_file()
    elif shape == "numbers":
        assert [row["label"] for row in rows] == pytest.approx(given)
        squares = [(row["label"] - row["predicted"]) ** 2 for row in rows]
        assert sum(squares) / len(rows) == pytest.approx(results["test_mse"], rel=1e-5)
        read = scripts.check("run_predict.py", folder, rows[0]["text"], "--json").out
        assert json.loads(read)["found"] == [{"value": pytest.approx(rows[0]["predicted"], abs=1e-4)}]
    else:
        assert [set(row["label"]) for row in rows] == [set(labels) for labels in given]
        right = sum(set(row["label"]) == set(row["predicted"]) for row in rows)
        assert right / len(rows) == pytest.approx(results["test_accuracy"])


def test_a_column_of_0_and_1_a_label_trains_as_lists_of_labels_do(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    lists = {split: read_rows(corpora / "topics" / f"{split}.jsonl") for split in ("train", "validation", "test")}
    names = sorted({label for rows in lists.values() for row in rows for label in row["labels"]})
    columns = tmp_path / "columns"
    columns.mkdir()
    for split, rows in lists.items():
        with open(columns / f"{split}.csv", "w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["text", *names])
            writer.writerows([row["text"], *(int(name in row["labels"]) for name in names)] for row in rows)
    written = [f"--{split}_file={columns / split}.csv" for split in lists]
    found = []
    for data, flags in ((files(corpora / "topics"), []), (written, [f"--label_column_name={','.join(names)}"])):
        folder = tmp_path / f"run-{len(found)}"
        scripts.check("run_glue.py", *data, *TINY, *QUICK, *flags, f"--output_dir={folder}")
        found.append(read_rows(folder / "predictions_test.jsonl"))
    assert [row["score"] for row in found[0]] == [row["score"] for row in found[1]]
    assert [set(row["label"]) for row in found[0]] == [set(row["label"]) for row in found[1]]


@pytest.mark.parametrize("model_type", ["disan", "bilstm"])
def test_the_other_encoders_of_the_papers_train_from_their_file_or_their_name(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, model_type: str
) -> None:
    from transformers import AutoConfig

    file = f"--config_name={ROOT}/configuration/models/{model_type}-base.json"
    small = "--config_overrides=hidden_size=16"
    for script, data, kind in (
        ("run_glue.py", "sentiment", file),
        ("run_ner.py", "entities", f"--model_type={model_type}"),
    ):
        folder = tmp_path / script
        scripts.check(script, *files(corpora / data), *QUICK, small, kind, f"--output_dir={folder}")
        assert AutoConfig.from_pretrained(folder).model_type == model_type
        results = results_of(folder)
        assert_card_tells_the_results((folder / "README.md").read_text(encoding="utf-8"), results)
        if script == "run_glue.py":
            told = read_rows(folder / "predictions_test.jsonl")
            right = [row["predicted"] == row["label"] for row in told]
            assert results["test_accuracy"] == pytest.approx(sum(right) / len(right))
    assert AutoConfig.from_pretrained(tmp_path / "run_glue.py").num_hidden_layers == 2


def test_mnli_is_chosen_by_its_matched_split_and_scored_on_both(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    data = tmp_path / "mnli" / "data"
    for split in ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"):
        rows = read_rows(corpora / "pairs" / f"{split.split('_')[0]}.jsonl")
        rows = rows[:9] if split.endswith("_mismatched") else rows
        named = [{"premise": r["sentence1"], "hypothesis": r["sentence2"], "label": r["label"]} for r in rows]
        write_rows(data / f"{split}-00000-of-00001.jsonl", named)
    flags = [f"--dataset_name={data.parent}", "--task_name=mnli", f"--output_dir={tmp_path}/run"]
    scripts.check("run_glue.py", *TINY, *QUICK, *flags)
    results = results_of(tmp_path / "run")
    assert (results["eval_samples"], results["eval_mismatched_samples"]) == (SIZES["validation"], 9)
    assert {"eval_accuracy", "eval_mismatched_accuracy", "test_accuracy", "test_mismatched_accuracy"} <= results.keys()
    assert len(read_rows(tmp_path / "run" / "predictions_test_mismatched.jsonl")) == 9


def test_words_that_only_the_vectors_have_are_known_where_asked_for(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    source = write_vectors(tmp_path / "vectors.txt", [{"tokens": ["quokka", "Quokka"]}], width=4)
    flags = [f"--embeddings_from={source}", "--embeddings_mode=vectors", "--tokenizer_kind=word", "--lower_case=true"]
    flags += ["--vocabulary_from=vectors", "--freeze_embeddings", f"--output_dir={tmp_path}/run"]
    scripts.check("run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *flags)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    table = AutoModelForTokenClassification.from_pretrained(tmp_path / "run").get_input_embeddings().weight
    (known,) = tokenizer("Quokka", add_special_tokens=False)["input_ids"]
    assert known == len(tokenizer) - 1
    assert torch.equal(table[known], torch.tensor([float(x) for x in source.read_text().split()[1:5]]))


@pytest.mark.parametrize("mode", ["static", "contextual", "vectors"])
def test_run_ner_puts_given_embeddings_into_a_model_that_stands_alone(
    scripts: ScriptRunner, corpora: Path, bert: Path, tmp_path: Path, mode: str
) -> None:
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer, BertModel

    source = bert if mode != "vectors" else tmp_path / "vectors.txt"
    if mode == "vectors":
        write_vectors(source, read_rows(corpora / "entities" / "train.jsonl"))
    flags = [f"--embeddings_from={source}", f"--embeddings_mode={mode}", "--freeze_embeddings"]
    scripts.check("run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *flags, f"--output_dir={tmp_path}/run")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    table = model.get_input_embeddings().weight
    assert model.config.freeze_embeddings
    assert (model.config.backbone_config is not None) is (mode == "contextual")
    if mode == "vectors":
        word = next(line for line in source.read_text().splitlines() if line.split()[0] in tokenizer.get_vocab())
        numbers = torch.tensor([float(field) for field in word.split()[1:]])
        assert torch.equal(table[tokenizer.get_vocab()[word.split()[0]]], numbers)
    else:
        # Frozen for the whole run: what was saved is what was given.
        assert torch.equal(table, BertModel.from_pretrained(bert).get_input_embeddings().weight)
        assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(bert).get_vocab()
    assert f"{mode}, {source.name}, frozen" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_a_saved_bert_is_fine_tuned_by_the_same_scripts(
    scripts: ScriptRunner, corpora: Path, bert: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForTokenClassification

    before = hashes(bert)
    name = f"--model_name_or_path={bert}"
    scripts.check("run_ner.py", *files(corpora / "entities"), *QUICK, name, f"--output_dir={tmp_path}/run")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "run")
    assert type(model).__name__ == "BertForTokenClassification"
    assert "B-PER" in model.config.label2id
    assert hashes(bert) == before


def test_a_fine_tuned_tagger_is_fine_tuned_further(
    scripts: ScriptRunner, corpora: Path, tagger: Path, tmp_path: Path
) -> None:
    before = hashes(tagger)
    first, more = log_of(tagger), tmp_path / "more"
    name = f"--model_name_or_path={tagger}"
    scripts.check(
        "run_ner.py", *files(corpora / "entities"), *QUICK, name, f"--output_dir={more}", "--logging_steps=1"
    )
    start = next(entry["loss"] for entry in log_of(more) if "loss" in entry)
    assert start < next(entry["eval_loss"] for entry in first if "eval_loss" in entry)
    assert hashes(tagger) == before


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
        [row["predicted"] for row in read_rows(f / "predictions_test.jsonl")] for f in (tagger, scored, plain)
    ]
    assert predictions[0] == predictions[1] == predictions[2]
    assert "test_f1" not in results_of(plain)

    refused = scripts.run("run_ner.py", *files(corpora / "entities", "test"), *flags, f"--output_dir={tagger}")
    assert refused.code != 0
    assert "nothing is overwritten" in refused.error
    assert hashes(tagger) == before


@pytest.mark.parametrize("shape", ["numbers", "topics"])
def test_a_saved_model_tells_what_it_predicts_where_the_data_have_no_labels(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, shape: str
) -> None:
    scripts.check("run_glue.py", *files(corpora / shape), *TINY, *QUICK, f"--output_dir={tmp_path}/run")
    flags = [f"--model_name_or_path={tmp_path}/run", "--do_predict", "--disable_tqdm=true", "--output_dir"]
    scripts.check("run_glue.py", *files(corpora / shape, "plain"), *flags, tmp_path / "plain")
    labelled, plain = (
        [row["predicted"] for row in read_rows(tmp_path / name / "predictions_test.jsonl")]
        for name in ("run", "plain")
    )
    assert plain == (pytest.approx(labelled, abs=1e-6) if shape == "numbers" else labelled)


def test_without_a_validation_split_part_of_train_is_held_out(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    flags = ["--validation_fraction=0.2", f"--output_dir={tmp_path}/run"]
    done = scripts.check("run_ner.py", *files(corpora / "entities", "train", "plain"), *TINY, *QUICK, *flags)
    results = results_of(tmp_path / "run")
    assert (results["train_samples"], results["eval_samples"]) == (48, 12)
    assert "eval_f1" in results
    assert "test_f1" not in results  # the test split has no labels
    assert len(read_rows(tmp_path / "run" / "predictions_test.jsonl")) == SIZES["test"]
    assert "20% of train is held out" in done.error


def test_long_inputs_are_read_in_windows_or_cut_with_a_warning_in_tokens(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    command = ["run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, "--max_seq_length=8"]
    cut = scripts.check(*command, f"--output_dir={tmp_path}/cut")
    windows = scripts.check(*command, "--stride=2", f"--output_dir={tmp_path}/windows")
    assert "examples are longer than 8 tokens" in cut.error
    assert "were cut off" in cut.error
    assert "were cut off" not in windows.error
    rows = read_rows(corpora / "entities" / "test.jsonl")
    read = read_rows(tmp_path / "windows" / "predictions_test.jsonl")
    assert [row["tokens"] for row in read] == [row["tokens"] for row in rows]
    assert [row["labels"] for row in read] == [row["ner_tags"] for row in rows]
    right = sum(a == b for row in read for a, b in zip(row["labels"], row["predicted"], strict=True))
    # Every word is scored once, whatever number of windows shows it.
    assert right / sum(len(row["tokens"]) for row in rows) == pytest.approx(
        results_of(tmp_path / "windows")["test_accuracy"]
    )


def test_several_seeds_in_one_call_give_mean_and_deviation(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "seeds"
    flags = ["--seeds", 1, 2, "--class_weights=balanced", "--early_stopping_patience=1", f"--output_dir={folder}"]
    command = ["run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, "--num_train_epochs=9", *flags]
    done = scripts.check(*command)
    each = [results_of(folder / f"seed-{seed}") for seed in (1, 2)]
    summary = results_of(folder)
    values = [results["test_accuracy"] for results in each]
    assert summary["seeds"] == [1, 2]
    assert summary["test_accuracy"]["values"] == values
    assert summary["test_accuracy"]["mean"] == pytest.approx(sum(values) / 2)
    assert each[0]["train_loss"] != each[1]["train_loss"]
    assert any(results["epoch"] < 9 for results in each)  # stopped early
    assert "standard deviation" in done.out
    # A call that was interrupted after the first seed goes on with the second.
    before = hashes(folder / "seed-1")
    for path in (folder / "seed-2").glob("*.json"):
        path.unlink()
    other = scripts.run(*command, "--resume_from_checkpoint=last", "--learning_rate=0.5")
    assert "other arguments (learning_rate " in other.error
    scripts.check(*command, "--resume_from_checkpoint=last")
    assert hashes(folder / "seed-1") == before
    again = results_of(folder)
    assert again["test_accuracy"] == summary["test_accuracy"]


# Interrupted runs


@pytest.mark.parametrize(
    ("script", "shape"),
    [("run_ner.py", "entities"), pytest.param("run_qa.py", "reading", marks=pytest.mark.slow)],
)
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
    assert not (killed / "all_results.json").exists()  # it was killed in time
    last = max(int(path.name.split("-")[1]) for path in killed.glob("checkpoint-*"))
    assert last % 15  # 60 rows in batches of 4: in the middle of an epoch
    state_file = killed / f"checkpoint-{last}" / "trainer_state.json"
    state = json.loads(state_file.read_text(encoding="utf-8"))
    state["log_history"].append({"step": last, "mark": 1})  # to be seen whether it goes on, or begins anew
    state_file.write_text(json.dumps(state), encoding="utf-8")
    # As if it had been killed while it wrote: such a checkpoint is passed over.
    (killed / "checkpoint-85").mkdir()
    (killed / "checkpoint-85" / "model.safetensors").write_bytes(b"half")

    scripts.check(*command, f"--output_dir={killed}", "--resume_from_checkpoint=last")
    for name in ("model.safetensors", "tokenizer.json", "predictions_test.jsonl"):
        assert (killed / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
    assert {"step": last, "mark": 1} in log_of(killed)
    # Nothing is scored in the place of what was trained, and no other model goes on from its weights.
    shown = hashes(killed)
    for flags, message in (
        (["--do_predict"], "--model_name_or_path FOLDER"),
        (["--seed=7", f"--train_file={corpora / shape / 'test.jsonl'}"], "new ones: seed"),
        ([f"--train_file={corpora / shape / 'test.jsonl'}"], "go on with the same data"),
        ([f"{dropout[0]},residual=true"], "residual False, now True"),
    ):
        refused = scripts.run(*command, f"--output_dir={killed}", "--resume_from_checkpoint=last", *flags)
        assert message in refused.error, refused.error
    assert "began with other arguments and continues with the new ones: config_overrides" in refused.error
    assert hashes(killed) == shown
    # Of a run in two parts nobody knows how long it took.
    assert "train_runtime" in results_of(tmp_path / "straight")
    assert not {"train_runtime", "train_loss"} & set(results_of(killed))
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
        ("sentiment", []),
        ("topics", []),
        ("numbers", []),
        pytest.param("reading", [], marks=pytest.mark.slow),
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
        one, two = (read_rows(tmp_path / f"processes-{n}" / "predictions_test.jsonl") for n in (1, 2))
        assert [row["predicted"] for row in one] == [row["predicted"] for row in two]


@pytest.mark.slow
def test_accelerate_launch_starts_two_processes_on_the_cpu(corpora: Path, tmp_path: Path) -> None:
    done = launch("multi_cpu.yaml", "run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    card = (tmp_path / "outputs" / "run_glue" / "README.md").read_text(encoding="utf-8")
    assert "| processes | `2` |" in card


# Publishing


def test_push_to_hub_uploads_a_complete_repository_whose_card_shows_the_measured_numbers(
    hub: LoopbackHub, corpora: Path, tmp_path: Path
) -> None:
    push = ["--push_to_hub", "--hub_model_id=someone/x", "--hub_private_repo=true", "--output_dir=run"]
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "run_ner.py"), *files(corpora / "entities"), *TINY, *QUICK, *push],
        cwd=tmp_path,
        env=hub.environment("author", OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    uploaded = hub.files("someone/x")
    kept = {path.name for path in (tmp_path / "run").iterdir() if path.is_file()}
    stay = {f"predictions_{split}.{kind}" for split in ("validation", "test") for kind in ("jsonl", "conll")}
    stay |= {"training_args.bin", "arguments.json", "trainer_state.json"}
    assert stay <= kept
    assert uploaded.keys() - {".gitattributes"} == kept - stay
    assert uploaded.keys() - {".gitattributes"} == set(files_to_share(tmp_path / "run"))
    assert hub.repositories["model", "someone/x"].private
    assert [commit.title for commit in hub.commits("someone/x")][:-1] == ["End of training"]
    assert uploaded["model.safetensors"] == (tmp_path / "run" / "model.safetensors").read_bytes()
    card = uploaded["README.md"].decode()
    assert_card_tells_the_results(card, results_of(tmp_path / "run"))
    assert 'model="someone/x"' in card
    found = run_client(
        hub,
        tmp_path,
        """
        from transformers import pipeline

        tag = pipeline("token-classification", "someone/x", trust_remote_code=True)
        sentence = "Maria Keller moved to Oslo ."
        tags = tag(sentence, ignore_labels=[])
        result = [[sentence[entity["start"]:entity["end"]], entity["entity"]] for entity in tags]
        """,
        needs="import sys\nsys.modules['modeling_star'] = None",
        cache="reader",
    )
    assert "".join(piece for piece, _ in found) == "MariaKellermovedtoOslo."
    assert {tag for _, tag in found} <= set(json.loads(uploaded["config.json"])["label2id"])
