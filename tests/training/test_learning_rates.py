"""Separate learning rates: the rate of each parameter, and runs with them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from script_runner import ScriptRunner
from script_samples import QUICK, files, read_rows, write_bert
from task_samples import TINY, Parsed, trainer_of
from transformers import BertConfig, BertModel

from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.tasks.masked_lm import PretrainingTask
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.training.trainer import learning_rates, separate_rates


HEAD, ENCODER = 1e-3, 1e-4
RATES = (f"--learning_rate={HEAD}", f"--encoder_learning_rate={ENCODER}", "--weight_decay=0.1")


def groups_of(arguments: Parsed, folder: Path, task: Any = ClassificationTask) -> dict[str, tuple[float, float]]:
    """Learning rate and weight decay of each trained parameter, by name."""
    made, trainer = trainer_of(task, arguments, folder)
    trainer.learning_rates = separate_rates(made, trainer.args, trainer.model)
    groups = trainer.create_optimizer().param_groups
    of_parameter = {x: (group["lr"], group["weight_decay"]) for group in groups for x in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(of_parameter)
    assert groups[0]["lr"] == HEAD, "the rate that is logged"
    decayed = trainer.get_decay_parameter_names(trainer.model)
    trained = {name: x for name, x in trainer.model.named_parameters() if x.requires_grad}
    assert trained.keys() == {name for name, x in trained.items() if x in of_parameter}
    assert all(of_parameter[x][1] == (0.1 if name in decayed else 0) for name, x in trained.items())
    return {name: of_parameter[x] for name, x in trained.items()}


@pytest.fixture
def stock_bert(tmp_path: Path) -> Path:
    """A BERT of three layers, with a tokenizer for the rows of a classification."""
    tokenizer = train_tokenizer([f"text {number}" for number in range(8)])
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=len(tokenizer), pad_token_id=0, **sizes)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def rates_by_part(groups: dict[str, tuple[float, float]], part: str) -> tuple[set[float], set[float]]:
    """The rates of the parameters whose names begin with a part, and those of the others."""
    inside = {name for name in groups if name.startswith(part)}
    return {groups[name][0] for name in inside}, {groups[name][0] for name in groups.keys() - inside}


def test_of_a_stock_bert_all_but_the_new_head_has_the_rate_of_the_encoder(
    parsed: Callable[..., Parsed], stock_bert: Path, tmp_path: Path
) -> None:
    named = (f"--model_name_or_path={stock_bert}", "--report_to=none")
    groups = groups_of(parsed(ClassificationTask, *named, *RATES), tmp_path / "run")
    assert rates_by_part(groups, "bert.") == ({ENCODER}, {HEAD})
    groups = groups_of(parsed(ClassificationTask, *named, *RATES, "--layerwise_lr_decay=0.5"), tmp_path / "layers")
    expected = {f"bert.encoder.layer.{layer}.": ENCODER * 0.5 ** (2 - layer) for layer in range(3)}
    expected |= {"bert.embeddings.": ENCODER / 8, "bert.pooler.": ENCODER, "classifier.": HEAD}
    for part, rate in expected.items():
        assert rates_by_part(groups, part)[0] == {rate}, part
    assert all(name.startswith(tuple(expected)) for name in groups)


def test_of_a_saved_encoder_what_it_lacks_is_new(parsed: Callable[..., Parsed], tmp_path: Path) -> None:
    _, pretrainer = trainer_of(PretrainingTask, parsed(PretrainingTask, *TINY), tmp_path / "mlm")
    pretrainer.save_model(str(tmp_path / "saved"))
    saved = (f"--model_name_or_path={tmp_path / 'saved'}", "--report_to=none")
    groups = groups_of(parsed(ClassificationTask, *saved, *RATES), tmp_path / "run")
    # The pooled vector needs the relay's last update, which masked language modelling lacks.
    known = set(dict(pretrainer.model.named_parameters()))
    assert {name for name, (rate, _) in groups.items() if rate == ENCODER} == known & groups.keys()
    assert {rate for name, (rate, _) in groups.items() if name not in known} == {HEAD}
    assert any(name.startswith("classifier.") for name in groups)
    # All of a model whose head is kept is pretrained: the head of masked language modelling too.
    arguments = parsed(PretrainingTask, *saved, "--learning_rate=1e-3", "--encoder_learning_rate=1e-3")
    made, trainer = trainer_of(PretrainingTask, arguments, tmp_path / "again")
    assert separate_rates(made, trainer.args, trainer.model) == dict.fromkeys(known, 1e-3)


def test_of_contextual_embeddings_the_encoder_inside_has_its_rate(
    parsed: Callable[..., Parsed], stock_bert: Path, tmp_path: Path
) -> None:
    inside = (f"--embeddings_name_or_path={stock_bert}", "--embeddings_mode=contextual", *TINY)
    groups = groups_of(parsed(ClassificationTask, *inside, *RATES), tmp_path / "run")
    assert rates_by_part(groups, "model.embeddings.backbone.") == ({ENCODER}, {HEAD})
    decay_alone = (f"--learning_rate={HEAD}", "--weight_decay=0.1", "--layerwise_lr_decay=0.5")
    groups = groups_of(parsed(ClassificationTask, *inside, *decay_alone), tmp_path / "layers")
    backbone = "model.embeddings.backbone."
    for part, rate in (("encoder.layer.2.", HEAD), ("encoder.layer.0.", HEAD / 4), ("embeddings.", HEAD / 8)):
        assert rates_by_part(groups, backbone + part)[0] == {rate}
    assert rates_by_part(groups, backbone)[1] == {HEAD}


def test_layers_above_an_encoder_inside_are_above_its_layers() -> None:
    names = ["e.backbone.table", "e.backbone.layer.0.w", "e.backbone.layer.1.w", "e.projection", "layers.0.w"]
    assert list(learning_rates(names, 8.0, 0.5).values()) == [1, 2, 4, 4, 8]


@pytest.mark.slow
def test_a_run_with_equal_rates_equals_one_without_the_flag(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    bert = write_bert(tmp_path / "bert", [row["text"] for row in read_rows(corpora / "sentiment" / "train.jsonl")])
    command = ["run_glue.py", *files(corpora / "sentiment"), *QUICK, f"--model_name_or_path={bert}"]
    weights = {}
    for rate in (None, "5e-3", "1e-4"):
        flag = [] if rate is None else [f"--encoder_learning_rate={rate}"]
        scripts.check(*command, *flag, f"--output_dir={tmp_path / str(rate)}")
        weights[rate] = (tmp_path / str(rate) / "model.safetensors").read_bytes()
    assert weights["5e-3"] == weights[None] != weights["1e-4"]
    flags = ["--encoder_learning_rate=2e-4", "--resume_from_checkpoint=last", f"--output_dir={tmp_path / '1e-4'}"]
    done = scripts.run(*command, *flags)
    assert done.code == 1
    assert "encoder_learning_rate 0.0001, now 0.0002" in done.error.splitlines()[-1]
    assert "| encoder learning rate | `0.0001` |" in (tmp_path / "1e-4" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "flags",
    [
        ["--encoder_learning_rate=0", "--model_name_or_path=bert"],
        ["--encoder_learning_rate=nan", "--model_name_or_path=bert"],
        ["--layerwise_lr_decay=1.5", "--model_name_or_path=bert"],
        ["--encoder_learning_rate=1e-4"],
        ["--layerwise_lr_decay=0.9", "--embeddings_name_or_path=bert"],
        [
            *("--encoder_learning_rate=1e-4", "--embeddings_name_or_path=bert", "--embeddings_mode=contextual"),
            "--freeze_embeddings",
        ],
    ],
)
def test_a_rate_that_is_not_allowed_or_applies_to_nothing_is_an_error(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, flags: list[str]
) -> None:
    done = scripts.run("run_glue.py", *files(corpora / "sentiment"), *flags, f"--output_dir={tmp_path / 'run'}")
    assert done.code == 1
    (message,) = [line for line in done.error.splitlines() if line.startswith("run_glue.py: ")]
    assert flags[0].partition("=")[0] in message
