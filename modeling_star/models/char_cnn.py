"""
Character features of tokens: their spelling and writing (capitals, digits).

The text of each vocabulary entry is in a buffer, saved with the model, so that input_ids are enough. The features of
an entry do not depend on its context: in training those in a batch are computed once each, in inference all entries
once. A word of several entries has the maximum of theirs.

Axes: N flat tokens  V vocabulary entries  M distinct entries  L max_char_length  c width of a character  f features of
an entry
"""

import unicodedata
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import logging

from .configuration_encoder import EncoderConfig
from .modeling_encoder import is_plain
from .token_layout import TokenLayout, is_continuation, is_traced
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

    In inference the features of all entries are cached until a weight is written to. torch does not register writes
    through `.data`: use `with torch.no_grad(): weight.copy_(new)`, or call `train()` and `eval()` afterwards.
    """

    vocabulary_tables = ("characters", "traits", "alone")
    characters: Tensor
    traits: Tensor
    alone: Tensor

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
        # The features of all entries, and the tensors that they were made of, each as it was.
        self._cached: tuple[Tensor, list[tuple[Tensor, tuple]]] | None = None

    def load_vocabulary(self, vocabulary: Vocabulary, label_all_tokens: bool) -> None:
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

    def train(self, mode: bool = True) -> "CharCNN":
        """As in nn.Module; the cached features are dropped where the mode changes."""
        if mode != self.training:
            self._cached = None
        return super().train(mode)

    def forward(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """
        Args:
            ids: `[N]`, token ids.
            layout: where the tokens lie.

        Returns:
            `[N, f]`, or `[N, 2 f]`: the features of each token and of its word.
        """
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
        if is_traced():
            return self.features(self.characters[ids], self.traits[ids])
        if not self.training and not torch.is_grad_enabled() and self._can_be_cached():
            return nn.functional.embedding(ids, self._of_all_entries())
        self._cached = None  # a fused optimizer may follow, which changes no tensor's version
        entries, index = ids.unique(return_inverse=True)
        characters = self.characters[entries]
        if not characters.any():
            self._warn_of_no_characters()
        return nn.functional.embedding(index, self.features(characters, self.traits[entries]))

    def features(self, characters: Tensor, traits: Tensor) -> Tensor:
        """Code points `[M, L]`, 0 after the end, and traits `[M, 7]` to features `[M, f]`."""
        symbols = self._symbols(characters, traits[:, 0])
        if not is_traced() and len(symbols):
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

    def _can_be_cached(self) -> bool:
        """
        Whether the features depend on weights alone, without adapters, which may be switched off, and these register
        writes, which tensors made in inference mode do not.
        """
        plain = is_plain(self.convolution, nn.Linear) and is_plain(self.embeddings, nn.Embedding)
        return plain and not any(tensor.is_inference() for tensor in self._decisive())

    def _decisive(self) -> list[Tensor]:
        return [self.characters, self.traits, *self.parameters()]

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle, without the cache."""
        return {**self.__dict__, "_cached": None}

    def _of_all_entries(self) -> Tensor:
        """Features of every entry `[V, f]`, computed again only after something has changed."""
        tensors = self._decisive()
        now = [_state_of(tensor) for tensor in tensors]
        # Read once: another thread may write or forget it meanwhile.
        cached = self._cached
        if cached is not None:
            table, made_of = cached
            # The tensors are compared by identity: a new one may have the address of an old one.
            same = len(made_of) == len(tensors) and all(a is b for (a, _), b in zip(made_of, tensors, strict=True))
            if same and [state for _, state in made_of] == now:
                return table
        if not self.characters.any():
            self._warn_of_no_characters()
        # Neither tied to inference mode nor to autocast, so that any later call can use it.
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(self.traits.device.type, enabled=False):
            parts = zip(*(t.split(_ENTRIES_AT_ONCE) for t in (self.characters, self.traits)), strict=True)
            table = torch.cat([self.features(*part) for part in parts])
        self._cached = (table, list(zip(tensors, now, strict=True)))
        return table

    def _warn_of_no_characters(self) -> None:
        logger.warning_once(
            "char_features=True, and the tokens have no characters: call model.set_vocabulary(tokenizer)."
        )


def _state_of(tensor: Tensor) -> tuple:
    """Values that change when a tensor is written to, or moved."""
    return tensor._version, tensor.data_ptr(), tensor.dtype, tensor.device
