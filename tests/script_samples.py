"""Tiny synthetic data in all the shapes that the scripts read, and a tiny saved BERT."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from synthetic.corpora import write_ner_corpus, write_reading_corpus, write_sentiment_corpus


SIZES = {"train": 60, "validation": 21, "test": 15}
TINY = ("--config_overrides", "hidden_size=16,num_attention_heads=2")
QUICK = ("--num_train_epochs=2", "--per_device_train_batch_size=16", "--learning_rate=5e-3", "--disable_tqdm=true")

Row = dict[str, Any]
TOPICS = {"food": ("soup", "meal", "kitchen", "coffee"), "place": ("room", "hotel", "view"), "time": ("week", "hour")}


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def jsonl(rows: Iterable[Any]) -> str:
    """A line for each row."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_rows(path: Path, rows: Iterable[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(jsonl(rows), encoding="utf-8")
    return path


def topics(row: Row) -> Row:
    labels = [topic for topic, words in TOPICS.items() if any(word in row["text"] for word in words)]
    return {"text": row["text"], "labels": labels or ["time"]}


def numbered(row: Row) -> Row:
    return {"text": row["text"], "score": 0.5 + len(row["text"]) / 50}


def paired(row: Row) -> Row:
    first, _, second = row["text"].partition(",")
    return {"sentence1": first, "sentence2": second or first, "label": row["label"]}


SHAPES: dict[str, Callable[[Row], Row]] = {
    "sentiment": dict,
    "topics": topics,
    "numbers": numbered,
    "pairs": paired,
}

UNLABELLED = ("tokens", "text", "sentence1", "sentence2", "id", "question", "context")


def write_corpora(folder: Path) -> Path:
    """A folder for each shape, with train.jsonl, validation.jsonl, test.jsonl and, without labels, plain.jsonl."""
    write_ner_corpus(folder / "entities", sizes=SIZES)
    write_sentiment_corpus(folder / "reviews", sizes=SIZES)
    write_reading_corpus(folder / "reading", sizes=SIZES)
    for shape, change in SHAPES.items():
        for split in SIZES:
            rows = read_rows(folder / "reviews" / f"{split}.jsonl")
            write_rows(folder / shape / f"{split}.jsonl", map(change, rows))
    for name in ("entities", "reading", *SHAPES):
        unlabelled = [
            {key: value for key, value in row.items() if key in UNLABELLED}
            for row in read_rows(folder / name / "test.jsonl")
        ]
        write_rows(folder / name / "plain.jsonl", unlabelled)
    write_texts(folder / "texts", folder / "reviews")
    return folder


def write_texts(folder: Path, reviews: Path) -> Path:
    """train.txt, validation.txt and test.txt, a document a line: one to five of the reviews of that split."""
    folder.mkdir(parents=True)
    for split in SIZES:
        texts = [row["text"] for row in read_rows(reviews / f"{split}.jsonl")]
        documents, size = [], 1
        while texts:
            documents.append(" ".join(texts[:size]))
            texts, size = texts[size:], size % 5 + 1
        (folder / f"{split}.txt").write_text("\n".join(documents) + "\n", encoding="utf-8")
    return folder


def write_vectors(path: Path, rows: Iterable[Row], width: int = 8) -> Path:
    """A vectors file for the lower-cased words of tagged rows."""
    words = sorted({word.lower() for row in rows for word in row["tokens"]})
    lines = (f"{word} " + " ".join(f"{(len(word) * 7 + n * 3) % 11 / 10:.1f}" for n in range(width)) for word in words)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_bert(folder: Path, texts: list[str], layers: int = 1, positions: int = 64) -> Path:
    """A BERT of a few numbers with a tokenizer trained on `texts`."""
    import torch
    from transformers import BertConfig, BertModel

    from modeling_star.data.tokenizers import train_tokenizer

    tokenizer = train_tokenizer(texts, "wordpiece", vocab_size=300)
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 24}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=positions, pad_token_id=0, **sizes)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_typeless_tokenizer(folder: Path, texts: list[str]) -> Path:
    """A tokenizer that gives a second text the type 1, but only if it is asked to, as DistilBERT's does."""
    from modeling_star.data.tokenizers import train_tokenizer

    train_tokenizer(texts, "wordpiece", vocab_size=300).save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    del config["model_input_names"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def files(folder: Path, *splits: str) -> list[str]:
    """--train_file ... of the splits of one corpus; "plain" is a test split without labels."""
    flags = {"train": "--train_file", "validation": "--validation_file", "test": "--test_file", "plain": "--test_file"}
    ending = "txt" if (folder / "train.txt").exists() else "jsonl"
    return [f"{flags[split]}={folder / split}.{ending}" for split in splits or tuple(SIZES)]


# What a run left


def results_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report" / "all_results.json").read_text(encoding="utf-8"))


def log_of(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "report" / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]


def hashes(folder: Path) -> dict[str, str]:
    """A digest of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def card_scores(card: str, split: str) -> dict[str, float]:
    """The metadata's numbers of one split, by the name of the metric: {"F1": 0.5}."""
    metadata = yaml.safe_load(card.split("---")[1])
    (entry,) = metadata["model-index"]
    metrics = [
        metric for result in entry["results"] if result["dataset"]["split"] == split for metric in result["metrics"]
    ]
    return {metric["name"]: metric["value"] for metric in metrics}


def table_scores(card: str) -> dict[str, list[str]]:
    """The rows of the table of results: {"f1": ["0.5000", "0.4000"]}, validation before test."""
    rows = re.findall(r"(?m)^\| (\w+) \| ([\d.–-]+) \| ([\d.–-]+) \|$", card)
    return {name: [first, second] for name, first, second in rows}


def assert_card_has_the_results(card: str, results: dict[str, Any]) -> None:
    """Every score of both splits is on the card, in its table and in its metadata, and nothing else is."""
    scores = {
        prefix: {
            name.removeprefix(prefix): value
            for name, value in results.items()
            if name.startswith(prefix) and not re.search("loss|runtime|per_second|samples|model_preparation", name)
        }
        for prefix in ("eval_", "test_")
    }
    assert scores["eval_"]
    assert scores["eval_"].keys() == scores["test_"].keys()
    expected = {name: [f"{scores[prefix][name]:.4f}" for prefix in scores] for name in scores["eval_"]}
    assert {name: row for name, row in table_scores(card).items() if name in expected} == expected
    for split, prefix in (("validation", "eval_"), ("test", "test_")):
        published = sorted(card_scores(card, split).values())
        assert published == sorted(round(value, 6) for value in scores[prefix].values())
