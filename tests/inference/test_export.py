"""Exported models: the outputs of ONNX Runtime at any shape, the folder, and predictions without torch."""

import json
import shutil
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
from saved_models import SCHEMES, TEXTS, saved, with_vocabulary
from script_runner import ROOT
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from modeling_star.commands import export as command
from modeling_star.errors import UserError
from modeling_star.inference import Predictor, export, onnx_runtime
from modeling_star.inference.export import export_onnx, load, write_export
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
    "from bert, wide": lambda: tiny_model(
        "BigTransformer", "ForSequenceClassification", **{**FROM_BERT, "window_radius": 17}, max_position_embeddings=64
    ),
    "radius": star("ForQuestionAnswering", ring_radius=2, pooling="mean"),
    "vanilla": lambda: tiny_model("VanillaTransformer", "ForMaskedLM"),
    "crf": star("ForTokenClassification", use_crf=True),
    "bilstm": lambda: tiny_model("BiLstm", "ForTokenClassification"),
    "disan": lambda: tiny_model("Disan", "ForSequenceClassification"),
}


@torch.no_grad()
@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ("from bert", "from bert, wide") else pytest.param(kind, marks=pytest.mark.slow)
        for kind in MODELS
    ],
)
def test_onnx_runtime_computes_the_same_for_every_shape(kind: str, tmp_path: Path) -> None:
    model, path = MODELS[kind]().eval(), tmp_path / "model.onnx"
    export_onnx(model, list(batch(SHAPES[0])), path)
    session = onnxruntime.InferenceSession(path)
    for lengths in (*SHAPES, *[(40, 23)] * (kind == "from bert, wide")):
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
    assert {path.name for path in output_dir.iterdir()} == onnx_runtime._FILES - {*onnx_runtime.INSTALLED}

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
    assert {path.name for path in output_dir.iterdir()} == onnx_runtime._FILES - {"package-lock.json"}
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


CLASSES = {"id2label": {0: "bad", 1: "good", 2: "so"}}
ENTITIES = {"id2label": dict(enumerate(SCHEMES["iob"])), "use_crf": True}
LONG = " ".join(TEXTS * 3)  # longer than the models take


def exported(folder: Path) -> Path:
    output = folder.with_name(f"{folder.name}-onnx")
    write_export(*load(str(folder)), output)
    return output


@pytest.fixture(scope="module")
def crf_tagger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a tagger with a CRF and a temperature, and that of its export."""
    fields = {**ENTITIES, "calibration_temperature": 1.7}
    folder = saved(tmp_path_factory.mktemp("tagger") / "model", "TokenClassification", **fields)
    return with_vocabulary(folder), exported(folder)


def test_an_export_has_the_temperature_and_all_spans(crf_tagger: tuple[Path, Path]) -> None:
    folder, output = crf_tagger
    counts = []
    for options in ({}, {"min_probability": 0.1}, {"min_probability": 0.02}):
        expected = Predictor(folder, **options).predict([*TEXTS, LONG])
        for (_, found), (_, entities) in zip(
            Predictor(output, **options).predict([*TEXTS, LONG]), expected, strict=True
        ):
            assert [(e["label"], e["start"], e["end"]) for e in found] == [
                (e["label"], e["start"], e["end"]) for e in entities
            ]
            assert [e["score"] for e in found] == pytest.approx([e["score"] for e in entities], abs=1e-5)
        counts.append(sum(len(found) for _, found in expected))
    few, many, most = counts
    assert few < many < most


def test_the_command_needs_four_small_packages(tmp_path: Path) -> None:
    """Typed texts, and files of each kind but parquet; with a folder where other packages cannot be imported."""
    folder = saved(tmp_path / "model", "SequenceClassification", **CLASSES)
    output, blocked, reviews = exported(folder), tmp_path / "blocked", tmp_path / "in.csv"
    blocked.mkdir()
    for name in ("torch", "transformers", "huggingface_hub", "safetensors", "datasets", "pyarrow", "pandas"):
        (blocked / f"{name}.py").write_text("raise AssertionError('imported')", encoding="utf-8")
    reviews.write_text("id,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS)), encoding="utf-8")
    environment = {"PYTHONPATH": f"{blocked}:{ROOT}", "HOME": str(tmp_path)}

    def run(*arguments: Any) -> str:
        typed = [sys.executable, "-m", "modeling_star", "predict", *map(str, arguments)]
        return subprocess.run(typed, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    expected = [found for _, found in Predictor(folder).predict(TEXTS)]
    assert run(output, TEXTS[0]).splitlines()[1].split()[0] == expected[0][0]["label"]
    assert "5 rows" in run(output / "model.onnx", "--file", reviews, "--output_file", "out.csv")
    rows = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "id,text,label,score"
    assert [row.split(",")[-2] for row in rows[1:]] == [found[0]["label"] for found in expected]
    run(output, "--file", "out.csv", "--output_file", "out.tsv")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    run(output, "--file", "in.jsonl", "--output_file", "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["label"] for line in lines] == [found[0]["label"] for found in expected]


def test_a_damaged_export_is_named(tmp_path: Path) -> None:
    for name in ("config.json", "model.onnx"):
        (tmp_path / name).write_bytes(b"\x00")
    with pytest.raises(UserError, match=r"config\.json"):
        Predictor(tmp_path).load()


def test_tables_of_a_crf_that_are_missing_or_wrong_are_named(crf_tagger: tuple[Path, Path], tmp_path: Path) -> None:
    output = shutil.copytree(crf_tagger[1], tmp_path / "copy")
    path = output / "crf.json"
    tables = json.loads(path.read_text(encoding="utf-8"))
    fewer = {**tables, "transitions": [row[1:] for row in tables["transitions"][1:]]}
    outside = {**tables, "carry_no_tag": [tables["vocab_size"]]}
    for text in ("", "[]", "{}", json.dumps(fewer), json.dumps(outside)):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=r"crf\.json"):
            Predictor(output).load()
    path.unlink()
    with pytest.raises(UserError, match=r"crf\.json"):
        Predictor(output).predict(TEXTS)
    path.write_text(json.dumps(tables), encoding="utf-8")
    assert Predictor(output).score_is == "span probability"


def test_a_model_for_questions_is_refused_with_what_answers_them(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    fields = {"architectures": ["StarTransformerForQuestionAnswering"], "id2label": {"0": "a", "1": "b"}}
    (tmp_path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(UserError, match=r"predict\.py --pairs"):
        Predictor(tmp_path)
