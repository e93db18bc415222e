"""What programs give to a predictor: empty batches, single texts, cells without a text, and runs without a blank."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from common import TINY
from datasets import Dataset

import modeling_star
from modeling_star import sources
from modeling_star.data import windows
from modeling_star.data.classification import tokenize_texts
from modeling_star.data.prediction_inputs import QuestionContext
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.data.windows import longest_run, shorten
from modeling_star.errors import UserError
from modeling_star.inference import Predictor, batches
from modeling_star.inference.pipelines import BestPathPipeline
from modeling_star.inference.question_answering import answer_question


TEXT = "a good film"
HEADS = ("TokenClassification", "SequenceClassification", "QuestionAnswering")


def saved(folder: Path, head: str, kind: str = "word") -> Path:
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
    return Predictor(saved(tmp_path, request.param), question="Who?" if request.param[0] == "Q" else None)


@pytest.fixture
def pairs(tmp_path: Path) -> Predictor:
    return Predictor(saved(tmp_path, "SequenceClassification"), pairs=True)


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
    "batch", [{"text": TEXT}, {"text": b"a"}, {"text": [TEXT], "id": "x"}, {"text": 5}, {"text": [TEXT], "id": []}]
)
def test_a_column_that_is_no_list_of_cells_is_refused(batch: dict[str, Any], predictor: Predictor) -> None:
    with pytest.raises(UserError, match=r"'id'|'text'"):
        predictor(batch)


@pytest.mark.parametrize(
    "texts",
    [TEXT, b"a", None, {"text": [TEXT]}, pd.DataFrame({"text": [TEXT]}), [TEXT, None], [5], [["a", 5]], ["\ud83d"]],
)
def test_what_is_no_list_of_texts_is_refused(texts: Any, predictor: Predictor) -> None:
    with pytest.raises(UserError):
        predictor.predict(texts)


@pytest.mark.parametrize("change", [np.array, pd.Series, iter, lambda texts: pd.Series(texts, index=[7, 3])])
def test_any_collection_of_texts_is_predicted(change: Callable[[list[str]], Any], predictor: Predictor) -> None:
    assert predictor.predict(change([TEXT, "a film"])) == predictor.predict([TEXT, "a film"])


def test_a_frame_is_a_batch_of_columns(predictor: Predictor) -> None:
    frame = pd.DataFrame({"text": [TEXT, None]}, index=[7, 3])
    assert predictor(frame)["found"] == predictor({"text": [TEXT, None]})["found"]


def test_a_model_for_pairs_reads_two_texts_at_a_time(pairs: Predictor) -> None:
    expected = pairs.predict([(TEXT, "a film")])
    assert pairs.predict([[TEXT, "a film"]]) == expected
    assert pairs({"sentence1": [], "sentence2": []})["found"] == []
    for texts in ["ab", "cd"], [(TEXT,)], [(TEXT, "a", "b")], [(TEXT, None)]:
        with pytest.raises(UserError, match="Text 1"):
            pairs.predict(texts)


def test_a_pair_is_no_single_text_but_a_question_with_its_context(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pair"):
        Predictor(saved(tmp_path / "one", "SequenceClassification")).predict([(TEXT, TEXT)])
    reader = Predictor(saved(tmp_path / "two", "QuestionAnswering"))
    assert reader.predict([("Who?", TEXT)]) == reader.predict([QuestionContext("Who?", TEXT)])


def test_probabilities_are_not_rounded(tmp_path: Path) -> None:
    predictor = Predictor(saved(tmp_path, "SequenceClassification"))
    [(_, found)] = predictor.predict([TEXT])
    logits = predictor.model(**predictor.tokenizer(TEXT, return_tensors="pt")).logits[0]
    assert sorted(each["score"] for each in found) == pytest.approx(sorted(logits.softmax(-1).tolist()), abs=1e-7)


@pytest.mark.parametrize("cells", [["", None, 3, TEXT], [None, TEXT, 3], [TEXT, b"film"], [TEXT, 2.5, None]])
def test_a_cell_that_is_no_text_is_named_by_its_row(cells: list[Any], predictor: Predictor) -> None:
    row = next(row for row, cell in enumerate(cells, 1) if cell and cell != TEXT)
    with pytest.raises(UserError, match=rf"\b{row}\b"):
        predictor({"text": cells})


@pytest.mark.parametrize("cells", [[1, 2], [0.5], [b"film"], [True, False]])
def test_a_column_of_texts_that_has_none_is_refused_as_such(cells: list[Any], predictor: Predictor) -> None:
    with pytest.raises(UserError, match=r"not a text|not texts"):
        predictor({"id": [*range(len(cells))], "text": cells})


def test_an_iterator_is_predicted_and_returned_as_a_list(predictor: Predictor) -> None:
    assert predictor({"text": iter([TEXT])}) == predictor({"text": [TEXT]})


@pytest.mark.parametrize("head", HEADS[:2])
def test_scores_that_are_no_numbers_are_an_error(head: str, tmp_path: Path) -> None:
    predictor = Predictor(saved(tmp_path, head))
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


@pytest.mark.parametrize("kind", ["word", "wordpiece", "character"])
@pytest.mark.parametrize("text", RUNS)
def test_a_shortened_run_is_the_same_token_at_the_same_characters(
    text: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LONGEST_RUN", 110)
    tokenizer = train_tokenizer([TEXT, "don't 3.5 bits n't 李 é ."], kind, min_frequency=1, vocab_size=90)
    short = shorten(text, longest_run(tokenizer))
    assert len(short.text) < len(text)
    whole, part = (tokenizer.backend_tokenizer.encode(each) for each in (text, short.text))
    assert part.ids == whole.ids
    assert [tuple(pair) for pair in short.in_whole(np.array(part.offsets)).tolist()] == whole.offsets


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_predictions_of_a_text_with_long_runs_are_those_of_the_whole_text(
    head: str, words: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[Any] = [text.split() if words else text for text in RUNS]
    question = "Who?" if head == "QuestionAnswering" else None
    expected = Predictor(saved(tmp_path, head), question=question).predict(texts)
    assert any(found for _, found in expected)
    monkeypatch.setattr(windows, "LONGEST_RUN", 110)
    assert Predictor(tmp_path, question=question).predict(texts) == expected


def test_a_training_text_with_long_runs_has_the_tokens_of_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Dataset.from_dict({"text": RUNS})
    tokenizer = train_tokenizer([TEXT], "wordpiece", min_frequency=1, vocab_size=60)
    expected = tokenize_texts(rows, tokenizer)["input_ids"][:]
    monkeypatch.setattr(windows, "LONGEST_RUN", 110)
    given: list[str] = []
    monkeypatch.setattr(windows, "shorten", lambda *args: given.append(shorten(*args).text) or shorten(*args))
    assert tokenize_texts(rows, tokenizer)["input_ids"][:] == expected
    assert all(len(short) < len(text) for short, text in zip(given, RUNS, strict=True))


def test_tokenizers_of_other_packages_and_of_single_characters_are_given_whole_texts() -> None:
    tokenizer = train_tokenizer([list("a film"), list("don't")], "character", min_frequency=1)
    assert longest_run(tokenizer) is None
    assert shorten("a" * 20_000, None).text == "a" * 20_000


def test_a_panic_of_the_tokenizer_names_a_text() -> None:
    class PanicException(BaseException):
        """As the library raises it."""

    with pytest.raises(UserError, match="'film'"), windows.tokenizing(["a", "film"]):
        raise PanicException
    with pytest.raises(KeyboardInterrupt), windows.tokenizing(["a", "film"]):
        raise KeyboardInterrupt


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
        getattr(Predictor(saved(tmp_path, head)), name)(texts)


def test_answers_and_pipelines_refuse_half_a_character(tmp_path: Path) -> None:
    reader = Predictor(saved(tmp_path / "answers", "QuestionAnswering"))
    with pytest.raises(UserError, match="surrogate"):
        answer_question("Who?", "\ud800", reader.model, reader.tokenizer)
    tagger = Predictor(saved(tmp_path / "tags", "TokenClassification"))
    with pytest.raises(UserError, match="surrogate"):
        BestPathPipeline(model=tagger.model, tokenizer=tagger.tokenizer)("\ud800")


def test_a_text_that_takes_much_memory_is_named_before_it_is_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tagger = Predictor(saved(tmp_path, "TokenClassification"))
    monkeypatch.setattr(batches, "_LONG", 5)
    tagger.predict([TEXT])
    assert not caplog.messages
    monkeypatch.setattr(Predictor, "_run_model", property(lambda predictor: pytest.fail("predicted")))
    with pytest.raises(pytest.fail.Exception, match="predicted"):
        tagger.predict([TEXT, " ".join([TEXT] * 8)])
    [message] = caplog.messages
    assert "--max_seq_length" in message


def test_a_name_that_is_no_folder_is_named_as_such_before_the_hub_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(sources.HfApi, "repo_info", Mock(side_effect=ConnectionError("no network")))
    with pytest.raises(UserError, match="nofolder is no folder"):
        Predictor("nofolder")
