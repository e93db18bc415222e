"""Saved models, vectors files and stock tokenizers for the tests of loading, pipelines and training."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from common import TINY, lexicon_of, randomise, some_words
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import modeling_star
from modeling_star import Lexicon
from modeling_star.models.token_runs import TfidfTerms, run_keys


STEMS = ("StarTransformer", "BigTransformer", "VanillaTransformer", "Disan", "BiLstm")
PEERS = STEMS[2:]


def crossed(encoders: Iterable[str | tuple[str, str]], *axes: Sequence[Any]) -> list[Any]:
    """
    Every encoder with every combination of further values, as parameters of a test.

    Args:
        encoders: names, each by itself or with the name of its options, where "defaults" counts as the first value.
        axes: values of further parameters.
    """
    cases = []
    for encoder, *values in itertools.product(encoders, *axes):
        stem, *own = encoder if isinstance(encoder, tuple) else (encoder,)
        first = [*("defaults" for _ in own), *(axis[0] for axis in axes)]
        cases.append(pytest.param(stem, *own, *values, marks=tier([*own, *values], first)))
    return cases


def tier(values: Iterable[Any], first: Iterable[Any]) -> list[pytest.MarkDecorator]:
    """The fast tier has the combinations that differ from the first value in at most one place."""
    return [pytest.mark.slow] if sum(a != b for a, b in zip(values, first, strict=True)) > 1 else []


AUTO_CLASSES = {
    "Model": "AutoModel",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForMaskedLM": "AutoModelForMaskedLM",
}
EMBEDDINGS = ("random", "projected", "static", "contextual", "vectors", "characters")
LEXICON = lexicon_of(some_words())
CHARACTERS = {
    "char_features": True,
    "char_vocab_size": 7,
    "char_embedding_size": 3,
    "char_num_filters": 4,
    "max_char_length": 3,
}
# With SPECIAL_TOKENS, as many entries as a TINY model embeds.
SPELLED = "we ##ll Live 42 USA 3rd , 東京"
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def class_of(stem: str, ending: str) -> type[PreTrainedModel]:
    """`modeling_star.<stem><ending>`."""
    return getattr(modeling_star, stem + ending)


def embedded_model(
    embeddings: str, stem: str, ending: str, folder: Path, bert: str, *, freeze: bool = False, **options: Any
) -> PreTrainedModel:
    """
    A tiny model in eval mode on one of `EMBEDDINGS`, no two numbers in it alike; a BiG-Transformer with a lexicon, a
    tagger on "characters" with a CRF and word vectors.

    Args:
        embeddings: what the tokens are embedded by; "bert" for a BiG-Transformer made by `from_encoder`, "vote" for a
            classifier with random ones that votes with TF-IDF.
        stem, ending: make up the class name.
        folder: where a vectors file may be written.
        bert: folder of the encoder that "static" and "contextual" take.
        freeze: do not train the embeddings.
        options: fields of the configuration.
    """
    model_class = class_of(stem, ending)
    fields = {**TINY, **options}
    if embeddings in ("random", "projected", "characters", "vote"):
        if embeddings == "projected":
            fields["embedding_size"] = 5
        if embeddings == "characters":
            fields |= CHARACTERS | {"use_crf": True, "word_vector_size": 2}
        model = model_class(model_class.config_class(freeze_embeddings=freeze, **fields))
        if embeddings == "characters":
            model.set_vocabulary(word_tokenizer(SPELLED))
            model.set_word_vectors(with_vectors(LEXICON, width=2))
    elif embeddings == "vectors":
        words = {f"word{i}": i for i in range(fields.pop("vocab_size"))}
        path = write_vectors(folder / "vectors.txt", words, width=5)
        model = model_class.from_embeddings(path, mode="vectors", vocabulary=words, freeze=freeze, **fields)
    elif embeddings == "bert":
        model = model_class.from_encoder(
            bert, layers=None, radius=2, freeze_embeddings=freeze, **{"num_labels": TINY["num_labels"], **options}
        )
    else:
        del fields["vocab_size"]
        model = model_class.from_embeddings(bert, mode=embeddings, freeze=freeze, **fields)
    randomise(model, seed=1)
    if embeddings == "vote":
        model.set_tfidf(some_terms())
    if stem == "BigTransformer":
        model.set_lexicon(LEXICON)
    return model.eval()


def with_vectors(lexicon: Lexicon, width: int) -> Lexicon:
    """A lexicon whose words have random vectors."""
    generator = torch.Generator().manual_seed(3)
    return replace(lexicon, vectors=torch.randn(len(lexicon), width, generator=generator, dtype=torch.float64))


def some_terms() -> TfidfTerms:
    """Terms of TF-IDF for a `TINY` vocabulary, half of its tokens and of their pairs, with random weights."""
    ids = torch.arange(TINY["vocab_size"])
    pairs = torch.cartesian_prod(ids, ids)
    (singles, _), (joined, _) = ((keys[:, -1], mask) for keys, mask in run_keys(pairs, torch.ones_like(pairs) > 0, 2))
    keys = torch.cat([singles[: len(ids)], joined])[::2].unique()
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(len(keys), TINY["num_labels"], generator=generator)
    idf = 1 + torch.rand(len(keys), generator=generator)
    return TfidfTerms(keys, idf, weight, torch.randn(TINY["num_labels"], generator=generator))


def write_vectors(path: Path, words: dict[str, int], width: int) -> Path:
    """A GloVe file in which each word's vector is made of its id: `id + column / 10`."""
    lines = [
        f"{word} {' '.join(str(index + column / 10) for column in range(width))}" for word, index in words.items()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def named_labels(*names: str) -> dict[str, Any]:
    """Fields of the configuration that name the labels."""
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def some_inputs(vocab_size: int = TINY["vocab_size"], rows: int = 3, columns: int = 7) -> dict[str, torch.Tensor]:
    """
    Random ids with right padding, none in the first two rows.

    An LSTM left with a single row multiplies it by weights in an order that depends on where in memory they lie, and
    those of a file lie elsewhere.
    """
    generator = torch.Generator().manual_seed(5)
    lengths = (columns + 2 - 2 * torch.arange(rows)).clamp(min=1, max=columns)
    mask = (torch.arange(columns) < lengths[:, None]).long()
    ids = torch.randint(1, vocab_size, (rows, columns), generator=generator) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


@torch.no_grad()
def tensors_of(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The model's outputs by name."""
    return dict(model(**inputs).items())


def assert_identical(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """The same names and the same bits, NaN nowhere."""
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert tensor.isfinite().all(), name
        assert torch.equal(actual[name], tensor), name


def word_tokenizer(words: str, **options: Any) -> PreTrainedTokenizerFast:
    """
    A stock tokenizer of whole words, or of pieces where there are some that begin with ##, `[CLS] ... [SEP]` or
    `[CLS] ... [SEP] ... [SEP]`, with token types.
    """
    vocabulary = {word: index for index, word in enumerate([*SPECIAL_TOKENS, *words.split()])}
    pieces = any(word.startswith("##") for word in vocabulary)
    tokenizer = Tokenizer((models.WordPiece if pieces else models.WordLevel)(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **dict(zip(names, SPECIAL_TOKENS, strict=True)),
        **options,
    )
