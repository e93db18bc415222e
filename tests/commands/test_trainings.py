"""Trainings from the command line on tiny data: what one command has and others lack (see test_run_contract.py)."""

import json
import math
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
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
    write_bert,
    write_rows,
    write_vectors,
)
from synthetic.corpora import write_reading_corpus

from modeling_star import answer_question
from modeling_star.evaluation.squad import score_answer


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


# Several processes


@pytest.mark.slow
def test_accelerate_launch_starts_two_processes_on_the_cpu(corpora: Path, tmp_path: Path) -> None:
    done = launch("multi_cpu.yaml", "run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    card = (tmp_path / "outputs" / "run_glue" / "README.md").read_text(encoding="utf-8")
    assert "| processes | `2` |" in card


MLM_SHAPE = "hidden_size=16,num_attention_heads=2,num_hidden_layers=2"
MLM = (
    *("--max_seq_length=32", "--tokenizer_kind=wordpiece", "--vocab_size=300", "--mask_unit=whole_word"),
    *("--per_device_train_batch_size=4", "--learning_rate=5e-3", "--disable_tqdm=true", "--logging_steps=1"),
)


@pytest.fixture(scope="module")
def texts(corpora: Path) -> list[str]:
    return [f"--{split}_file={corpora}/texts/{split}.txt" for split in ("train", "validation", "test")]


@pytest.fixture(scope="module")
def pretrained(scripts: ScriptRunner, texts: list[str]) -> Path:
    """The output folder of a Star-Transformer that was pretrained for a moment."""
    flags = ["--dataset_title=synthetic reviews", "--max_steps=12", "--eval_steps=6", "--save_steps=6"]
    scripts.check("run_mlm.py", *texts, *MLM, *flags, f"--config_overrides={MLM_SHAPE}", "--output_dir=pretrained")
    return scripts.folder / "pretrained"


# A whole run


def test_the_validation_loss_is_that_of_the_saved_model_read_one_document_at_a_time(
    pretrained: Path, corpora: Path
) -> None:
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from modeling_star import Lexicon
    from modeling_star.data.collators import MaskingCollator
    from modeling_star.data.packing import Chunk

    model, tokenizer = AutoModelForMaskedLM.from_pretrained(pretrained), AutoTokenizer.from_pretrained(pretrained)
    collate = MaskingCollator.of(tokenizer, Lexicon.whole_word(tokenizer), 0.15)
    ids = [
        [tokenizer.cls_token_id, *tokens[start : start + 30], tokenizer.sep_token_id]
        for text in (corpora / "texts" / "validation.txt").read_text(encoding="utf-8").splitlines()
        for tokens in [tokenizer(text, add_special_tokens=False)["input_ids"]]
        for start in range(0, len(tokens), 30)
    ]
    total, count = 0.0, 0
    for number, tokens in enumerate(ids):
        batch = collate([[Chunk(np.array(tokens), (2, number))]])
        with torch.no_grad():
            logits = model.eval()(input_ids=batch["input_ids"]).logits[0]
        total += float(torch.nn.functional.cross_entropy(logits, batch["labels"][0], reduction="sum"))
        count += int((batch["labels"] != -100).sum())
    assert count > 50
    assert results_of(pretrained)["eval_loss"] == pytest.approx(total / count, abs=1e-5)


def test_scores_do_not_depend_on_packing_batches_seeds_and_processes(
    scripts: ScriptRunner, texts: list[str], pretrained: Path, tmp_path: Path
) -> None:
    flags = [f"--model_name_or_path={pretrained}", "--do_eval", "--do_predict"]
    variants = [
        (1, ["--packing=false", "--per_device_eval_batch_size=3"]),
        (2, ["--per_device_eval_batch_size=2", "--seed=9"]),
    ]
    before = hashes(pretrained)
    for number, (processes, more) in enumerate(variants):
        output = f"--output_dir={tmp_path}/{number}"
        scripts.check("run_mlm.py", *texts[1:], *MLM, *flags, *more, output, processes=processes)
        results, expected = results_of(tmp_path / str(number)), results_of(pretrained)
        for name in ("eval_loss", "eval_masked_accuracy", "test_loss", "test_masked_accuracy"):
            assert results[name] == pytest.approx(expected[name], abs=1e-5), (more, name)
    assert hashes(pretrained) == before


# What comes after


@pytest.mark.parametrize(
    ("script", "shape"),
    [
        ("run_glue.py", "sentiment"),
        pytest.param("run_ner.py", "entities", marks=pytest.mark.slow),
        pytest.param("run_qa.py", "reading", marks=pytest.mark.slow),
    ],
)
def test_a_pretrained_encoder_is_fine_tuned(
    scripts: ScriptRunner, corpora: Path, pretrained: Path, tmp_path: Path, script: str, shape: str
) -> None:
    from safetensors.torch import load_file

    # Without a step of any size, what is saved is what it began with.
    flags = [f"--model_name_or_path={pretrained}", "--learning_rate=0", "--num_train_epochs=1"]
    done = scripts.check(script, *files(corpora / shape), *QUICK, *flags, f"--output_dir={tmp_path}/run")
    before, after = (load_file(folder / "model.safetensors") for folder in (pretrained, tmp_path / "run"))
    encoder = {name for name in before if name.startswith("model.")}
    assert len(encoder) > 20
    assert all((before[name] == after[name]).all() for name in encoder)
    new = {name for name in after if name not in before}
    if script == "run_glue.py":
        # The pooled vector needs the relay's last update, which no masked token reads.
        assert new
        assert all(name.startswith(("classifier.", "model.layers.1.relay_")) for name in new)
    else:
        layer = "classifier" if script == "run_ner.py" else "qa_outputs"
        assert new == {f"{layer}.weight", f"{layer}.bias"}
    assert "lm_head" not in "".join(after)
    assert "Traceback" not in done.error


def test_a_bert_goes_through_the_same_script(
    scripts: ScriptRunner, corpora: Path, texts: list[str], tmp_path: Path
) -> None:
    from transformers import AutoModelForMaskedLM

    reviews = [row["text"] for row in read_rows(corpora / "reviews" / "train.jsonl")]
    bert = write_bert(tmp_path / "bert", reviews)
    flags = [f"--model_name_or_path={bert}", "--max_steps=4", "--max_seq_length=80"]
    done = scripts.check("run_mlm.py", *texts, *MLM, *flags, f"--output_dir={tmp_path}/run", processes=2)
    assert "using 64" in done.error  # its positions
    assert type(AutoModelForMaskedLM.from_pretrained(tmp_path / "run")).__name__ == "BertForMaskedLM"
    losses = [entry["loss"] for entry in log_of(tmp_path / "run") if "loss" in entry]
    assert losses[-1] < losses[0]


def test_a_big_transformer_is_pretrained_on_chinese_words(scripts: ScriptRunner, tmp_path: Path) -> None:
    from synthetic.corpora import write_sentiment_corpus
    from transformers import AutoModelForMaskedLM

    sizes = {"train": 40, "validation": 10, "test": 10}
    corpus = write_sentiment_corpus(tmp_path / "zh", language="zh", sizes=sizes)
    reviews = [row["text"] for row in read_rows(corpus["train"])]
    words = {text[place : place + 2] for text in reviews for place in range(0, len(text) - 1, 3)}
    (tmp_path / "words.txt").write_text("\n".join(sorted(words)), encoding="utf-8")
    flags = ["--model_type=big_transformer", "--tokenizer_kind=character", f"--config_overrides={MLM_SHAPE}"]
    flags += [f"--lexicon={tmp_path}/words.txt", f"--mask_unit={tmp_path}/words.txt", "--max_steps=3"]
    # Without a validation file, a part of train is held out.
    scripts.check("run_mlm.py", f"--train_file={corpus['train']}", *MLM, *flags, f"--output_dir={tmp_path}/run")
    results = results_of(tmp_path / "run")
    assert (results["train_samples"], results["eval_samples"]) == (38, 2)
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "run").config.lexicon_size > 0


# Interrupted runs


# Several processes


@pytest.fixture(scope="module")
def data(corpora: Path) -> Path:
    return corpora / "reading"


@pytest.fixture(scope="module")
def reader(scripts: ScriptRunner, data: Path) -> Path:
    """The output folder of a reader that was fine-tuned for a moment."""
    flags = ("--train_sampling_strategy=group_by_length", "--dataset_title=synthetic reading", "--output_dir=reader")
    scripts.check("run_qa.py", *files(data), *TINY, *QUICK, *flags)
    return scripts.folder / "reader"


def assert_predictions_are_spans(folder: Path, split: str, given: list[dict[str, Any]], language: str = "en") -> None:
    """Every answer is a slice of its context, scored as it should be, and the mean of the scores is the result."""
    rows = read_rows(folder / "report" / f"predictions_{split}.jsonl")
    assert [row["id"] for row in rows] == [row["id"] for row in given]
    for row, example in zip(rows, given, strict=True):
        best = row["n_best"]
        assert row["predicted"] == best[0]["text"]
        assert all(one["text"] == example["context"][one["start"] : one["end"]] for one in best)
        assert [one["score"] for one in best[1:]] == sorted((one["score"] for one in best[1:]), reverse=True)
        assert len({(one["start"], one["end"]) for one in best}) == len(best) <= 20
        assert row["label"] == example["answers"]["text"]
        assert (row["exact_match"], row["f1"]) == score_answer(row["predicted"], row["label"], language)
    results = results_of(folder)
    prefix = {"validation": "eval", "test": "test"}[split]
    for name in ("exact_match", "f1"):
        assert results[f"{prefix}_{name}"] == pytest.approx(sum(row[name] for row in rows) / len(rows))
    answers = json.loads((folder / "report" / f"answers_{split}.json").read_text(encoding="utf-8"))
    assert answers == {row["id"]: row["predicted"] for row in rows}


def test_run_predict_finds_the_answer_in_every_text(scripts: ScriptRunner, reader: Path, data: Path) -> None:
    given, prediction = read_rows(data / "test.jsonl")[0], read_rows(reader / "report" / "predictions_test.jsonl")[0]
    texts = [given["context"], "Oslo ."]
    done = scripts.check("run_predict.py", reader, "--question", given["question"], *texts, "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert [first["text"], second["text"]] == texts
    assert {name: first["found"][0][name] for name in ("text", "start", "end")} == {
        "text": prediction["predicted"],
        "start": prediction["start"],
        "end": prediction["end"],
    }
    never = scripts.check("run_predict.py", reader, "--question=Who?", texts[1], "--null_threshold=-1000")
    assert "(nothing)" in never.out
    # A file has questions.
    done = scripts.check("run_predict.py", reader, "--file", data / "test.jsonl", "--json")
    rows = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    asked = read_rows(data / "test.jsonl")
    assert [(row["question"], row["context"]) for row in rows] == [(one["question"], one["context"]) for one in asked]
    scored = read_rows(reader / "report" / "predictions_test.jsonl")
    assert [row["found"][0]["text"] for row in rows] == [one["predicted"] for one in scored]


def test_chinese_characters_words_and_windows(scripts: ScriptRunner, tmp_path: Path) -> None:
    """Chinese, a BiG-Transformer with words, contexts in several windows."""
    from transformers import AutoModelForQuestionAnswering

    write_reading_corpus(tmp_path / "zh", "zh", sizes=SIZES)
    (tmp_path / "words.txt").write_text("公司\n经理\n医药\n", encoding="utf-8")
    flags = ["--model_type=big_transformer", "--tokenizer_kind=character", f"--lexicon={tmp_path}/words.txt"]
    windows = ["--max_seq_length=64", "--doc_stride=16"]
    done = scripts.check(
        "run_qa.py", *files(tmp_path / "zh"), *TINY, *QUICK, *flags, *windows, f"--output_dir={tmp_path}/run"
    )
    counts = re.findall(r"train: ([\d,]+) questions in ([\d,]+) windows", done.error)
    assert int(counts[0][1]) > 1.5 * int(counts[0][0])
    assert_predictions_are_spans(tmp_path / "run", "test", read_rows(tmp_path / "zh" / "test.jsonl"), "zh")
    config = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "run").config
    assert (config.model_type, config.lexicon_kind) == ("big_transformer", "words")
    assert "tokenizer, max_length=64, stride=16)" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_saved_bert_is_fine_tuned_on_questions_without_an_answer_in_squads_json(
    scripts: ScriptRunner, data: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    bert = write_bert(tmp_path / "bert", [row["context"] for row in read_rows(data / "train.jsonl")])
    given = []
    for split in SIZES:
        rows = read_rows(data / f"{split}.jsonl")
        for row in rows[::3]:
            row["answers"] = {"text": [], "answer_start": []}
        paragraphs = []
        for row in rows:
            pairs = zip(*(row["answers"][name] for name in ("text", "answer_start")), strict=True)
            answers = [{"text": text, "answer_start": start} for text, start in pairs]
            qas = [{"id": row["id"], "question": row["question"], "is_impossible": not answers, "answers": answers}]
            paragraphs.append({"context": row["context"], "qas": qas})
        squad = {"version": "v2.0", "data": [{"title": "all", "paragraphs": paragraphs}]}
        (tmp_path / f"{split}.json").write_text(json.dumps(squad), encoding="utf-8")
        given.append(f"--{split}_file={tmp_path}/{split}.json")
    flags = [f"--model_name_or_path={bert}", "--version_2_with_negative", "--doc_stride=8", "--max_train_samples=40"]
    done = scripts.check("run_qa.py", *given, *QUICK, *flags, f"--output_dir={tmp_path}/run")
    assert "train: 40 questions" in done.error
    results, predictions = (
        results_of(tmp_path / "run"),
        read_rows(tmp_path / "run" / "report" / "predictions_test.jsonl"),
    )
    parts = {
        "has_answer_f1": [row["f1"] for row in predictions if row["label"]],
        "no_answer_accuracy": [row["exact_match"] for row in predictions if not row["label"]],
    }
    for name, values in parts.items():
        assert results[f"test_{name}"] == pytest.approx(sum(values) / len(values))
    assert all((row["predicted"] == "") == (row["null_difference"] > 0) for row in predictions)
    # The saved model answers with the threshold of the run.
    model = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "run")
    assert type(model).__name__ == "BertForQuestionAnswering"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    for row, prediction in list(zip(read_rows(data / "test.jsonl"), predictions, strict=True))[:8]:
        (first,) = answer_question(row["question"], row["context"], model, tokenizer)
        assert first.text == prediction["predicted"]
        for threshold, nothing in ((-1000.0, True), (math.inf, False)):
            (first,) = answer_question(row["question"], row["context"], model, tokenizer, null_threshold=threshold)
            assert (first.text == "") == nothing
