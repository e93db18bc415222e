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
from torch_modes import LargestTensor
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForQuestionAnswering,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    pipeline,
)
from transformers.modeling_outputs import QuestionAnsweringModelOutput

import modeling_star
from modeling_star import answer_question
from modeling_star.data.entities import EntityGroups, aggregation_for, is_plain_iob
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


def entities_of(text: str) -> list[tuple[str, str]]:
    """Entities that TAGGED puts into a text: kind and words."""
    entities: list[list[str]] = []
    for word in text.split():
        tag = TAGGED[word]
        if tag.startswith("B-"):
            entities.append([tag[2:], word])
        elif tag.startswith("I-"):
            entities[-1][1] += f" {word}"
    return [(kind, words) for kind, words in entities]


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


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_entities_are_slices_of_the_text(tagger: str, batch_size: int) -> None:
    pipe = pipeline("token-classification", model=tagger, aggregation_strategy="simple")
    for text, entities in zip(TEXTS, pipe(TEXTS, batch_size=batch_size), strict=True):
        spans = [(entity["entity_group"], text[entity["start"] : entity["end"]]) for entity in entities]
        assert spans == entities_of(text)
        assert all(entity["word"] == text[entity["start"] : entity["end"]] for entity in entities)
        assert all(entity["score"] > 0.5 for entity in entities)


def test_batch_mates_do_not_change_the_scores_of_a_pipeline(tagger: str) -> None:
    pipe = pipeline("token-classification", model=tagger, aggregation_strategy="simple")
    alone = [entity["score"] for text in TEXTS for entity in pipe(text)]
    together = [entity["score"] for entities in pipe(TEXTS, batch_size=len(TEXTS)) for entity in entities]
    assert alone == pytest.approx(together, abs=1e-6)


@pytest.mark.parametrize(("kind", "expected"), [("word", "simple"), ("wordpiece", "first"), ("character", "first")])
def test_what_is_put_together_follows_from_the_tokenizer(kind: Any, expected: str) -> None:
    tokenizer = train_tokenizer(["Ada met Lovelaces in 北京 and lives"] * 3, kind, vocab_size=40)
    assert aggregation_for(tokenizer) == expected


def test_a_text_without_tokens_has_no_entities(tagger: str) -> None:
    options = {"pipeline_class": BestPathPipeline, "aggregation_strategy": "first"}
    assert pipeline("token-classification", tagger, **options)([" ", "London"])[0] == []


def test_entities_end_where_the_word_does_also_without_a_blank(tagger: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tagger)
    strategy = aggregation_for(tokenizer)
    pipe = pipeline("token-classification", tagger, aggregation_strategy=strategy, pipeline_class=BestPathPipeline)
    text = "Ada Lovelace met Charles Babbage in London."
    spans = [text[entity["start"] : entity["end"]] for entity in pipe(text)]
    assert spans == ["Ada Lovelace", "Charles Babbage", "London"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [("O B-x I-x", True), ("O I-x", True), ("O B-x M-x E-x", False), ("O S-x", False), ("O x", False), ("B-", False)],
)
def test_labels_that_the_stock_pipeline_reads_rightly(labels: str, expected: bool) -> None:
    assert is_plain_iob(labels.split()) == expected


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


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("are_words", [False, True], ids=["text", "words"])
@pytest.mark.parametrize(("kind", "use_crf"), [("word", False), ("wordpiece", False), ("wordpiece", True)])
def test_windows_of_a_long_text_are_read_as_they_are_scored(
    kind: Any, use_crf: bool, are_words: bool, batch_size: int, tmp_path: Path
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
    features = tokenize_and_align(rows, tokenizer, labels, tags_column="tags", max_seq_length=14, stride=5)
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
    for text, sentence, entities in zip(texts, scored, pipe(inputs, batch_size=batch_size, **split), strict=True):
        words = [match.span() for match in re.finditer(r"\S+", text)]
        groups = EntityGroups(labels)
        expected = [
            (kind, words[first][0], words[last - 1][1]) for kind, first, last in groups(groups.numbers(sentence))
        ]
        assert [(e["entity_group"], e["start"], e["end"]) for e in entities] == expected


def test_windows_from_the_end_of_a_text_are_read_in_its_order(tagger: str) -> None:
    text = " ".join(list(TAGGED)[:12])
    places = [(match.start(), match.end()) for match in re.finditer(r"\S+", text)]
    for side in ("right", "left"):
        tokenizer = AutoTokenizer.from_pretrained(tagger, truncation_side=side)
        tokenizer.model_max_length = 8
        options = {"tokenizer": tokenizer, "pipeline_class": BestPathPipeline, "stride": 2}
        pipe = pipeline("token-classification", tagger, aggregation_strategy="simple", ignore_labels=[], **options)
        entities = pipe(text)
        assert [entities[0]["start"], entities[-1]["end"]] == [0, len(text)]
        assert sorted(entity["start"] for entity in entities) == [entity["start"] for entity in entities]
        # As in a text that fits, a token's place counts the special tokens before it.
        each = pipeline("token-classification", tagger, ignore_labels=[], **{**options, "stride": None})
        each.tokenizer.model_max_length = 64
        assert [(word["start"], word["end"]) for word in each(text)] == places
        assert [word["index"] for word in each(text)] == list(range(1, len(places) + 1))


@pytest.mark.parametrize("strategy", ["simple", "none"])
def test_a_long_text_is_read_to_its_end_without_a_stride(tagger: str, strategy: str) -> None:
    text = " ".join(list(TAGGED)[:12])
    tokenizer = AutoTokenizer.from_pretrained(tagger)
    tokenizer.model_max_length = 8
    options = {"tokenizer": tokenizer, "aggregation_strategy": strategy, "ignore_labels": []}
    pipe = pipeline("token-classification", tagger, pipeline_class=BestPathPipeline, **options)
    assert pipe(text) == pipe(text, stride=1) if strategy == "simple" else len(pipe(text)) == 12
    assert pipe(text)[-1]["end"] == len(text)
    assert pipeline("token-classification", tagger, **options)(text)[-1]["end"] < len(text)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
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
@pytest.mark.parametrize("stem", STEMS)
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


@pytest.mark.parametrize("stem", STEMS)
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


def test_scores_that_are_not_finite_are_an_error() -> None:
    model = look_up(ANSWERS, "Kyoto", "city")
    for broken in (math.nan, math.inf):
        model.end_scores.fill_(broken)
        with pytest.raises(ValueError, match="not finite"):
            answer_question("where", CONTEXT, model, ANSWERS)


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


def test_windows_follow_from_the_longest_input_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    forward = LookUp.forward

    def recording(self: LookUp, input_ids: torch.Tensor, **kwargs: Any) -> QuestionAnsweringModelOutput:
        lengths.append(input_ids.shape[1])
        return forward(self, input_ids, **kwargs)

    monkeypatch.setattr(LookUp, "forward", recording)
    bert = BertConfig(vocab_size=len(ANSWERS), hidden_size=8, num_attention_heads=2, max_position_embeddings=11)
    for options, longest in (
        ({"max_position_embeddings": 10}, 10),
        ({"max_position_embeddings": 10, "backbone_config": bert}, 10),
        ({"position_embedding_type": "none", "backbone_config": bert}, 11),
        ({"position_embedding_type": "ring", "max_position_embeddings": 10}, 17),
    ):
        lengths.clear()
        answers = answer_question("where", CONTEXT, look_up(ANSWERS, "Kyoto", "city", **options), ANSWERS)
        assert answers[0].text == "Kyoto city"
        assert max(lengths) == longest


@pytest.mark.parametrize("context", ["", "  \n\t "])
def test_an_empty_context_has_no_answer(context: str) -> None:
    assert answer_question("where", context, look_up(ANSWERS, "Kyoto", "city"), ANSWERS) == []


def test_a_question_that_fills_the_window_is_an_error() -> None:
    model = look_up(ANSWERS, "Kyoto", "city")
    with pytest.raises(ValueError, match="max_length"):
        answer_question(" ".join(["where"] * 13), CONTEXT, model, ANSWERS)


def test_answering_leaves_the_model_as_it_was() -> None:
    for training in (True, False):
        model = look_up(ANSWERS, "Kyoto", "city").train(training)
        answer_question("where", CONTEXT, model, ANSWERS)
        assert model.training is training
        # An error in between, here from a vocabulary too small for the tokenizer.
        model.start_scores = model.start_scores[:3]
        with pytest.raises(IndexError):
            answer_question("where", CONTEXT, model, ANSWERS)
        assert model.training is training


def test_a_model_in_training_answers_without_dropout_and_without_gradients() -> None:
    fields = {**TINY, "vocab_size": len(ANSWERS), "max_position_embeddings": 32, "hidden_dropout_prob": 0.5}
    model = tiny_model("StarTransformer", "ForQuestionAnswering", **fields)
    expected = answer_question("where", CONTEXT, model.eval(), ANSWERS, top_k=3)
    graphs: list[bool] = []
    model.register_forward_hook(lambda module, args, output: graphs.append(output.start_logits.requires_grad))
    assert answer_question("where", CONTEXT, model.train(), ANSWERS, top_k=3) == expected
    assert graphs == [False]


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


def test_other_models_for_question_answering_answer_too() -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(ANSWERS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=10,
    )  # fmt: skip
    answers = answer_question("where", CONTEXT, BertForQuestionAnswering(config).eval(), ANSWERS, top_k=3)
    assert len(answers) == 3
    assert all(CONTEXT[answer.start : answer.end] == answer.text != "" for answer in answers)


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
