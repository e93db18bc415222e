"""run_qa.py from the command line, on tiny synthetic data: what only it does."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from script_runner import ScriptRunner
from script_samples import (
    QUICK,
    SIZES,
    TINY,
    assert_card_has_the_results,
    files,
    hashes,
    read_rows,
    results_of,
    write_bert,
    write_corpora,
    write_rows,
    write_typeless_tokenizer,
)
from synthetic.corpora import write_reading_corpus

from modeling_star import answer_question
from modeling_star.evaluation.squad import score_answer


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpora(tmp_path_factory.mktemp("corpora")) / "reading"


@pytest.fixture(scope="module")
def reader(scripts: ScriptRunner, data: Path) -> Path:
    """The output folder of a reader that was fine-tuned for a moment."""
    flags = ("--train_sampling_strategy=group_by_length", "--dataset_title=synthetic reading", "--output_dir=reader")
    scripts.check("run_qa.py", *files(data), *TINY, *QUICK, *flags)
    return scripts.folder / "reader"


def assert_predictions_are_spans(folder: Path, split: str, given: list[dict[str, Any]], language: str = "en") -> None:
    """Every answer is a slice of its context, scored as it should be, and the mean of the scores is the result."""
    rows = read_rows(folder / "report" / f"predictions_{split}.jsonl")
    assert [row["id"] for row in rows] == [row["id"] for row in given]
    for row, example in zip(rows, given, strict=True):
        best = row["n_best"]
        assert row["predicted"] == best[0]["text"]
        assert all(one["text"] == example["context"][one["start"] : one["end"]] for one in best)
        assert [one["score"] for one in best[1:]] == sorted((one["score"] for one in best[1:]), reverse=True)
        assert len({(one["start"], one["end"]) for one in best}) == len(best) <= 20
        assert row["label"] == example["answers"]["text"]
        assert (row["exact_match"], row["f1"]) == score_answer(row["predicted"], row["label"], language)
    results = results_of(folder)
    prefix = {"validation": "eval", "test": "test"}[split]
    for name in ("exact_match", "f1"):
        assert results[f"{prefix}_{name}"] == pytest.approx(sum(row[name] for row in rows) / len(rows))
    answers = json.loads((folder / "report" / f"answers_{split}.json").read_text(encoding="utf-8"))
    assert answers == {row["id"]: row["predicted"] for row in rows}


def test_a_run_leaves_a_model_with_scores_answers_plots_and_card(reader: Path, data: Path) -> None:
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    made = {path.name for path in (reader / "report").iterdir()}
    assert made >= {"training_curves.png", "lengths_test.md"}
    results = results_of(reader)
    assert (results["train_samples"], results["eval_samples"], results["test_samples"]) == tuple(SIZES.values())
    given = read_rows(data / "test.jsonl")
    assert_predictions_are_spans(reader, "validation", read_rows(data / "validation.jsonl"))
    assert_predictions_are_spans(reader, "test", given)
    card = (reader / "README.md").read_text(encoding="utf-8")
    assert_card_has_the_results(card, results)
    assert (reader / "report" / "lengths_test.md").read_text(encoding="utf-8").strip() in card
    assert "pipeline_tag: question-answering" in card
    # What the saved model answers is what the file of predictions holds.
    model = AutoModelForQuestionAnswering.from_pretrained(reader)
    tokenizer = AutoTokenizer.from_pretrained(reader)
    assert type(model).__name__ == "StarTransformerForQuestionAnswering"
    assert model.config.type_vocab_size == 2
    for row, example in zip(read_rows(reader / "report" / "predictions_test.jsonl")[:5], given, strict=False):
        best = answer_question(example["question"], example["context"], model, tokenizer, top_k=20)
        assert [(one.text, one.start, one.end) for one in best[:1]] == [(row["predicted"], row["start"], row["end"])]
        assert [one.score for one in best] == pytest.approx([one["score"] for one in row["n_best"]], abs=2e-6)


def test_run_predict_finds_the_answer_in_every_text(scripts: ScriptRunner, reader: Path, data: Path) -> None:
    given, prediction = read_rows(data / "test.jsonl")[0], read_rows(reader / "report" / "predictions_test.jsonl")[0]
    texts = [given["context"], "Oslo ."]
    done = scripts.check("run_predict.py", reader, "--question", given["question"], *texts, "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert [first["text"], second["text"]] == texts
    assert {name: first["found"][0][name] for name in ("text", "start", "end")} == {
        "text": prediction["predicted"],
        "start": prediction["start"],
        "end": prediction["end"],
    }
    never = scripts.check("run_predict.py", reader, "--question=Who?", texts[1], "--null_threshold=-1000")
    assert "(nothing)" in never.out
    # A file has questions.
    done = scripts.check("run_predict.py", reader, "--file", data / "test.jsonl", "--json")
    rows = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    asked = read_rows(data / "test.jsonl")
    assert [(row["question"], row["context"]) for row in rows] == [(one["question"], one["context"]) for one in asked]
    scored = read_rows(reader / "report" / "predictions_test.jsonl")
    assert [row["found"][0]["text"] for row in rows] == [one["predicted"] for one in scored]


@pytest.mark.slow
def test_run_predict_reads_as_the_model_was_scored(scripts: ScriptRunner, data: Path, tmp_path: Path) -> None:
    """In windows of a model without a limit, of short answers, with types that the tokenizer gives if asked to."""
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    given, folder = read_rows(data / "test.jsonl"), tmp_path / "run"
    name = write_typeless_tokenizer(tmp_path / "tokenizer", [row["context"] for row in given])
    flags = [*TINY[:1], f"{TINY[1]},position_embedding_type=ring", f"--tokenizer_name={name}"]
    limits = ["--max_seq_length=64", "--doc_stride=16", "--max_answer_length=3"]
    done = scripts.check("run_qa.py", *files(data), *flags, *limits, *QUICK, f"--output_dir={folder}")
    counts = re.findall(r"test: ([\d,]+) questions in ([\d,]+) windows", done.error)
    assert int(counts[0][1]) > int(counts[0][0])
    predictions = read_rows(folder / "report" / "predictions_test.jsonl")
    model, tokenizer = AutoModelForQuestionAnswering.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for row, example in zip(predictions, given, strict=True):
        best = answer_question(example["question"], example["context"], model, tokenizer, top_k=20)
        assert [one.score for one in best] == pytest.approx([one["score"] for one in row["n_best"]], abs=2e-6)
    example, row = given[0], predictions[0]
    done = scripts.check("run_predict.py", folder, "--question", example["question"], example["context"], "--json")
    (answer,) = json.loads(done.out.splitlines()[-1])["found"]
    assert (answer["text"], answer["start"], answer["end"]) == (row["predicted"], row["start"], row["end"])
    assert answer["score"] == pytest.approx(row["score"], abs=1e-4)


def test_do_predict_alone_reads_a_saved_model_on_questions_with_and_without_answers(
    scripts: ScriptRunner, reader: Path, data: Path, tmp_path: Path
) -> None:
    before = hashes(reader)
    flags = [f"--model_name_or_path={reader}", "--do_predict", "--disable_tqdm=true"]
    scripts.check("run_qa.py", *files(data, "test"), *flags, f"--output_dir={tmp_path}/scored")
    scripts.check("run_qa.py", *files(data, "plain"), *flags, f"--output_dir={tmp_path}/plain")
    folders = (reader, tmp_path / "scored", tmp_path / "plain")
    predictions = [
        [row["predicted"] for row in read_rows(folder / "report" / "predictions_test.jsonl")] for folder in folders
    ]
    assert predictions[0] == predictions[1] == predictions[2]
    assert results_of(tmp_path / "scored")["test_f1"] == pytest.approx(results_of(reader)["test_f1"])
    assert "test_f1" not in results_of(tmp_path / "plain")
    assert hashes(reader) == before


def test_chinese_characters_words_and_windows(scripts: ScriptRunner, tmp_path: Path) -> None:
    """Chinese, a BiG-Transformer with words, contexts in several windows."""
    from transformers import AutoModelForQuestionAnswering

    write_reading_corpus(tmp_path / "zh", "zh", sizes=SIZES)
    (tmp_path / "words.txt").write_text("公司\n经理\n医药\n", encoding="utf-8")
    flags = ["--model_type=big_transformer", "--tokenizer_kind=character", f"--lexicon={tmp_path}/words.txt"]
    windows = ["--max_seq_length=64", "--doc_stride=16"]
    done = scripts.check(
        "run_qa.py", *files(tmp_path / "zh"), *TINY, *QUICK, *flags, *windows, f"--output_dir={tmp_path}/run"
    )
    counts = re.findall(r"train: ([\d,]+) questions in ([\d,]+) windows", done.error)
    assert int(counts[0][1]) > 1.5 * int(counts[0][0])
    assert_predictions_are_spans(tmp_path / "run", "test", read_rows(tmp_path / "zh" / "test.jsonl"), "zh")
    config = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "run").config
    assert (config.model_type, config.lexicon_kind) == ("big_transformer", "words")
    assert "tokenizer, max_length=64, stride=16)" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_saved_bert_is_fine_tuned_on_questions_without_an_answer_in_squads_json(
    scripts: ScriptRunner, data: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    bert = write_bert(tmp_path / "bert", [row["context"] for row in read_rows(data / "train.jsonl")])
    given = []
    for split in SIZES:
        rows = read_rows(data / f"{split}.jsonl")
        for row in rows[::3]:
            row["answers"] = {"text": [], "answer_start": []}
        paragraphs = []
        for row in rows:
            pairs = zip(*(row["answers"][name] for name in ("text", "answer_start")), strict=True)
            answers = [{"text": text, "answer_start": start} for text, start in pairs]
            qas = [{"id": row["id"], "question": row["question"], "is_impossible": not answers, "answers": answers}]
            paragraphs.append({"context": row["context"], "qas": qas})
        squad = {"version": "v2.0", "data": [{"title": "all", "paragraphs": paragraphs}]}
        (tmp_path / f"{split}.json").write_text(json.dumps(squad), encoding="utf-8")
        given.append(f"--{split}_file={tmp_path}/{split}.json")
    flags = [f"--model_name_or_path={bert}", "--version_2_with_negative", "--doc_stride=8", "--max_train_samples=40"]
    done = scripts.check("run_qa.py", *given, *QUICK, *flags, f"--output_dir={tmp_path}/run")
    assert "train: 40 questions" in done.error
    results, predictions = (
        results_of(tmp_path / "run"),
        read_rows(tmp_path / "run" / "report" / "predictions_test.jsonl"),
    )
    parts = {
        "has_answer_f1": [row["f1"] for row in predictions if row["label"]],
        "no_answer_accuracy": [row["exact_match"] for row in predictions if not row["label"]],
    }
    for name, values in parts.items():
        assert results[f"test_{name}"] == pytest.approx(sum(values) / len(values))
    assert results["test_best_f1"] >= results["test_f1"] - 1e-9
    assert all((row["predicted"] == "") == (row["null_difference"] > 0) for row in predictions)
    # The saved model answers with the threshold of the run.
    model = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "run")
    assert type(model).__name__ == "BertForQuestionAnswering"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    for row, prediction in list(zip(read_rows(data / "test.jsonl"), predictions, strict=True))[:8]:
        (first,) = answer_question(row["question"], row["context"], model, tokenizer)
        assert first.text == prediction["predicted"]
        for threshold, nothing in ((-1000.0, True), (math.inf, False)):
            (first,) = answer_question(row["question"], row["context"], model, tokenizer, null_threshold=threshold)
            assert (first.text == "") == nothing


def long_rows(count: int, words: int) -> list[dict[str, Any]]:
    """Contexts of so many words, with an answer near their end."""
    rows = []
    for number in range(count):
        filler = ["the", "river", "runs", "north"] * (words // 4)
        place = words - 7 - number
        filler[place : place + 3] = ["Ada", "met", "Bob"]
        context = " ".join(filler)
        rows.append(
            {
                "id": str(number),
                "question": "who met Bob",
                "context": context,
                "answers": {"text": ["Ada"], "answer_start": [context.index("Ada")]},
            }
        )
    return rows


@pytest.mark.parametrize(("model", "positions"), [("star_transformer", "ring"), ("big_transformer", "sinusoidal")])
@pytest.mark.slow
def test_a_context_of_16384_words_is_read_in_one_window(
    scripts: ScriptRunner, tmp_path: Path, model: str, positions: str
) -> None:
    """Training, evaluation and prediction; cost grows linearly, so that this is a matter of seconds."""
    for split, count in (("train", 4), ("validation", 2), ("test", 3)):
        write_rows(tmp_path / "long" / f"{split}.jsonl", long_rows(count, 16_384))
    shape = f"hidden_size=16,num_attention_heads=2,position_embedding_type={positions}"
    flags = [f"--model_type={model}", f"--config_overrides={shape}", "--num_train_epochs=1", "--learning_rate=5e-3"]
    batch = ["--per_device_train_batch_size=2", "--per_device_eval_batch_size=2", "--disable_tqdm=true"]
    done = scripts.check("run_qa.py", *files(tmp_path / "long"), *flags, *batch, f"--output_dir={tmp_path}/run")
    assert "train: 4 questions in 4 windows" in done.error
    assert "test: 3 questions in 3 windows" in done.error
    assert_predictions_are_spans(tmp_path / "run", "test", long_rows(3, 16_384))
    assert (tmp_path / "run" / "README.md").stat().st_size < 20_000  # the card shows a part of the context
