"""run_translation.py from the command line, on a tiny synthetic parallel corpus."""

import json
from pathlib import Path
from typing import Any

import pytest
from script_runner import ScriptRunner
from script_samples import (
    QUICK,
    assert_card_has_the_results,
    files,
    hashes,
    log_of,
    read_rows,
    results_of,
    write_rows,
)
from synthetic.parallel import write_parallel_corpus
from translation.scores import score_translations


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
        command = [*files(corpus), *flags, *more, *SHORT, *QUICK, name, "--save_total_limit=5", f"--output_dir={kind}"]
        scripts.check("run_translation.py", *command)
    return {kind: scripts.folder / kind for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_leaves_a_translator_with_its_scores_and_card(
    translators: dict[str, Path], corpus: Path, kind: str
) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    from translation.generation import generate_translations

    folder = translators[kind]
    results, rows = results_of(folder), read_rows(folder / "report" / "predictions_test.jsonl")
    given = [row["translation"] for row in read_rows(corpus / "test.jsonl")]
    assert [(row["source"], row["label"]) for row in rows] == [(pair["zh"], pair["en"]) for pair in given]
    scores = score_translations([row["predicted"] for row in rows], [row["label"] for row in rows], "13a")
    assert {name: results[f"test_{name}"] for name in scores} == pytest.approx(scores)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert_card_has_the_results(card, results)
    assert given[0]["zh"] in card
    assert "AutoModelForSeq2SeqLM.from_pretrained" in card
    assert "tok:13a" in card
    # The saved folder alone writes what the file of predictions holds.
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.generation_config.num_beams == 4
    assert model.generation_config.length_penalty == 0.5
    sources = [row["source"] for row in rows]
    inputs = dict(tokenizer(sources, padding=True, return_tensors="pt"))
    ids = generate_translations(model, inputs, 3)
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == [row["predicted"] for row in rows]
    assert model.config.task_specific_params == {"translation": {"max_extra_tokens": 3}}
    if kind == "big":
        assert model.config.encoder.lexicon_kind == "words"
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_a_saved_translator_translates_without_references_and_is_trained_further(
    scripts: ScriptRunner, translators: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    before = hashes(translators["star"])
    name = f"--model_name_or_path={translators['star']}"
    plain = ["--do_predict", "--disable_tqdm=true", name, "--source_column=zh", "--target_column=en"]
    command = ["run_translation.py", *files(corpus, "plain"), *plain, "--max_extra_tokens=3"]
    scripts.check(*command, f"--output_dir={tmp_path}/plain")
    predictions = [row["predicted"] for row in read_rows(tmp_path / "plain" / "report" / "predictions_test.jsonl")]
    assert predictions == [
        row["predicted"] for row in read_rows(translators["star"] / "report" / "predictions_test.jsonl")
    ]
    assert "test_bleu" not in results_of(tmp_path / "plain")
    scripts.check("run_translation.py", *files(corpus), *SHORT, *QUICK, name, f"--output_dir={tmp_path}/more")
    assert results_of(tmp_path / "more")["eval_loss"] < results_of(translators["star"])["eval_loss"]
    assert hashes(translators["star"]) == before


# What is wrong -> flags, and what the message names.
BAD_INPUTS = {
    "a translator without a size": ("--model_type=marian", "--config_name"),
    "a model that generates nothing": ("--model_type=bert --config_overrides=hidden_size=16", "--model_type bert"),
    "embeddings of an encoder": (
        "--model_type=star_transformer --freeze_embeddings",
        "omit --embeddings_name_or_path",
    ),
    "a field of which side": (
        "--model_type=star_transformer --config_overrides=hidden_size=16",
        "encoder.hidden_size=16",
    ),
    "a score that is not measured": (
        "--predict_with_generate=false --metric_for_best_model=bleu --average_checkpoints=0",
        "--metric_for_best_model bleu",
    ),
}


@pytest.mark.parametrize("what", BAD_INPUTS)
def test_bad_input_is_an_error_in_one_line(scripts: ScriptRunner, corpus: Path, tmp_path: Path, what: str) -> None:
    flags, named = BAD_INPUTS[what]
    done = scripts.run("run_translation.py", *files(corpus), *SHORT, *flags.split(), f"--output_dir={tmp_path}/run")
    assert done.code == 1, done.out + done.error
    assert "Traceback" not in done.error, done.error
    (message,) = [line for line in done.error.splitlines() if line.startswith("run_translation.py: ")]
    assert named in message
    assert not any((tmp_path / "run").glob("*"))


def test_predict_names_a_translator_that_it_does_not_know(scripts: ScriptRunner, translators: dict[str, Path]) -> None:
    done = scripts.run("run_predict.py", translators["marian"], "雨")
    assert done.code == 1
    assert "MarianMTModel" in done.error.splitlines()[-1]


def test_help_lists_the_flags_and_the_defaults(scripts: ScriptRunner) -> None:
    text = scripts.check("run_translation.py", "--help").out
    assert all(words in text for words in ("--length_penalty", "--learning_rate", "(default: 64)", "(default: 0.1)"))


@pytest.mark.slow
def test_a_killed_run_resumed_ends_with_the_weights_of_one_never_killed(
    scripts: ScriptRunner, corpus: Path, tmp_path: Path
) -> None:
    steps = ["--save_strategy=steps", "--save_steps=7", "--eval_strategy=steps", "--eval_steps=7"]
    quick = [*QUICK, "--per_device_train_batch_size=4", "--num_train_epochs=6", "--average_checkpoints=3"]
    # On a GPU some of torch's sums come in no fixed order, so that bits may differ between two runs.
    command = ["run_translation.py", "--use_cpu", *files(corpus), *SHORT, *KINDS["star"], *steps, *quick]
    scripts.check(*command, f"--output_dir={tmp_path}/straight")
    killed = tmp_path / "killed"
    scripts.kill_when(killed / "checkpoint-21" / "trainer_state.json", *command, f"--output_dir={killed}")
    assert not (killed / "report" / "all_results.json").exists()  # it was killed in time
    scripts.check(*command, f"--output_dir={killed}", "--resume_from_checkpoint=last")
    for name in ("model.safetensors", "tokenizer.json", "report/predictions_test.jsonl"):
        assert (killed / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name


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
        outcomes.append((losses, scores, (folder / "report" / "predictions_test.jsonl").read_text(encoding="utf-8")))
    (one_losses, one_scores, one_texts), (two_losses, two_scores, two_texts) = outcomes
    assert len(one_losses) == 6
    assert max(one_losses) - min(one_losses) > 1e-3  # something was learnt: equal losses say something
    assert two_losses == pytest.approx(one_losses, abs=1e-4)
    assert two_scores == pytest.approx(one_scores, abs=1e-4)
    assert two_texts == one_texts


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
