"""The tasks: how flags reach data, features, model and trainer, before anything is trained."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from script_samples import read_rows, write_rows, write_typeless_tokenizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from task_samples import ROWS, TINY, Parsed, parts_of, trainer_of
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, pipeline

from modeling_star import StarTransformerConfig
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.files import MANIFEST, write_manifest
from modeling_star.inference import Predictor
from modeling_star.inference.tfidf import NUMBERS, TERMS
from modeling_star.runs.run import load_task, run, run_once
from modeling_star.tasks.distillation import DistillTaggingTask
from modeling_star.tasks.masked_lm import PretrainingTask
from modeling_star.tasks.question_answering import ReadingTask
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.tfidf import run_tfidf
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training.arguments import (
    ClassificationModelArguments,
    LabelRunArguments,
    TaggingArguments,
    TaggingModelArguments,
)
from modeling_star.training.build import saved_model
from modeling_star.training.task import Task
from modeling_star.training.trainer import average_checkpoints, load_weights


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", ["star_transformer", "big_transformer"])
def test_a_file_of_word_vectors_gives_a_fresh_model_its_words(
    kind: str, task_of: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("Ann 1 2 3\nIt 4 5 6\nrains 7 8 9\nZz 10 11 12\n", encoding="utf-8")
    shape = "--config_overrides=hidden_size=16,num_attention_heads=2,train_word_vectors=true"
    flags = (
        f"--model_type={kind}",
        "--tokenizer_kind=character",
        "--validation_fraction=0",
        f"--word_vectors={path}",
        shape,
    )
    _, model = parts_of(task_of(TaggingTask, *flags))
    config, part = model.config, model.base_model.embeddings.word_vectors
    assert (config.word_vector_size, config.word_vector_count) == (3, 2)  # of two to four letters that are known
    assert sorted(part.vectors.tolist()) == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    model.save_pretrained(tmp_path / "saved")
    loaded = type(model).from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded.base_model.embeddings.word_vectors.vectors, part.vectors)


# What is held out


def test_equal_texts_are_held_out_together(task_of: Callable[..., Any]) -> None:
    splits = task_of(ReadingTask, "--validation_fraction=0.5").data.splits
    learnt, held = set(splits["train"]["context"]), set(splits["validation"]["context"])
    assert learnt
    assert held
    assert not learnt & held
    # Four rows share each text.
    assert len(splits["train"]) == 4 * len(learnt)


def test_a_rare_class_is_not_held_out(task_of: Callable[..., Any]) -> None:
    for fraction in ("0.3", "0.8"):
        data = task_of(ClassificationTask, f"--validation_fraction={fraction}").data
        assert data.counts("train")["b"] == 1
        assert data.counts("validation")["b"] == 0


def test_flags_of_reading_reach_its_metrics(task_of: Callable[..., Any]) -> None:
    given = ("--n_best_size=7", "--max_answer_length=9", "--answer_language=zh", "--version_2_with_negative")
    metrics = task_of(ReadingTask, *given, "--null_score_diff_threshold=1.5").metrics
    assert (metrics.n_best_size, metrics.max_answer_length, metrics.language) == (7, 9, "zh")
    assert metrics.null_threshold == 1.5
    assert task_of(ReadingTask).metrics.null_threshold is None


# Flags of the tasks


def test_flags_of_tagging_reach_the_features(task_of: Callable[..., Any]) -> None:
    tokenizer = train_tokenizer([["Ann", "sees", "Oslo", "Rome", "rains"]], "wordpiece", vocab_size=40)
    task = task_of(TaggingTask, "--label_all_tokens", "--validation_fraction=0")
    plain = task_of(TaggingTask, "--validation_fraction=0")

    def labelled(task: Any) -> int:
        rows = task.features("train", tokenizer, None)
        return sum(label != -100 for row in rows["labels"] for label in row)

    assert labelled(plain) == 7
    assert labelled(task) > 7


@pytest.mark.parametrize("kind", [TaggingTask, ClassificationTask])
def test_the_numbers_of_examples_are_limited(task_of: Callable[..., Any], tmp_path: Path, kind: type[Task]) -> None:
    rows = write_rows(tmp_path / "other.jsonl", ROWS[kind])
    files = (f"--validation_file={rows}", f"--test_file={rows}")
    limits = ("--max_train_samples=2", "--max_eval_samples=1", "--max_predict_samples=1")
    splits = task_of(kind, *files, *limits).data.splits
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 2, "validation": 1, "test": 1}


def test_documents_and_the_texts_of_the_tokenizer(task_of: Callable[..., Any], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b\nc d\n\ne f\n", encoding="utf-8")
    for unit, count in {"line": 3, "paragraph": 2, "file": 1}.items():
        task = task_of(PretrainingTask, f"--train_file={text}", f"--sample_by={unit}", "--validation_fraction=0")
        assert len(task.data.splits["train"]) == count
    task = task_of(PretrainingTask, f"--train_file={text}", "--max_tokenizer_samples=2", "--validation_fraction=0")
    assert len(list(task.training_texts())) == 2


# Contradictory flags


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--config_name=configuration/models/star-plus.json", "--model_type=bilstm"), "bilstm.*star_transformer"),
        (("--embeddings_mode=contextual",), "--embeddings_mode contextual"),
        (("--config_overrides=num_labels=3",), "num_labels"),
        (("--model_name_or_path=some/folder", "--model_type=bilstm"), "--model_type"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_contradictory_flags_are_refused(
    parsed: Callable[..., Parsed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(ROOT)
    if "--model_name_or_path=some/folder" in flags:
        StarTransformerConfig(hidden_size=8, num_attention_heads=2, vocab_size=30).save_pretrained(tmp_path / "saved")
        train_tokenizer(["a b"], "word").save_pretrained(tmp_path / "saved")
        flags = (f"--model_name_or_path={tmp_path / 'saved'}", *flags[1:])
    *groups, training = parsed(ClassificationTask, *flags, f"--output_dir={tmp_path / 'run'}")
    with pytest.raises(UserError, match=words):
        run(ClassificationTask, *groups, training)


# Saved models


def test_a_model_saved_under_other_names_is_saved_under_its_own(tmp_path: Path) -> None:
    """Early BERTs call LayerNorms' weights gamma and beta; Trainer takes a checkpoint back by the model's own."""
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    bert = BertForSequenceClassification(BertConfig(vocab_size=30, num_labels=2, **sizes))
    for name, parameter in bert.named_parameters():
        if "LayerNorm" in name:
            torch.nn.init.normal_(parameter)
    bert.save_pretrained(tmp_path / "bert")
    file = tmp_path / "bert" / "model.safetensors"
    early = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {re.sub("|".join(early), lambda at: early[at[0]], name): x for name, x in load_file(file).items()}
    assert sum(name.endswith(("gamma", "beta")) for name in renamed) == 6
    save_file(renamed, file, metadata={"format": "pt"})
    arguments = ClassificationModelArguments(model_name_or_path=str(tmp_path / "bert"))
    model, _ = saved_model("AutoModelForSequenceClassification", {"num_labels": 2}, arguments)
    trainer = Trainer(model, TrainingArguments(str(tmp_path / "run"), use_cpu=True))
    trainer.save_model(str(tmp_path / "checkpoint-1"))
    saved = load_file(tmp_path / "checkpoint-1" / "model.safetensors")
    assert saved.keys() == bert.state_dict().keys()
    assert all(torch.equal(x, saved[name]) for name, x in bert.state_dict().items())
    load_weights(model, average_checkpoints([tmp_path / "checkpoint-1"]))


# TF-IDF


def test_tfidf_uses_class_weights(task_of: Callable[..., Any], tmp_path: Path) -> None:
    rare = [{"text": f"word {n % 3}", "label": "ab"[n % 7 == 0]} for n in range(70)]
    rows = write_rows(tmp_path / "rows.jsonl", rare)

    def predicted(weights: str) -> set[str]:
        folder = tmp_path / weights
        files = [f"--{split}_file={rows}" for split in ("train", "validation", "test")]
        task = task_of(ClassificationTask, *files, f"--class_weights={weights}")
        run_tfidf(task, TrainingArguments(str(folder), report_to="none", do_predict=True))
        return {row["predicted"] for row in read_rows(folder / "report" / "predictions_test.jsonl")}

    assert predicted("none") == {"a"}
    assert "b" in predicted("balanced")


@pytest.mark.parametrize("letters", ["Latin", "Chinese"])
def test_a_saved_tfidf_model_is_a_classifier_that_predicts_the_same(
    letters: str, task_of: Callable[..., Any], tmp_path: Path
) -> None:
    words = {"Latin": ["good film", "bad plot", "so so, Mary"], "Chinese": ["好电影", "坏剧情", "还行吧"]}[letters]
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": word, "label": word[0]} for word in words * 4])
    files = [f"--{split}_file={rows}" for split in ("train", "validation", "test")]
    folder = tmp_path / "run"
    run_tfidf(task_of(ClassificationTask, *files), TrainingArguments(str(folder), report_to="none", do_predict=True))
    predictions = read_rows(folder / "report" / "predictions_test.jsonl")
    found = Predictor(folder).predict([row["text"] for row in predictions])
    assert [each[0]["label"] for _, each in found] == [row["predicted"] for row in predictions]
    assert [each[0]["score"] for _, each in found] == pytest.approx([row["score"] for row in predictions], abs=1e-4)
    classifier = pipeline("text-classification", str(folder))
    assert classifier(words)[0]["score"] == pytest.approx(found[0][1][0]["score"], abs=1e-6)


@pytest.fixture
def earlier_tfidf(tmp_path: Path) -> tuple[Path, TfidfVectorizer, LogisticRegression]:
    """A model as version 0.2 saved it, and what it was made of."""
    texts = ["good film", "bad plot", "good plot", "bad film"] * 3
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", sublinear_tf=True)
    regression = LogisticRegression().fit(vectorizer.fit_transform(texts), [1, 0, 1, 0] * 3)
    options = {name: vectorizer.get_params()[name] for name in ("analyzer", "ngram_range", "token_pattern")}
    numbers = {"idf": vectorizer.idf_, "weights": regression.coef_, "bias": regression.intercept_}
    save_arrays({**numbers, "classes": regression.classes_}, tmp_path / NUMBERS)
    terms = vectorizer.get_feature_names_out().tolist()
    content = {"labels": ["no", "yes", "never"], "vectorizer": options, "terms": terms}
    (tmp_path / TERMS).write_text(json.dumps(content), encoding="utf-8")
    write_manifest(tmp_path, (TERMS, NUMBERS))
    return tmp_path, vectorizer, regression


def test_a_tfidf_model_of_an_earlier_version_predicts(earlier_tfidf: tuple[Path, Any, Any]) -> None:
    folder, vectorizer, regression = earlier_tfidf
    [(_, found)] = Predictor(folder).predict(["good film, bad plot"])
    (no, yes) = regression.predict_proba(vectorizer.transform(["good film, bad plot"]))[0].tolist()
    assert {each["label"]: each["score"] for each in found} == pytest.approx({"no": no, "yes": yes, "never": 0})
    (folder / TERMS).write_text((folder / TERMS).read_text().replace('"terms": [', '"terms": ["one more",'))
    for name, message in ((MANIFEST, "as it was written"), (NUMBERS, "two runs"), (None, "without its model")):
        with pytest.raises(UserError, match=message):
            Predictor(folder).predict(["good"])
        if name is not None:
            (folder / name).unlink()


# The saved tokenizer


@pytest.mark.parametrize("kind", [ReadingTask, ClassificationTask])
def test_a_saved_tokenizer_gives_the_token_types_of_training(
    parsed: Callable[..., Parsed], tmp_path: Path, kind: type[Task]
) -> None:
    pairs = [{"sentence1": f"text {n}", "sentence2": "more", "label": "ab"[n == 0]} for n in range(8)]
    rows = write_rows(tmp_path / "rows.jsonl", pairs if kind is ClassificationTask else ROWS[kind])
    name = write_typeless_tokenizer(tmp_path / "tokenizer", ["who Ann sees Oslo text more"] * 2)
    assert "token_type_ids" not in AutoTokenizer.from_pretrained(name)("a", "b")
    _, trainer = trainer_of(kind, parsed(kind, *TINY, f"--train_file={rows}", f"--tokenizer_name={name}"), tmp_path)
    trainer.processing_class.save_pretrained(tmp_path / "saved")
    given = AutoTokenizer.from_pretrained(tmp_path / "saved")("who", "Ann")["token_type_ids"]
    assert given == trainer.processing_class("who", "Ann")["token_type_ids"] == [0, 0, 0, 1, 1]
    assert max(trainer.train_dataset[0]["token_type_ids"]) == 1


def test_a_siamese_model_refuses_a_tokenizer_without_token_types(
    parsed: Callable[..., Parsed], tmp_path: Path
) -> None:
    rows = write_rows(
        tmp_path / "rows.jsonl",
        [{"sentence1": f"text {n}", "sentence2": "more", "label": "ab"[n == 0]} for n in range(8)],
    )
    train_tokenizer(["text more"] * 2, "wordpiece", vocab_size=100).save_pretrained(tmp_path / "tokenizer")
    file = tmp_path / "tokenizer" / "tokenizer.json"
    file.write_text(re.sub('"type_id": ?1', '"type_id": 0', file.read_text()))
    given = (f"--train_file={rows}", f"--tokenizer_name={tmp_path / 'tokenizer'}")
    parts_of(load_task(ClassificationTask, *parsed(ClassificationTask, *given)[:3]))
    with pytest.raises(UserError, match=r"pair_mode.*--tokenizer_name"):
        parts_of(
            load_task(
                ClassificationTask, *parsed(ClassificationTask, *given, "--config_overrides=pair_mode=siamese")[:3]
            )
        )


def test_labels_of_all_tokens_that_the_constraints_forbid_are_refused(
    parsed: Callable[..., Parsed], tmp_path: Path
) -> None:
    def build(*given: str, kind: str = "wordpiece") -> None:
        rows = [{"tokens": ["Ann", name, "runs"], "tags": ["B-PER", "E-PER", "O"]} for name in ("Lee", "Bo")] * 4
        file = f"--train_file={write_rows(tmp_path / 'train.jsonl', rows)}"
        flags = (file, "--label_all_tokens", f"--tokenizer_kind={kind}", "--vocab_size=40")
        parts_of(load_task(TaggingTask, *parsed(TaggingTask, *flags, *given)[:3]))

    constrained = "--config_overrides=use_crf=true,crf_constraints=auto"
    build("--config_overrides=use_crf=true")
    build(constrained, kind="word")
    with pytest.raises(UserError, match="--label_all_tokens"):
        build(constrained)


def test_a_fresh_model_is_star_plus_2_unless_a_shape_or_a_type_is_named(
    parsed: Callable[..., Parsed], tmp_path: Path
) -> None:
    rows = f"--train_file={write_rows(tmp_path / 'rows.jsonl', ROWS[ClassificationTask])}"

    def config_of(*given: str) -> Any:
        return parts_of(load_task(ClassificationTask, *parsed(ClassificationTask, rows, *given)[:3]))[1].config

    named, default = config_of("--config_name=configuration/models/star-plus-2.json"), config_of()
    assert default.to_dict() == named.to_dict()
    assert (default.residual, default.position_embedding_type) == (True, "ring")
    first = config_of("--config_name=configuration/models/star-plus.json")  # that of published runs
    assert (first.embedding_norm, first.relay_start_norm) == (False, False)
    for paper in ("--config_name=configuration/models/star-base.json", "--model_type=star_transformer"):
        assert (config_of(paper).residual, config_of(paper).position_embedding_type) == (False, "learned")
    assert config_of("--config_overrides=residual=false").residual is False


@pytest.mark.parametrize(
    ("tags", "given", "expected"),
    [
        (["B-x", "I-x", "O"], (), (True, "auto")),
        (["B-x", "E-x", "S-x"], (), (True, "auto")),
        (["B", "E", "S"], (), (True, "auto")),
        (["B-x", "E-x", "O"], ("--label_all_tokens",), (True, None)),
        (["O", "I-x", "B-x"], (), (True, None)),  # which IOB2 forbids
        (["O", "I-x", "B-x"], ("--config_overrides=crf_constraints=iob1",), (True, "iob1")),
        (["B-x", "I-x", "O"], ("--config_overrides=use_crf=false",), (False, None)),
        (["B-x", "I-x", "O"], ("--config_overrides=use_crf=true",), (True, None)),
        (["NN", "VB", "O"], (), (False, None)),
        (["B-x", "I-x", "O"], ("--model_type=bert", "--config_overrides=hidden_size=12"), (None, None)),
    ],
)
def test_a_fresh_tagger_of_entities_has_a_crf(
    parsed: Callable[..., Parsed], tmp_path: Path, tags: list[str], given: tuple[str, ...], expected: Any
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"tokens": ["a", "b", "c"], "tags": tags}] * 8)
    tokenizer, model = parts_of(load_task(TaggingTask, *parsed(TaggingTask, f"--train_file={rows}", *given)[:3]))
    assert (getattr(model.config, "use_crf", None), getattr(model.config, "crf_constraints", None)) == expected
    tokenizer.save_pretrained(tmp_path / "saved")
    model.save_pretrained(tmp_path / "saved")
    saved = parsed(TaggingTask, f"--train_file={rows}", f"--model_name_or_path={tmp_path / 'saved'}")
    again = parts_of(load_task(TaggingTask, *saved[:3]))[1]
    assert getattr(again.config, "use_crf", None) == expected[0]


@pytest.mark.parametrize(("overrides", "has_crf"), [(None, False), ("use_crf=true", True)])
def test_a_student_has_a_crf_only_if_it_is_requested(tmp_path: Path, overrides: str | None, has_crf: bool) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", ROWS[TaggingTask] * 4)
    data = TaggingArguments(train_file=str(rows), teacher="a")
    model = TaggingModelArguments(config_overrides=overrides)
    task = load_task(DistillTaggingTask, model, data, LabelRunArguments())
    assert (parts_of(task)[1].crf is not None) == has_crf


@pytest.mark.parametrize("kind", [TaggingTask, pytest.param(ClassificationTask, marks=pytest.mark.slow)])
def test_the_saved_tokenizer_truncates_as_in_scoring(
    parsed: Callable[..., Parsed], tmp_path: Path, kind: type[Task]
) -> None:
    def limit_of(folder: str, *given: str) -> int:
        *groups, training = parsed(kind, "--report_to=none", "--max_steps=1", "--disable_tqdm=true", *given)
        training.output_dir = str(tmp_path / folder)
        run_once(load_task(kind, *groups), training)
        return AutoTokenizer.from_pretrained(tmp_path / folder).model_max_length

    assert limit_of("short", TINY[0], "--max_seq_length=6") == 6
    assert limit_of("whole", TINY[0], "--model_type=star_transformer") == 512
    saved = f"--model_name_or_path={tmp_path / 'short'}"
    assert limit_of("later", saved, "--max_seq_length=9") == 9
    assert limit_of("same", saved) == 6
