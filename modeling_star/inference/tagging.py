"""
Tag many texts for a `Predictor`: texts -> tokens -> windows -> batches -> labels of tokens (decode.py) -> entities.

Axes: n tokens  k labels
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.text_types import Text
from ..data.windows import Window, cut_windows, max_length_or_none, shorten, tokenizing
from .batches import Batch, Outputs
from .decode import EntityDecoder, TaggedText, add_window, best_labels, offsets_in_text
from .output_rows import Prediction


if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerBase


class TextTagger:
    """Tags of texts and of lists of words; `run` is that of a `Predictor`, the stride is that of a training."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        decoder: EntityDecoder,
        run: Callable[[Mapping[str, Sequence[Any]], Callable[[Outputs], tuple[np.ndarray, ...]]], Iterator[Batch]],
        stride: int | None,
        longest_run: int | None,
    ) -> None:
        self.tokenizer, self.decoder, self.run = tokenizer, decoder, run
        self.stride, self.longest_run = stride, longest_run

    def entities(self, texts: Sequence[Text], plain: Sequence[str], delimiter: str) -> list[list[Prediction]]:
        """Entities of texts or lists of words, with offsets in the plain text, joined by the delimiter."""
        found: list[list[Prediction]] = [[] for _ in texts]
        numbers: list[int] = []
        tagged: list[TaggedText] = []
        for are_words in (False, True):
            members = [number for number, text in enumerate(texts) if isinstance(text, list) == are_words]
            encodings = self._encode([texts[number] for number in members], are_words)
            for row, *parts in self._token_labels(encodings):
                if self.decoder.may_have_entities(parts[0]):
                    number, encoding = members[row], encodings[row]
                    content = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)
                    offsets = self._offsets(texts[number], encoding, content, delimiter)
                    of_tokens = [np.array(encoding.ids)[content], offsets, *(part[content] for part in parts)]
                    numbers.append(number)
                    tagged.append(TaggedText(plain[number], *of_tokens))
        for number, entities in zip(numbers, self.decoder(tagged), strict=True):
            found[number] = entities
        return found

    def tags(self, sentences: Sequence[list[str]], names: Mapping[int, str]) -> list[list[str | None]]:
        """The label of each word of some sentences, `None` for a word that the tokenizer drops."""
        tags: list[list[str | None]] = [[None] * len(words) for words in sentences]
        encodings = self._encode(sentences, are_words=True)
        for row, labels, *_ in self._token_labels(encodings):
            words = encodings[row].word_ids
            for column in reversed(range(len(words))):  # the first token of a word decides
                if words[column] is not None:
                    tags[row][words[column]] = names[int(labels[column])]
        return tags

    def _encode(self, texts: Sequence[Any], are_words: bool) -> list["Encoding"]:
        # Not by the tokenizer's own call: lists of offsets are needed only where there are entities.
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        longest = self.longest_run
        short = [
            [shorten(word, longest).text for word in text] if are_words else shorten(text, longest).text
            for text in texts
        ]
        with tokenizing(texts):
            return backend.encode_batch(short, is_pretokenized=are_words)

    def _offsets(self, text: Any, encoding: "Encoding", content: np.ndarray, delimiter: str) -> np.ndarray:
        """The characters in the plain text of those tokens of a text or a list of words that are no special ones."""
        offsets = np.array(encoding.offsets).reshape(-1, 2)[content]
        if isinstance(text, str):
            return shorten(text, self.longest_run).in_whole(offsets)
        words = [encoding.word_ids[column] for column in content]
        for token, word in enumerate(words):
            offsets[token] = shorten(text[word], self.longest_run).in_whole(offsets[token])
        begins = np.cumsum([0, *(len(word) + len(delimiter) for word in text)])
        return offsets_in_text(offsets, words, begins)

    def _token_labels(self, encodings: Sequence["Encoding"]) -> Iterator[tuple[Any, ...]]:
        """The row of a text, its labels `[n]`, their probabilities; of a CRF log marginals, messages `[n, k]`."""
        limit = max_length_or_none(self.tokenizer.model_max_length)
        stride = self.stride or (limit or 0) // 8
        from_end = self.tokenizer.truncation_side == "left"
        columns: dict[str, list[np.ndarray]] = {"input_ids": [], "token_type_ids": []}
        windows: list[tuple[int, Window]] = []
        for row, encoding in enumerate(encodings):
            ids, types = np.array(encoding.ids), np.array(encoding.type_ids)
            is_content = np.array(encoding.special_tokens_mask) == 0
            for window in cut_windows(is_content, limit, stride, from_end=from_end):
                windows.append((row, window))
                columns["input_ids"].append(ids[window.tokens])
                columns["token_type_ids"].append(types[window.tokens])
        waiting = Counter(row for row, _ in windows)
        whole: dict[int, Sequence[np.ndarray]] = {}
        for batch, mask, outputs in self.run(columns, self._kept):
            ends = mask.sum(1).cumsum()[:-1]
            parts = (np.split(values[mask], ends) for values in outputs)
            for number, *of_window in zip(batch, *parts, strict=True):
                row, window = windows[number]
                whole[row] = add_window(whole.get(row), window, of_window, len(encodings[row].ids))
                waiting[row] -= 1
                if not waiting[row]:
                    yield row, *whole.pop(row)

    def _kept(self, outputs: Outputs) -> tuple[np.ndarray, ...]:
        """What is kept of the outputs of a batch: labels and their probabilities, and what span probabilities need."""
        best = best_labels(outputs)
        return best if self.decoder.scorer is None else (*best, outputs["logits"], outputs["messages"])
