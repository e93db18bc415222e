"""run_mlm.py from the command line, on tiny synthetic text."""

import shutil
from pathlib import Path

import numpy as np
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
    write_bert,
    write_corpora,
    write_texts,
)


SHAPE = "hidden_size=16,num_attention_heads=2,num_hidden_layers=2"
MLM = (
    *("--max_seq_length=32", "--tokenizer_kind=wordpiece", "--vocab_size=300", "--mask_unit=whole_word"),
    *("--per_device_train_batch_size=4", "--learning_rate=5e-3", "--disable_tqdm=true", "--logging_steps=1"),
)
NO_DROPOUT = ",".join(f"{name}_dropout_prob=0" for name in ("embedding", "hidden", "attention_probs"))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_corpora(tmp_path_factory.mktemp("corpora"))
    write_texts(folder / "texts", folder / "reviews")
    return folder


@pytest.fixture(scope="module")
def texts(corpora: Path) -> list[str]:
    return [f"--{split}_file={corpora}/texts/{split}.txt" for split in ("train", "validation", "test")]


@pytest.fixture(scope="module")
def pretrained(scripts: ScriptRunner, texts: list[str]) -> Path:
    """The output folder of a Star-Transformer that was pretrained for a moment."""
    flags = ["--dataset_title=synthetic reviews", "--max_steps=12", "--eval_steps=6", "--save_steps=6"]
    scripts.check("run_mlm.py", *texts, *MLM, *flags, f"--config_overrides={SHAPE}", "--output_dir=pretrained")
    return scripts.folder / "pretrained"


# A whole run


def test_a_run_leaves_a_model_with_its_scores_curves_and_card(pretrained: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

    for name in ("model.safetensors", "code/modeling_star.py", "report/training_curves.png"):
        assert (pretrained / name).is_file()
    results, log = results_of(pretrained), [entry for entry in log_of(pretrained) if "loss" in entry]
    assert results["eval_perplexity"] == pytest.approx(np.exp(results["eval_loss"]))
    assert log[-1]["loss"] < log[0]["loss"]
    # 12 updates of 4 blocks of up to 32 tokens.
    assert 12 * 4 * 32 * 0.8 < results["num_input_tokens_seen"] <= 12 * 4 * 32
    speed = results["num_input_tokens_seen"] / results["train_runtime"]
    assert results["train_tokens_per_second"] == pytest.approx(speed, rel=1e-3)
    card = (pretrained / "README.md").read_text(encoding="utf-8")
    assert_card_has_the_results(card, results)
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(pretrained), AutoTokenizer.from_pretrained(pretrained)
    assert type(model).__name__ == "StarTransformerForMaskedLM"
    assert len(tokenizer("good " * 100)["input_ids"]) > 64  # no truncation was saved with it
    example = card.split('print(model("')[1].split('"))')[0]
    assert example.count(tokenizer.mask_token) == 1
    assert len(pipeline("fill-mask", model=model, tokenizer=tokenizer)(example)) == 5


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
    flags = ["--model_type=big_transformer", "--tokenizer_kind=character", f"--config_overrides={SHAPE}"]
    flags += [f"--lexicon={tmp_path}/words.txt", f"--mask_unit={tmp_path}/words.txt", "--max_steps=3"]
    # Without a validation file, a part of train is held out.
    scripts.check("run_mlm.py", f"--train_file={corpus['train']}", *MLM, *flags, f"--output_dir={tmp_path}/run")
    results = results_of(tmp_path / "run")
    assert (results["train_samples"], results["eval_samples"]) == (38, 2)
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "run").config.lexicon_size > 0


@pytest.mark.slow
def test_worker_processes_change_nothing(scripts: ScriptRunner, texts: list[str], tmp_path: Path) -> None:
    # 18 batches are an epoch: the workers live on into the second. They take a number from the generator of dropout.
    command = ["run_mlm.py", *texts, *MLM, "--max_steps=24", f"--config_overrides={SHAPE},{NO_DROPOUT}"]
    workers = ["--dataloader_num_workers=2", "--dataloader_persistent_workers"]
    losses = []
    for name, flags in (("none", []), ("two", workers)):
        scripts.check(*command, *flags, f"--output_dir={tmp_path}/{name}")
        losses.append([entry["loss"] for entry in log_of(tmp_path / name) if "loss" in entry])
    assert losses[0] == losses[1]
    assert len(set(losses[0])) > 20


# Interrupted runs


@pytest.mark.slow
def test_a_killed_run_resumed_ends_with_the_weights_of_one_never_killed(
    scripts: ScriptRunner, texts: list[str], tmp_path: Path
) -> None:
    dropout = f"{SHAPE},hidden_dropout_prob=0.3,embedding_dropout_prob=0.3"
    flags = ["--save_steps=10", "--eval_steps=10", "--max_steps=40", "--warmup_steps=0.1", "--save_total_limit=9"]
    command = ["run_mlm.py", *texts, *MLM, *flags, f"--config_overrides={dropout}"]
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    scripts.check(*command, f"--output_dir={straight}")
    # 18 batches are an epoch: it is killed in another one than the first.
    scripts.kill_when(killed / "checkpoint-20" / "trainer_state.json", *command, f"--output_dir={killed}")
    assert not (killed / "report" / "all_results.json").exists()
    for folder in ("checkpoint-30", "checkpoint-40"):
        shutil.rmtree(killed / folder, ignore_errors=True)
    scripts.check(*command, f"--output_dir={killed}", "--resume_from_checkpoint=last")
    assert (killed / "model.safetensors").read_bytes() == (straight / "model.safetensors").read_bytes()
    losses = [[(e["step"], e["loss"]) for e in log_of(folder) if "loss" in e] for folder in (straight, killed)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 40
    scores = [[e["eval_loss"] for e in log_of(folder) if "eval_loss" in e] for folder in (straight, killed)]
    assert scores[0] == scores[1]


# Several processes


@pytest.mark.parametrize("packing", ["true", "false"])
@pytest.mark.slow
def test_two_processes_log_the_losses_of_one_with_twice_the_batch(
    scripts: ScriptRunner, texts: list[str], tmp_path: Path, packing: str
) -> None:
    flags = ["--max_steps=3", "--gradient_accumulation_steps=2", f"--config_overrides={SHAPE},{NO_DROPOUT}"]
    flags += ["--per_device_eval_batch_size=3"]
    flags += [f"--packing={packing}"]
    outcomes = []
    for processes, batch in ((1, 6), (2, 3)):
        folder = tmp_path / f"processes-{processes}"
        size = f"--per_device_train_batch_size={batch}"
        scripts.check("run_mlm.py", *texts, *MLM, *flags, size, f"--output_dir={folder}", processes=processes)
        results = results_of(folder)
        names = ("eval_loss", "eval_masked_accuracy", "test_loss", "num_input_tokens_seen")
        outcomes.append(([e["loss"] for e in log_of(folder) if "loss" in e], [results[name] for name in names]))
    (one_losses, one_scores), (two_losses, two_scores) = outcomes
    assert len(one_losses) == 3
    assert max(one_losses) - min(one_losses) > 1e-2
    assert two_losses == pytest.approx(one_losses, abs=1e-5)
    assert two_scores == pytest.approx(one_scores, abs=1e-5)
