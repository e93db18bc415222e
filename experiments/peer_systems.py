"""
The systems of peers.py: how each trains, as its documentation says, and how it predicts, from strings to labels.

    python experiments/peer_systems.py train SYSTEM DATA/sst2 FOLDER --seed 1 --start MINILM
    python experiments/peer_systems.py serve SYSTEM FOLDER

Each runs in an environment of its own: a function imports what its system needs, and this file nothing else.

A set is a folder with train, validation and test: texts with a label, or words with their tags. What chooses by
itself (scikit-learn, fastText, model2vec, SetFit) trains on train and validation; encoders, spaCy and taggers train on
train, and those that choose a checkpoint do so on validation.
"""

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple


Row = dict[str, Any]
# Texts, or sentences as lists of words -> their labels, or lists of tags.
Predict = Callable[[Sequence[Any]], list[Any]]

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
TAGS = ("ner_tags", "pos_tags")
BATCH, LONGEST = 32, 512


@dataclass(frozen=True)
class Job:
    """What a system trains on, and where its model goes."""

    data: Path
    folder: Path
    seed: int
    start: str  # folder of an encoder
    rows: int  # the first ones of train, and a seventh as many of validation; 0: all

    def read(self, split: str) -> list[Row]:
        """The rows of train or validation, as `text` and `label` or `tokens` and `tags`."""
        rows = read_rows(self.data / f"{split}.jsonl.gz")
        return rows[: self.rows if split == "train" else -(-self.rows // 7)] if self.rows else rows

    @property
    def labelled(self) -> tuple[list[str], list[str]]:
        """Texts and labels of train and validation."""
        rows = self.read("train") + self.read("validation")
        return [row["text"] for row in rows], [row["label"] for row in rows]


def read_rows(path: Path) -> list[Row]:
    """Rows of a file, with `text` and `label`, or `tokens` and `tags`; labels are strings."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    column = next((name for name in TAGS if name in rows[0]), None)
    if column:
        return [{"tokens": row["tokens"], "tags": row[column]} for row in rows]
    return [{"text": row["text"], "label": str(row["label"])} for row in rows]


# ------ linear models and bags of vectors


def train_sklearn(job: Job) -> None:
    """Words and pairs of words; C and sublinear_tf by cross-validation."""
    import joblib
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(max_iter=1000))
    grid = {"tfidfvectorizer__sublinear_tf": [False, True], "logisticregression__C": [1, 10, 100]}
    search = GridSearchCV(pipeline, grid, cv=5).fit(*job.labelled)
    joblib.dump(search.best_estimator_, job.folder / "model.joblib")


def load_sklearn(folder: Path) -> Predict:
    import joblib

    pipeline = joblib.load(folder / "model.joblib")
    return lambda texts: pipeline.predict(texts).tolist()


def _one_line(text: str) -> str:
    """Lower-cased, punctuation apart, as fastText's tutorial does."""
    return " ".join(re.sub(r"([.!?,'/()\"])", r" \1 ", text.lower()).split())


def train_fasttext(job: Job) -> None:
    """As the tutorial on text classification: words and pairs, 25 epochs, a rate of 1."""
    import fasttext

    lines = [f"__label__{label} {_one_line(text)}\n" for text, label in zip(*job.labelled, strict=True)]
    file = job.folder / "train.txt"
    file.write_text("".join(lines), encoding="utf-8")
    # the seed has effect on one thread
    model = fasttext.train_supervised(str(file), lr=1.0, epoch=25, wordNgrams=2, thread=1, seed=job.seed)
    file.unlink()
    model.save_model(str(job.folder / "model.bin"))


def load_fasttext(folder: Path) -> Predict:
    import fasttext

    model = fasttext.load_model(str(folder / "model.bin"))

    def predict(texts: Sequence[str]) -> list[str]:
        # what model.predict does; its last line fails with numpy 2
        found = model.f.multilinePredict([_one_line(text) + "\n" for text in texts], 1, 0.0, "strict")
        return [labels[0].removeprefix("__label__") for labels in found[0]]

    return predict


def train_model2vec(job: Job) -> None:
    """Static vectors distilled from MiniLM, and its classifier, which holds out a tenth by itself."""
    from model2vec.distill import distill
    from model2vec.train import StaticModelForClassification

    distill(model_name=job.start, pca_dims=256).save_pretrained(str(job.folder / "static"))
    classifier = StaticModelForClassification.from_pretrained(model_name=str(job.folder / "static"))
    classifier.fit(*job.labelled)
    classifier.to_pipeline().save_pretrained(str(job.folder / "pipeline"))


def load_model2vec(folder: Path) -> Predict:
    from model2vec.inference import StaticModelPipeline

    pipeline = StaticModelPipeline.from_pretrained(str(folder / "pipeline"))
    return lambda texts: pipeline.predict(list(texts)).tolist()


# ------ spaCy, CRFsuite


def train_spacy(job: Job) -> None:
    """`textcat` or `ner`, randomly initialised: the configuration of `spacy init config`, without vectors."""
    import spacy
    from spacy.tokens import Doc, DocBin

    language = "zh" if "weibo" in job.data.name else "en"
    nlp = spacy.blank(language)
    kind = "textcat" if "text" in job.read("train")[0] else "ner"
    for split in ("train", "validation"):
        rows, documents = job.read(split), DocBin()
        labels = {row["label"] for row in job.read("train")} if kind == "textcat" else set()
        for row in rows:
            if kind == "textcat":
                document = nlp.make_doc(row["text"])
                document.cats = {label: float(label == row["label"]) for label in labels}
            else:
                document = Doc(nlp.vocab, words=row["tokens"], ents=row["tags"])
            documents.add(document)
        documents.to_disk(job.folder / f"{split}.spacy")
    config, spacy_command = job.folder / "config.cfg", [sys.executable, "-m", "spacy"]
    given = ["--lang", language, "--pipeline", kind, "--optimize", "efficiency"]
    subprocess.run([*spacy_command, "init", "config", str(config), *given], check=True)
    files = [f"--paths.{name}={job.folder / part}.spacy" for name, part in (("train", "train"), ("dev", "validation"))]
    output = ["--output", str(job.folder / "output"), f"--system.seed={job.seed}"]
    subprocess.run([*spacy_command, "train", str(config), *output, *files], check=True)


def load_spacy(folder: Path) -> Predict:
    import spacy
    from spacy.tokens import Doc

    nlp = spacy.load(folder / "output" / "model-best")

    def predict(inputs: Sequence[Any]) -> list[Any]:
        if "textcat" in nlp.pipe_names:
            return [max(document.cats, key=document.cats.__getitem__) for document in nlp.pipe(inputs)]
        documents = nlp.pipe(Doc(nlp.vocab, words=words) for words in inputs)
        return [[f"{t.ent_iob_}-{t.ent_type_}" if t.ent_type_ else "O" for t in document] for document in documents]

    return predict


def _features(words: Sequence[str]) -> list[dict[str, Any]]:
    """Those of sklearn-crfsuite's tutorial on entities, without its parts of speech."""

    def of_word(word: str, where: str) -> dict[str, Any]:
        forms = {"lower()": word.lower(), "istitle()": word.istitle(), "isupper()": word.isupper()}
        return {f"{where}word.{name}": value for name, value in forms.items()}

    rows = []
    for i, word in enumerate(words):
        row = {"bias": 1.0, **of_word(word, ""), "word[-3:]": word[-3:], "word[-2:]": word[-2:]}
        row["word.isdigit()"] = word.isdigit()
        row |= of_word(words[i - 1], "-1:") if i else {"BOS": True}
        row |= of_word(words[i + 1], "+1:") if i + 1 < len(words) else {"EOS": True}
        rows.append(row)
    return rows


def train_crfsuite(job: Job) -> None:
    """As its tutorial: L-BFGS, c1 and c2 of 0.1, 100 iterations."""
    import joblib
    import sklearn_crfsuite

    rows = job.read("train")
    model = sklearn_crfsuite.CRF("lbfgs", c1=0.1, c2=0.1, max_iterations=100, all_possible_transitions=True)
    model.fit([_features(row["tokens"]) for row in rows], [row["tags"] for row in rows])
    joblib.dump(model, job.folder / "model.joblib")


def load_crfsuite(folder: Path) -> Predict:
    import joblib

    model = joblib.load(folder / "model.joblib")
    return lambda sentences: [list(tags) for tags in model.predict([_features(words) for words in sentences])]


# ------ SetFit, SpanMarker


def train_setfit(job: Job) -> None:
    """Pairs of texts, then a logistic regression: 20 pairs a text as in the paper, one epoch."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    texts, labels = job.labelled
    model = SetFitModel.from_pretrained(job.start, labels=sorted(set(labels)))
    iterations = max(1, min(20, 4000 // len(texts)))  # 8,000 pairs at most: hours otherwise
    fixed = {"output_dir": str(job.folder / "runs"), "batch_size": 16, "num_epochs": 1, "report_to": "none"}
    arguments = TrainingArguments(**fixed, num_iterations=iterations, seed=job.seed)
    arguments.save_strategy = "no"
    Trainer(model=model, args=arguments, train_dataset=Dataset.from_dict({"text": texts, "label": labels})).train()
    model.save_pretrained(str(job.folder / "model"))


def load_setfit(folder: Path) -> Predict:
    from setfit import SetFitModel

    model = SetFitModel.from_pretrained(str(folder / "model"))
    return lambda texts: [str(label) for label in model.predict(list(texts), batch_size=BATCH)]


def train_spanmarker(job: Job) -> None:
    """As its README: 3 epochs at 5e-5; less padding, and products in bfloat16, save three quarters of the time."""
    from datasets import Dataset
    from span_marker import SpanMarkerModel, Trainer
    from transformers import TrainingArguments

    rows = job.read("train")
    labels = sorted({tag for row in rows for tag in row["tags"]}, key=lambda tag: (tag != "O", tag[2:], tag))
    encoded = [{"tokens": row["tokens"], "ner_tags": [labels.index(tag) for tag in row["tags"]]} for row in rows]
    lengths = {"model_max_length": 128, "marker_max_length": 64, "entity_max_length": 8}
    model = SpanMarkerModel.from_pretrained(job.start, labels=labels, **lengths)
    fixed = {"output_dir": str(job.folder / "runs"), "save_strategy": "no", "report_to": "none", "use_cpu": True}
    rates = {"learning_rate": 5e-5, "weight_decay": 0.01, "warmup_ratio": 0.1, "per_device_train_batch_size": 8}
    arguments = TrainingArguments(**fixed, **rates, bf16=True, num_train_epochs=3, seed=job.seed)
    trainer = Trainer(model=model, args=arguments, train_dataset=Dataset.from_list(encoded))
    trainer.train()
    trainer.save_model(str(job.folder / "model"))


def load_spanmarker(folder: Path) -> Predict:
    from span_marker import SpanMarkerModel

    model = SpanMarkerModel.from_pretrained(str(folder / "model"))

    def predict(sentences: Sequence[list[str]]) -> list[list[str]]:
        tagged = [["O"] * len(words) for words in sentences]
        for tags, entities in zip(tagged, model.predict(list(sentences), batch_size=BATCH), strict=True):
            for entity in entities:
                first, end = entity["word_start_index"], entity["word_end_index"]
                tags[first:end] = [f"B-{entity['label']}", *[f"I-{entity['label']}"] * (end - first - 1)]
        return tagged

    return predict


# ------ a fine-tuned BERT, and the same weights in other runtimes


def batches_by_length(lengths: Sequence[int], generator: random.Random, size: int) -> list[list[int]]:
    """Numbers of rows in random batches of like length: shuffled, sorted within 50 batches, batches shuffled."""
    order = generator.sample(range(len(lengths)), len(lengths))
    parts = [sorted(part, key=lengths.__getitem__) for part in parts_of(order, 50 * size)]
    batches = [batch for part in parts for batch in parts_of(part, size)]
    return generator.sample(batches, len(batches))


def parts_of(items: Sequence[Any], size: int) -> list[Any]:
    """Items in parts of a size, the last one smaller."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def train_minilm(job: Job) -> None:
    """Plain transformers: AdamW, a tenth of warm-up, a linear decay, the last step; products in bfloat16."""
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        AutoTokenizer,
        get_linear_schedule_with_warmup,
        set_seed,
    )

    set_seed(job.seed)
    rows = job.read("train")
    tags = "tags" in rows[0]
    names = sorted({tag for row in rows for tag in row["tags"]} if tags else {row["label"] for row in rows})
    ids = {name: number for number, name in enumerate(names)}
    tokenizer = AutoTokenizer.from_pretrained(job.start, model_max_length=LONGEST)
    encoded = tokenizer([row["tokens" if tags else "text"] for row in rows], is_split_into_words=tags, truncation=True)
    inputs: list[list[int]] = encoded["input_ids"]
    targets: list[Any] = [ids[row["label"]] for row in rows] if not tags else []
    for number, row in enumerate(rows if tags else []):
        # the first token of each word has its tag
        words = [None, *encoded.word_ids(number)]
        firsts = [None if word == before else word for before, word in pairwise(words)]
        targets.append([-100 if word is None else ids[row["tags"][word]] for word in firsts])
    many = len(rows) > 5000
    size, epochs = 32 if many else 16, 3 if many else 5 if tags else 4
    rate = 1e-4 if tags else 5e-5
    model = (AutoModelForTokenClassification if tags else AutoModelForSequenceClassification).from_pretrained(
        job.start, dtype=torch.float32, num_labels=len(names), id2label=dict(enumerate(names)), label2id=ids
    )
    groups: dict[float, list[Any]] = {0.01: [], 0.0: []}
    for name, parameter in model.named_parameters():
        groups[0.0 if name.endswith("bias") or "LayerNorm" in name else 0.01].append(parameter)
    decayed = [{"params": group, "weight_decay": decay} for decay, group in groups.items()]
    optimizer = torch.optim.AdamW(decayed, lr=rate, fused=True)
    steps = epochs * -(-len(rows) // size)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    generator, lengths = random.Random(job.seed), list(map(len, inputs))
    model.train()
    for _ in range(epochs):
        for batch in batches_by_length(lengths, generator, size):
            padded = tokenizer.pad({"input_ids": [inputs[i] for i in batch]}, return_tensors="pt")
            n = padded["input_ids"].shape[1]
            labels = [[*targets[i], *[-100] * (n - lengths[i])] if tags else targets[i] for i in batch]
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(**padded, labels=torch.tensor(labels)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.save_pretrained(job.folder)
    tokenizer.save_pretrained(job.folder)


def read_model(folder: Path, **options: Any) -> Any:
    """A saved model with its head, in evaluation mode; POSITIONS in the environment: with so many, new ones random."""
    import transformers

    if "POSITIONS" in os.environ:
        options |= {"max_position_embeddings": int(os.environ["POSITIONS"]), "ignore_mismatched_sizes": True}

    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    auto = "AutoModelForTokenClassification" if "Token" in name else "AutoModelForSequenceClassification"
    return getattr(transformers, auto).from_pretrained(folder, **options).eval()


# ids and mask `[b, n]` as arrays -> logits `[b, labels]` or `[b, n, labels]`.
Logits = Callable[[Any, Any], Any]


def encoder_predict(folder: Path, logits: Logits) -> Predict:
    """Predictions in batches of like length, cut at 512 tokens; a word beyond them has the tag O."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    names = json.loads((folder / "config.json").read_text())["id2label"]

    def predict(inputs: Sequence[Any]) -> list[Any]:
        tags = not isinstance(inputs[0], str)
        encoded = tokenizer(list(inputs), is_split_into_words=tags, truncation=True, max_length=LONGEST)
        rows: list[list[int]] = encoded["input_ids"]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found: list[Any] = [None] * len(rows)
        for batch in parts_of(order, BATCH):
            padded = tokenizer.pad({"input_ids": [rows[i] for i in batch]}, return_tensors="np")
            best = logits(padded["input_ids"], padded["attention_mask"]).argmax(-1).tolist()
            for i, label in zip(batch, best, strict=True):
                found[i] = names[str(label)] if not tags else ["O"] * len(inputs[i])
                for token, word in reversed(list(enumerate(encoded.word_ids(i) if tags else []))):
                    if word is not None:  # the first token of a word comes last
                        found[i][word] = names[str(label[token])]
        return found

    predict.logits = logits  # type: ignore[attr-defined]
    return predict


def torch_logits(model: Any) -> Logits:
    """The logits of a model of PyTorch."""
    import torch

    @torch.inference_mode()
    def logits(ids: Any, mask: Any) -> Any:
        output = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
        return output.logits.float().numpy()

    return logits


def load_pytorch(dtype: str, folder: Path) -> Predict:
    import torch

    return encoder_predict(folder, torch_logits(read_model(folder, dtype=getattr(torch, dtype))))


def train_onnx(int8: bool, job: Job) -> None:
    """Exported by PyTorch, fused by ONNX Runtime's optimizer for BERT; int8: its dynamic quantization, per channel."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    # the optimizer knows BERT's attention in graphs of the older exporter
    model, inputs = prepare(job, attn_implementation="eager")
    path, axes = str(job.folder / "model.onnx"), {name: {0: "b", 1: "n"} for name in inputs}
    torch.onnx.export(model, tuple(inputs.values()), path, input_names=[*inputs], dynamic_axes=axes, dynamo=False)
    heads, width = model.config.num_attention_heads, model.config.hidden_size
    optimizer.optimize_model(path, "bert", num_heads=heads, hidden_size=width).save_model_to_file(path)
    if int8:
        # 1, float32: its shape inference stops at the fused operators
        extra = {"DefaultTensorType": 1}
        quantize_dynamic(path, path, weight_type=QuantType.QInt8, per_channel=True, extra_options=extra)


def prepare(job: Job, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The fine-tuned model for another runtime, with inputs; tokenizer and configuration are in the job's folder."""
    import torch
    from transformers import AutoTokenizer

    model, ids = read_model(Path(job.start), **options), torch.full((2, 16), 5)
    AutoTokenizer.from_pretrained(job.start).save_pretrained(job.folder)
    model.config.save_pretrained(job.folder)
    model.config.return_dict = False
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def load_onnx(folder: Path) -> Predict:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    # otherwise its threads keep polling while other systems run
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    return encoder_predict(folder, lambda i, m: session.run(None, {"input_ids": i, "attention_mask": m})[0])


def train_openvino(job: Job) -> None:
    """Converted from PyTorch by OpenVINO's own frontend, in 32 bits: the numbers are chosen when it is loaded."""
    import openvino

    model, inputs = prepare(job)
    converted = openvino.convert_model(model, example_input=inputs)
    openvino.save_model(converted, job.folder / "model.xml", compress_to_fp16=False)


def load_openvino(numbers: str, folder: Path) -> Predict:
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": numbers,
        "INFERENCE_NUM_THREADS": THREADS,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    model = openvino.Core().compile_model(folder / "model.xml", "CPU", settings)
    print(f"openvino: {numbers} asked, {model.get_property('INFERENCE_PRECISION_HINT')} given", file=sys.stderr)
    return encoder_predict(folder, lambda i, m: model({"input_ids": i, "attention_mask": m})[0])


# ------ ours


def train_converted(job: Job) -> None:
    """The fine-tuned model as a BiG-Transformer of radius 128, without training."""
    from transformers import AutoTokenizer

    import modeling_star

    head = (
        "TokenClassification" if "Token" in (Path(job.start) / "config.json").read_text() else "SequenceClassification"
    )
    model = getattr(modeling_star, f"BigTransformerFor{head}").from_encoder(job.start, radius=128)
    model.save_pretrained(job.folder)
    AutoTokenizer.from_pretrained(job.start).save_pretrained(job.folder)


def load_converted(dtype: Literal["bfloat16"] | None, folder: Path) -> Predict:
    from modeling_star import compiled, describe

    model = compiled(read_model(folder), dtype)
    print(describe(model), file=sys.stderr)
    return encoder_predict(folder, torch_logits(model))


def train_ours(flags: Sequence[str], job: Job) -> None:
    """README's commands; START among the flags is the pretrained encoder."""
    files: list[str] = []
    for split in ("train", "validation"):
        path = job.folder / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in job.read(split)), encoding="utf-8")
        files += [f"--{split}_file", str(path)]
    tags = "tags" in job.read("train")[0]
    command = ["tag" if tags else "classify", *(job.start if flag == "START" else flag for flag in flags)]
    if tags:
        command += ["--num_train_epochs", "5" if flags else "10"]
    output = ["--output_dir", str(job.folder / "model"), "--seed", str(job.seed)]
    subprocess.run([sys.executable, "-m", "modeling_star", *command, *files, *output], check=True)


def load_ours(folder: Path) -> Predict:
    from modeling_star.inference import Predictor

    predictor = Predictor(folder / "model")

    def predict(inputs: Sequence[Any]) -> list[Any]:
        if isinstance(inputs[0], str):
            return [found[0]["label"] for _, found in predictor.predict(inputs)]
        return [[tag or "O" for tag in tags] for tags in predictor.tag_words(inputs)]

    return predict


# ------ the table, and the two commands


class System(NamedTuple):
    """A system of the tables."""

    title: str
    environment: str
    train: Callable[[Job], None] | None  # writes a model into the folder of a job
    load: Callable[[Path], Predict]
    kinds: str = "texts"  # of these: texts, entities, tags (others)
    base: str | None = None  # the system whose model it takes, in place of the pretrained encoder
    seeds: bool = True  # whether it depends on the seed


def served(title: str, place: str, train: Callable[[Job], None] | None, load: Callable[[Path], Predict]) -> System:
    """MiniLM as fine-tuned by the system of this name, elsewhere."""
    return System(title, place, train, load, ALL, "minilm")


ALL = "texts entities tags"
PRETRAINED = ["--pretrained", "START"]
NO_CRF = [*PRETRAINED, "--config_overrides", "use_crf=false"]
SYSTEMS = {
    "sklearn": System("scikit-learn TF-IDF", "sklearn", train_sklearn, load_sklearn, seeds=False),
    "fasttext": System("fastText", "fasttext", train_fasttext, load_fasttext),
    "model2vec": System("model2vec, MiniLM", "model2vec", train_model2vec, load_model2vec),
    "spacy": System("spaCy", "spacy", train_spacy, load_spacy, "texts entities"),
    "crfsuite": System("sklearn-crfsuite", "crfsuite", train_crfsuite, load_crfsuite, "entities tags", seeds=False),
    "setfit": System("SetFit, MiniLM", "setfit", train_setfit, load_setfit),
    "spanmarker": System("SpanMarker, MiniLM", "spanmarker", train_spanmarker, load_spanmarker, "entities"),
    "minilm": System("MiniLM", "ours", train_minilm, partial(load_pytorch, "float32"), ALL),
    "pytorch-bfloat16": served("PyTorch bfloat16", "ours", None, partial(load_pytorch, "bfloat16")),
    "onnx-float32": served("ONNX Runtime float32", "ours", partial(train_onnx, False), load_onnx),
    "onnx-int8": served("ONNX Runtime int8", "ours", partial(train_onnx, True), load_onnx),
    "openvino-float32": served("OpenVINO float32", "openvino", train_openvino, partial(load_openvino, "f32")),
    "openvino-bfloat16": served("OpenVINO bfloat16", "openvino", train_openvino, partial(load_openvino, "bf16")),
    "converted-float32": served("converted, float32", "ours", train_converted, partial(load_converted, None)),
    "converted-bfloat16": served("converted, bfloat16", "ours", train_converted, partial(load_converted, "bfloat16")),
    "pretrained": System("ours: --pretrained MiniLM", "ours", partial(train_ours, PRETRAINED), load_ours, ALL),
    "without-crf": System(
        "ours: --pretrained MiniLM, no CRF", "ours", partial(train_ours, NO_CRF), load_ours, "entities"
    ),
    "tfidf": System("ours: default, TF-IDF", "ours", partial(train_ours, []), load_ours, seeds=False),
    "tag": System("ours: default", "ours", partial(train_ours, []), load_ours, "entities tags"),
}


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What a function returns, and its seconds of CPU time, of all threads, and of wall-clock time."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return result, {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def serve(predict: Predict, requests: Iterator[str], answers: Any) -> None:
    """Answer requests, a line of JSON each: inputs, a file of them, or the shape of a batch of random ids."""
    import numpy as np

    files: dict[str, list[Any]] = {}
    for line in requests:
        request = json.loads(line)
        reply: dict[str, Any] = {}
        if "shape" in request:
            ids = np.random.default_rng(0).integers(1000, 5000, request["shape"])
            _, reply = timed(partial(predict.logits, ids, np.ones_like(ids)))  # type: ignore[attr-defined]
        else:
            if "file" in request and request["file"] not in files:
                rows = read_rows(Path(request["file"]))
                files[request["file"]] = [row["text"] if "text" in row else row["tokens"] for row in rows]
            inputs = request["inputs"] if "inputs" in request else files[request["file"]][: request.get("rows")]
            labels, reply = timed(partial(predict, inputs))
            reply |= {"labels": labels} if request.get("labels") else {}
        peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
        reply["process"] = time.process_time()
        reply["megabytes"] = int(peak[1]) * 1024 / 1e6 if peak else None
        print(json.dumps(reply), file=answers, flush=True)


def main() -> None:
    """Train a system, or load it and answer requests on standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="train a system on a set")
    train.add_argument("system", choices=list(SYSTEMS))
    train.add_argument("data", type=Path, help="folder of the set")
    train.add_argument("folder", type=Path, help="the new model")
    train.add_argument("--seed", type=int, default=1)
    train.add_argument("--start", default="", help="folder of the pretrained encoder, or of the base's model")
    train.add_argument("--rows", type=int, default=0, help="first rows of train; 0: all")
    serving = commands.add_parser("serve", help="answer requests")
    serving.add_argument("system", choices=list(SYSTEMS))
    serving.add_argument("folder", type=Path)
    options = parser.parse_args()
    # libraries print: answers have a stream of their own
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    system = SYSTEMS[options.system]
    if options.command == "serve":
        serve(system.load(options.folder), sys.stdin, answers)
    elif system.train is not None:
        options.folder.mkdir(parents=True)
        system.train(Job(options.data, options.folder, options.seed, options.start, options.rows))


if __name__ == "__main__":
    main()
