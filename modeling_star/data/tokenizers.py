"""
Train a tokenizer on a data set, and turn texts and tagged words into model inputs.

The tokenizers trained here are plain `PreTrainedTokenizerFast` objects: `AutoTokenizer` loads them without custom
code, and `text[start:end]` of every token is its piece of the text.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import pyarrow.compute as pc
from datasets import Dataset, Features
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .windows import max_length_or_none
from .writing_systems import CHARACTER, CJK, RUN, SEPARATORS, are_split_by_character


logger = logging.getLogger(__name__)
TokenizerKind = Literal["word", "wordpiece", "character"]
SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_UNK = SPECIAL_TOKENS["unk_token"]
_NO_LIMIT = 2**31
_MAY_BE_CUT = 0.01  # share of tokens
_LETTER = rf"[\p{{L}}&&[^{CJK}]]"
_PIECES = [
    r"[0-9#*]\x{FE0F}?\x{20E3}",  # keycap emoji, before their digit counts as a number
    r"\p{Nd}+(?:[.,:]\p{Nd}+)+",  # 3.14, 1,000, 10:30
    rf"[{CJK}]\p{{M}}*",  # every CJK character alone
    RUN,  # a word or a number of any other script
    CHARACTER,  # anything else, a whole emoji (skin tone, family, flag) at a time
]
# do + n't and it + 's, as in the Penn Treebank and so in GloVe
_NOT = rf"(?i:n['’]t)(?!{_LETTER})"
_CONTRACTIONS = [rf"{_LETTER}+?(?={_NOT})|{_NOT}", rf"['’](?i:s|m|d|re|ve|ll)(?!{_LETTER})"]
_PATTERNS = {
    "word": [
        r"(?:https?://|www\.)[\x21-\x7E]*[A-Za-z0-9/]",
        r"[@#][A-Za-z0-9_]+",
        rf"(?:{_LETTER}\.){{2,}}",  # U.S., e.g.
        *_CONTRACTIONS,
        *_PIECES[:-1],
        r"(\p{P})\1+",  # ... and --
        _PIECES[-1],
    ],
    "wordpiece": [*_CONTRACTIONS, *_PIECES],
    "character": _PIECES,
}


def train_tokenizer(
    texts: Iterable[str | Sequence[str]],
    kind: TokenizerKind = "word",
    *,
    lower_case: bool = True,
    vocab_size: int = 30_000,
    min_frequency: int = 2,
    model_max_length: int | None = None,
    known_words: Iterable[str] = (),
) -> PreTrainedTokenizerFast:
    """
    Train a tokenizer that `AutoTokenizer` loads without custom code.

    - `"word"`: a token for each word (contractions split as in the Penn Treebank and GloVe), number, URL, or run of
      one punctuation mark. A word not in the vocabulary is [UNK].
    - `"wordpiece"`: learned pieces of words, `##` before those that continue one.
    - `"character"`: for Chinese. Words and numbers of other scripts are whole where the vocabulary has them, else the
      longest beginning it has, then single characters: a letter seen once is enough to avoid [UNK].

    In all three a CJK character, a CJK punctuation mark or an emoji is never joined to another, and where the data are
    lists of single characters, letters and digits too (`are_split_by_character`), nothing is. Text is lower-cased
    only: Unicode composition would leave accents outside the offsets.

    Args:
        texts: texts, or lists of words for data that comes split; both may occur.
        vocab_size: the most tokens, special tokens included. WordPiece keeps every single character beyond it.
        min_frequency: occurrences below which a word (or merge of pieces) gets no token. At 1, no training text
            contains [UNK], so that its embedding is never trained.
        model_max_length: the most tokens the model takes, special tokens included; None: no limit.
        known_words: have a token beyond `vocab_size` where they are one piece of text to this kind and its
            `lower_case`, such as the words of pretrained vectors. Not for "wordpiece", which knows pieces.
    """
    if kind not in get_args(TokenizerKind):
        raise ValueError(f"kind={kind!r}; choose one of {', '.join(map(repr, get_args(TokenizerKind)))}.")
    if vocab_size <= len(SPECIAL_TOKENS):
        raise ValueError(f"vocab_size={vocab_size} must exceed the {len(SPECIAL_TOKENS)} special tokens.")
    if kind == "wordpiece" and known_words:
        raise ValueError('known_words are whole words: choose kind="word" or "character".')
    lines = [text if isinstance(text, str) else list(text) for text in texts]
    backend = Tokenizer(models.WordLevel(unk_token=_UNK))
    if lower_case:
        backend.normalizer = normalizers.Lowercase()
    pattern = Regex(CHARACTER if are_split_by_character(lines) else "|".join(_PATTERNS[kind]))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SEPARATORS), "removed"), pre_tokenizers.Split(pattern, "isolated")]
    )
    build = {"word": _word_vocabulary, "wordpiece": _wordpiece_vocabulary, "character": _character_vocabulary}[kind]
    tokens = build(backend, lines, vocab_size, min_frequency)
    tokens = list(dict.fromkeys([*tokens, *(word for word in known_words if _is_one_piece(word, backend))]))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    # The model is new: training would mark all tokens that were given in advance as special.
    if kind == "word":
        backend.model = models.WordLevel(vocabulary, unk_token=_UNK)
    else:
        backend.model = models.WordPiece(vocabulary, unk_token=_UNK)
        backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return _wrap(backend, model_max_length)


def _is_one_piece(word: str, backend: Tokenizer) -> bool:
    """Whether a word is unchanged by the normalizer and not split by the pre-tokenizer."""
    unchanged = backend.normalizer is None or backend.normalizer.normalize_str(word) == word
    return unchanged and [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(word)] == [word]


def _train_words(backend: Tokenizer, texts: list[str | list[str]], vocab_size: int, min_frequency: int) -> list[str]:
    """The whole pieces of the texts, the frequent first, without the special tokens that count in `vocab_size`."""
    backend = _copy(backend)
    specials = list(SPECIAL_TOKENS.values())
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=specials, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    vocabulary = backend.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)[len(specials) :]


def _word_vocabulary(
    backend: Tokenizer, texts: list[str | list[str]], vocab_size: int, min_frequency: int
) -> list[str]:
    """Special tokens, then whole pieces by frequency."""
    return [*SPECIAL_TOKENS.values(), *_train_words(backend, texts, vocab_size, min_frequency)]


def _spelling(pieces: Iterable[str]) -> list[str]:
    """Each letter of the pieces of two letters and more, alone and after "##", in the order of appearance."""
    letters = dict.fromkeys(letter for piece in pieces if len(piece) > 1 for letter in piece)
    return [form for letter in letters for form in (letter, "##" + letter)]


def _character_vocabulary(
    backend: Tokenizer, texts: list[str | list[str]], vocab_size: int, min_frequency: int
) -> list[str]:
    """Special tokens, then whole pieces by frequency, then the letters that spell unknown words."""
    specials = list(SPECIAL_TOKENS.values())
    runs = [piece for piece in _train_words(backend, texts, _NO_LIMIT, 1) if piece[0].isalnum()]
    # At most half of the vocabulary: in a tiny one, whole characters matter more than spelling.
    spelling = dict.fromkeys(_spelling(runs)[: (vocab_size - len(specials)) // 2])
    whole = [piece for piece in _train_words(backend, texts, _NO_LIMIT, min_frequency) if piece not in spelling]
    return [*specials, *whole[: vocab_size - len(specials) - len(spelling)], *spelling]


def _wordpiece_vocabulary(
    backend: Tokenizer, texts: list[str | list[str]], vocab_size: int, min_frequency: int
) -> list[str]:
    """Special tokens, letters, then pieces in the order of their merges.

    The trainer numbers "##" letters in the order of a hash map with a random seed, and breaks ties between merges by
    these numbers: two runs would differ. Letters given in advance have fixed numbers. Both forms of each are given, so
    that unknown words can be spelled.
    """
    pieces = _train_words(backend, texts, _NO_LIMIT, 1)
    spelling = sorted(_spelling(pieces))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=[*SPECIAL_TOKENS.values(), *spelling],
        show_progress=False,
    )
    learner = _copy(backend)
    learner.model = models.WordPiece(unk_token=_UNK)
    learner.train_from_iterator(texts, trainer)
    vocabulary = learner.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _copy(backend: Tokenizer) -> Tokenizer:
    return Tokenizer.from_str(backend.to_str())


def _wrap(backend: Tokenizer, model_max_length: int | None) -> PreTrainedTokenizerFast:
    """A tokenizer of transformers with BERT's special tokens and token types."""
    cls, sep = SPECIAL_TOKENS["cls_token"], SPECIAL_TOKENS["sep_token"]
    backend.add_special_tokens(list(SPECIAL_TOKENS.values()))
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(token, backend.token_to_id(token)) for token in (cls, sep)],
    )
    limit = {} if model_max_length is None else {"model_max_length": model_max_length}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        padding_side="right",
        clean_up_tokenization_spaces=False,
        **SPECIAL_TOKENS,
        **limit,
    )


def set_token_types(tokenizer: PreTrainedTokenizerBase) -> None:
    """Make a tokenizer return `token_type_ids`, also once it is saved and loaded."""
    if "token_type_ids" not in tokenizer.model_input_names:
        tokenizer.model_input_names = [*tokenizer.model_input_names, "token_type_ids"]
        # save_pretrained writes the arguments of construction only (transformers 5.23).
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names


def length_limit(tokenizer: PreTrainedTokenizerBase, max_seq_length: int | None) -> int | None:
    """The most tokens of a row: `max_seq_length`, but no more than the tokenizer's model takes; None: no limit."""
    most = max_length_or_none(tokenizer.model_max_length)
    if max_seq_length is None:
        return most
    if max_seq_length <= tokenizer.num_special_tokens_to_add(pair=True):
        raise ValueError(f"max_seq_length={max_seq_length} leaves no room for more than the special tokens.")
    if most is not None and max_seq_length > most:
        logger.warning(
            f"max_seq_length={max_seq_length} exceeds the tokenizer's model_max_length={most}; using {most}."
        )
        return most
    return max_seq_length


def map_rows(
    dataset: Dataset, encode: Callable[..., Any], description: str, features: Features | None = None
) -> Dataset:
    """Replace all columns by those of `encode(batch, indices)`, with their features if they are not to be inferred."""
    return dataset.map(
        encode,
        batched=True,
        with_indices=True,
        remove_columns=dataset.column_names,
        features=features,
        desc=description,
    )


def warn_about_cuts(features: Dataset, split: str, limit: int | None, advice: str) -> Dataset:
    """Report the tokens that were cut, by columns that are dropped; as a warning if they are more than a few."""
    counts = [name for name in ("cut_tokens", "cut_words") if name in features.column_names]
    cut = {name: np.asarray(features[name][:], dtype=np.int64) for name in counts}
    tokens = int(cut["cut_tokens"].sum()) if counts else 0
    if tokens:
        words = f" ({int(cut['cut_words'].sum()):,} words)" if "cut_words" in cut else ""
        rows = int((cut["cut_tokens"] > 0).sum())
        ids = features.with_format("arrow")[:]["input_ids"]
        share = tokens / (tokens + pc.sum(pc.list_value_length(ids)).as_py())
        logger.log(
            logging.WARNING if share > _MAY_BE_CUT else logging.INFO,
            f"{split}: {rows:,} of {len(features):,} examples are longer than {limit} tokens; "
            f"{tokens:,} tokens{words} were cut off ({rows / len(features):.1%} of the examples, {share:.1%} of the "
            f"tokens). {advice}",
        )
    return features.remove_columns(counts)
