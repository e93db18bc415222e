"""Exported models in ONNX Runtime: outputs at any batch size, length and right padding; the folder of an export."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from common import TINY, lexicon_of, some_words, tiny_model
from samples import embedded_model, word_tokenizer
from saved_models import saved
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from modeling_star.commands import export as command
from modeling_star.errors import UserError
from modeling_star.inference import export, onnx_runtime
from modeling_star.inference.export import export_onnx
from modeling_star.training.build import STAR_PLUS


SHAPES = ((7, 4), (12, 1, 6), (5,), (1, 0))  # lengths of the rows of each batch; the first one is exported


def batch(lengths: tuple[int, ...]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(len(lengths))
    ids = torch.randint(3, TINY["vocab_size"], (len(lengths), max(lengths)), generator=generator)
    return {"input_ids": ids, "attention_mask": (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()}


def star(head: str, **options: Any) -> Callable[[], PreTrainedModel]:
    return lambda: tiny_model("StarTransformer", head, **options)


def with_characters() -> PreTrainedModel:
    model = tiny_model("StarTransformer", "ForTokenClassification", char_features=True)
    model.set_vocabulary(word_tokenizer("a ##b C 1 DE 2f ; 文"))
    return model


def with_words() -> PreTrainedModel:
    model = tiny_model("BigTransformer", "ForTokenClassification")
    model.set_lexicon(lexicon_of(some_words()))
    return model


FROM_BERT = {
    **{"local_connection": "window", "window_radius": 2, "word_vector": "mean", "global_node": "first"},
    **{"embedding_norm": True, "pooling": "global", "hidden_act": "gelu"},
}


MODELS = {
    "star": star("ForSequenceClassification", ngram_buckets=64, max_ngram_length=3),
    "vote": lambda: embedded_model("vote", "StarTransformer", "ForSequenceClassification", Path(), ""),
    "star-plus-2": star("ForTokenClassification", **STAR_PLUS),
    "characters": with_characters,
    "words": with_words,
    "from bert": lambda: tiny_model("BigTransformer", "ForSequenceClassification", **FROM_BERT),
    "from bert, tokens": lambda: tiny_model("BigTransformer", "ForTokenClassification", **FROM_BERT),
    "radius": star("ForQuestionAnswering", ring_radius=2, pooling="mean"),
    "vanilla": lambda: tiny_model("VanillaTransformer", "ForMaskedLM"),
    "crf": star("ForTokenClassification", use_crf=True),
    "bilstm": lambda: tiny_model("BiLstm", "ForTokenClassification"),
    "disan": lambda: tiny_model("Disan", "ForSequenceClassification"),
}


@torch.no_grad()
@pytest.mark.parametrize(
    "kind", [kind if kind == "from bert" else pytest.param(kind, marks=pytest.mark.slow) for kind in MODELS]
)
def test_onnx_runtime_computes_the_same_for_every_shape(kind: str, tmp_path: Path) -> None:
    model, path = MODELS[kind]().eval(), tmp_path / "model.onnx"
    export_onnx(model, list(batch(SHAPES[0])), path)
    session = onnxruntime.InferenceSession(path)
    for lengths in SHAPES:
        inputs = batch(lengths)
        outputs = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        expected = model(**inputs)
        assert [output.name for output in session.get_outputs()] == list(expected.keys())
        for actual, correct in zip(map(torch.from_numpy, outputs), expected.values(), strict=True):
            real = inputs["attention_mask"].bool() if correct.shape[:2] == inputs["input_ids"].shape else ...
            assert (actual - correct)[real].abs().max() < 1e-4


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["star", "vote", "words"])
def test_a_runtime_with_integers_of_32_bits_computes_the_same(kind: str, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino", reason="pip install openvino==2026.4.1")
    torch.manual_seed(0)
    model, path = MODELS[kind]().eval(), tmp_path / "model.onnx"
    if kind == "star":
        model.classifier.ngrams.weight.normal_()
    export_onnx(model, list(batch(SHAPES[0])), path)
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    session = onnxruntime.InferenceSession(path)
    for lengths in (*SHAPES, (16, 16, 16)):
        inputs = {name: value.numpy() for name, value in batch(lengths).items()}
        (expected,) = session.run(["logits"], inputs)
        assert abs(compiled(inputs)["logits"] - expected).max() < 1e-4


# ------ the folder


def saved_tagger(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """A tagger with a CRF, as wide as is needed for joined weights that are no constants to torch's exporter."""
    options = {"hidden_size": 128, "vocab_size": len(tokenizer), "max_position_embeddings": 512}
    names = {"id2label": {0: "O", 1: "B-X", 2: "I-X"}, "label2id": {"O": 0, "B-X": 1, "I-X": 2}}
    shape = {"position_embedding_type": "ring", "residual": True, "use_crf": True, "crf_constraints": "auto"}
    model = tiny_model("StarTransformer", "ForTokenClassification", tokenizer=tokenizer, **options, **names, **shape)
    with torch.no_grad():  # sums of large scores over a long text are not exact in float32
        for parameter in model.crf.parameters():
            parameter.mul_(0.03)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def run_command(monkeypatch: pytest.MonkeyPatch, *typed: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["export", *map(str, typed)])
    command.main()


@pytest.mark.slow
def test_a_folder_predicts_without_torch_and_a_failure_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = word_tokenizer("fine film begin ##s slow ##ly")
    tokenizer.backend_tokenizer.pre_tokenizer = BertPreTokenizer()  # the page reads no other but our own
    saved_tagger(tmp_path / "model", tokenizer)
    output_dir = tmp_path / "exported"
    options = ("--web", "--output_dir", output_dir)
    run_command(monkeypatch, tmp_path / "model", *options)
    assert "largest difference" in capsys.readouterr().out
    written = onnx_runtime._FILES - {"model.int8.onnx"}
    assert {path.name for path in output_dir.iterdir()} == written - {*onnx_runtime.INSTALLED}

    # Its labels are those of PyTorch, and it imports neither torch nor this package.
    model, _ = export.load(str(tmp_path / "model"))
    text = "fine film begins slowly"
    path = model.decode(**tokenizer(text, return_tensors="pt"))[0].tolist()
    labels = [model.config.id2label[path[column]] for column in (1, 2, 3, 5)]
    (tmp_path / "blocked").mkdir()
    for name in ("torch", "transformers", "modeling_star"):
        (tmp_path / "blocked" / f"{name}.py").write_text("raise ImportError")
    typed = [sys.executable, str(output_dir / "predict.py"), text]
    environment = {"PYTHONPATH": str(tmp_path / "blocked")}
    done = subprocess.run(typed, env=environment, capture_output=True, text=True, check=True)
    assert [line.split()[1:] for line in done.stdout.splitlines()] == [
        [word, label] for word, label in zip(text.split(), labels, strict=True)
    ]

    # A failure leaves the earlier export and nothing beside it, a success what npm has installed.
    (output_dir / "node_modules").mkdir()
    before = {path.name: path.stat().st_mtime_ns for path in output_dir.iterdir()}
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    monkeypatch.setattr(
        export, "export_onnx", lambda model, names, path: path.write_bytes((output_dir / path.name).read_bytes())
    )
    with pytest.raises(SystemExit, match="differs"):
        run_command(monkeypatch, tmp_path / "model", *options)
    assert {path.name: path.stat().st_mtime_ns for path in output_dir.iterdir()} == before
    monkeypatch.setattr(export, "TOLERANCE", 1e-4)
    run_command(monkeypatch, tmp_path / "model", *options)
    assert {path.name for path in output_dir.iterdir()} == written - {"package-lock.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"model", "exported", "blocked"}


def test_what_cannot_be_exported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "translator").mkdir()
    config = {"model_type": "marian", "is_encoder_decoder": True, "architectures": ["MarianMTModel"]}
    (tmp_path / "translator" / "config.json").write_text(json.dumps(config))
    with pytest.raises(SystemExit, match="Only encoders"):
        run_command(monkeypatch, tmp_path / "translator", "--output_dir", tmp_path / "exported")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("mine")
    saved_tagger(tmp_path / "model", word_tokenizer("a b"))
    with pytest.raises(SystemExit):
        run_command(monkeypatch, tmp_path / "model", "--output_dir", tmp_path / "notes")
    assert "no earlier export" in capsys.readouterr().err
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("head", "kind", "fields", "reason"),
    [
        ("MaskedLM", "wordpiece", {}, "taggers and classifiers"),
        ("SequenceClassification", "wordpiece", {"pair_mode": "siamese"}, "single texts"),
        ("TokenClassification", "byte", {}, "ByteLevel"),
    ],
)
def test_a_page_is_refused_for_what_its_script_cannot_read(
    head: str, kind: str, fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    model, tokenizer = export.load(str(saved(tmp_path / "model", head, kind, **fields)))
    with pytest.raises(UserError, match=reason):
        export.write_export(model, tokenizer, tmp_path / "page", web=True)
    assert not (tmp_path / "page").exists()
