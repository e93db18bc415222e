"""The parts of run_translation.py: tokens, columns, scores, limits."""

import copy
import json
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict, Features, Translation, Value
from lab.tables import Table
from samples import word_tokenizer
from synthetic.parallel import SLOTS, sentence_pair, write_parallel_corpus
from tokenizers import decoders
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessorList,
    MarianConfig,
    MarianMTModel,
    MBartTokenizer,
    SuppressTokensLogitsProcessor,
)
from translation import translate
from translation.builders import check_languages, fresh_translator, set_generation
from translation.configuration_encoder_decoder import TextEncoderDecoderConfig
from translation.generation import SourceLengthLimit, generate_translations
from translation.parallel_text import _PairEncoder, encode_translations, prepare_translation
from translation.subwords import start_and_end, train_subword_tokenizer

from modeling_star.data.splits import load_splits
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.training.arguments import ModelArguments
from modeling_star.training.build import load_tokenizer
from modeling_star.training.losses import TaskLoss
from modeling_star.training.trainer import average_checkpoints, load_weights


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


def test_a_rare_character_gets_no_token_and_no_other_text_changes() -> None:
    trained = train_subword_tokenizer([*TEXTS, "a 鿕 book"], vocab_size=300)
    assert "鿕" not in trained.get_vocab()
    tokens = trained.convert_ids_to_tokens(trained("I saw 鿕 book")["input_ids"])
    assert tokens.count("[UNK]") == 1


@pytest.mark.slow
def test_a_trained_tokenizer_is_the_same_in_every_process_and_loads_by_itself(tokenizer: Any, tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "from translation.subwords import train_subword_tokenizer\n"
        "texts = json.loads(sys.stdin.read())\n"
        "print(train_subword_tokenizer(texts, vocab_size=300).backend_tokenizer.to_str())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(TEXTS), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == json.loads(tokenizer.backend_tokenizer.to_str())
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(TEXTS)["input_ids"] == tokenizer(TEXTS)["input_ids"]
    assert start_and_end(loaded) == (loaded.cls_token_id, loaded.sep_token_id)
    assert "token_type_ids" not in loaded("I")


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
        ({"tgt": "b", "src": "a", "note": "c"}, {}, ("src", "tgt")),
        ({"x": "c", "y": "b", "z": "a"}, {"source_column": "z", "target_column": "y"}, ("z", "y")),
    ],
)
def test_columns_are_detected_or_named(row: dict[str, Any], asked: dict[str, str], names: tuple[str, str]) -> None:
    data = prepare_translation(splits_of([row]), **asked)
    assert data.names == names
    assert data.splits["train"][:] == {"source": ["a"], "target": ["b"]}


def test_the_translation_feature_is_read_as_dictionaries_are() -> None:
    feature = Features({"id": Value("string"), "translation": Translation(languages=["de", "en"])})
    rows = {"id": ["1"], "translation": [{"de": "a", "en": "b"}]}
    splits = DatasetDict({"train": Dataset.from_dict(rows, features=feature)})
    data = prepare_translation(splits)
    assert data.names == ("de", "en")
    assert data.splits["train"][:] == {"source": ["a"], "target": ["b"]}
    assert prepare_translation(splits, source_column="en", target_column="de").splits["train"]["source"][:] == ["b"]


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        ({"translation": {"zh": "我", "en": "I"}}, {"source_column": "en", "target_column": "zh"}),
        ({"target": "I", "note": "c", "source": "我"}, {"source_column": "target", "target_column": "source"}),
        ({"en": "I", "zh": "我"}, {}),
    ],
)
def test_features_are_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: dict[str, Any], asked: dict[str, str]
) -> None:
    empty = {name: {"en": "", "zh": ""} if isinstance(cell, dict) else "" for name, cell in row.items()}
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (row, empty, row)), encoding="utf-8")

    def features() -> list[dict[str, Any]]:
        splits = load_splits(files={"train": path}, cache_dir=str(tmp_path / "cache"))
        data = prepare_translation(splits, **asked, drop_empty=True)
        assert data.splits["train"][:] == {"source": ["I"] * 2, "target": ["我"] * 2}
        return encode_translations(data.splits["train"], train_subword_tokenizer(TEXTS, vocab_size=300)).to_list()

    first = features()
    monkeypatch.delattr(_PairEncoder, "__call__")
    assert features() == first


@pytest.mark.parametrize(
    ("row", "asked", "named"),
    [
        ({"translation": {"zh": "a", "en": "b"}}, {"source_column": "fr"}, ["'zh', 'en'", "--source_column zh"]),
        ({"x": "a", "y": "b", "z": "c"}, {}, ["'x', 'y', 'z'", "--source_column x --target_column y"]),
        ({"x": "a"}, {}, ["--target_column"]),
        ({"x": "a", "y": "b"}, {"source_column": "xx"}, ["'xx'", "--source_column x"]),
        ({"source": "a", "target": ""}, {}, ["train row 1", "--drop_empty"]),
        ({"source": "a", "target": None}, {}, ["--target_column"]),
        ({"source": 1, "target": "b"}, {"source_column": "source", "target_column": "target"}, ["row 1"]),
    ],
)
def test_unreadable_columns_are_an_error(row: dict[str, Any], asked: dict[str, str], named: list[str]) -> None:
    rows = [row, {"source": "a", "target": "b"}] if row.get("target") == "" else [row]
    with pytest.raises(UserError) as error:
        prepare_translation(splits_of(rows), **asked)
    assert not [part for part in named if part not in str(error.value)], str(error.value)


def test_a_tsv_without_a_header_line_is_not_read_with_its_first_pair_for_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("我们都哭了。\tWe both cried.\n哪里痛?\tWhere does it hurt?\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"no header line.*`--column_names zh,en`"):
        prepare_translation(load_splits(files={"train": path}, cache_dir=str(tmp_path)))
    splits = load_splits(files={"train": path}, cache_dir=str(tmp_path), column_names=["zh", "en"])
    with caplog.at_level(logging.INFO):
        assert len(prepare_translation(splits).splits["train"]) == 2
    assert "Texts: 'zh'; translations: 'en'." in caplog.text
    named = load_splits(files={"train": path}, cache_dir=str(tmp_path))
    data = prepare_translation(named, source_column="我们都哭了。", target_column="We both cried.")
    assert data.names == ("我们都哭了。", "We both cried.")


def test_drop_empty_drops_empty_rows(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"source": "a", "target": "b"}, {"source": " ", "target": "b"}, {"source": "c", "target": "d"}]
    data = prepare_translation(splits_of(rows), drop_empty=True)
    assert data.splits["train"]["source"][:] == ["a", "c"]
    assert "row 2" in caplog.text


@pytest.mark.parametrize(
    ("target", "chinese"),
    [("我们都哭了。", True), ("We all cried, 我 too.", False), ("우리는 모두 울었다", False), ("漢字とかな", False)],
)
def test_chinese_targets_are_known_by_their_characters(target: str, chinese: bool) -> None:
    assert prepare_translation(splits_of([{"source": "x", "target": target}])).is_chinese() is chinese


def test_a_source_is_what_translate_reads_and_a_target_ends_without_a_start(tokenizer: Any) -> None:
    rows = Dataset.from_list([{"source": TEXTS[0], "target": TEXTS[-1]}])
    (row,) = encode_translations(rows, tokenizer)
    assert row["input_ids"] == tokenizer(TEXTS[0])["input_ids"]
    assert row["labels"] == tokenizer(TEXTS[-1])["input_ids"]
    # One of BERT's kind has [CLS] before a text and [SEP] behind it: a source keeps both, as `translate` reads it.
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


def test_a_tokenizer_that_writes_codes_of_languages_is_refused(tmp_path: Path) -> None:
    MBartTokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="en_XX"):
        check_languages(AutoTokenizer.from_pretrained(tmp_path), str(tmp_path))


def test_a_slow_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: SimpleNamespace(is_fast=False))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the Hub is not asked first
    with pytest.raises(UserError, match="opus is a slow one"):
        load_tokenizer("opus", ModelArguments())


SMALL = {"encoder.hidden_size": 16, "encoder.num_attention_heads": 2, "encoder.num_hidden_layers": 1}


def test_a_translators_flags_do_what_they_say_or_are_refused(tokenizer: Any, tmp_path: Path) -> None:
    frozen = fresh_translator(tokenizer, model_type="big_transformer", overrides=SMALL, freeze_embeddings=True)
    assert not any(p.requires_grad for p in frozen.encoder.get_input_embeddings().parameters())
    assert not frozen.config.share_embeddings
    frozen.save_pretrained(tmp_path / "saved")
    vectors = tmp_path / "vectors.txt"
    vectors.write_text(
        "".join(f"{token} {'0.5 ' * 16}\n" for token in list(tokenizer.get_vocab())[:9] if token.strip())
    )
    given: dict[str, Any] = {"embeddings_name_or_path": str(vectors), "embeddings_mode": "vectors"}
    again = fresh_translator(tokenizer, config_name=str(tmp_path / "saved"), **given)
    assert not again.config.share_embeddings
    for scaled in (True, False):
        overrides = {**SMALL, "encoder.scale_embedding": scaled}
        model = fresh_translator(tokenizer, model_type="star_transformer", overrides=overrides, **given)
        assert model.config.encoder.scale_embedding == scaled
    with pytest.raises(ValueError, match="vocab_size=7"):
        fresh_translator(tokenizer, model_type="star_transformer", overrides={**SMALL, "vocab_size": 7}, **given)
    with pytest.raises(ValueError, match="share_embeddings"):
        TextEncoderDecoderConfig(share_embeddings=True, tie_word_embeddings=False)


def test_fields_of_a_side_are_set_by_dots_or_together(tokenizer: Any) -> None:
    together = {"encoder": {"hidden_size": 16, "num_attention_heads": 2}, "encoder.num_hidden_layers": 1}
    dotted, nested = (
        fresh_translator(tokenizer, model_type="star_transformer", overrides=overrides).config.encoder
        for overrides in (SMALL, together)
    )
    assert nested.to_dict() == dotted.to_dict()
    with pytest.raises(UserError, match="hiden_size"):
        fresh_translator(tokenizer, model_type="star_transformer", overrides={"encoder": {"hiden_size": 16}})


def test_a_translator_that_was_being_trained_still_is_after_it_translated(tokenizer: Any) -> None:
    model = fresh_translator(tokenizer, model_type="star_transformer", overrides=SMALL).train()
    translate(["we"], model, tokenizer, max_length=4)
    assert model.training


def test_what_is_too_long_is_cut_before_its_end_and_counted(tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    rows = Dataset.from_list([{"source": TEXTS[0], "target": TEXTS[-1]}])
    (row,) = encode_translations(rows, tokenizer, source_limit=3, target_limit=4, split="train")
    assert row["input_ids"] == [*tokenizer(TEXTS[0])["input_ids"][:2], tokenizer.eos_token_id]
    assert len(row["labels"]) == 4
    lost = sum(len(tokenizer(text)["input_ids"]) for text in (TEXTS[0], TEXTS[-1])) - 7
    assert f"{lost} tokens were cut off" in caplog.text


# Loss


def test_label_smoothing_takes_no_notice_of_padding_and_matches_plain_loops() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 4, 5, dtype=torch.float64)
    labels = torch.tensor([[1, 2, 3, -100], [4, -100, -100, -100]])
    loss = TaskLoss("translation", None, smoothing=0.1)
    total = 0.0
    for row, probabilities in zip(labels.tolist(), logits.float().log_softmax(-1), strict=True):
        for place, label in enumerate(row):
            if label != -100:
                spread = sum(0.1 / 5 * -probabilities[place, k].item() for k in range(5))
                total += 0.9 * -probabilities[place, label].item() + spread
    assert loss({"logits": logits}, labels).item() == pytest.approx(total / 4, rel=1e-6)
    changed = logits.masked_fill((labels == -100)[..., None], 9.0)
    assert loss({"logits": changed}, labels).item() == pytest.approx(total / 4, rel=1e-6)
    halves = [loss({"logits": logits[i : i + 1]}, labels[i : i + 1], num_items_in_batch=4) for i in (0, 1)]
    assert sum(halves).item() == pytest.approx(total / 4, rel=1e-6)


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


def test_averaged_weights_reach_what_is_tied_to_them(tmp_path: Path) -> None:
    model = tiny_marian(20)
    model.save_pretrained(tmp_path)
    weights = {name: tensor + 1 for name, tensor in average_checkpoints([tmp_path]).items()}
    # The sinusoids are not in the file: Marian computes them.
    expected = {name: x + ("positions" not in name) for name, x in model.state_dict().items()}
    load_weights(model, weights)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name])


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
    texts = [TEXTS[0], "I", TEXTS[3] + " " + TEXTS[5]]
    together = translate(texts, model, tokenizer, max_extra_tokens=4, num_beams=4, length_penalty=0.5)
    assert together == [
        translate(t, model, tokenizer, max_extra_tokens=4, num_beams=4, length_penalty=0.5)[0] for t in texts
    ]
    assert together == translate(
        texts, model, tokenizer, batch_size=2, max_extra_tokens=4, num_beams=4, length_penalty=0.5
    )
    assert len(set(together)) == 3
    inputs = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    ids = generate_translations(model, inputs, 4)
    written = (ids != 0).sum(1) - 1  # without the start
    assert (written <= inputs["attention_mask"].sum(1) + 4 + 1).all()
    # Without a mask every token counts; a caller's processors come first.
    alone = {"input_ids": inputs["input_ids"][:1, : int(inputs["attention_mask"][0].sum())]}
    first = generate_translations(model, alone, 4)[0]
    assert torch.equal(first, ids[0, : len(first)])
    forbidden = int(ids[0, 1])
    processors = LogitsProcessorList([SuppressTokensLogitsProcessor([forbidden])])
    assert forbidden not in generate_translations(model, alone, 4, logits_processor=processors)


def test_a_translation_of_the_maximum_length_is_reported(
    tokenizer: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("modeling_star"), "propagate", True)
    model = fresh_translator(
        tokenizer, model_type="star_transformer", overrides={**SMALL, "decoder.max_position_embeddings": 12}
    )
    texts = [TEXTS[0], " ".join(TEXTS[:6])]
    endless = SuppressTokensLogitsProcessor([model.generation_config.eos_token_id])
    options = {"num_beams": 1, "max_extra_tokens": 0, "logits_processor": LogitsProcessorList([endless])}
    assert len(tokenizer(texts[0])["input_ids"]) < 10 < len(tokenizer(texts[1])["input_ids"])
    translate(texts[0], model, tokenizer, **options)
    assert "translations have" not in caplog.text
    translate(texts, model, tokenizer, **options)
    assert "1 of 2 translations have 12 tokens" in caplog.text


def test_token_types_are_ignored_and_texts_truncated_to_the_models_limit() -> None:
    typed = word_tokenizer("we saw a red book")
    assert "token_type_ids" in typed("we saw")
    model = tiny_marian(len(typed), max_position_embeddings=6)
    options: dict[str, Any] = {"num_beams": 1, "max_extra_tokens": 2, "batch_size": 1}
    short, long = "we saw a red", "we saw a red book we saw"
    assert [len(typed(text)["input_ids"]) for text in (short, long)] == [6, 9]
    (written,) = translate(short, model, typed, **options)
    assert translate([long, short], model, typed, **options) == [written, written]


def test_of_nothing_the_translation_is_nothing(tokenizer: Any) -> None:
    model = tiny_marian(len(tokenizer))
    whole = translate(["", TEXTS[0], "  "], model, tokenizer, num_beams=1)
    assert whole == ["", *translate(TEXTS[0], model, tokenizer, num_beams=1), ""]
    assert translate(" ", model, tokenizer) == [""]


def test_a_translation_begins_without_the_blank_that_its_first_token_has(tokenizer: Any) -> None:
    model = tiny_marian(len(tokenizer))
    blank = copy.deepcopy(tokenizer)
    blank.backend_tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="never")
    inside = [index for token, index in tokenizer.get_vocab().items() if not token.startswith("▁")]
    inputs = dict(tokenizer(TEXTS[0], return_tensors="pt"))
    (raw,) = blank.batch_decode(
        generate_translations(model, inputs, begin_suppress_tokens=inside), skip_special_tokens=True
    )
    assert raw != raw.strip()
    assert translate(TEXTS[0], model, blank, begin_suppress_tokens=inside) == [raw.strip()]


# Synthetic pairs


def test_a_parallel_corpus_holds_every_sentence_once_and_is_the_same_again(tmp_path: Path) -> None:
    sizes = {"train": 50, "validation": 20, "test": 30}
    first, again = (write_parallel_corpus(tmp_path / name, seed=3, sizes=sizes) for name in ("a", "b"))
    rows = {split: path.read_text(encoding="utf-8").splitlines() for split, path in first.items()}
    assert {split: len(lines) for split, lines in rows.items()} == sizes
    assert len({line for lines in rows.values() for line in lines}) == 100
    assert all(first[split].read_bytes() == again[split].read_bytes() for split in sizes)
    assert json.loads(rows["train"][0])["translation"].keys() == {"en", "zh"}
    assert len({json.dumps(sentence_pair(number)) for number in range(2000)}) == 2000
    assert all(len(pair) == 2 for slot in SLOTS for pair in slot)
    with pytest.raises(FileExistsError, match="Name another folder"):
        write_parallel_corpus(tmp_path / "a")
    with pytest.raises(ValueError, match="there are"):
        write_parallel_corpus(tmp_path / "c", sizes={"train": 10**9})


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


def test_marian_base_is_the_papers_base_model(tokenizer: Any) -> None:
    shape = str(ROOT / "experiments/translation/shapes/marian-base.json")
    model = fresh_translator(tokenizer, model_type="marian", config_name=shape, overrides={"vocab_size": 37000})
    # Table 3: 65 million parameters, of which the vocabulary's 37,000 rows of 512 are shared three times.
    assert 60e6 < model.num_parameters(only_trainable=True) < 66e6
    assert model.model.encoder.embed_scale == 512**0.5
    assert not model.get_encoder().embed_positions.weight.requires_grad
