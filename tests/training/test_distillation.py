"""Distillation: teacher outputs, their alignment with students, the losses, and runs of run_distill.py."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, concatenate_datasets
from script_runner import ScriptRunner
from script_samples import TINY, hashes, log_of, read_rows, results_of
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    DataCollatorForTokenClassification,
)

from modeling_star.data.tagging import tokenize_and_align
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.training.distillation import (
    LOGITS,
    ROW,
    DistillationCollator,
    DistillationLoss,
    Teacher,
    label_order,
    teacher_outputs,
)
from modeling_star.training.losses import CRFLoss, TaskLoss


TEXTS = [
    " ".join(["good", "film", "unwatchable", "plot", "the"][: 1 + n % 5] * (1 + n % 3)) + f" {n}" for n in range(17)
]
INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids", "labels"))
ONE = SimpleNamespace(process_index=0, num_processes=1, is_main_process=True, wait_for_everyone=lambda: None)


def write_teacher(folder: Path, labels: list[str], texts: list[Any], tags: bool = False, **fields: Any) -> Path:
    """A BERT of a few numbers, whose outputs vary, with a tokenizer of pieces of words."""
    tokenizer = train_tokenizer(texts, "wordpiece", vocab_size=80, model_max_length=fields.pop("limit", 64))
    torch.manual_seed(1)
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    names = {"id2label": dict(enumerate(labels)), "label2id": {name: index for index, name in enumerate(labels)}}
    config = BertConfig(vocab_size=len(tokenizer), initializer_range=0.5, pad_token_id=0, **sizes, **names, **fields)
    (BertForTokenClassification if tags else BertForSequenceClassification)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def teacher_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_teacher(tmp_path_factory.mktemp("teacher"), ["b", "a", "c"], TEXTS)


def load(path: Path, **options: Any) -> Teacher:
    return Teacher.load(str(path), ["a", "b", "c"], ("text",), **options)


# ------ the store


def test_outputs_are_those_of_single_texts_in_the_students_order_of_labels(teacher_path: Path, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(teacher_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(teacher_path)
    with torch.no_grad():
        expected = [model(**tokenizer(text, return_tensors="pt")).logits[0, [1, 0, 2]].numpy() for text in TEXTS]
    assert np.ptp(expected, axis=0).max() > 0.1  # texts differ
    rows = Dataset.from_dict({"text": TEXTS})
    for number, sizes in enumerate(({}, {"batch_size": 2}, {"shard_size": 5, "batch_size": 3})):
        stored = teacher_outputs(load(teacher_path), rows, tmp_path / str(number), ONE, dtype="float32", **sizes)
        np.testing.assert_allclose(np.stack(stored[LOGITS][:]), expected, atol=1e-5)
    half = teacher_outputs(load(teacher_path), rows, tmp_path / "half", ONE)
    np.testing.assert_allclose(np.stack(half[LOGITS][:]), expected, rtol=1e-3, atol=1e-3)


def test_only_missing_shards_are_computed(teacher_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    outputs = Teacher.outputs

    def counted(self: Teacher, rows: dict[str, list[Any]], *args: Any) -> Any:
        if len(computed) == 2:
            computed.append(0)
            raise KeyboardInterrupt
        computed.append(len(rows["text"]))
        return outputs(self, rows, *args)

    monkeypatch.setattr(Teacher, "outputs", counted)
    rows = Dataset.from_dict({"text": TEXTS})
    with pytest.raises(KeyboardInterrupt):
        teacher_outputs(load(teacher_path), rows, tmp_path, ONE, shard_size=5)
    before = hashes(tmp_path)
    (tmp_path / f"{'0' * 32}.1.tmp").write_bytes(b"half a shard")
    stored = teacher_outputs(load(teacher_path), rows, tmp_path, ONE, shard_size=5)
    assert computed == [5, 5, 0, 5, 2]
    assert before.items() <= hashes(tmp_path).items()
    assert len(stored) == 17
    # The same texts with more behind them share the whole shards; another teacher shares none.
    more = concatenate_datasets([rows, Dataset.from_dict({"text": ["new"]})])
    teacher_outputs(load(teacher_path), more, tmp_path, ONE, shard_size=5)
    assert computed[5:] == [3]
    other = write_teacher(tmp_path / "other", ["b", "a", "c"], TEXTS, hidden_act="relu")
    teacher_outputs(load(other), rows, tmp_path, ONE, shard_size=5)
    assert computed[6:] == [5, 5, 5, 2]


def test_other_labels_are_an_error_that_names_both(teacher_path: Path) -> None:
    assert label_order(["c", "a", "b"], ["a", "b", "c"]) == [1, 2, 0]
    for labels in (["a", "b"], ["a", "b", "c", "d"], ["a", "b", "x"], []):
        with pytest.raises(UserError, match=rf"b, a, c.*{', '.join(labels)}"):
            Teacher.load(str(teacher_path), labels, ("text",))


def test_a_teacher_of_another_task_or_an_exported_one_is_refused_for_what_it_is(
    teacher_path: Path, tmp_path: Path
) -> None:
    tagger = write_teacher(tmp_path / "tagger", ["O", "X"], [["good", "film"]], tags=True)
    with pytest.raises(UserError, match="modeling-star tag"):
        Teacher.load(str(tagger), ["O", "X"], ("text",))
    with pytest.raises(UserError, match="modeling-star classify"):
        Teacher.load(str(teacher_path), ["a", "b", "c"], ("tokens",), has_words=True)
    (tagger / "model.safetensors").rename(tagger / "model.onnx")
    with pytest.raises(UserError, match="exported"):
        Teacher.load(str(tagger), ["O", "X"], ("tokens",), has_words=True)


# ------ alignment


def test_a_taggers_outputs_are_aligned_by_words(tmp_path: Path) -> None:
    sentences = [["unwatchable", "plot", "of", "Oslo"], ["good"], ["the", "unwatchable"] * 10]
    path = write_teacher(tmp_path / "tagger", ["O", "X"], sentences, tags=True, limit=12)
    teacher = Teacher.load(str(path), ["O", "X"], ("tokens",), has_words=True)
    rows = Dataset.from_dict({"tokens": sentences})
    stored = teacher_outputs(teacher, rows, tmp_path / "store", ONE, dtype="float32", batch_size=2)
    # The student's pieces are single characters, whose number differs from the teacher's.
    student = train_tokenizer(sentences, "wordpiece", vocab_size=40)
    features = tokenize_and_align(rows, student, tokens_column="tokens", tags_column=None)
    features = (
        features.rename_column("example_index", ROW).remove_columns("num_words").add_column("labels", [None] * 3)
    )
    batch = DistillationCollator(DataCollatorForTokenClassification(student), stored, 2, INPUTS)(list(features))
    assert batch[LOGITS].shape == (*batch["input_ids"].shape, 2)
    assert (batch["labels"] == -100).all()
    assert not {ROW, "word_ids"} & batch.keys()
    truncated = 0
    for number, words in enumerate(sentences):
        encoding = teacher.tokenizer(
            words, is_split_into_words=True, truncation=True, max_length=12, return_tensors="pt"
        )
        with torch.no_grad():
            logits = teacher.model(**encoding).logits[0]
        pieces, places = encoding.word_ids(0), features[number]["word_ids"]
        known = [word in pieces for word in range(len(words))]
        truncated += known.count(False)
        for place in range(batch["input_ids"].shape[1]):
            word = places[place] if place < len(places) else -1
            if word == -1 or not known[word]:
                assert batch[LOGITS][number, place].isnan().all()
            else:
                torch.testing.assert_close(batch[LOGITS][number, place], logits[pieces.index(word)], atol=1e-5, rtol=0)
        assert sorted(set(places) - {-1}) == list(range(len(words)))
    assert 0 < truncated < 20


# ------ losses


def softmax(row: list[float], temperature: float) -> list[float]:
    powers = [math.exp(x / temperature) for x in row]
    return [x / sum(powers) for x in powers]


def soft_formula(kind: str, problem: str, row: Tensor, target: list[float], temperature: float) -> Tensor:
    """The loss of one text, written out."""
    k = len(target)
    if kind == "mse":
        return sum((row[i] - target[i]) ** 2 for i in range(k)) / k
    if problem == "multi_label_classification":
        total = 0.0
        for i in range(k):
            wanted, given = 1 / (1 + math.exp(-target[i] / temperature)), torch.sigmoid(row[i] / temperature)
            total = total - wanted * torch.log(given) - (1 - wanted) * torch.log(1 - given)
        return temperature**2 * total / k
    wanted, given = softmax(target, temperature), torch.softmax(row / temperature, 0)
    return temperature**2 * sum(w * (math.log(w) - torch.log(given[i])) for i, w in enumerate(wanted))


def hard_formula(problem: str, row: Tensor, label: Any) -> Tensor:
    if problem == "regression":
        return (row[0] - label) ** 2
    if problem == "multi_label_classification":
        known = [i for i in range(len(row)) if label[i] != -100]
        signs = [2 * label[i] - 1 for i in known]
        return sum(-torch.log(torch.sigmoid(s * row[i])) for i, s in zip(known, signs, strict=True)) / len(known)
    return -torch.log_softmax(row, 0)[label]


LABELS = {
    "single_label_classification": ([2, -100, 0], -100),
    "multi_label_classification": ([[1.0, 0.0, -100.0], [-100.0] * 3, [0.0, 1.0, 1.0]], [-100.0] * 3),
    "regression": ([-100.0, float("nan"), 3.0], float("nan")),
}


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["mse", "kl"])
@pytest.mark.parametrize("problem", list(LABELS))
def test_losses_and_gradients_are_those_of_the_formulas(problem: str, kind: str, alpha: float) -> None:
    if (problem, kind) == ("regression", "kl"):
        pytest.skip("a number has no distribution")
    labels, unknown = LABELS[problem]
    k = 1 if problem == "regression" else 3
    teacher = torch.randn(3, k, generator=torch.Generator().manual_seed(1)) * 3
    logits = torch.randn(3, k, generator=torch.Generator().manual_seed(2), requires_grad=True)
    loss = DistillationLoss(TaskLoss(problem), kind, 2.0, alpha)
    actual = loss(logits, torch.tensor(labels), teacher)
    assert loss.count(torch.tensor(labels), teacher) == 3
    expected = torch.tensor(0.0)
    for row, label, target in zip(logits, labels, teacher.tolist(), strict=True):
        soft = soft_formula(kind, problem, row, target, 2.0)
        is_labelled = str(label) != str(unknown)
        expected = expected + ((1 - alpha) * soft + alpha * hard_formula(problem, row, label) if is_labelled else soft)
    torch.testing.assert_close(actual, expected)
    gradients = [torch.autograd.grad(x, logits)[0] for x in (actual, expected)]
    assert gradients[0].isfinite().all()
    torch.testing.assert_close(*gradients)


def test_tokens_without_a_teacher_have_no_soft_loss() -> None:
    logits = torch.randn(2, 4, 3, requires_grad=True)
    teacher = torch.full((2, 4, 3), math.nan)
    teacher[0, 1], teacher[1, 2] = torch.tensor([1.0, -1.0, 0.0]), torch.tensor([0.0, 2.0, 0.0])
    labels = torch.full((2, 4), -100)
    labels[0, 1], labels[0, 3] = 2, 1
    for alpha, count, rows in ((0.0, 2, {(0, 1), (1, 2)}), (0.5, 3, {(0, 1), (0, 3), (1, 2)})):
        loss = DistillationLoss(TaskLoss("tokens"), "kl", 1.0, alpha)
        assert loss.count(labels, teacher) == count
        total = loss(logits, labels, teacher)
        (gradient,) = torch.autograd.grad(total, logits)
        assert {tuple(place) for place in gradient.abs().sum(-1).nonzero().tolist()} == rows
        expected = (1 - alpha) * soft_formula("kl", "tokens", logits[0, 1], [1.0, -1.0, 0.0], 1.0)
        expected = expected + soft_formula("kl", "tokens", logits[1, 2], [0.0, 2.0, 0.0], 1.0)
        expected = expected - alpha * (logits[0, 1].log_softmax(0)[2] + logits[0, 3].log_softmax(0)[1])
        torch.testing.assert_close(total, expected)


def test_labels_that_a_crf_forbids_leave_the_loss_finite_and_without_gradient() -> None:
    scores = torch.tensor([[[0.3, -0.2, -1e4]]], requires_grad=True)
    loss = DistillationLoss(CRFLoss(), "kl", has_crf=True)
    total = loss(scores.log_softmax(-1), torch.tensor([[-100]]), torch.tensor([[[1.0, 1.0, 1.0]]]))
    (gradient,) = torch.autograd.grad(total, scores)
    assert total < 20
    assert gradient[0, 0, 1] < 0 < gradient[0, 0, 0]  # the other two become equal
    assert abs(gradient[0, 0, 2]) < 1e-6


# ------ augmentation


# ------ runs


@pytest.fixture(scope="module")
def distil(
    scripts: ScriptRunner, corpora: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[str | Path]]:
    """The arguments of a run of run_distill.py on a tiny corpus, whose teacher is made on its first call."""
    teachers: dict[str, Path] = {}

    def arguments(shape: str, unlabelled: Path | None = None) -> list[str | Path]:
        folder, tags = corpora / shape, shape == "entities"
        rows = read_rows(folder / "train.jsonl")
        if shape not in teachers:
            path = tmp_path_factory.mktemp(shape)
            texts = [row[name] for row in rows for name in ("tokens", "text", "sentence1", "sentence2") if name in row]
            cells = [row.get("label", row.get("labels", row.get("ner_tags", "score"))) for row in rows]
            names = sorted({name for cell in cells for name in ([cell] if isinstance(cell, str) else cell)})
            fields = {"problem_type": "multi_label_classification"} if shape == "topics" else {}
            teachers[shape] = write_teacher(path, names[::-1], texts, tags, max_position_embeddings=128, **fields)
        return [
            *("run_distill.py", f"--task={'tagging' if tags else 'classification'}", f"--teacher={teachers[shape]}"),
            *(f"--train_file={folder / 'train.jsonl'}", f"--validation_file={folder / 'validation.jsonl'}"),
            f"--unlabeled_file={unlabelled or folder / 'plain.jsonl'}",
            *(
                "--num_train_epochs=2",
                "--per_device_train_batch_size=16",
                "--learning_rate=5e-3",
                "--disable_tqdm=true",
            ),
            *("--logging_steps=1", *TINY),
        ]

    return arguments


def test_a_run_learns_its_teacher_and_its_folder_loads_without_this_package(
    scripts: ScriptRunner, distil: Callable[..., list[Any]], corpora: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more.txt"
    more.write_text("The plot was dull\n\nWe loved the soup\n", encoding="utf-8")
    model, cache = tmp_path / "model", tmp_path / "cache"
    command = [*distil("sentiment", more), "--augment=1", f"--test_file={corpora / 'sentiment' / 'test.jsonl'}"]
    command += ["--num_train_epochs=8", f"--teacher_cache={cache}"]
    scripts.check(*command, f"--output_dir={model}")
    losses = [entry["loss"] for entry in log_of(model) if "loss" in entry]
    assert losses[-1] < 0.7 * losses[0]
    results = results_of(model)
    assert results["train_samples"] == 60
    assert 30 < results["unlabeled_samples"] <= 62
    assert results["eval_samples"] == 21
    card = (model / "README.md").read_text(encoding="utf-8")
    assert "more.txt, 1 augmented copies" in card
    assert "mse, alpha 0" in card
    assert len(list(cache.glob("*.arrow"))) == 1
    code = """
import json, sys
sys.modules["modeling_star"] = None
from safetensors.torch import load_file
from transformers import pipeline
classify = pipeline("text-classification", sys.argv[1], trust_remote_code=True)
tensors = load_file(sys.argv[1] + "/model.safetensors")
known = classify.model.state_dict()
print(json.dumps([classify("a fine film")[0]["label"], sorted(tensors.keys() - known.keys())]))
"""
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([sys.executable, "-c", code, str(model)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    label, unknown = json.loads(done.stdout.splitlines()[-1])
    assert label in ("positive", "negative")
    assert unknown == []
