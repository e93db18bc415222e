"""Windows of a context, and the best spans in them, against plain loops; the call on a saved model is in
test_pipelines.py."""

import math
from typing import Any

import pytest
import torch
from common import examples
from hypothesis import given
from hypothesis import strategies as st
from samples import word_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from modeling_star.data.question_windows import QuestionWindow, encode_windows
from modeling_star.inference.question_answering import Answer, find_answers


# Spans, against plain loops


def window_of(offsets: list[tuple[int, int]], begin: int, first: int, no_answer: int) -> QuestionWindow:
    return QuestionWindow({}, begin, first, torch.tensor(offsets).reshape(-1, 2), no_answer)


def spans_by_loops(
    windows: list[QuestionWindow], logits: list[torch.Tensor], longest: int
) -> tuple[dict[tuple[int, int], float], float]:
    """The score of every span of tokens that some window holds, and that of "no answer"."""
    spans: dict[tuple[int, int], float] = {}
    null = math.inf
    for window, scores in zip(windows, logits, strict=True):
        null = min(null, float(scores[window.no_answer, 0]) + float(scores[window.no_answer, 1]))
        places = window.offsets.tolist()
        for i in range(len(places)):
            for j in range(i, min(i + longest, len(places))):
                if places[j][1] <= places[i][0]:
                    continue  # no character
                score = float(scores[window.begin + i, 0]) + float(scores[window.begin + j, 1])
                key = (window.first + i, window.first + j)
                spans[key] = max(spans.get(key, -math.inf), score)
    return spans, null


@st.composite
def cut_contexts(draw: st.DrawFn) -> tuple[str, list[QuestionWindow], list[torch.Tensor]]:
    """A context whose tokens have 0 to 2 characters, its overlapping windows, and scores for them."""
    widths = draw(st.lists(st.integers(0, 2), min_size=1, max_size=14))
    ends = [sum(widths[: i + 1]) for i in range(len(widths))]
    offsets = list(zip([0, *ends[:-1]], ends, strict=True))
    context = "".join(chr(97 + i) for i in range(ends[-1]))
    room = draw(st.integers(1, len(widths)))
    step = draw(st.integers(max(1, room // 2), room))
    begin = draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    windows, logits = [], []
    for first in range(0, len(widths), step):
        places = offsets[first : first + room]
        windows.append(window_of(places, begin, first, draw(st.integers(0, begin - 1))))
        # Columns beyond a window's length are padding.
        logits.append(torch.randn(begin + len(places) + draw(st.integers(0, 3)), 2, generator=generator))
    return context, windows, logits


@examples(200)
@given(
    cut=cut_contexts(),
    longest=st.integers(1, 20),
    top_k=st.integers(1, 30),
    threshold=st.none() | st.floats(-3, 3),
)
def test_answers_are_those_of_plain_loops(
    cut: tuple[str, list[QuestionWindow], list[torch.Tensor]], longest: int, top_k: int, threshold: float | None
) -> None:
    context, windows, logits = cut
    answers, difference = find_answers(
        context, windows, logits, top_k=top_k, max_answer_tokens=longest, null_threshold=threshold
    )
    spans, null = spans_by_loops(windows, logits, longest)
    places = {window.first + i: place for window in windows for i, place in enumerate(window.offsets.tolist())}
    best = sorted(spans.items(), key=lambda item: -item[1])
    by_place: dict[tuple[int, int], float] = {}
    for (i, j), score in best:
        by_place.setdefault((places[i][0], places[j][1]), score)
    total = math.fsum(math.exp(score) for score in [*by_place.values(), *([null] if threshold is not None else [])])
    expected = [Answer(context[a:b], a, b, math.exp(s) / total) for (a, b), s in list(by_place.items())[:top_k]]
    if not spans:
        assert difference == math.inf
    else:
        assert difference == pytest.approx(null - best[0][1], abs=1e-4)
    if threshold is not None:
        nothing = Answer("", 0, 0, math.exp(null) / total)
        if not spans or null - best[0][1] > threshold:
            expected.insert(0, nothing)
        else:
            expected[1:] = sorted([*expected[1:], nothing], key=lambda answer: -answer.score)
    expected = expected[:top_k]
    assert [(answer.text, answer.start, answer.end) for answer in answers] == [
        (answer.text, answer.start, answer.end) for answer in expected
    ]
    assert [answer.score for answer in answers] == pytest.approx([answer.score for answer in expected], rel=1e-3)


def test_tokens_of_one_character_take_no_place_of_other_answers() -> None:
    """As byte-level tokenizers have them: three tokens for the first character, two for the second."""
    windows = [window_of([(0, 1), (0, 1), (0, 1), (1, 2), (1, 2), (2, 3)], 1, 0, 0)]
    logits = [torch.randn(7, 2, generator=torch.Generator().manual_seed(0))]
    answers, _ = find_answers("abc", windows, logits, top_k=6, max_answer_tokens=6)
    assert {answer.text for answer in answers} == {"a", "b", "c", "ab", "bc", "abc"}
    assert math.fsum(answer.score for answer in answers) == pytest.approx(1)


def test_a_context_without_tokens_has_no_answer() -> None:
    nothing = window_of([], 1, 0, 0)
    answers, difference = find_answers("\u200b", [nothing], [torch.ones(1, 2)], top_k=3, max_answer_tokens=30)
    assert (answers, difference) == ([], math.inf)
    for windows in ([nothing, window_of([(0, 1)], 1, 0, 0)], [window_of([(0, 1)], 1, 0, 0), nothing]):
        logits = [torch.ones(2, 2), torch.ones(2, 2)]
        (answer,), difference = find_answers("a", windows, logits, top_k=3, max_answer_tokens=30)
        assert (answer.text, difference) == ("a", 0.0)


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


TEXTS = st.text(st.sampled_from("abc 年河𠀀é.\n3"), min_size=1, max_size=40)


@pytest.fixture(scope="module", params=["word", "minilm", "bytes", "left"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    if request.param == "minilm":
        return AutoTokenizer.from_pretrained(request.getfixturevalue("minilm_path"))
    if request.param == "bytes":
        return byte_level()
    return word_tokenizer("a b c ab 年", **({"truncation_side": "left"} if request.param == "left" else {}))


@examples(60)
@given(
    pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), room=st.integers(1, 20), stride=st.integers(0, 9)
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


def test_offsets_leave_out_the_blank_that_a_token_begins_with() -> None:
    tokenizer = byte_level()
    ((window,),) = encode_windows(["where"], ["in the city"], tokenizer, None, 0)
    raw = tokenizer("in the city", return_offsets_mapping=True)["offset_mapping"]
    assert [3, 6] in window.offsets.tolist()
    assert (2, 6) in raw


def test_no_answer_is_at_cls_or_at_the_first_token() -> None:
    tokenizer = word_tokenizer("where is in Rome")
    special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(  # as XLNet's
        single="$A [SEP] [CLS]", pair="$A [SEP] $B:1 [SEP]:1 [CLS]:1", special_tokens=special
    )
    ((window,),) = encode_windows(["where is"], ["in Rome"], tokenizer, None, 0)
    assert (window.begin, window.no_answer) == (3, 6)
    tokenizer.cls_token = None
    ((window,),) = encode_windows(["where is"], ["in Rome"], tokenizer, None, 0)
    assert (window.begin, window.no_answer) == (3, 0)


def test_a_question_without_room_is_named() -> None:
    with pytest.raises(ValueError, match="'c c'"):
        encode_windows(["a", "c c"], ["b", "b"], word_tokenizer("a b c"), 5, 2)
