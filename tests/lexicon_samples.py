"""Matchers asked for the words of a text, and small tokenizers of every kind."""

from collections.abc import Iterable, Sequence

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from modeling_star.data.lexicon import Lexicon
from modeling_star.models.token_layout import TokenLayout
from modeling_star.models.word_matcher import WordMatcher


Words = set[tuple[int, ...]]
Span = tuple[int, int]  # first token and number of tokens


def matcher_of(lexicon: Lexicon) -> WordMatcher:
    """As a model has it: built for the size, then filled."""
    matcher = WordMatcher(lexicon.kind, WordMatcher.table_size(lexicon), lexicon.max_word_length)
    matcher.load(lexicon)
    return matcher


def found(matcher: WordMatcher, ids: Tensor, mask: Tensor, keep_padding: bool) -> list[set[Span]]:
    """The words of each row of `ids` (`[b, n]`), counted in real tokens."""
    layout = TokenLayout.from_mask(mask, keep_padding)
    matches = matcher(layout.pack(ids), layout)
    assert matches.dtype == torch.bool
    assert matches.shape == (len(layout.position), matcher.max_word_length)
    real = layout.pack(mask)
    assert not matches[~real].any(), "a word starts at padding"
    assert not matches[:, 0].any(), "a single token is a word"
    spans: list[set[Span]] = [set() for _ in mask]
    for token, column in matches.nonzero().tolist():
        spans[int(layout.sequence_index[token])].add((int(layout.position[token]), column + 1))
    return spans


def texts_of(ids: Tensor, mask: Tensor) -> list[list[int]]:
    """The real ids of each row."""
    return [row[real].tolist() for row, real in zip(ids, mask, strict=True)]


def found_in(lexicon: Lexicon, text: Sequence[int]) -> set[Span]:
    """The words of one text."""
    ids = torch.tensor([text])
    return found(matcher_of(lexicon), ids, torch.ones_like(ids, dtype=torch.bool), keep_padding=False)[0]


def words_in(lexicon: Lexicon) -> Words:
    return {tuple(i for i in row if i >= 0) for row in lexicon.words.tolist()}


# ------ tokenizers


def character_tokenizer(letters: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token for each of `letters`, lower-cased; white space is dropped."""
    vocabulary = {token: index for index, token in enumerate(["[UNK]", "[PAD]", *sorted({*letters})])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")


CORPUS = [
    "The unbelievable transformer believed in unbreakable transformations, and was unbroken.",
    "Believers believe; breakers break: an unbelieving breaker transforms a broken belief.",
    "我爱北京天安门，北京大学在北京。天安门上太阳升，我爱太阳。",
    "The breaker in 北京 was unbroken，and the transformer believed.",
] * 3


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE as GPT-2 and RoBERTa have it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return _trained(backend, trainer, CORPUS)


def metaspace_tokenizer(corpus: list[str] = CORPUS) -> PreTrainedTokenizerFast:
    """BPE over "▁" and letters, as SentencePiece makes it for Llama."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=100, special_tokens=["<s>", "</s>", "<unk>"], show_progress=False)
    return _trained(backend, trainer, corpus, unk_token="<unk>")


def _trained(
    backend: Tokenizer, trainer: trainers.Trainer, corpus: list[str], **special: str
) -> PreTrainedTokenizerFast:
    backend.train_from_iterator(corpus, trainer)
    ends = [(token, backend.token_to_id(token)) for token in ("<s>", "</s>")]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", **special)
