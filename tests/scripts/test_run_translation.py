"""run_translation.py from the command line, on a tiny synthetic parallel corpus."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from script_runner import ScriptRunner
from script_samples import (
    QUICK,
    assert_card_tells_the_results,
    files,
    hashes,
    log_of,
    read_rows,
    results_of,
    write_rows,
)
from synthetic.parallel import write_parallel_corpus

from modeling_star.evaluation.translation_scores import score_translations


SIZES = {"train": 48, "validation": 13, "test": 11}
SIZE = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}
MARIAN = "d_model=16,scale_embedding=true,activation_function=relu,init_std=0.25," + ",".join(
    f"{side}_{name}={value}" for side in ("encoder", "decoder") for name, value in SIZE.items()
)
STAR = "encoder.hidden_size=16,encoder.num_attention_heads=2,decoder.decoder_layers=1"
KINDS = {
    "marian": ["--model_type=marian", f"--config_overrides={MARIAN}"],
    "star": ["--model_type=star_transformer", f"--config_overrides={STAR}"],
    "big": ["--model_type=big_transformer", f"--config_overrides={STAR}"],
}
SHORT = ("--vocab_size=300", "--max_extra_tokens=3", "--source_column=zh", "--target_column=en")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parallel")
    write_parallel_corpus(folder, sizes=SIZES)
    rows = read_rows(folder / "test.jsonl")
    write_rows(folder / "plain.jsonl", [{"translation": {"zh": row["translation"]["zh"]}} for row in rows])
    (folder / "words.txt").write_text("昨天\n玛丽\n红色\n看见了\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def translators(scripts: ScriptRunner, corpus: Path) -> dict[str, Path]:
    """The output folders of translators that were trained for a moment."""
    name = "--dataset_title=synthetic pairs"
    for kind, flags in KINDS.items():
        more = [f"--lexicon={corpus / 'words.txt'}"] if kind == "big" else []
        command = [*files(corpus), *flags, *more, *SHORT, *QUICK, name, f"--output_dir={kind}"]
        scripts.check("run_translation.py", *command)
    return {kind: scripts.folder / kind for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_leaves_a_translator_with_its_scores_and_card(
    translators: dict[str, Path], corpus: Path, kind: str
) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from modeling_star import translate

    folder = translators[kind]
    results, rows = results_of(folder), read_rows(folder / "predictions_test.jsonl")
    given = [row["translation"] for row in read_rows(corpus / "test.jsonl")]
    assert [(row["source"], row["label"]) for row in rows] == [(pair["zh"], pair["en"]) for pair in given]
    scores = score_translations([row["predicted"] for row in rows], [row["label"] for row in rows], "13a")
    assert {name: results[f"test_{name}"] for name in scores} == pytest.approx(scores)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert_card_tells_the_results(card, results)
    assert given[0]["zh"] in card
    assert "AutoModelForSeq2SeqLM.from_pretrained" in card
    assert "tok:13a" in card
    # The saved folder alone writes what the file of predictions holds.
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.generation_config.num_beams == 4
    assert model.generation_config.length_penalty == 0.5
    sources = [row["source"] for row in rows]
    assert translate(sources, model, tokenizer) == [row["predicted"] for row in rows]
    assert model.config.task_specific_params == {"translation": {"max_extra_tokens": 3}}
    if kind == "big":
        assert model.config.encoder.lexicon_kind == "words"
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_the_model_is_the_mean_of_the_last_checkpoints(translators: dict[str, Path]) -> None:
    from modeling_star.training.trainer import average_checkpoints

    folder = translators["star"]
    checkpoints = sorted(folder.glob("checkpoint-*"), key=lambda path: -int(path.name.split("-")[1]))
    assert len(checkpoints) == 2  # one an epoch
    mean, saved = average_checkpoints(checkpoints), average_checkpoints([folder])
    assert mean.keys() == saved.keys()
    assert all(tensor.equal(saved[name]) for name, tensor in mean.items())
    assert any(not tensor.equal(average_checkpoints(checkpoints[:1])[name]) for name, tensor in mean.items())


def test_without_averaging_the_best_by_validation_is_kept(scripts: ScriptRunner, corpus: Path, tmp_path: Path) -> None:
    flags = ["--average_checkpoints=0", "--metric_for_best_model=loss", "--predict_with_generate=false"]
    command = [*files(corpus), *KINDS["marian"], *SHORT, *QUICK, *flags, "--num_train_epochs=4", "--learning_rate=0.1"]
    scripts.check("run_translation.py", *command, f"--output_dir={tmp_path}/run")
    logged = [entry for entry in log_of(tmp_path / "run") if "eval_loss" in entry]
    assert len(logged) == 4
    assert "eval_bleu" not in logged[0]
    results = results_of(tmp_path / "run")
    assert results["eval_loss"] == pytest.approx(min(entry["eval_loss"] for entry in logged), rel=1e-6)
    assert "eval_bleu" in results


def test_a_saved_translator_translates_without_references_and_is_trained_further(
    scripts: ScriptRunner, translators: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    before = hashes(translators["star"])
    name = f"--model_name_or_path={translators['star']}"
    plain = ["--do_predict", "--disable_tqdm=true", name, "--source_column=zh", "--target_column=en"]
    command = ["run_translation.py", *files(corpus, "plain"), *plain, "--max_extra_tokens=3"]
    scripts.check(*command, f"--output_dir={tmp_path}/plain")
    told = [row["predicted"] for row in read_rows(tmp_path / "plain" / "predictions_test.jsonl")]
    assert told == [row["predicted"] for row in read_rows(translators["star"] / "predictions_test.jsonl")]
    assert "test_bleu" not in results_of(tmp_path / "plain")
    scripts.check("run_translation.py", *files(corpus), *SHORT, *QUICK, name, f"--output_dir={tmp_path}/more")
    assert results_of(tmp_path / "more")["eval_loss"] < results_of(translators["star"])["eval_loss"]
    assert hashes(translators["star"]) == before


def test_what_a_translator_does_not_read_is_told_and_max_length_lowers_its_limit(
    translators: dict[str, Path], corpus: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from modeling_star import translate

    monkeypatch.setattr(logging.getLogger("modeling_star"), "propagate", True)
    folder = translators["marian"]
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    text = read_rows(corpus / "test.jsonl")[0]["translation"]["zh"]
    whole = translate(text, model, tokenizer, num_beams=1)
    assert "not translated" not in caplog.text
    (short,) = translate(text, model, tokenizer, num_beams=1, max_length=4)
    assert len(tokenizer(short)["input_ids"]) <= 4 < len(tokenizer(whole[0])["input_ids"])
    long = text * (1 + model.config.max_position_embeddings // len(tokenizer(text)["input_ids"]))
    lost = len(tokenizer(long * 2)["input_ids"]) - model.config.max_position_embeddings
    translate([text, long * 2], model, tokenizer, num_beams=1, max_length=3)
    assert f"1 of 2 texts are longer than the {model.config.max_position_embeddings} tokens" in caplog.text
    assert f"the last {lost:,} tokens of them" in caplog.text


def test_run_predict_translates(scripts: ScriptRunner, translators: dict[str, Path], corpus: Path) -> None:
    text = read_rows(corpus / "test.jsonl")[0]["translation"]["zh"]
    done = scripts.check("run_predict.py", translators["big"], text, "--json")
    (row,) = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    assert row["text"] == text
    assert set(row["found"][0]) == {"text"}
    readable = scripts.check("run_predict.py", translators["big"], text).out.splitlines()
    assert readable[-2:] == [text, f"    {row['found'][0]['text']}".rstrip()]


@pytest.mark.parametrize("mode", ["vectors", "static"])
def test_an_encoder_takes_embeddings_that_exist(
    scripts: ScriptRunner, corpus: Path, tmp_path: Path, tiny_bert_path: str, mode: str
) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from modeling_star.data.subwords import train_subword_tokenizer

    source = tmp_path / "vectors.txt"
    source.write_text("玛 1.0 2.0 3.0 4.0\n丽 0.5 0.25 0.125 0\n", encoding="utf-8")
    flags = [f"--embeddings_from={source}"]
    if mode == "static":
        # That BERT has no tokenizer, and 13 entries.
        train_subword_tokenizer(["我 b"] * 2, vocab_size=12).save_pretrained(tmp_path / "tokenizer")
        flags = [f"--embeddings_from={tiny_bert_path}", f"--tokenizer_name={tmp_path}/tokenizer"]
    flags += [f"--embeddings_mode={mode}", "--freeze_embeddings", *KINDS["star"]]
    command = ["run_translation.py", *files(corpus), *SHORT, *QUICK, *flags, f"--output_dir={tmp_path}/run"]
    scripts.check(*command)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert model.config.encoder.freeze_embeddings
    assert not model.config.share_embeddings
    table = model.get_input_embeddings().weight
    if mode == "vectors":
        index = AutoTokenizer.from_pretrained(tmp_path / "run").get_vocab()["丽"]
        assert table[index].tolist() == [0.5, 0.25, 0.125, 0.0]
    else:
        assert table.shape == (13, 12)


def test_a_killed_run_resumed_ends_with_the_weights_of_one_never_killed(
    scripts: ScriptRunner, corpus: Path, tmp_path: Path
) -> None:
    steps = ["--save_strategy=steps", "--save_steps=7", "--eval_strategy=steps", "--eval_steps=7"]
    quick = [*QUICK, "--per_device_train_batch_size=4", "--num_train_epochs=6", "--average_checkpoints=3"]
    # On a GPU some of torch's sums come in no fixed order, so that bits may differ between two runs.
    command = ["run_translation.py", "--use_cpu", *files(corpus), *SHORT, *KINDS["star"], *steps, *quick]
    scripts.check(*command, f"--output_dir={tmp_path}/straight")
    killed = tmp_path / "killed"
    started = scripts.start(*command, f"--output_dir={killed}")
    until = time.monotonic() + 60
    while not (killed / "checkpoint-21" / "trainer_state.json").is_file() and time.monotonic() < until:
        time.sleep(0.005)
    os.kill(started[0]["pid"], 9)
    assert scripts.wait(started).code == -9
    assert not (killed / "all_results.json").exists()  # it was killed in time
    done = scripts.check(*command, f"--output_dir={killed}", "--resume_from_checkpoint=last")
    for name in ("model.safetensors", "tokenizer.json", "predictions_test.jsonl"):
        assert (killed / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
    assert "Averaged the weights of" in done.error


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["marian", "star"])
def test_two_processes_log_the_losses_of_one_with_twice_the_batch(
    scripts: ScriptRunner, corpus: Path, tmp_path: Path, kind: str
) -> None:
    dropouts = ("embedding_dropout_prob", "hidden_dropout_prob", "attention_probs_dropout_prob")
    without = ["dropout=0"] if kind == "marian" else [*(f"encoder.{name}=0" for name in dropouts), "decoder.dropout=0"]
    model, overrides = KINDS[kind]
    # 13 and 11 rows to score do not divide by two processes times a batch of 4.
    flags = [model, ",".join([overrides, *without]), "--gradient_accumulation_steps=2", "--logging_steps=1"]
    flags += ["--train_sampling_strategy=group_by_length"]
    command = [*files(corpus), *SHORT, *QUICK, *flags, "--per_device_eval_batch_size=4"]
    outcomes = []
    for processes, batch in ((1, 8), (2, 4)):
        folder = tmp_path / f"processes-{processes}"
        size = f"--per_device_train_batch_size={batch}"
        scripts.check("run_translation.py", *command, size, f"--output_dir={folder}", processes=processes)
        losses = [entry["loss"] for entry in log_of(folder) if "loss" in entry]
        results = results_of(folder)
        scores = {name: results[name] for name in ("eval_loss", "test_loss", "eval_bleu", "test_chrf", "eval_samples")}
        outcomes.append((losses, scores, (folder / "predictions_test.jsonl").read_text(encoding="utf-8")))
    (one_losses, one_scores, one_texts), (two_losses, two_scores, two_texts) = outcomes
    assert len(one_losses) == 6
    assert max(one_losses) - min(one_losses) > 1e-3  # something was learnt: equal losses say something
    assert two_losses == pytest.approx(one_losses, abs=1e-4)
    assert two_scores == pytest.approx(one_scores, abs=1e-4)
    assert two_texts == one_texts


def test_a_batch_in_parts_trains_as_a_whole_one(scripts: ScriptRunner, corpus: Path, tmp_path: Path) -> None:
    losses = []
    for steps, batch in ((1, 16), (4, 4)):
        flags = [f"--gradient_accumulation_steps={steps}", f"--per_device_train_batch_size={batch}"]
        overrides = f"--config_overrides={MARIAN},dropout=0"
        command = [*files(corpus, "train", "validation"), *SHORT, *QUICK, *flags, overrides, "--logging_steps=1"]
        scripts.check("run_translation.py", *command, f"--output_dir={tmp_path}/{steps}")
        losses.append([entry["loss"] for entry in log_of(tmp_path / str(steps)) if "loss" in entry])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    assert max(losses[0]) - min(losses[0]) > 1e-3


# What is wrong -> flags (with {folder}), and what the message names.
BAD_INPUTS: dict[str, tuple[str, list[str]]] = {
    "no such key": ("--source_column=fr --target_column=en", ["'en', 'zh'", "--source_column en"]),
    "no size": ("--model_type=marian", ["--config_name configuration/models/marian-small.json"]),
    "writes no text": ("--model_type=bert --config_overrides=hidden_size=16", ["--model_type bert", "marian"]),
    "unknown type": ("--model_type=maria --config_overrides=d_model=16", ["--model_type maria"]),
    "unknown field": ("--config_overrides=d_modle=16", ["d_modle", "d_model"]),
    "which side": ("--model_type=star_transformer --config_overrides=hidden_size=16", ["encoder.hidden_size=16"]),
    "unknown side's field": (
        "--model_type=star_transformer --config_overrides=encoder.hiden_size=16",
        ["hiden_size", "hidden_size"],
    ),
    "small vocabulary": (f"--vocab_size=20 --config_overrides={MARIAN}", ["vocab_size=20", "--vocab_size"]),
    "embeddings of marian": (
        f"--config_overrides={MARIAN} --embeddings_from={{folder}}/words.txt --embeddings_mode=vectors",
        ["--embeddings_from", "--model_type star_transformer"],
    ),
    "lexicon": (f"--config_overrides={MARIAN} --lexicon=jieba", ["--lexicon works with"]),
    "best and mean": (f"--config_overrides={MARIAN} --early_stopping_patience=2", ["--average_checkpoints 0"]),
    "no checkpoints": (
        f"--config_overrides={MARIAN} --save_strategy=no",
        ["--save_strategy no"],
    ),
    "no such metric": (f"--config_overrides={MARIAN} --metric_for_best_model=f1", ["f1", "bleu, chrf"]),
    "a score that is not made": (
        f"--config_overrides={MARIAN} --metric_for_best_model=bleu --predict_with_generate=false "
        "--average_checkpoints=0",
        ["--metric_for_best_model bleu", "loss"],
    ),
    "two kinds of start": (
        "--model_name_or_path={folder} --config_name=configuration/models/marian-small.json",
        ["--config_name", "--model_name_or_path"],
    ),
}


@pytest.mark.parametrize("what", BAD_INPUTS)
def test_bad_input_is_told_in_one_line_and_leaves_nothing(
    scripts: ScriptRunner, translators: dict[str, Path], corpus: Path, tmp_path: Path, what: str
) -> None:
    flags, named = BAD_INPUTS[what]
    folder = translators["star"] if "model_name" in flags else corpus
    given = flags.format(folder=folder).split()
    done = scripts.run("run_translation.py", *files(corpus), *QUICK, *given, f"--output_dir={tmp_path}/run")
    assert done.code == 1, done.out + done.error
    assert "Traceback" not in done.error, done.error
    (message,) = [line for line in done.error.splitlines() if line.startswith("run_translation.py: ")]
    assert not [word for word in named if word not in message], message
    assert not list((tmp_path / "run").glob("*"))


def test_a_recipe_is_read(scripts: ScriptRunner, corpus: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM

    recipe: dict[str, Any] = {
        "model_type": "vanilla_transformer",
        "config_overrides": {"encoder.hidden_size": 16, "encoder.num_attention_heads": 2, "share_embeddings": False},
        "vocab_size": 300,
        "max_extra_tokens": 3,
        "length_penalty": 0.8,
        "seeds": [1, 2],
    }
    (tmp_path / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    flags = [*files(corpus), *QUICK, "--num_train_epochs=1", f"--output_dir={tmp_path}/run"]
    scripts.check("run_translation.py", tmp_path / "recipe.json", *flags)
    assert len(results_of(tmp_path / "run")["test_bleu"]["values"]) == 2
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "seed-2")
    assert model.config.encoder.model_type == "vanilla_transformer"
    assert not model.config.share_embeddings
    assert model.generation_config.length_penalty == 0.8
