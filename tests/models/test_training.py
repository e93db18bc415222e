"""The stock Trainer: it learns, resumes, accumulates, and runs in two processes."""

import gc
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from common import HEADS, TINY, labels_of, padded, random_batch, tiny_bert, tiny_model
from safetensors.torch import load_file
from samples import CHARACTERS, LEXICON, SPELLED, STEMS, assert_identical, class_of, crossed, tier, word_tokenizer
from training_samples import PROBLEMS, collate, options_of, rows_of, trainer_of
from transformers import PreTrainedModel


# The others are in the slow tier.
STEM_BY_STEM = [STEMS[0], *(pytest.param(stem, marks=pytest.mark.slow) for stem in STEMS[1:])]


@pytest.fixture(scope="module", autouse=True)
def little_garbage() -> Iterator[None]:
    """Trainer collects garbage whenever it starts: what was imported until now is left out of the search."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def losses_of(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def parameters_of(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def assert_near(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(actual[name], tensor, rtol=0, atol=tolerance), name


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("stem", STEM_BY_STEM)
def test_the_loss_falls(stem: str, problem: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model_class = class_of(stem, PROBLEMS[problem])
    fields = {**TINY, "hidden_size": 16, "position_embedding_type": "learned", **options_of(problem)}
    model = model_class(model_class.config_class(**fields))
    arguments = {"max_steps": 60, "learning_rate": 0.01, "logging_strategy": "steps", "logging_steps": 10}
    trainer = trainer_of(model, rows_of(problem, 64), tmp_path, per_device_train_batch_size=16, **arguments)
    trainer.train()
    losses = losses_of(trainer)
    assert len(losses) == 6
    assert all(map(torch.isfinite, torch.tensor(losses)))
    # The token at a random mask cannot be known; everything else can.
    assert losses[-1] < losses[0] * (0.97 if problem == "masks" else 0.75)


@pytest.mark.parametrize(
    ("stem", "embeddings", "problem"), crossed(STEMS, ["random", "frozen BERT"], ["tagging", "masks"])
)
def test_a_resumed_run_is_the_straight_run_bit_for_bit(
    stem: str, embeddings: str, problem: str, tmp_path: Path
) -> None:
    inside = {"backbone_config": tiny_bert(), "freeze_embeddings": True} if embeddings == "frozen BERT" else {}
    dropout = dict.fromkeys(["embedding_dropout_prob", "hidden_dropout_prob", "attention_probs_dropout_prob"], 0.2)

    def trainer(folder: str) -> Any:
        # Dropout is on: random numbers after resuming must equal those of the straight run.
        model = tiny_model(stem, PROBLEMS[problem], **inside, **dropout)
        arguments = {"max_steps": 7, "save_strategy": "steps", "save_steps": 3, "learning_rate": 0.01}
        rows = rows_of(problem, 20)
        return trainer_of(model, rows, tmp_path / folder, per_device_train_batch_size=4, warmup_steps=2, **arguments)

    straight = trainer("straight")
    start = parameters_of(straight.model)
    straight.train()
    resumed = trainer("resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "straight" / "checkpoint-3"))
    assert resumed.state.global_step == 7
    end = parameters_of(straight.model)
    assert_identical(parameters_of(resumed.model), end)
    frozen = {name for name, parameter in straight.model.named_parameters() if not parameter.requires_grad}
    assert bool(frozen) == bool(inside)
    assert {name for name, parameter in resumed.model.named_parameters() if not parameter.requires_grad} == frozen
    # Frozen embeddings are as they were; something else has moved.
    assert all(torch.equal(start[name], end[name]) for name in frozen)
    assert any(not torch.equal(start[name], end[name]) for name in start.keys() - frozen)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("stem", STEM_BY_STEM)
def test_four_batches_of_two_train_like_one_of_eight(stem: str, problem: str, tmp_path: Path) -> None:
    after = []
    for size, steps in ((8, 1), (2, 4)):
        model = tiny_model(stem, PROBLEMS[problem], **options_of(problem))
        before = parameters_of(model)
        # SGD: steps follow the gradients, which Adam would rescale.
        arguments = {"optim": "sgd", "learning_rate": 0.05, "max_steps": 3, "max_grad_norm": 0.0}
        trainer = trainer_of(
            model,
            rows_of(problem, 24),
            tmp_path,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            **arguments,
        )
        trainer.train()
        after.append(parameters_of(model))
    assert_near(after[1], after[0], 2e-6)
    moved = max(float((after[0][name] - before[name]).abs().max()) for name in before)
    assert moved > 1e-3


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("stem", STEMS)
def test_padding_changes_no_loss(stem: str, problem: str) -> None:
    model = tiny_model(stem, PROBLEMS[problem], **options_of(problem))
    rows = rows_of(problem, 4)
    batch = collate(rows)
    wider = {}
    for name, tensor in batch.items():
        per_token = tensor.shape == batch["input_ids"].shape
        value = -100 if name == "labels" else 0
        wider[name] = torch.nn.functional.pad(tensor, (0, 5), value=value) if per_token else tensor
    assert wider["input_ids"].shape[1] == batch["input_ids"].shape[1] + 5
    with torch.no_grad():
        assert float(model(**wider).loss) == pytest.approx(float(model(**batch).loss), abs=1e-5)


@pytest.mark.parametrize(
    ("problem", "columns"), [("tagging", 3), ("chains", 3), ("single_label_classification", 3), ("masks", 13)]
)
def test_evaluation_gets_logits_alone(problem: str, columns: int, tmp_path: Path) -> None:
    model = tiny_model("StarTransformer", PROBLEMS[problem], **options_of(problem))
    rows = rows_of(problem, 7)
    trainer = trainer_of(model, rows, tmp_path, per_device_eval_batch_size=4)
    predicted = trainer.predict(rows)
    assert predicted.predictions.shape[-1] == columns
    assert len(predicted.predictions) == len(rows)
    # The mean over both batches is that over one: 7 rows are no multiple of 4.
    with torch.no_grad():
        expected = model.eval()(**collate(rows)).loss
    if problem == "single_label_classification":
        assert predicted.metrics["test_loss"] == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("stem", STEMS)
def test_noise_on_embeddings_is_of_the_size_that_a_row_asks_for(stem: str, tmp_path: Path) -> None:
    rows = rows_of("single_label_classification", 4)
    model = tiny_model(stem, "ForSequenceClassification", seed=None)
    seen: list[torch.Tensor] = []
    trainer = trainer_of(model, rows, tmp_path, max_steps=1, per_device_train_batch_size=4, neftune_noise_alpha=5.0)
    table = model.get_input_embeddings()
    table.register_forward_hook(lambda _, inputs, output: seen.append(output - table.weight[inputs[0]]))
    trainer.train()
    longest = max(len(row["input_ids"]) for row in rows)
    assert [tuple(rows_seen.shape) for rows_seen in seen] == [(4, longest, TINY["hidden_size"])]
    # Trainer's hook runs after this one: its effect shows in the size that it is given.
    assert not hasattr(table, "neftune_noise_alpha"), "Trainer takes it away"
    with torch.no_grad():
        model(rows[0]["input_ids"][None])
    assert seen[-1].dim() == 2


# ------ several processes


@pytest.fixture
def one_process_group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone: DistributedDataParallel looks for unused parameters there too."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("head", "options", "columns"),
    [
        ("ForTokenClassification", {}, 5),
        ("ForTokenClassification", {"use_crf": True}, 5),
        ("ForMaskedLM", {}, 5),
        ("ForSequenceClassification", {}, 0),
    ],
)
@pytest.mark.parametrize("items", [None, torch.tensor(0)])
def test_a_batch_without_labels_has_a_loss_and_gradients_of_0(
    head: str, options: dict[str, Any], columns: int, items: torch.Tensor | None
) -> None:
    model = tiny_model("StarTransformer", head, **options)
    if options:
        model.set_vocabulary(word_tokenizer("a b"))
    labels = torch.full((2, columns) if columns else (2,), -100)
    loss = model(torch.ones(2, 5, dtype=torch.long), labels=labels, num_items_in_batch=items).loss
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "StarTransformer": [
        {},
        {"num_hidden_layers": 1},
        {"use_radial": False},
        {"use_ring": False},
        {"ring_radius": 2},
        {"use_ring": False, "use_radial": False},
        {"use_radial": False, "residual": True},
        {"position_embedding_type": "ring", "type_vocab_size": 2},
        {"backbone_config": tiny_bert(), "position_embedding_type": "none"},
        {"backbone_config": tiny_bert(), "freeze_embeddings": True},
        {"embedding_size": 5, "freeze_embeddings": True},
        {**CHARACTERS, "use_crf": True},
        {**CHARACTERS, "tokenizer": word_tokenizer(SPELLED), "freeze_embeddings": True},
    ],
    "BigTransformer": [
        {},
        {"lexicon": LEXICON, "num_hidden_layers": 1},
        {"lexicon": LEXICON, "include_self": False, "global_connection": False},
        {"local_connection": "adjacent", "pooling": "max"},
        {"local_connection": "adjacent", "global_connection": False, "pooling": "global"},
        {"local_connection": "none", "pooling": "global"},
        {"local_connection": "none", "global_connection": False},
        {"backbone_config": tiny_bert(), "position_embedding_type": "none", "lexicon": LEXICON},
        {"embedding_size": 5, "freeze_embeddings": True},
    ],
    "VanillaTransformer": [
        {},
        {"num_hidden_layers": 1, "type_vocab_size": 2},
        {"backbone_config": tiny_bert(), "position_embedding_type": "none"},
        {"embedding_size": 5, "freeze_embeddings": True},
    ],
    "Disan": [
        {},
        {"num_hidden_layers": 1, "type_vocab_size": 2},
        {"backbone_config": tiny_bert()},
        {"embedding_size": 5, "freeze_embeddings": True},
    ],
    "BiLstm": [
        {},
        {"num_hidden_layers": 1, "type_vocab_size": 2, "pooling": "mean"},
        {"backbone_config": tiny_bert()},
        {"embedding_size": 5, "freeze_embeddings": True},
    ],
}


@pytest.mark.parametrize(
    ("stem", "options", "ending"),
    [
        pytest.param(stem, options, ending, marks=tier([options, ending], [{}, HEADS[0]]))
        for stem in STEMS
        for options, ending in itertools.product(OPTIONS[stem], HEADS)
    ],
)
def test_no_parameter_of_a_head_is_left_unused(
    stem: str, options: dict[str, Any], ending: str, one_process_group: None
) -> None:
    model = tiny_model(stem, ending, **options)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    batch = random_batch(padded([5, 3, 1], 5, "right"))
    # A parameter without a gradient in one step is an error in the next.
    for _ in range(2):
        parallel(**batch.inputs(), **labels_of(ending, batch)).loss.backward()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert all(parameter.grad is not None for parameter in trained)


def test_an_unused_parameter_would_be_noticed(one_process_group: None) -> None:
    # The test above rests on this: the bare model builds the last relay update, which tokens do not read.
    parallel = torch.nn.parallel.DistributedDataParallel(tiny_model("StarTransformer"))
    inputs = random_batch(padded([5, 3], 5, "right")).inputs()
    parallel(**inputs).last_hidden_state.sum().backward()
    with pytest.raises(RuntimeError, match="find_unused_parameters"):
        parallel(**inputs)


TWO_PROCESSES = """
import json, sys
from pathlib import Path

import torch
from accelerate import PartialState
from common import tiny_model
from safetensors.torch import save_file
from training_samples import PROBLEMS, options_of, rows_of, trainer_of

torch.set_num_threads(1)
root = Path(sys.argv[1])
rank = None
for problem, ending in PROBLEMS.items():
    model = tiny_model("StarTransformer", ending, **options_of(problem))
    trainer = trainer_of(
        model, rows_of(problem, 24), root / problem, ddp_backend="gloo", max_steps=3, per_device_train_batch_size=2,
        optim="sgd", learning_rate=0.05, max_grad_norm=0.0, ddp_find_unused_parameters=False,
    )
    assert trainer.args.world_size == 2
    trainer.train()
    rank = trainer.args.process_index
    tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    save_file(tensors, root / f"{problem}.{rank}.safetensors")
    trainer.save_model(str(root / problem))
    PartialState().wait_for_everyone()
(root / f"{rank}.json").write_text(json.dumps(sorted(PROBLEMS)))
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which two processes have trained every kind of problem together."""
    root = tmp_path_factory.mktemp("two_processes")
    script = root / "train.py"
    script.write_text(TWO_PROCESSES)
    tests = Path(__file__).parent
    done = subprocess.run(
        [
            *(sys.executable, "-m", "accelerate.commands.launch"),
            *("--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"),
            *("--dynamo_backend", "no", "--main_process_port", "0", str(script), str(root)),
        ],
        cwd=root,
        env={
            **os.environ,
            "ACCELERATE_USE_CPU": "true",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)]),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return root


@pytest.mark.slow
def test_both_processes_trained_everything(two_processes: Path) -> None:
    for rank in (0, 1):
        assert json.loads((two_processes / f"{rank}.json").read_text()) == sorted(PROBLEMS)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.slow
def test_two_processes_train_like_one(problem: str, two_processes: Path, tmp_path: Path) -> None:
    first, second = (load_file(two_processes / f"{problem}.{rank}.safetensors") for rank in (0, 1))
    assert_identical(first, second)
    # Two batches of two, one in each process, are one of four here.
    model = tiny_model("StarTransformer", PROBLEMS[problem], **options_of(problem))
    before = parameters_of(model)
    arguments = {"optim": "sgd", "learning_rate": 0.05, "max_steps": 3, "max_grad_norm": 0.0}
    trainer_of(model, rows_of(problem, 24), tmp_path, per_device_train_batch_size=4, **arguments).train()
    assert_near(first, parameters_of(model), 2e-6)
    assert any(not torch.equal(first[name], before[name]) for name in before)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.slow
def test_the_first_process_saves_the_model_that_both_trained(problem: str, two_processes: Path) -> None:
    loaded = class_of("StarTransformer", PROBLEMS[problem]).from_pretrained(two_processes / problem)
    assert_identical(parameters_of(loaded), load_file(two_processes / f"{problem}.1.safetensors"))
    # One whole folder, written once.
    assert len(list((two_processes / problem).glob("*.safetensors"))) == 1
