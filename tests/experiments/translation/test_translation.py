"""A translator: padding, beams, losses, tokens, columns, scores and the numbers of its table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from common import lexicon_of, some_words
from datasets import Dataset, DatasetDict
from harness.tables import Table
from naive_bootstrap import naive_bootstrap, paired_bootstrap
from sacrebleu.metrics import BLEU, CHRF
from synthetic.parallel import sentence_pair
from task_samples import GROUPS, OWN_TRAINING, Parsed, trainer_of
from torch import Tensor
from transformers import (
    AutoModelForSeq2SeqLM,
    LogitsProcessorList,
    MarianConfig,
    MarianMTModel,
    SuppressTokensLogitsProcessor,
)
from translation import TextEncoderDecoderConfig, TextEncoderDecoderModel, translate
from translation.builders import fresh_translator
from translation.generation import generate_translations
from translation.parallel_text import _PairEncoder, encode_translations, prepare_translation
from translation.scores import (
    bleu_of_counts,
    chrf_of_counts,
    count_characters,
    count_ngrams,
)
from translation.subwords import train_subword_tokenizer
from translation.task import TranslationTask

from modeling_star.commands.parser import parse
from modeling_star.data.files import source_version
from modeling_star.data.tokenizers import train_tokenizer


KINDS = ("star_transformer", "big_transformer", "bilstm")
V, PAD, START, END = 23, 0, 2, 3


def tiny(kind: str, seed: int = 0, **fields: Any) -> TextEncoderDecoderModel:
    """A model of a few numbers without dropout; its weights are spread out, so that beams do not tie."""
    dropouts = dict.fromkeys(("embedding_dropout_prob", "hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    encoder = {"model_type": kind, "hidden_size": 12, "num_attention_heads": 2, "scale_embedding": True, **dropouts}
    encoder |= {"position_embedding_type": "sinusoidal", **fields.pop("encoder", {})}
    decoder = {"max_position_embeddings": 40, "dropout": 0.0, **fields.pop("decoder", {})}
    torch.manual_seed(seed)
    model = TextEncoderDecoderModel(
        TextEncoderDecoderConfig(**{"vocab_size": V, **fields}, encoder=encoder, decoder=decoder)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    if kind == "big_transformer":
        model.get_encoder().set_lexicon(lexicon_of(some_words()))
    return model.double().eval()


def sources(seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 13, (1, length), generator=generator) for length in (7, 1, 4, 6)]


def batch_of(rows: list[Tensor], side: str) -> dict[str, Tensor]:
    """The rows as one batch, padded on one side."""
    longest = max(row.shape[1] for row in rows)
    padded = [torch.full((1, longest - row.shape[1]), PAD) for row in rows]
    pairs = zip(rows, padded, strict=True)
    ids = torch.cat([torch.cat([row, pad] if side == "right" else [pad, row], dim=1) for row, pad in pairs])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


def ended(ids: Tensor) -> list[int]:
    """A row of generated ids up to its end."""
    listed = ids.tolist()
    return listed[: listed.index(END) + 1] if END in listed else [index for index in listed if index != PAD]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_beams_give_the_same_alone_and_in_a_batch(kind: str, side: str) -> None:
    model = tiny(kind, seed=1)
    options = {"num_beams": 4, "min_new_tokens": 4, "max_new_tokens": 15, "length_penalty": 0.5}
    alone = [ended(model.generate(row, attention_mask=torch.ones_like(row), **options)[0]) for row in sources()]
    together = [ended(row) for row in model.generate(**batch_of(sources(), side), **options)]
    assert together == alone
    assert len({tuple(row) for row in alone}) > 1, "one output for every source would be the same in any batch"


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_changes_nothing(kind: str) -> None:
    model, batch = tiny(kind, seed=3), batch_of(sources(), "right")
    options = {"num_beams": 3, "max_new_tokens": 15}
    read: list[int] = []
    model.decoder.register_forward_pre_hook(
        lambda module, args, given: read.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    with_cache = model.generate(**batch, use_cache=True, **options)
    assert set(read) == {1}
    read.clear()
    assert torch.equal(with_cache, model.generate(**batch, use_cache=False, **options))
    assert len(set(read)) > 1
    start = torch.full((len(batch["input_ids"]), 1), START)
    assert model(**batch, decoder_input_ids=start, use_cache=True).past_key_values.get_seq_length() == 1
    assert model(**batch, decoder_input_ids=start, use_cache=False).past_key_values is None


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_gradients_know_no_padding(kind: str) -> None:
    rows = sources()
    target = torch.tensor([[5, 6, 7, END]])
    gradients = []
    for side in ("right", "left"):
        model = tiny(kind)
        logits = model(**batch_of(rows, side), labels=target.expand(len(rows), -1)).logits
        for row, own in zip(rows, logits, strict=True):
            torch.testing.assert_close(own[None], model(row, labels=target).logits, rtol=0, atol=1e-10)
        model(**batch_of(rows, side), labels=target.expand(len(rows), -1)).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad})
    for name, gradient in gradients[0].items():
        assert gradient is not None, name
        torch.testing.assert_close(gradient, gradients[1][name], rtol=0, atol=1e-10)


def test_the_loss_is_the_mean_over_the_labels_or_over_a_given_number() -> None:
    model, batch = tiny("star_transformer"), batch_of(sources(), "right")
    labels = torch.tensor([[5, 6, END, -100], [7, END, -100, -100], [8, 9, 5, END], [END, -100, -100, -100]])
    output = model(**batch, labels=labels)
    total, count = 0.0, 0
    for row, own in zip(labels.tolist(), output.logits.log_softmax(-1), strict=True):
        for place, label in enumerate(row):
            if label != -100:
                total, count = total - own[place, label].item(), count + 1
    assert output.loss.item() == pytest.approx(total / count)
    assert model(**batch, labels=labels, num_items_in_batch=50).loss.item() == pytest.approx(total / 50)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_writes_the_same(kind: str, tmp_path: Path) -> None:
    model, batch = tiny(kind).float(), batch_of(sources(), "right")
    model.save_pretrained(tmp_path)
    loaded, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    with torch.no_grad():
        expected, actual = (m(**batch, labels=batch["input_ids"]).logits for m in (model, loaded))
    # An LSTM of double weights cast down lies in pieces, a loaded one in one block: torch rounds them differently.
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 if kind == "bilstm" else 0)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in loaded.state_dict().items())
    fixed = [name for name, parameter in loaded.named_parameters() if not parameter.requires_grad]
    assert fixed == ["decoder.model.decoder.embed_positions.weight"]
    assert loaded.get_input_embeddings().weight is loaded.get_output_embeddings().weight
    assert torch.equal(loaded.generate(**batch, num_beams=2), model.generate(**batch, num_beams=2))


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


PAIRS = [sentence_pair(37 * number) for number in range(150)]


def some_translations(count: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """References, and two systems that leave words out or swap them."""
    rng = np.random.default_rng(seed)
    references = [pair["en"] for pair in PAIRS[:count]]
    systems: list[list[str]] = [[], []]
    for system, rate in zip(systems, (0.2, 0.4), strict=True):
        for text in references:
            words = [word for word in text.split() if rng.random() > rate]
            rng.shuffle(words[: int(rng.integers(0, 3))])
            system.append(" ".join(words))
    return references, systems[0], systems[1]


def added_bleu(found: list[str], references: list[str]) -> float:
    return float(bleu_of_counts(count_ngrams(found, references, "13a").sum(0)))


def added_chrf(found: list[str], references: list[str]) -> float:
    return float(chrf_of_counts(count_characters(found, references).sum(0)))


@pytest.mark.parametrize(("metric", "added"), [(BLEU, added_bleu), (CHRF, added_chrf)])
@pytest.mark.parametrize("size", [1, 2, 3, 10, 80])
def test_the_score_of_added_counts_is_sacrebleus(metric: Any, added: Callable[..., float], size: int) -> None:
    references, found, _ = some_translations(80, seed=2)
    for start in range(0, 80, size):
        part = slice(start, start + size)
        expected = metric().corpus_score(found[part], [references[part]]).score / 100
        # An order that no sentence is long enough for is 0 to sacrebleu's BLEU, too.
        assert added(found[part], references[part]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("name", "metric"), [("bleu", BLEU), ("chrf", CHRF)])
def test_the_bootstrap_is_that_of_sacrebleu_on_every_sample(name: str, metric: type[BLEU] | type[CHRF]) -> None:
    references, first, second = some_translations(40, seed=3)

    def corpus_score(truth: list[str], guess: list[str]) -> float:
        return metric().corpus_score(list(guess), [list(truth)]).score / 100

    by_counts = paired_bootstrap(name, references, first, second, samples=30, seed=3)
    by_call = naive_bootstrap(corpus_score, references, [first], [second], samples=30, seed=3)
    assert by_counts == pytest.approx(by_call)
    assert by_counts.difference > 0


def test_the_reported_scores_have_their_own_beams(
    parsed: Callable[..., Parsed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = "--model_type=star_transformer --config_overrides=encoder.hidden_size=16,encoder.num_attention_heads=2"
    beams = ("--generation_num_beams=2", "--num_beams=3", "--generation_max_length=4", "--validation_fraction=0.5")
    arguments = parsed(TranslationTask, *sizes.split(), *beams, "--report_to=none", "--vocab_size=60")
    _, trainer = trainer_of(TranslationTask, arguments, tmp_path / "run")
    seen: list[tuple[int, int]] = []
    generate = trainer.model.generate

    def spy(**options: Any) -> Tensor:
        seen.append((options["num_beams"], options["max_length"]))
        return generate(**options)

    monkeypatch.setattr(trainer.model, "generate", spy)
    trainer.evaluate()
    assert set(seen) == {(2, 4)}
    seen.clear()
    trainer.predict(trainer.eval_dataset)
    assert {beams for beams, _ in seen} == {3}
    assert all(longest > 50 for _, longest in seen), "as the saved model translates"


def test_flags_of_translation_reach_its_metrics(task_of: Callable[..., Any]) -> None:
    assert task_of(TranslationTask).metrics.tokenize == "13a"
    assert task_of(TranslationTask, "--bleu_tokenize=char").metrics.tokenize == "char"
    assert task_of(TranslationTask, "--source_column=en", "--target_column=zh").metrics.tokenize == "zh"


@pytest.mark.parametrize("name", ["tatoeba_zh_en", "multi30k_de_en"])
def test_the_recipes_are_read_and_name_shapes_that_are_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = ROOT / "experiments" / "translation" / "recipes" / f"{name}.yaml"
    monkeypatch.setattr("sys.argv", ["run_translation.py", str(recipe)])
    model, _, run, training = parse(GROUPS[TranslationTask], "A script.", **OWN_TRAINING[TranslationTask])
    assert (ROOT / model.config_name).is_file()
    assert run.average_checkpoints == 5
    assert training.warmup_steps == 1000


def test_features_are_made_anew_for_newer_code() -> None:
    made_by = source_version("translation.parallel_text", "translation.subwords")
    assert _PairEncoder.__dataclass_fields__["version"].default == made_by
