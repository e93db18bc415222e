"""run_translation.py from the command line, on a tiny synthetic parallel corpus."""

from pathlib import Path

import pytest
from script_runner import ScriptRunner
from script_samples import (
    QUICK,
    assert_card_has_the_results,
    files,
    hashes,
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
