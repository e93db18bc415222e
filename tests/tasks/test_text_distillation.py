"""Distillation on running text: the losses against plain loops, and runs of run_mlm.py with a teacher."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from common import TINY, randomise, tiny_bert, tiny_model
from safetensors.torch import load_file
from script_runner import ScriptRunner
from script_samples import QUICK, files, hashes, log_of, read_rows, results_of, write_bert, write_texts
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertForMaskedLM,
    BertModel,
    PreTrainedModel,
    TrainingArguments,
)

from modeling_star.data.collators import MaskingCollator, MaskingUnits
from modeling_star.data.packing import Chunk
from modeling_star.tasks.masked_lm import MaskedLoss
from modeling_star.tasks.text_distillation import HiddenScores, TextDistiller
from modeling_star.training.distillation import PROJECTION


BLOCKS = [[5, 3, 1], [9], [2, 2, 4]]
"""Numbers of tokens of the documents of each block."""


def blocks() -> list[list[Chunk]]:
    draw = np.random.default_rng(0)
    numbers = iter(range(99))
    return [
        [Chunk(draw.integers(2, TINY["vocab_size"], length), (next(numbers),)) for length in row] for row in BLOCKS
    ]


def teacher() -> PreTrainedModel:
    torch.manual_seed(0)
    model = BertModel(tiny_bert())
    randomise(model, seed=5)
    return model


def trainer_of(model: PreTrainedModel, alpha: float, folder: Path, **arguments: Any) -> TextDistiller:
    special = np.zeros(TINY["vocab_size"], dtype=bool)
    special[:2] = True
    trainer = TextDistiller(
        model=model,
        args=TrainingArguments(str(folder), use_cpu=True, report_to="none", disable_tqdm=True, **arguments),
        data_collator=MaskingCollator(1, 0, special, MaskingUnits(None), 0.4, 12),
        compute_loss_func=MaskedLoss(),
        compute_metrics=HiddenScores(alpha=alpha),
        eval_dataset=blocks(),
    )
    trainer.learn_from(teacher(), alpha)
    return trainer


def losses_by_document(trainer: TextDistiller, alpha: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean squared error over tokens and the mean masked-LM loss, from one document at a time."""
    errors, masked = [], []
    for chunk in (chunk for block in blocks() for chunk in block):
        batch = trainer.data_collator([[chunk]])
        ids = batch["input_ids"][:, : len(chunk.ids)] if alpha else torch.tensor(chunk.ids)[None]
        labels = batch["labels"][0, : len(chunk.ids)]
        states = trainer.model.base_model(input_ids=ids)[0][0]
        if trainer.projection is not None:
            states = states @ trainer.projection.weight.T + trainer.projection.bias
        with torch.no_grad():
            target = trainer.teacher(input_ids=ids)[0][0]
        errors += [((state - wanted) ** 2).sum() / len(wanted) for state, wanted in zip(states, target, strict=True)]
        logits = trainer.model(input_ids=ids)["logits"][0]
        masked += [-logits[i].log_softmax(-1)[label] for i, label in enumerate(labels) if label != -100]
    assert len(errors) == sum(map(sum, BLOCKS))
    assert 5 < len(masked) < 29
    return torch.stack(errors).mean(), torch.stack(masked).mean()


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("stem", ["StarTransformer", "BigTransformer", "BERT"])
def test_the_loss_and_its_gradients_are_those_of_one_document_at_a_time(
    stem: str, alpha: float, tmp_path: Path
) -> None:
    model = BertForMaskedLM(tiny_bert()) if stem == "BERT" else tiny_model(stem, "ForMaskedLM")
    randomise(model, seed=3)
    trainer = trainer_of(model, alpha, tmp_path)
    assert (trainer.projection is None) == (stem == "BERT")  # of the teacher's width
    error, masked = losses_by_document(trainer, alpha)
    batch = trainer.data_collator(blocks())
    batches, counts = trainer.get_batch_samples(iter([batch]), 1, torch.device("cpu"))
    loss = trainer.compute_loss(model, batches[0], num_items_in_batch=counts)
    torch.testing.assert_close(loss, error + alpha * masked, atol=1e-5, rtol=1e-5)
    trained = [x for x in model.parameters() if x.requires_grad]
    gradients = [torch.autograd.grad(x, trained) for x in (loss, error + alpha * masked)]
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    head = {name for name, x in model.named_parameters() if not x.requires_grad}
    encoder = {name for name, _ in model.named_parameters() if name.startswith(("bert.", "model.", PROJECTION))}
    assert head == (set() if alpha else dict(model.named_parameters()).keys() - encoder)


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_evaluation_is_over_all_tokens_whatever_the_batches(alpha: float, batch_size: int, tmp_path: Path) -> None:
    trainer = trainer_of(tiny_model("StarTransformer", "ForMaskedLM"), alpha, tmp_path)
    trainer.args.per_device_eval_batch_size = batch_size
    measured = trainer.evaluate()
    with torch.no_grad():
        error, masked = losses_by_document(trainer, alpha)
    assert measured["eval_hidden_mse"] == pytest.approx(error.item(), rel=1e-5)
    assert measured["eval_loss"] == pytest.approx((error + alpha * masked).item(), rel=1e-5)
    assert ("eval_perplexity" in measured) == bool(alpha)


def test_a_copy_of_the_teacher_has_no_loss_at_the_start(tmp_path: Path) -> None:
    model = BertForMaskedLM(tiny_bert())
    model.bert.load_state_dict(teacher().state_dict(), strict=False)  # without the pooler
    measured = trainer_of(model, 0.0, tmp_path).evaluate()
    assert measured["eval_hidden_mse"] == measured["eval_loss"] == 0


# ------ runs


@pytest.fixture(scope="module")
def texts(corpora: Path) -> list[str]:
    write_texts(corpora / "texts", corpora / "reviews")
    return [f"--{split}_file={corpora}/texts/{split}.txt" for split in ("train", "validation", "test")]


@pytest.fixture(scope="module")
def bert_path(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher that is 12 wide and takes 64 tokens."""
    reviews = [row["text"] for row in read_rows(corpora / "reviews" / "train.jsonl")]
    folder = write_bert(tmp_path_factory.mktemp("bert"), reviews)
    model = BertModel.from_pretrained(folder)
    randomise(model, seed=5)
    model.save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\nA teacher.\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def command(texts: list[str], bert_path: Path) -> Callable[..., list[str]]:
    """The arguments of a short run, whose student is 16 wide."""

    def arguments(*more: str, dropout: float = 0.0) -> list[str]:
        names = ("embedding_dropout_prob", "hidden_dropout_prob", "attention_probs_dropout_prob")
        shape = ",".join(["hidden_size=16,num_attention_heads=2", *(f"{name}={dropout}" for name in names)])
        return [
            *("run_mlm.py", *texts, f"--teacher={bert_path}", f"--config_overrides={shape}", "--max_seq_length=32"),
            *("--per_device_train_batch_size=4", "--learning_rate=5e-3", "--disable_tqdm=true", "--logging_steps=1"),
            *more,
        ]

    return arguments


def test_a_run_learns_the_teacher_and_its_result_is_fine_tuned(
    scripts: ScriptRunner, command: Callable[..., list[str]], corpora: Path, bert_path: Path, tmp_path: Path
) -> None:
    from transformers import pipeline

    run = tmp_path / "run"
    scripts.check(*command("--max_steps=24", "--eval_steps=12", "--save_steps=12"), f"--output_dir={run}")
    losses = [entry["loss"] for entry in log_of(run) if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]
    measured = [entry["eval_loss"] for entry in log_of(run) if "eval_loss" in entry]
    results = results_of(run)
    assert results["eval_loss"] == results["eval_hidden_mse"] == pytest.approx(min(measured), rel=1e-5)
    assert "test_hidden_mse" in results
    card = (run / "README.md").read_text(encoding="utf-8")
    assert f"{bert_path.name} (license: apache-2.0)" in card
    assert "hidden_mse" in card
    weights = load_file(run / "model.safetensors")
    assert not [name for name in weights if name.startswith(PROJECTION)]
    assert weights.keys() <= AutoModelForMaskedLM.from_pretrained(run).state_dict().keys()
    assert AutoTokenizer.from_pretrained(run).get_vocab() == AutoTokenizer.from_pretrained(bert_path).get_vocab()
    assert np.shape(pipeline("feature-extraction", model=str(run))("a good film"))[2] == 16
    tuned = [f"--model_name_or_path={run}", "--num_train_epochs=1", f"--output_dir={tmp_path / 'tuned'}"]
    scripts.check("run_glue.py", *files(corpora / "sentiment"), *QUICK, "--learning_rate=0", *tuned)
    after = load_file(tmp_path / "tuned" / "model.safetensors")
    encoder = {name for name in weights if name.startswith("model.")}
    assert all(torch.equal(weights[name], after[name]) for name in encoder)


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_weights_of_one_never_interrupted(
    scripts: ScriptRunner, command: Callable[..., list[str]], tmp_path: Path
) -> None:
    steps = ["--save_steps=10", "--eval_steps=10", "--max_steps=40", "--save_total_limit=9", "--alpha=0.3"]
    arguments = command(*steps, dropout=0.3)
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    scripts.check(*arguments, f"--output_dir={straight}")
    scripts.kill_when(killed / "checkpoint-20" / "trainer_state.json", *arguments, f"--output_dir={killed}")
    assert not (killed / "report" / "all_results.json").exists()
    scripts.check(*arguments, f"--output_dir={killed}", "--resume_from_checkpoint=last")
    assert (killed / "model.safetensors").read_bytes() == (straight / "model.safetensors").read_bytes()
    last = [load_file(folder / "checkpoint-40" / "model.safetensors") for folder in (straight, killed)]
    assert torch.equal(*(weights[f"{PROJECTION}.weight"] for weights in last))
    names = ("eval_hidden_mse", "eval_loss", "test_loss", "test_masked_accuracy")
    assert [results_of(killed)[name] for name in names] == [results_of(straight)[name] for name in names]


@pytest.mark.parametrize(
    "flags",
    [[], ["--alpha=0.5"]],
    ids=["hidden", "masked"],
)
@pytest.mark.slow
def test_two_processes_log_the_losses_of_one_with_twice_the_batch(
    scripts: ScriptRunner, command: Callable[..., list[str]], tmp_path: Path, flags: list[str]
) -> None:
    outcomes = []
    for processes, batch in ((1, 6), (2, 3)):
        folder = tmp_path / str(processes)
        size = [f"--per_device_train_batch_size={batch}", "--gradient_accumulation_steps=2", "--max_steps=3"]
        more = ["--per_device_eval_batch_size=3", f"--output_dir={folder}"]
        scripts.check(*command(*flags, *size, *more), processes=processes)
        scores = [results_of(folder)[name] for name in ("eval_loss", "eval_hidden_mse", "test_loss")]
        outcomes.append(([entry["loss"] for entry in log_of(folder) if "loss" in entry], scores))
    (one, one_scores), (two, two_scores) = outcomes
    assert len(one) == 3
    assert two == pytest.approx(one, rel=1e-4, abs=1e-5)
    assert two_scores == pytest.approx(one_scores, rel=1e-4)


@pytest.mark.slow
def test_a_stock_bert_learns_too_with_a_rate_for_its_encoder(
    scripts: ScriptRunner, command: Callable[..., list[str]], bert_path: Path, tmp_path: Path
) -> None:
    student = BertModel.from_pretrained(bert_path)
    randomise(student, seed=8)
    student.save_pretrained(tmp_path / "student")
    AutoTokenizer.from_pretrained(bert_path).save_pretrained(tmp_path / "student")
    named = [flag for flag in command() if not flag.startswith("--config_overrides")]
    before = hashes(bert_path)
    flags = [f"--model_name_or_path={tmp_path / 'student'}", "--encoder_learning_rate=1e-2", "--max_steps=20"]
    scripts.check(*named, *flags, f"--output_dir={tmp_path / 'run'}", processes=2)
    losses = [entry["loss"] for entry in log_of(tmp_path / "run") if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]
    assert AutoModel.from_pretrained(tmp_path / "run").config.model_type == "bert"
    assert hashes(bert_path) == before


@pytest.mark.slow
def test_a_teacher_or_weight_that_does_not_fit_is_reported_in_one_line(
    scripts: ScriptRunner, command: Callable[..., list[str]], bert: Path, texts: list[str], tmp_path: Path
) -> None:
    for arguments, part in (
        (command(f"--tokenizer_name={bert}"), "--tokenizer_name"),
        (command("--max_seq_length=80"), "--max_seq_length 64"),
        (command("--teacher=/nowhere"), "/nowhere"),
        (command("--alpha=-1"), "--alpha -1"),
        (command("--do_eval"), "--teacher"),
        (["run_mlm.py", *texts, "--alpha=1"], "--alpha"),
    ):
        done = scripts.run(*arguments, f"--output_dir={tmp_path / 'model'}")
        assert done.code != 0, arguments
        assert part in done.error.splitlines()[-1]
        assert "Traceback" not in done.error
