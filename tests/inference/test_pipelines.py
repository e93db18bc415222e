"""Saved models in the stock pipelines, and question answering, which transformers 5 has no pipeline for."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from common import TINY, examples, tiny_model
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from samples import STEMS, named_labels, word_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch_modes import LargestTensor
from transformers import (
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    pipeline,
)
from transformers.modeling_outputs import QuestionAnsweringModelOutput

import modeling_star
from modeling_star import answer_question
from modeling_star.data.entities import EntityGroups, aggregation_for
from modeling_star.data.question_windows import encode_windows
from modeling_star.data.tagging import predictions_to_words, tokenize_and_align
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.inference.pipelines import BestPathPipeline, logits_along


# Words and their tags; each word has one tag, so that a tiny model learns it in a moment.
TAGGED = {
    "Ada": "B-person",
    "Lovelace": "I-person",
    "Charles": "B-person",
    "Babbage": "I-person",
    "New": "B-place",
    "York": "I-place",
    "London": "B-place",
    **dict.fromkeys(["met", "in", "lives", "and", "while", "it", "rained", "all", "day", "there"], "O"),
}
TAGS = sorted(set(TAGGED.values()))
TEXTS = [
    "Ada Lovelace met Charles Babbage in London",
    "London",
    "Ada lives in New York and it rained all day while Charles met Ada there",
    "it   rained",
]


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> str:
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A saved tagger that has learned TAGGED by heart."""
    torch.manual_seed(0)
    tokenizer = word_tokenizer(" ".join(TAGGED))
    labels = {"id2label": dict(enumerate(TAGS)), "label2id": {tag: i for i, tag in enumerate(TAGS)}}
    fields = {**TINY, "hidden_size": 16, "vocab_size": len(tokenizer), "max_position_embeddings": 32, **labels}
    del fields["num_labels"]
    model = modeling_star.StarTransformerForTokenClassification(modeling_star.StarTransformerConfig(**fields))
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    tags = {word: TAGS.index(tag) for word, tag in TAGGED.items()}
    words = [tokenizer.convert_ids_to_tokens(row) for row in batch.input_ids.tolist()]
    batch["labels"] = torch.tensor([[tags.get(word, TAGS.index("O")) for word in row] for row in words])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return save(model, tokenizer, tmp_path_factory.mktemp("tagger"))


# ------ token-classification


@pytest.mark.parametrize(
    ("labels", "tags", "expected"),
    [
        ("O B-x I-x B-y I-y", "B-x I-x B-x O I-x I-y I-y", ["x 0 1", "x 2 2", "x 4 4", "y 5 6"]),
        ("O B-x M-x E-x S-x S-y", "B-x M-x E-x S-y S-x E-x O B-x", ["x 0 2", "y 3 3", "x 4 4", "x 5 5", "x 7 7"]),
        ("O B-x I-x L-x U-x", "B-x L-x U-x U-x B-x I-x L-x", ["x 0 1", "x 2 2", "x 3 3", "x 4 6"]),
        ("B E M S", "S B M E B E S", ["word 0 0", "word 1 3", "word 4 5", "word 6 6"]),
        ("B I", "B I B B I", ["word 0 1", "word 2 2", "word 3 4"]),
        ("O x y", "x x O y x", ["x 0 1", "y 3 3", "x 4 4"]),
        ("NOUN VERB", "NOUN NOUN VERB", ["NOUN 0 0", "NOUN 1 1", "VERB 2 2"]),
    ],
    ids=["IOB", "BMES", "BILOU", "segmentation", "segmentation in two letters", "no prefixes", "parts of speech"],
)
def test_entities_of_every_scheme_are_put_together(labels: str, tags: str, expected: list[str]) -> None:
    groups = EntityGroups(labels.split())
    assert [f"{kind} {first} {last - 1}" for kind, first, last in groups(groups.numbers(tags.split()))] == expected


@pytest.mark.parametrize("are_words", [False, True], ids=["text", "words"])
@pytest.mark.parametrize(("kind", "use_crf"), [("word", False), ("wordpiece", False), ("wordpiece", True)])
def test_windows_of_a_long_text_are_read_as_they_are_scored(
    kind: Any, use_crf: bool, are_words: bool, tmp_path: Path
) -> None:
    texts = [" ".join(list(TAGGED)[i % 7 :: 1 + i % 3] * (1 + 3 * (i % 2))) for i in range(6)]
    tokenizer = train_tokenizer(texts, kind, vocab_size=35)
    tokenizer.model_max_length = 14
    labels = ("O", "B-x", "I-x")
    options = {"use_crf": use_crf, "vocab_size": len(tokenizer), **named_labels(*labels)}
    model = tiny_model("StarTransformer", "ForTokenClassification", seed=1, **options).eval()
    if use_crf:
        model.set_vocabulary(tokenizer)
    rows = Dataset.from_dict(
        {"tokens": [text.split() for text in texts], "tags": [[0] * len(t.split()) for t in texts]}
    )
    features = tokenize_and_align(rows, tokenizer, tags_column="tags", max_seq_length=14, stride=5)
    assert len(features) > 2 * len(texts)
    logits = np.zeros((len(features), 14, len(labels)))
    for place, row in enumerate(features):
        output = model(torch.tensor([row["input_ids"]]))
        scores = output.logits if output.get("paths") is None else logits_along(output.paths, output.logits)
        logits[place, : len(row["input_ids"])] = scores[0].detach().numpy()
    scored = predictions_to_words(features, logits, labels)
    assert len({label for sentence in scored for label in sentence}) > 1

    folder = save(model, tokenizer, tmp_path)
    strategy = aggregation_for(tokenizer)
    pipe = pipeline(
        "token-classification", folder, aggregation_strategy=strategy, pipeline_class=BestPathPipeline, stride=5
    )
    split = {"is_split_into_words": True, "delimiter": " "} if are_words else {}
    inputs = [text.split() for text in texts] if are_words else texts
    for text, sentence, entities in zip(texts, scored, pipe(inputs, batch_size=3, **split), strict=True):
        words = [match.span() for match in re.finditer(r"\S+", text)]
        groups = EntityGroups(labels)
        expected = [
            (kind, words[first][0], words[last - 1][1]) for kind, first, last in groups(groups.numbers(sentence))
        ]
        assert [(e["entity_group"], e["start"], e["end"]) for e in entities] == expected


@pytest.mark.parametrize("stem", STEMS[:2])
@pytest.mark.parametrize("strategy", ["simple", "max"])
def test_pieces_of_words_keep_their_offsets(stem: str, strategy: str, tmp_path: Path, minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    labels = {"id2label": {0: "O", 1: "B-x", 2: "I-x"}, "label2id": {"O": 0, "B-x": 1, "I-x": 2}}
    options = {"vocab_size": len(tokenizer), "max_position_embeddings": 64}
    model = tiny_model(stem, "ForTokenClassification", seed=1, **options)
    model.config.update(labels)
    folder = save(model, tokenizer, tmp_path)
    text = "The unbelievably long Llanfairpwllgwyngyll, naïve; 东京 and  two   spaces"
    entities = pipeline("token-classification", model=folder, aggregation_strategy=strategy)(text)
    assert entities
    for entity in entities:
        piece = text[entity["start"] : entity["end"]]
        assert piece == piece.strip() != ""
        # BERT's tokenizer lower-cases, strips accents, and its decoder puts spaces around punctuation.
        plain = entity["word"].replace(" ", "").removeprefix("##")
        assert plain == piece.lower().replace("ï", "i").replace(" ", "")
        if strategy != "simple":
            assert (
                entity["start"] == 0
                or not text[entity["start"] - 1 : entity["start"] + 1].isalpha()
                or (ord(text[entity["start"]]) > 0x3000)
            )


# ------ text-classification, fill-mask, feature-extraction, zero-shot-classification


WORDS = "a film that was good bad long and short very not is it about"
REVIEWS = ["a very good film", "bad", "it was not long and not short and not good and not bad and not about film"]


def saved_model(stem: str, ending: str, folder: Path, **options: Any) -> tuple[str, PreTrainedModel, Any]:
    """A random model and a tokenizer in a folder, and both as objects."""
    tokenizer = word_tokenizer(WORDS)
    options = {"vocab_size": len(tokenizer), "max_position_embeddings": 32, **options}
    model = tiny_model(stem, ending, **options)
    return save(model, tokenizer, folder), model, tokenizer


@pytest.mark.parametrize("pair_mode", ["cross", "siamese"])
@pytest.mark.parametrize("stem", STEMS[:2])
def test_text_classification_takes_pairs(stem: str, pair_mode: str, tmp_path: Path) -> None:
    options = {"pair_mode": pair_mode, "type_vocab_size": 2}
    folder, model, tokenizer = saved_model(stem, "ForSequenceClassification", tmp_path, **options)
    first, second = REVIEWS[:2]
    pipe = pipeline("text-classification", model=folder, top_k=None)
    there = pipe([{"text": first, "text_pair": second}, {"text": second, "text_pair": first}], batch_size=2)
    for (a, b), scores in zip([(first, second), (second, first)], there, strict=True):
        expected = model(**tokenizer(a, b, return_tensors="pt")).logits[0].softmax(-1).tolist()
        given = {entry["label"]: entry["score"] for entry in scores}
        assert given == pytest.approx({f"LABEL_{i}": p for i, p in enumerate(expected)}, abs=1e-6)
    assert there[0] != there[1]


@pytest.mark.parametrize("stem", STEMS[:2])
def test_fill_mask_gives_the_models_best_words(stem: str, tmp_path: Path) -> None:
    folder, model, tokenizer = saved_model(stem, "ForMaskedLM", tmp_path)
    texts = ["a very [MASK] film", "[MASK]", "it was not long and [MASK] good"]
    pipe = pipeline("fill-mask", model=folder, top_k=4)
    for text, filled in zip(texts, pipe(texts, batch_size=3), strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        at_mask = model(**inputs).logits[inputs.input_ids == tokenizer.mask_token_id][0].softmax(-1)
        best = at_mask.topk(4)
        assert [entry["token"] for entry in filled] == best.indices.tolist()
        assert [entry["score"] for entry in filled] == pytest.approx(best.values.tolist(), abs=1e-6)
        assert [entry["token_str"] for entry in filled] == tokenizer.convert_ids_to_tokens(best.indices)


# ------ question answering


class LookUp(modeling_star.StarTransformerForQuestionAnswering):
    """A model whose logits at a token are what a table says of its id, at any place."""

    def set_scores(self, start: torch.Tensor, end: torch.Tensor) -> "LookUp":
        self.start_scores, self.end_scores = start, end
        return self

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> QuestionAnsweringModelOutput:
        return QuestionAnsweringModelOutput(
            start_logits=self.start_scores[input_ids], end_logits=self.end_scores[input_ids]
        )


def look_up(tokenizer: PreTrainedTokenizerFast, start: str, end: str, **options: Any) -> LookUp:
    """A LookUp that finds the spans from any word of `start` to any of `end`."""
    config = modeling_star.StarTransformerConfig(**{**TINY, "vocab_size": len(tokenizer), **options})
    scores = torch.zeros(2, len(tokenizer))
    for row, words in enumerate((start, end)):
        scores[row, tokenizer.convert_tokens_to_ids(words.split())] = 12.0
    return LookUp(config).eval().set_scores(scores[0], scores[1])


CONTEXT = "the old capital of Japan , Kyoto city , lies west of Tokyo"
ANSWERS = word_tokenizer("where is the old capital of Japan , Kyoto city lies west Tokyo")


def test_an_answer_is_a_slice_of_the_context() -> None:
    # The question holds the answer's words too: only the context may be answered from.
    [answer] = answer_question("is Kyoto city old", CONTEXT, look_up(ANSWERS, "Kyoto", "city"), ANSWERS)
    assert answer.text == "Kyoto city" == CONTEXT[answer.start : answer.end]
    assert 0.5 < answer.score <= 1


@examples(60)
@given(
    context=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=24),
    seed=st.integers(0, 1000),
    max_length=st.integers(5, 40),
    stride=st.integers(0, 12),
    longest=st.integers(1, 3),
    top_k=st.integers(1, 6),
)
def test_answers_are_the_best_of_all_spans_that_lie_in_a_window(
    context: list[str], seed: int, max_length: int, stride: int, longest: int, top_k: int
) -> None:
    tokenizer = word_tokenizer("a b c d e f g h")
    generator = torch.Generator().manual_seed(seed)
    start, end = torch.randn(2, len(tokenizer), generator=generator)
    model = look_up(tokenizer, "", "", position_embedding_type="none").set_scores(start, end)
    # One word of question and [CLS], [SEP], [SEP]. Windows follow one another by what they do not share.
    room = max_length - 4
    step = room - min(stride, room // 2)
    windows = [range(first, min(first + room, len(context))) for first in range(0, len(context), step)]
    ids = tokenizer.convert_tokens_to_ids(context)
    spans = {
        (i, j): float(start[ids[i]] + end[ids[j]])
        for window in windows
        for i in window
        for j in window
        if 0 <= j - i < longest
    }
    total = math.fsum(math.exp(score) for score in spans.values())
    expected = sorted(spans, key=lambda span: -spans[span])
    text = " ".join(context)
    answers = answer_question(
        "a", text, model, tokenizer, top_k=top_k, max_answer_tokens=longest, max_length=max_length, stride=stride
    )
    assert len(answers) == min(top_k, len(expected))
    given_spans = [(answer.start // 2, (answer.end - 1) // 2) for answer in answers]
    assert len(set(given_spans)) == len(given_spans)
    # Spans of equal score may come in any order: words repeat.
    best = [spans[span] for span in expected[:top_k]]
    assert [spans[span] for span in given_spans] == pytest.approx(best, abs=1e-5)
    assert [answer.score for answer in answers] == pytest.approx([math.exp(s) / total for s in best], rel=1e-4)


def test_arguments_override_the_options_in_the_configuration() -> None:
    model = look_up(ANSWERS, "old", "Kyoto")
    saved = {"max_answer_tokens": 1, "max_length": 12, "stride": 1, "null_threshold": -100.0}
    model.config.task_specific_params = {"question-answering": saved}
    lengths: list[int] = []
    model.register_forward_pre_hook(
        lambda module, args, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True
    )

    def first(**options: Any) -> str:
        return answer_question("where", CONTEXT, model, ANSWERS, **options)[0].text

    assert first() == ""
    assert lengths == [12, 10]
    # 0 is a number as any other.
    assert first(null_threshold=0.0) in ("old", "Kyoto")
    assert first(null_threshold=0.0, max_answer_tokens=6) == "old capital of Japan , Kyoto"
    lengths.clear()
    first(max_length=10, stride=0)
    assert lengths == [10, 10, 5]


def test_a_context_of_16000_tokens_is_read_at_once_and_in_linear_space() -> None:
    tokenizer = word_tokenizer(
        "where is the old capital of Japan , Kyoto city lies west Tokyo", model_max_length=10**6
    )
    options = {"position_embedding_type": "ring", "vocab_size": len(tokenizer)}
    model = tiny_model("StarTransformer", "ForQuestionAnswering", **options).eval()
    words = CONTEXT.split()

    def largest(n: int) -> int:
        context = " ".join((words * (n // len(words) + 1))[:n])
        with LargestTensor() as watch:
            answers = answer_question("where is Kyoto", context, model, tokenizer, top_k=2)
        assert len(answers) == 2
        assert all(context[answer.start : answer.end] == answer.text for answer in answers)
        return watch.numbers

    short, long = largest(1_000), largest(16_000)
    # 16 times the tokens, 16 times the numbers; question and special tokens are a few more.
    assert long <= 16 * short
    assert long < 16_000 * 100


# Spans, against plain loops


# Windows


def byte_level(**sides: Any) -> PreTrainedTokenizerFast:
    """A byte-level BPE that counts the blank before a word as part of it, and gives several tokens to a character."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    backend.train_from_iterator(["the river of Paris lies in the city"] * 3, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="<s>", sep_token="</s>", pad_token="</s>", **sides
    )


CONTEXTS = st.text(st.sampled_from("abc 年河𠀀é.\n3"), min_size=1, max_size=40)


@pytest.fixture(scope="module", params=["word", "minilm", "bytes", "left"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    if request.param == "minilm":
        return AutoTokenizer.from_pretrained(request.getfixturevalue("minilm_path"))
    if request.param == "bytes":
        return byte_level()
    return word_tokenizer("a b c ab 年", **({"truncation_side": "left"} if request.param == "left" else {}))


@examples(60)
@given(
    pairs=st.lists(st.tuples(CONTEXTS, CONTEXTS), min_size=1, max_size=4),
    room=st.integers(1, 20),
    stride=st.integers(0, 9),
)
def test_windows_hold_every_token_of_the_context_at_its_place(
    tokenizer: PreTrainedTokenizerBase, pairs: list[tuple[str, str]], room: int, stride: int
) -> None:
    questions, contexts = (list(texts) for texts in zip(*pairs, strict=True))
    special = tokenizer.num_special_tokens_to_add(pair=True)
    taken = [len(tokenizer(question, add_special_tokens=False).input_ids) + special for question in questions]
    longest = max(taken) + room
    all_windows = encode_windows(questions, contexts, tokenizer, longest, stride)
    whole = encode_windows(questions, contexts, tokenizer, None, stride)
    for index, windows in enumerate(all_windows):
        (one,) = whole[index]
        shared = min(stride, (longest - taken[index]) // 2)
        tokens = one.inputs["input_ids"][one.begin : one.begin + len(one.offsets)]
        seen: set[int] = set()
        for number, window in enumerate(windows):
            columns = slice(window.begin, window.begin + len(window.offsets))
            places = slice(window.first, window.first + len(window.offsets))
            assert window.inputs["input_ids"][columns] == tokens[places]
            assert torch.equal(window.offsets, one.offsets[places])
            assert len(window.inputs["input_ids"]) <= longest
            assert window.inputs["input_ids"][window.no_answer] == tokenizer.cls_token_id
            if number:
                before = windows[number - 1]
                assert before.first + len(before.offsets) - window.first == shared
            seen.update(range(places.start, places.stop))
        assert seen == set(range(len(tokens)))
        pieces = [contexts[index][start:end] for start, end in one.offsets.tolist()]
        assert all(piece == piece.strip() for piece in pieces)
