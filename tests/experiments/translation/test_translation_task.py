"""The parts of run_translation.py: tokens, columns, scores, limits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from harness.tables import Table
from synthetic.parallel import sentence_pair
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    MarianConfig,
    MarianMTModel,
    SuppressTokensLogitsProcessor,
)
from translation import translate
from translation.builders import fresh_translator, set_generation
from translation.generation import SourceLengthLimit, generate_translations
from translation.parallel_text import encode_translations, prepare_translation
from translation.subwords import train_subword_tokenizer

from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError


ROOT = Path(__file__).resolve().parents[3]
PAIRS = [sentence_pair(37 * number) for number in range(150)]
TEXTS = [pair[side] for side in ("en", "zh") for pair in PAIRS]


# Tokens


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_subword_tokenizer(TEXTS, vocab_size=300)


@pytest.mark.parametrize(
    "text", [*TEXTS[::20], "  I  saw\ta book .", "我 saw 一本书", "Mary 玛丽", "saw“red”", "我。"]
)
def test_tokens_decode_to_the_text_they_came_from(tokenizer: Any, text: str) -> None:
    trained = train_subword_tokenizer([text, *TEXTS], min_frequency=1)
    ids = trained(text)["input_ids"]
    assert trained.decode(ids, skip_special_tokens=True) == " ".join(text.split())
    assert ids[-1] == trained.eos_token_id
    assert trained.unk_token_id not in ids


def test_chinese_is_read_by_characters_and_words_keep_the_space_before_them(tokenizer: Any) -> None:
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("玛丽 saw一本书")["input_ids"])
    assert tokens == ["玛", "丽", "▁saw", "一", "本", "书", "[SEP]"]
    longest = max((t for t in tokenizer.get_vocab() if any(ord(c) > 0x3000 for c in t)), key=len)
    assert len(longest) == 1


def test_a_vocabulary_too_small_for_the_characters_is_an_error() -> None:
    with pytest.raises(ValueError, match="write --vocab_size"):
        train_subword_tokenizer(TEXTS, vocab_size=20)


# Columns and rows


def splits_of(rows: list[dict[str, Any]]) -> DatasetDict:
    return DatasetDict({"train": Dataset.from_list(rows)})


@pytest.mark.parametrize(
    ("row", "asked", "names"),
    [
        ({"translation": {"zh": "a", "en": "b"}}, {}, ("zh", "en")),
        ({"translation": {"zh": "b", "en": "a"}}, {"source_column": "en"}, ("en", "zh")),
        ({"translation": {"zh": "b", "en": "a"}, "note": "c"}, {"target_column": "zh"}, ("en", "zh")),
        ({"id": 1, "german": "a", "english": "b"}, {}, ("german", "english")),
        ({"x": "c", "y": "b", "z": "a"}, {"source_column": "z", "target_column": "y"}, ("z", "y")),
    ],
)
def test_columns_are_detected_or_named(row: dict[str, Any], asked: dict[str, str], names: tuple[str, str]) -> None:
    data = prepare_translation(splits_of([row]), **asked)
    assert data.names == names
    assert data.splits["train"][:] == {"source": ["a"], "target": ["b"]}


@pytest.mark.parametrize(
    ("row", "asked", "named"),
    [
        ({"translation": {"zh": "a", "en": "b"}}, {"source_column": "fr"}, ["'zh', 'en'", "--source_column zh"]),
        ({"x": "a", "y": "b", "z": "c"}, {}, ["'x', 'y', 'z'", "--source_column x --target_column y"]),
        ({"x": "a"}, {}, ["--target_column"]),
        ({"x": "a", "y": "b"}, {"source_column": "xx"}, ["'xx'", "--source_column x"]),
        ({"source": "a", "target": ""}, {}, ["train row 1", "--drop_empty"]),
        ({"source": "a", "target": None}, {}, ["--target_column"]),
        ({"source": 1, "target": "b"}, {"source_column": "source", "target_column": "target"}, ["There are 'target'"]),
    ],
)
def test_unreadable_columns_are_an_error(row: dict[str, Any], asked: dict[str, str], named: list[str]) -> None:
    rows = [row, {"source": "a", "target": "b"}] if row.get("target") == "" else [row]
    with pytest.raises(UserError) as error:
        prepare_translation(splits_of(rows), **asked)
    assert not [part for part in named if part not in str(error.value)], str(error.value)


@pytest.mark.parametrize(
    ("target", "chinese"),
    [("我们都哭了。", True), ("We all cried, 我 too.", False), ("우리는 모두 울었다", False), ("漢字とかな", False)],
)
def test_chinese_targets_are_known_by_their_characters(target: str, chinese: bool) -> None:
    assert prepare_translation(splits_of([{"source": "x", "target": target}])).is_chinese() is chinese


def test_a_source_keeps_its_special_tokens_and_a_target_ends_without_a_start(tokenizer: Any) -> None:
    rows = Dataset.from_list([{"source": TEXTS[0], "target": TEXTS[-1]}])
    (row,) = encode_translations(rows, tokenizer)
    assert row["input_ids"] == tokenizer(TEXTS[0])["input_ids"]
    assert row["labels"] == tokenizer(TEXTS[-1])["input_ids"]
    # One of BERT's kind has [CLS] before a text and [SEP] behind it: a source keeps both.
    wordpiece = train_tokenizer(TEXTS, "wordpiece", vocab_size=300)
    (row,) = encode_translations(rows, wordpiece)
    assert row["input_ids"] == wordpiece(TEXTS[0])["input_ids"]
    assert row["labels"] == wordpiece(TEXTS[-1])["input_ids"][1:]
    assert (row["labels"][-1], row["labels"].count(2), row["labels"].count(3)) == (3, 0, 1)
    # A decoder that starts from another token, as BART's, learns to generate the first one.
    (row,) = encode_translations(rows, wordpiece, decoder_start=3)
    assert row["labels"] == wordpiece(TEXTS[-1])["input_ids"]


@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_translator_is_saved_with_or_without_beams(tokenizer: Any, num_beams: int, tmp_path: Path) -> None:
    model = fresh_translator(
        tokenizer,
        model_type="star_transformer",
        config_name=None,
        overrides={"encoder.hidden_size": 8, "encoder.num_attention_heads": 2},
    )
    set_generation(model, tokenizer, num_beams, 0.5)
    model.save_pretrained(tmp_path)
    saved = GenerationConfig.from_pretrained(tmp_path)
    assert saved.num_beams == num_beams
    assert (saved.length_penalty == 0.5) is (num_beams > 1)


# Writing


def tiny_marian(vocab_size: int, **fields: Any) -> MarianMTModel:
    torch.manual_seed(0)
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 1, "ffn_dim": 16, "attention_heads": 2}.items()
    }
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2}
    options = {"max_position_embeddings": 60, **fields}
    config = MarianConfig(
        vocab_size=vocab_size,
        d_model=16,
        init_std=0.4,
        forced_eos_token_id=3,
        **{**sizes, **special, **options},
    )
    return MarianMTModel(config).eval()


def test_each_row_ends_at_its_limit() -> None:
    limit = SourceLengthLimit(torch.tensor([2, 5]), end=3)
    scores = torch.zeros(4, 6)  # two beams of two sources
    unchanged = limit(torch.zeros(4, 2, dtype=torch.long), scores)
    assert torch.equal(unchanged, scores)
    full = limit(torch.zeros(4, 3, dtype=torch.long), scores)
    assert full[:2].argmax(1).tolist() == [3, 3]
    assert torch.isinf(full[:2]).sum() == 10
    assert torch.equal(full[2:], scores[2:])


def test_a_standard_transformer_writes_the_same_alone_and_in_a_batch(tokenizer: Any) -> None:
    model = tiny_marian(len(tokenizer)).double()
    texts, options = [TEXTS[0], "I", TEXTS[3] + " " + TEXTS[5]], {"num_beams": 4, "length_penalty": 0.5}

    def written(*given: str) -> list[str]:
        return translate([*given], model, tokenizer, max_extra_tokens=4, **options)

    together = written(*texts)
    assert together == [text for given in texts for text in written(given)]
    assert len(set(together)) == 3
    assert translate(["", texts[1], " "], model, tokenizer, max_extra_tokens=4, **options) == ["", together[1], ""]
    inputs = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    ids = generate_translations(model, inputs, 4)
    lengths = (ids != 0).sum(1) - 1  # without the start
    assert (lengths <= inputs["attention_mask"].sum(1) + 4 + 1).all()
    # Without a mask every token counts; a caller's processors come first.
    alone = {"input_ids": inputs["input_ids"][:1, : int(inputs["attention_mask"][0].sum())]}
    first = generate_translations(model, alone, 4)[0]
    assert torch.equal(first, ids[0, : len(first)])
    forbidden = int(ids[0, 1])
    processors = LogitsProcessorList([SuppressTokensLogitsProcessor([forbidden])])
    assert forbidden not in generate_translations(model, alone, 4, logits_processor=processors)


# Shapes


def test_the_shapes_of_one_table_have_the_same_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    table = Table.read(Path("experiments/tables/translation.yaml"))
    tokenizer = train_subword_tokenizer(TEXTS, vocab_size=300)
    tokenizer.add_tokens([f"<{n}>" for n in range(8000 - len(tokenizer))])
    sizes = {}
    for system in table.systems:
        (configuration,) = table.configurations("tatoeba_zh_en", "none", system)
        model = fresh_translator(tokenizer, config_name=configuration.arguments["config_name"])
        sizes[system] = model.num_parameters(only_trainable=True)
    assert max(sizes.values()) < 1.1 * min(sizes.values()), sizes
