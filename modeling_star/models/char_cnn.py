"""
Character features of tokens: their spelling and writing (capitals, digits).

The text of each vocabulary entry is in a buffer, saved with the model, so that input_ids are enough. The features of
an entry do not depend on its context: they are computed once for each entry in a batch. A copy for inference has a
table of those of all entries (`tabulate`). A word of several entries has the maximum of theirs.

Axes: N flat tokens  V vocabulary entries  M distinct entries  L max_char_length  c width of a character  f features of
an entry
"""

import unicodedata

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import logging

from .configuration_encoder import EncoderConfig
from .token_layout import TokenLayout, is_continuation, is_fixed
from .vocabulary import Vocabulary, VocabularyTables


logger = logging.get_logger(__name__)

TRAITS = (
    "continues a word",
    "upper case",
    "title case",
    "a capital further on",
    "digits alone",
    "a digit among others",
    "neither letter nor digit",
)
# Symbols before the characters: nothing, and the boundaries of an entry.
_NOTHING, _WORD, _CONTINUATION, _END = range(4)
_ENTRIES_AT_ONCE = 4096


def traits_of(text: str, continues: bool) -> list[bool]:
    """Which of `TRAITS` an entry has."""
    capitals = [character.isupper() for character in text]
    digits = [character.isdigit() for character in text]
    first = next((index for index, character in enumerate(text) if character.isalpha()), 0)
    return [
        continues,
        text.isupper(),
        capitals[first : first + 1] == [True] and sum(capitals) == 1,
        any(capitals[first + 1 :]),
        bool(text) and all(digits),
        any(digits) and not all(digits),
        bool(text) and not any(character.isalnum() for character in text),
    ]


def spelled(text: str, longest: int) -> list[int]:
    """The code points of a text, composed (NFC); of one beyond `longest` characters both ends."""
    text = unicodedata.normalize("NFC", text)
    half = longest // 2
    ends = text if len(text) <= longest else text[: longest - half] + text[len(text) - half :]
    return [ord(character) for character in ends]


class CharCNN(VocabularyTables):
    """
    A convolution over the characters of each token and their maximum (section 2.1 of Ma and Hovy 2016,
    https://arxiv.org/abs/1603.01354), and `TRAITS` as zeros and ones.

    Characters are hashed by code point modulo `char_vocab_size`: there is no list of them, and none is unknown. They
    are enclosed by symbols for the start of a word or its continuation, and for the end. Special tokens, the unknown
    token and ids without an entry have no characters, and zeros as features.

    Attributes:
        table: `[V, f]`, the features of all entries, in a copy for inference; otherwise `None`.
    """

    vocabulary_tables = ("characters", "traits", "alone")
    characters: Tensor
    traits: Tensor
    alone: Tensor
    table: Tensor | None

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.buckets = config.char_vocab_size
        self.embeddings = nn.Embedding(_END + 1 + self.buckets, config.char_embedding_size)
        self.dropout = nn.Dropout(config.embedding_dropout_prob)
        self.kernel = config.char_kernel_size
        self.joins_words = config.char_scope == "word"
        self.convolution = nn.Linear(self.kernel * config.char_embedding_size, config.char_num_filters)
        width = config.char_num_filters + len(TRAITS)
        self.width = 2 * width if self.joins_words else width
        characters = torch.zeros((config.vocab_size, config.max_char_length), dtype=torch.int32)
        self.register_buffer("characters", characters)
        self.register_buffer("traits", torch.zeros((config.vocab_size, len(TRAITS)), dtype=torch.bool))
        self.register_buffer("alone", torch.zeros(config.vocab_size, dtype=torch.bool))
        self.register_buffer("table", None, persistent=False)

    def load_vocabulary(self, vocabulary: Vocabulary) -> None:
        longest = self.characters.shape[1]
        characters, traits = (torch.zeros_like(table, device="cpu") for table in (self.characters, self.traits))
        for index, (text, continues) in enumerate(zip(vocabulary.texts, vocabulary.continues.tolist(), strict=True)):
            if text:
                codes = spelled(text, longest)
                characters[index, : len(codes)] = torch.tensor(codes, dtype=torch.int32)
                traits[index] = torch.tensor(traits_of(text, continues))
        self.characters.copy_(characters)
        self.traits.copy_(traits)
        self.alone.zero_()
        self.alone[: len(vocabulary)] = vocabulary.alone.to(self.alone.device)

    def init_own_weights(self) -> None:
        """For `_init_weights`: characters of about unit length, as in Ma and Hovy; no vocabulary."""
        init.normal_(self.embeddings.weight, std=self.embeddings.embedding_dim**-0.5)
        for table in (self.characters, self.traits, self.alone):
            init.zeros_(table)

    @torch.no_grad()
    def tabulate(self) -> None:
        """Compute the features of all entries, which are looked up where no gradients are needed from now on."""
        parts = zip(*(t.split(_ENTRIES_AT_ONCE) for t in (self.characters, self.traits)), strict=True)
        self.table = torch.cat([self.features(*part) for part in parts])

    def forward(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """The features of each token, `[N]` ids to `[N, f]`, or to `[N, 2 f]` with those of its word."""
        features = self.token_features(ids)
        if not self.joins_words:
            return features
        return torch.cat([features, self.word_features(features, ids, layout)], dim=-1)

    def word_features(self, features: Tensor, ids: Tensor, layout: TokenLayout) -> Tensor:
        """For each token the maximum over the tokens of its word: features `[N, f]` and ids `[N]` to `[N, f]`."""
        starts = ~is_continuation(layout, self.traits[ids, 0], self.alone[ids])
        real = layout.pack(layout.mask)
        word = ((starts & real).cumsum(0) - 1).clamp(min=0)[:, None].expand_as(features)
        lowest = torch.finfo(features.dtype).min
        # A row for each token: counting the words would synchronise with the GPU.
        words = torch.full_like(features, lowest)
        words = words.scatter_reduce(0, word, features.masked_fill(~real[:, None], lowest), "amax")
        return words.gather(0, word).masked_fill(~real[:, None], 0)

    def token_features(self, ids: Tensor) -> Tensor:
        """Features of each token, `[N]` to `[N, f]`."""
        if self.table is not None and not torch.is_grad_enabled():
            return nn.functional.embedding(ids, self.table)
        if is_fixed():
            return self.features(self.characters[ids], self.traits[ids])
        entries, index = ids.unique(return_inverse=True)
        characters = self.characters[entries]
        if not characters.any() and not self.characters.any():  # a batch may be of unknown tokens alone
            logger.warning_once(
                "char_features=True, and the tokens have no characters: call model.set_vocabulary(tokenizer)."
            )
        return nn.functional.embedding(index, self.features(characters, self.traits[entries]))

    def features(self, characters: Tensor, traits: Tensor) -> Tensor:
        """Code points `[M, L]`, 0 after the end, and traits `[M, 7]` to features `[M, f]`."""
        symbols = self._symbols(characters, traits[:, 0])
        if not is_fixed() and len(symbols):
            symbols = symbols[:, : int((symbols != _NOTHING).sum(1).max().clamp(min=1))]
        embedded = self.dropout(self.embeddings(symbols)).masked_fill((symbols == _NOTHING)[..., None], 0)
        reach = self.kernel // 2
        windows = nn.functional.pad(embedded, (0, 0, reach, reach)).unfold(1, self.kernel, 1).flatten(2)
        convolved = self.convolution(windows)
        outside = (symbols == _NOTHING)[..., None]
        lowest = torch.finfo(convolved.dtype).min
        spelling = convolved.masked_fill(outside, lowest).amax(1).masked_fill(outside.all(1), 0)
        return torch.cat([spelling, traits.to(spelling.dtype)], dim=-1)

    def _symbols(self, characters: Tensor, continues: Tensor) -> Tensor:
        """Rows of `embeddings` for code points `[M, L]` and their boundaries: `[M, L + 2]`."""
        length = (characters != 0).sum(1, keepdim=True)
        symbols = (characters % self.buckets + _END + 1).masked_fill(characters == 0, _NOTHING)
        start = torch.where(continues, _CONTINUATION, _WORD)[:, None].to(symbols.dtype)
        symbols = nn.functional.pad(torch.cat([start, symbols], dim=1), (0, 1))
        symbols = symbols.scatter(1, length + 1, _END)
        return symbols.masked_fill(length == 0, _NOTHING)


def tabulate_characters(model: nn.Module) -> None:
    """
    Give a copy of a model for inference, whose weights do not change, the table of all features. Computed for each
    batch, they take 0.3 of the forward pass of a Star-Transformer on 32 x 128 tokens, one thread of a CPU.
    """
    for module in model.modules():
        if isinstance(module, CharCNN):
            module.tabulate()
