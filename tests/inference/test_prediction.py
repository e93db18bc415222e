"""Predictions of many texts: the pipelines' results, from batches, columns and files, in one process or several."""

import contextlib
import errno
import filecmp
import itertools
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

import pytest
import torch
from datasets import Dataset
from fastapi.testclient import TestClient
from pyarrow.parquet import read_table
from saved_models import SCHEMES, TEXTS, saved
from transformers import pipeline

from modeling_star.commands import predict
from modeling_star.data.entities import aggregation_for
from modeling_star.data.text_types import Text
from modeling_star.errors import UserError
from modeling_star.inference import Predictor, prediction_files
from modeling_star.inference.output_rows import Source, rounded
from modeling_star.inference.pipelines import BestPathPipeline
from modeling_star.inference.prediction_files import predict_to_file
from modeling_star.inference.saved_model import SavedModel


@pytest.fixture
def tagger(tmp_path: Path) -> Path:
    return saved(tmp_path / "tagger", "TokenClassification", id2label=dict(enumerate(SCHEMES["iob"])))


def found(predictor: Predictor, texts: list[Text]) -> list[list[dict[str, Any]]]:
    return [predictions for _, predictions in predictor.predict(texts)]


@pytest.mark.parametrize("use_crf", [False, True])
@pytest.mark.parametrize("kind", ["word", "wordpiece", "character", "byte"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_entities_are_those_of_the_pipeline(scheme: str, kind: str, use_crf: bool, tmp_path: Path) -> None:
    if use_crf and kind == "byte":
        pytest.skip("a CRF needs a vocabulary with marked words")
    labels = dict(enumerate(SCHEMES[scheme]))
    folder = saved(tmp_path, "TokenClassification", kind, id2label=labels, use_crf=use_crf)
    predictor = Predictor(folder, batch_size=2)
    tokenizer = predictor.tokenizer
    stock = pipeline(
        *("token-classification", str(folder)),
        tokenizer=tokenizer,
        pipeline_class=BestPathPipeline,
        aggregation_strategy=aggregation_for(tokenizer),
        stride=3,
    )
    words = [text.split() for text in TEXTS]
    texts: list[Text] = [*TEXTS, *words]
    expected = [*stock(TEXTS), *stock(words, is_split_into_words=True, delimiter=" ")]
    assert any(expected)
    for entities, stock_entities in zip(found(predictor, texts), expected, strict=True):
        names = ("entity_group", "start", "end")
        assert [tuple(e[n] for n in ("label", "start", "end")) for e in entities] == [
            tuple(e[n] for n in names) for e in stock_entities
        ]
        assert [e["score"] for e in entities] == pytest.approx([float(e["score"]) for e in stock_entities], abs=2e-4)


@pytest.mark.parametrize("kind", ["word", "wordpiece"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_words_have_the_tags_of_the_pipeline(side: str, kind: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, "TokenClassification", kind, id2label=dict(enumerate(SCHEMES["pos"])))
    predictor = Predictor(folder)
    predictor.tokenizer.truncation_side = side
    stock = pipeline(
        *("token-classification", str(folder)),
        tokenizer=predictor.tokenizer,
        pipeline_class=BestPathPipeline,
        ignore_labels=[],
    )
    sentences = [text.split() for text in (*TEXTS, " ".join(TEXTS * 9))]
    for words, tags in zip(sentences, predictor.tag_words(sentences), strict=True):
        first = {}
        for token in stock([words], is_split_into_words=True, delimiter=" ")[0]:
            first.setdefault(token["start"], token["entity"])
        starts = itertools.accumulate((len(word) + 1 for word in words[:-1]), initial=0)
        assert tags == [first[start] for start in starts]
        assert len(set(tags)) > 1 or len(words) < 4


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression"])
def test_classes_are_those_of_the_pipeline(problem: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, "SequenceClassification", problem_type=problem, num_labels=1 + 2 * (problem[0] != "r"))
    predictor = Predictor(folder, batch_size=2)
    stock = pipeline("text-classification", str(folder), tokenizer=predictor.tokenizer, top_k=None)
    for predictions, scores in zip(found(predictor, TEXTS), stock(TEXTS, truncation=True), strict=True):
        assert [p.get("score", p.get("value")) for p in predictions] == [
            pytest.approx(score["score"], abs=2e-4) for score in scores
        ]
        if problem != "regression":
            assert [p["label"] for p in predictions] == [score["label"] for score in scores]
        assert set(predictions[0]) == set(predictor.fields)
    assert predictor.texts_cut > 0


def test_threads_do_not_change_a_result(tagger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = found(Predictor(tagger, batch_size=1), TEXTS)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert found(Predictor(tagger, batch_size=1), TEXTS) == alone


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


def test_a_pickled_predictor_holds_no_model(tagger: Path) -> None:
    predictor = Predictor(tagger)
    found(predictor, TEXTS)
    assert isinstance(predictor.model, torch.nn.Module)
    assert not any(isinstance(value, torch.nn.Module) for value in predictor.__getstate__().values())


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


def test_a_failed_start_leaves_no_folder(write: Callable[..., Path], tagger: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no text"):
        write("new/folder/out.jsonl", texts=[])
    with pytest.raises(KilledError):
        write("new/folder/out.jsonl", dying(tagger, 0))
    assert not (tmp_path / "new").exists()


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


def test_a_process_does_not_wait_for_ever_for_one_that_has_ended(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = write("one.jsonl")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(prediction_files, "PATIENCE", 0.2)
    with pytest.raises(UserError, match="3 parts"):
        write("two.jsonl", rank=0)
    write("two.jsonl", rank=1)
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


def test_a_window_ends_at_its_number_of_characters(tagger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_files, "CHARACTERS_OF_WINDOW", 10)
    rows: Iterator[Any] = ((Source(), text) for text in ["a" * 9, "b", "c" * 30, "d", "e"])
    windows = prediction_files.windows(rows, Predictor(tagger))
    assert [[text[0] for _, text in window] for window in windows] == [["a", "b"], ["c"], ["d", "e"]]


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


def test_a_service_predicts_as_the_predictor(tagger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", str(tagger))
    client = TestClient(runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "serve.py"))["app"])
    answer = client.post("/predict", json={"texts": TEXTS})
    assert answer.json() == Predictor(str(tagger))({"text": TEXTS})["found"]
    assert client.post("/predict", json={"texts": []}).status_code == 422


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
