"""Predictions of many texts: what programs give, files in one process or several, precision, interruptions."""

import contextlib
import errno
import filecmp
import gzip
import json
import os
import pickle
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from common import TINY
from datasets import Dataset
from fastapi.testclient import TestClient
from pyarrow.parquet import read_table
from real_data import data_folder
from saved_models import SCHEMES, TEXTS, bert_tokenizer, saved, with_vocabulary

import modeling_star
from modeling_star.commands import predict
from modeling_star.data import windows
from modeling_star.data.text_types import Text
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.estimators import StarClassifier
from modeling_star.inference import Predictor, prediction_files, torch_runtime
from modeling_star.inference.output_rows import Prediction, Source, rounded
from modeling_star.inference.prediction_files import predict_to_file
from modeling_star.inference.saved_model import SavedModel
from modeling_star.kernels import cpu
from modeling_star.kernels.compiled import is_compiled


@pytest.fixture
def tagger(tmp_path: Path) -> Path:
    return saved(tmp_path / "tagger", "TokenClassification", id2label=dict(enumerate(SCHEMES["iob"])))


def found(predictor: Predictor, texts: list[Text]) -> list[list[dict[str, Any]]]:
    return [predictions for _, predictions in predictor.predict(texts)]


_THREADS = """
import sys, threading
import torch
from modeling_star.inference import Predictor

if sys.argv[2] == "set":
    torch.set_num_threads(3)
before = torch.get_num_threads()
texts = ["Ada met Charles in London.", "London", "It rained."] * 4
predictors = [Predictor(sys.argv[1], batch_size=2) for _ in range(2)]
numbers, entities = [], []


def request(predictor, fails):
    numbers.append(torch.get_num_threads())
    if fails:
        predictor._run_model = lambda **_: 1 / 0
    try:
        entities.append([found for _, found in predictor.predict(texts)])
    except ZeroDivisionError:
        pass
    torch.ones(9, 9) @ torch.ones(9, 9)
    numbers.append(torch.get_num_threads())


for fails in (False, True):
    threads = [threading.Thread(target=request, args=(each, fails)) for each in predictors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    late = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
    late.start()
    late.join()
numbers.append(torch.get_num_threads())
torch.set_num_threads(1)
entities.append([found for _, found in Predictor(sys.argv[1], batch_size=2).predict(texts)])
print(before, len(numbers), set(numbers), len(entities), all(each == entities[0] for each in entities))
"""


@pytest.mark.parametrize("how", ["environment", "set"])
def test_predictions_leave_every_thread_its_number_of_threads(how: str, tagger: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    command = [sys.executable, "-c", _THREADS, str(tagger), how]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    count = 3 if how == "set" else 2
    assert done.stdout.split("\n")[0] == f"{count} 11 {{{count}}} 3 True"


def test_a_predictor_is_a_function_of_columns(tagger: Path) -> None:
    predictor = Predictor(tagger)
    rows = Dataset.from_dict({"id": list(range(6)), "text": [*TEXTS[:3], "", *TEXTS[3:]]})
    mapped = rows.map(pickle.loads(pickle.dumps(predictor)), batched=True, features=predictor.features(rows.features))
    expected = found(predictor, TEXTS)
    assert mapped["found"][:] == [*expected[:3], [], *expected[3:]]
    assert mapped["id"][:] == rows["id"][:]


def test_a_pickled_predictor_is_that_of_its_weights(tagger: Path) -> None:
    predictor = pickle.loads(pickle.dumps(Predictor(tagger)))
    assert vars(predictor)["fingerprint"] == SavedModel.load(str(tagger)).fingerprint()


class KilledError(Exception):
    pass


# ------ files


@pytest.fixture
def write(tagger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Predict 20 texts into a file, in windows of three."""
    monkeypatch.setattr(prediction_files, "TEXTS_OF_WINDOW", 3)

    def run(name: str, predictor: Predictor | None = None, texts: list[str] = TEXTS * 4, rank: int = 0) -> Path:
        output = tmp_path / name
        monkeypatch.setenv("RANK", str(rank))
        rows = ((Source(index), text) for index, text in enumerate(texts))
        predict_to_file(predictor or Predictor(tagger), rows, output, {})
        return output

    return run


def dying(folder: Path, after: int) -> Predictor:
    """A predictor that fails at some window."""
    predictor, windows = Predictor(folder), iter(range(after))
    predict = predictor._predict

    def limited(*texts: Any) -> Any:
        if next(windows, None) is None:
            raise KilledError
        return predict(*texts)

    predictor._predict = limited  # type: ignore[method-assign]
    return predictor


@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".csv", ".tsv"])
def test_an_interrupted_run_continues_to_the_same_bytes(write: Callable[..., Path], tagger: Path, ending: str) -> None:
    whole = write(f"whole{ending}")
    for after in (2, 1, 3):
        with pytest.raises(KilledError):
            write(f"killed{ending}", dying(tagger, after))
    assert not whole.with_name(f"killed{ending}").exists()
    killed = write(f"killed{ending}", dying(tagger, 1))  # the last of the seven windows
    assert filecmp.cmp(whole, killed, shallow=False)
    assert not list(whole.parent.glob("*.parts"))
    if ending not in (".jsonl", ".parquet"):
        return
    rows = (
        read_table(whole).to_pylist() if ending == ".parquet" else [*map(json.loads, whole.read_text().splitlines())]
    )
    expected = found(Predictor(tagger), TEXTS) * 4
    assert rows == [
        {"index": index, "text": text, "found": rounded(entities), "entities": rounded(entities)}
        for index, (text, entities) in enumerate(zip(TEXTS * 4, expected, strict=True))
    ]


@pytest.mark.parametrize("ending", [".jsonl"])
def test_a_process_killed_at_any_step_continues_to_the_same_bytes(write: Callable[..., Path], ending: str) -> None:
    whole, step = write(f"whole{ending}"), 0
    while True:
        step += 5
        process = os.fork()
        if process == 0:
            steps = iter(range(step))

            def count(event: str, arguments: Any, steps: Iterator[int] = steps) -> None:
                is_step = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "open")
                if is_step and ".parts" in f"{arguments[0]}" and next(steps, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)

            torch.set_num_threads(1)  # the pool of threads is not in the fork
            sys.addaudithook(count)
            with contextlib.suppress(BaseException):
                write(f"killed{step}{ending}")
            os._exit(0)
        _, status = os.waitpid(process, 0)
        output = whole.with_name(f"killed{step}{ending}")
        if not output.exists() or output.with_name(f"{output.name}.parts").exists():
            with contextlib.suppress(UserError):  # it was whole, and nothing is overwritten
                write(output.name)
        assert filecmp.cmp(whole, output, shallow=False)
        assert not [*whole.parent.glob("*.parts"), *whole.parent.glob("*.tmp")]
        if status == 0:
            break
    assert step > 20


def test_a_second_process_on_one_output_is_refused(write: Callable[..., Path], tagger: Path) -> None:
    predictor, refused = Predictor(tagger), []
    predict = predictor._predict

    def meanwhile(*texts: Any) -> Any:
        with pytest.raises(UserError, match="Another process"):
            write("out.jsonl")
        refused.append(True)
        return predict(*texts)

    predictor._predict = meanwhile  # type: ignore[method-assign]
    assert filecmp.cmp(write("whole.jsonl"), write("out.jsonl", predictor), shallow=False)
    assert len(refused) == 7


@pytest.mark.parametrize("done", [0, 2])
def test_an_interrupted_command_says_whether_it_continues(
    done: int, tagger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    output, windows = tmp_path / "out.jsonl", iter(range(done))
    predict_texts = Predictor._predict

    def interrupted(self: Predictor, *texts: Any) -> Any:
        if next(windows, None) is None:
            raise KeyboardInterrupt
        return predict_texts(self, *texts)

    monkeypatch.setattr(Predictor, "_predict", interrupted)
    monkeypatch.setattr(prediction_files, "TEXTS_OF_WINDOW", 3)
    monkeypatch.setattr(sys, "argv", ["predict", str(tagger), *TEXTS * 4, "--output_file", str(output)])
    with pytest.raises(SystemExit) as stopped:
        predict.main()
    assert stopped.value.code == 130
    message = capsys.readouterr().err
    assert ("continues" in message) == bool(done)
    assert output.with_name("out.jsonl.parts").exists() == bool(done)


def test_two_processes_write_what_one_writes(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    one = write("one.jsonl")
    monkeypatch.setenv("WORLD_SIZE", "2")
    two = write("two.jsonl", rank=1)
    assert not two.exists()
    assert len(list(two.with_name("two.jsonl.parts").glob("*-*.jsonl"))) == 3
    assert filecmp.cmp(one, write("two.jsonl", rank=0), shallow=False)


def test_another_run_is_refused(write: Callable[..., Path], tagger: Path, tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        write("out.jsonl", dying(tagger, 2))
    with pytest.raises(UserError, match="'batch_size': 5"):
        write("out.jsonl", Predictor(tagger, batch_size=5))
    with pytest.raises(UserError, match="input has changed"):
        write("out.jsonl", texts=TEXTS)
    other = saved(tmp_path / "other", "TokenClassification", id2label=dict(enumerate(SCHEMES["pos"])))
    with pytest.raises(UserError, match="fingerprint"):
        write("out.jsonl", Predictor(other))
    write("out.jsonl")
    with pytest.raises(UserError, match=r"out\.jsonl exists"):
        write("out.jsonl")
    with pytest.raises(UserError, match=r"\.parquet"):
        write("out.txt")


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_a_full_disk_is_reported_and_the_same_command_continues(
    ending: str, tagger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, file = tmp_path / f"out{ending}", tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS * 4), encoding="utf-8")
    monkeypatch.setattr(prediction_files, "TEXTS_OF_WINDOW", 3)
    monkeypatch.setattr(sys, "argv", ["predict", str(tagger), "--file", str(file), "--output_file", str(output)])
    replace, full = os.replace, {3, 10}  # in the second part, and when the seven parts are joined

    def failing(*paths: Path) -> None:
        calls.append(paths)
        if len(calls) in full:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(*paths)

    calls: list[tuple[Path, ...]] = []
    monkeypatch.setattr(os, "replace", failing)
    for _ in full:
        with pytest.raises(SystemExit, match=re.escape(f"disk of {tmp_path} is full")):
            predict.main()
        assert not output.exists()
        assert not list(tmp_path.rglob("*.tmp"))
    predict.main()
    rows = read_table(output) if ending == ".parquet" else output.read_text(encoding="utf-8").splitlines()
    assert len(rows) == 20
    assert len(calls) == 11  # options, seven parts and the output, two of them twice


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("kept", [None, 300])
def test_a_folder_with_a_missing_or_truncated_file_is_named(name: str, kept: int | None, tagger: Path) -> None:
    path = tagger / name
    content = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(content[:kept])
    with pytest.raises(UserError, match=str(tagger)):
        found(Predictor(str(tagger)), TEXTS)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"texts": ["half \\ud83d a character"]}', 422),
        (b'{"texts": ["\\ud83d", "Secret"], "\\ud83d": 1}', 422),
        (b'{"texts": ["Secret", 5]}', 422),
        (b'{"texts": "Secret"}', 422),
        (b'{"text": ["Secret"]}', 422),
        (b'{"texts": ["Secret"', 422),
        (b"\xff\xfeSecret", 422),
        (b'{"texts": ["' + b"Secret" * 20_000 + b'"]}', 422),
        (b'{"texts": [' + b'"Secret",' * 2000 + b'""]}', 422),
        (b'{"texts": [' + b",".join([b'"' + b"a" * 90_000 + b'"'] * 12) + b"]}", 413),
        (b'{"texts": ["' + b"Secret" * 1_500_000 + b'"]}', 413),
        (b" " * 9_000_000, 413),
    ],
)
@pytest.mark.parametrize("is_announced", [True, False])
def test_a_service_refuses_a_request_without_repeating_it(
    body: bytes, status: int, is_announced: bool, tagger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", str(tagger))
    client = TestClient(runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "serve.py"))["app"])
    parts = (body[start : start + 100_000] for start in range(0, len(body), 100_000))
    content = body if is_announced else parts
    answer = client.post("/predict", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert "Secret" not in answer.text
    assert len(answer.content) < 20_000


TEXT = "a good film"
HEADS = ("TokenClassification", "SequenceClassification", "QuestionAnswering")


def model_of_words(folder: Path, head: str, kind: str = "word") -> Path:
    torch.manual_seed(1)
    tokenizer = train_tokenizer([TEXT, "don't 3.5 bits"], kind, min_frequency=1, vocab_size=60)
    config = modeling_star.StarTransformerConfig(**{**TINY, "vocab_size": len(tokenizer)})
    model = getattr(modeling_star, f"StarTransformerFor{head}")(config)
    for weight in model.parameters():
        weight.data.mul_(4)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(params=HEADS)
def predictor(request: pytest.FixtureRequest, tmp_path: Path) -> Predictor:
    return Predictor(model_of_words(tmp_path, request.param), question="Who?" if request.param[0] == "Q" else None)


@pytest.fixture
def pairs(tmp_path: Path) -> Predictor:
    return Predictor(model_of_words(tmp_path, "SequenceClassification"), pairs=True)


@pytest.mark.parametrize(
    "batch", [{}, {"text": []}, {"id": [], "Review": []}, {"text": np.array([], dtype=object)}, {"text": ()}]
)
def test_an_empty_batch_has_no_predictions(batch: dict[str, Any], predictor: Predictor) -> None:
    assert predictor(batch) == {**batch, "found": []}
    assert predictor.predict([]) == []


@pytest.mark.parametrize("nothing", [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, "", []])
def test_a_cell_without_a_text_has_no_prediction(nothing: Any, predictor: Predictor) -> None:
    [expected] = predictor({"text": [TEXT]})["found"]
    assert predictor({"text": [nothing, TEXT], "id": [1, "b"]})["found"] == [[], expected]
    assert predictor({"text": [nothing, nothing]})["found"] == [[], []]


@pytest.mark.parametrize(
    "texts",
    [TEXT, b"a", None, {"text": [TEXT]}, pd.DataFrame({"text": [TEXT]}), [TEXT, None], [5], [["a", 5]], ["\ud83d"]],
)
def test_what_is_no_list_of_texts_is_refused(texts: Any, predictor: Predictor) -> None:
    with pytest.raises(UserError):
        predictor.predict(texts)


@pytest.mark.parametrize("nothing", [None, float("nan"), pd.NA, "", []])
def test_a_column_of_labels_has_none_where_a_text_is_missing(nothing: Any, pairs: Predictor, tmp_path: Path) -> None:
    predictor = Predictor(model_of_words(tmp_path / "single", "SequenceClassification"))
    [label] = predictor.labels([TEXT])
    assert predictor.labels(pd.Series([nothing, TEXT, nothing], dtype=object)) == [None, label, None]
    assert predictor.labels([nothing]) == [None]
    [label] = pairs.labels([(TEXT, "a film")])
    assert pairs.labels([(nothing, TEXT), (TEXT, "a film"), (TEXT, nothing), nothing]) == [None, label, None, None]
    with pytest.raises(UserError, match="Text 2"):
        predictor.labels([nothing, 5])


@pytest.mark.parametrize("head", HEADS)
def test_a_token_without_an_embedding_is_an_error(head: str, tmp_path: Path) -> None:
    larger = train_tokenizer([TEXT, "don't 3.5 bits", "Oslo"], "word", min_frequency=1, vocab_size=60)
    folder = model_of_words(tmp_path, head)
    larger.save_pretrained(folder)
    predictor = Predictor(folder, question="a good" if head[0] == "Q" else None)
    last = larger.convert_ids_to_tokens(len(larger) - 1)
    with pytest.raises(UserError, match=str(len(larger) - 1)):
        predictor.predict([TEXT, f"{TEXT} {last}"])
    [found] = predictor.predict(["a good"])  # every token has an embedding
    assert found[1]


def test_options_that_are_set_after_a_prediction_take_effect(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "TokenClassification", id2label=dict(enumerate(SCHEMES["iob"])), use_crf=True)
    predictor = Predictor(with_vocabulary(folder))
    predictor.predict(TEXTS)
    predictor.min_probability = 0.01
    assert found(predictor, TEXTS) == found(Predictor(folder, min_probability=0.01), TEXTS)
    predictor.n_best = 1
    assert found(predictor, TEXTS) == found(Predictor(folder, n_best=1), TEXTS)
    predictor.dtype = "bfloat16"
    assert found(predictor, TEXTS) == found(Predictor(folder, n_best=1, dtype="bfloat16"), TEXTS)


def test_a_model_for_pairs_reads_two_texts_at_a_time(pairs: Predictor) -> None:
    expected = pairs.predict([(TEXT, "a film")])
    assert pairs.predict([[TEXT, "a film"]]) == expected
    assert pairs({"sentence1": [], "sentence2": []})["found"] == []
    for texts in ["ab", "cd"], [(TEXT,)], [(TEXT, "a", "b")], [(TEXT, None)]:
        with pytest.raises(UserError, match="Text 1"):
            pairs.predict(texts)


@pytest.mark.parametrize("cells", [["", None, 3, TEXT], [None, TEXT, 3], [TEXT, b"film"], [TEXT, 2.5, None]])
def test_a_cell_that_is_no_text_is_named_by_its_row(cells: list[Any], predictor: Predictor) -> None:
    row = next(row for row, cell in enumerate(cells, 1) if cell and cell != TEXT)
    with pytest.raises(UserError, match=rf"\b{row}\b"):
        predictor({"text": cells})


@pytest.mark.parametrize("head", HEADS[:2])
def test_scores_that_are_no_numbers_are_an_error(head: str, tmp_path: Path) -> None:
    predictor = Predictor(model_of_words(tmp_path, head))
    predictor.model.classifier.register_forward_hook(lambda *_: torch.full((1, 5, 5)[: 3 - (head[0] == "S")], np.inf))
    with pytest.raises(UserError, match="NaN or infinite"):
        predictor.predict([TEXT])


# ------ runs without a blank

RUN = "acgt" * 60
RUNS = [
    f"a {RUN} film",
    f"{RUN}n't good",
    f"{'7' * 240}.5 bits",
    f"{'7' * 120}b{'7' * 120}.5",
    f"don't x{'7' * 240}n't",
    f"http://{RUN}/{RUN}! a {RUN}-{RUN}",
    f"@{RUN} {RUN} 李{RUN}李 é{RUN}é",
    f"the {'ภาษาไทยกิน' * 24} film, {'при' * 80}n't, {'é1' * 120}",
    f"{'٣' * 240}.{'5' * 240}, {'a' * 120}é{'a' * 120}n't {'क्षि' * 60}",
    RUN,
]


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_predictions_of_a_text_with_long_runs_are_those_of_the_whole_text(
    head: str, words: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[Any] = [text.split() if words else text for text in RUNS]
    question = "Who?" if head == "QuestionAnswering" else None
    expected = Predictor(model_of_words(tmp_path, head), question=question).predict(texts)
    assert any(found for _, found in expected)
    monkeypatch.setattr(windows, "LONGEST_RUN", 110)
    assert Predictor(tmp_path, question=question).predict(texts) == expected


@pytest.mark.parametrize(
    ("head", "name", "texts"),
    [
        ("SequenceClassification", "logits", ["\ud800"]),
        ("SequenceClassification", "logits", TEXT),
        ("SequenceClassification", "tag_words", [["good"]]),
        ("TokenClassification", "tag_words", [["\ud800"]]),
        ("TokenClassification", "tag_words", [TEXT]),
        ("TokenClassification", "tag_words", TEXT),
        ("TokenClassification", "logits", [TEXT]),
    ],
)
def test_every_method_refuses_what_the_model_does_not_read(head: str, name: str, texts: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"write|surrogate"):
        getattr(Predictor(model_of_words(tmp_path, head)), name)(texts)


def test_layers_compute_in_bfloat16_where_compiled_code_gains_by_it(
    compiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "model", "TokenClassification", id2label=dict(enumerate(SCHEMES["iob"])), use_crf=True)
    for dtype in ("auto", "float32", None):
        predictor = Predictor(folder, dtype=dtype)
        assert predictor.options["instructions"] == compiled
        assert predictor.model.dtype == torch.float32, "embeddings, heads and CRF stay in float32"
        library, numbers, reason = predictor.computation.splitlines()
        assert f"compiled layers with {compiled.upper()}" in library
        assert ("bfloat16 in the layers" in numbers) == (dtype == "auto" and compiled in cpu.WITH_BFLOAT16)
        assert reason == "compiled: yes"
    assert Predictor(folder).options == Predictor(folder, dtype="auto").options
    monkeypatch.setattr(torch_runtime, "_device", lambda: torch.device("meta"))
    assert Predictor(folder).instructions is None


@pytest.mark.parametrize("head", HEADS)
def test_a_plain_bert_is_computed_by_compiled_layers(
    head: str, compiled: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = bert_tokenizer()
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    labels = {} if head == "QuestionAnswering" else {"id2label": dict(enumerate(SCHEMES["iob"]))}
    torch.manual_seed(0)
    model = getattr(transformers, f"BertFor{head}")(
        transformers.BertConfig(vocab_size=len(tokenizer), **sizes, **labels)
    )
    for weight in model.parameters():
        weight.data.mul_(8)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    options: dict[str, Any] = {"dtype": "float32", "question": "Who?" if head == "QuestionAnswering" else None}
    predictor, plain = Predictor(tmp_path, **options), Predictor(tmp_path, **options)
    plain.instructions = None
    texts = [*TEXTS[:2], "Ada read in Paris.", "It rained.", " ".join(["Babbage met Ada."] * 8)]
    expected = plain.predict(texts)
    assert isinstance(plain.model, transformers.BertPreTrainedModel)
    assert not caplog.records
    found = predictor.predict(texts)
    assert is_compiled(predictor.model)
    assert [f"{cpu.VARIABLE}=0" in record.message for record in caplog.records] == [True]
    assert isinstance(predictor.pytorch_model, transformers.BertPreTrainedModel)
    for (_, own), (_, theirs) in zip(found, expected, strict=True):
        without_score = [[{**entry, "score": 0} for entry in entries] for entries in (own, theirs)]
        assert without_score[0] == without_score[1]
        assert [x["score"] for x in own] == pytest.approx([x["score"] for x in theirs], abs=1e-4)
    predictor.instructions = None
    assert predictor.predict(texts) == expected
    if head == "TokenClassification":
        tagger = transformers.pipeline("ner", str(tmp_path), aggregation_strategy="first", device="cpu")
        stock = [[(x["entity_group"], x["start"], x["end"]) for x in tagger(text)] for text in texts]
        assert [[(x["label"], x["start"], x["end"]) for x in own] for _, own in found] == stock
        assert sum(map(len, stock)) > 3


def test_a_predictor_says_why_pytorch_computes(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "SequenceClassification", num_labels=3)
    assert Predictor(folder).computation.endswith(f"compiled: no, {cpu.VARIABLE}=0 is set")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The compiled code is on; its instructions."""
    monkeypatch.setattr(torch_runtime, "_device", lambda: torch.device("cpu"))
    monkeypatch.setenv(cpu.VARIABLE, "1")
    cpu._library.cache_clear()
    try:
        yield str(cpu.level_in_use())
    except RuntimeError as error:
        pytest.skip(str(error))
    cpu._library.cache_clear()


def scores_of(predicted: list[tuple[Any, list[Prediction]]]) -> list[float]:
    return [each["score"] for _, found in predicted for each in sorted(found, key=lambda each: each["label"])]


def test_scores_in_bfloat16_are_near_and_do_not_depend_on_the_batch(compiled: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "SequenceClassification", num_labels=3)
    texts = [*map(str, TEXTS)] * 3
    auto, exact = Predictor(folder), Predictor(folder, dtype="float32")
    found = scores_of(auto.predict(texts))
    assert found == pytest.approx(scores_of(exact.predict(texts)), abs=0.02)
    assert (found != scores_of(exact.predict(texts))) == (compiled in cpu.WITH_BFLOAT16)
    alone = [score for text in texts for score in scores_of(auto.predict([text]))]
    assert found == pytest.approx(alone, abs=1e-6)


def test_a_run_that_began_without_compiled_code_ends_without_it(
    compiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was compiled meanwhile, the file is that of one run."""
    monkeypatch.setattr(prediction_files, "TEXTS_OF_WINDOW", 2)
    folder = saved(tmp_path / "model", "SequenceClassification", num_labels=3)
    rows = [(Source(), f"{text} {number}") for number, text in enumerate(TEXTS * 2)]
    predictors: list[Predictor] = []

    def run(name: str, setting: str, progress: Any = lambda texts: None) -> bytes:
        monkeypatch.setenv(cpu.VARIABLE, setting)
        predictors.append(Predictor(folder))
        predict_to_file(predictors[-1], rows, tmp_path / name, {}, progress)
        return (tmp_path / name).read_bytes()

    def interrupt(texts: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("resumed.jsonl", "0", interrupt)
    assert run("resumed.jsonl", "1") == run("straight.jsonl", "0")
    assert [is_compiled(predictor.model) for predictor in predictors] == [False] * 3  # files have four digits
    run("compiled.jsonl", "1")
    assert is_compiled(predictors[-1].model)
    with pytest.raises(KeyboardInterrupt):
        run("other.jsonl", "1", interrupt)
    with pytest.raises(UserError, match="instructions"):
        run("other.jsonl", "0")


@pytest.mark.slow
def test_bfloat16_changes_few_labels_of_real_reviews(compiled: str, tmp_path: Path) -> None:
    """At most 1 of 1,000, of texts that float32 is undecided about."""
    rows: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    for domain in ("books", "kitchen_housewares", "MR"):
        for split in rows:
            path = data_folder("mtl16") / domain / f"{split}.jsonl.gz"
            rows[split] += [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    texts, labels = ([row[name] for row in rows["train"]] for name in ("text", "label"))
    StarClassifier(num_train_epochs=2).fit(texts, labels).save(tmp_path / "model")
    given = [row["text"] for row in rows["test"]] + texts[:2000]
    exact, fast = (
        [found for _, found in Predictor(tmp_path / "model", dtype=dtype).predict(given)]
        for dtype in ("float32", "auto")
    )
    changed = [one for one, other in zip(exact, fast, strict=True) if one[0]["label"] != other[0]["label"]]
    assert len(changed) <= len(given) / 1000
    assert all(found[0]["score"] - found[1]["score"] < 0.02 for found in changed)
