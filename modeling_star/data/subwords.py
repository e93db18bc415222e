"""Train a tokenizer of pieces that spell a text and give it back, for models that write: byte-pair encoding."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .tokenizers import CJK, RUN, SEPARATORS, SPECIAL_TOKENS, checked_texts


SPACE = "▁"  # SentencePiece's sign for a space, and so that of most translation models
# In this order: a space by itself (before a CJK character or another space), a CJK character, a word or number, any
# other character; all but the first two with the space before them.
_PIECES = [
    rf"{SPACE}(?=[{CJK}{SPACE}]|$)",
    rf"[{CJK}]\p{{M}}*",
    rf"{SPACE}?{RUN}",
    rf"{SPACE}?\X",
]


def train_subword_tokenizer(
    texts: Iterable[str | Sequence[str]],
    *,
    lower_case: bool = False,
    vocab_size: int = 8_000,
    min_frequency: int = 2,
) -> PreTrainedTokenizerFast:
    """
    Train a byte-pair encoding (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909) whose tokens decode to the text
    they came from, but for runs of white space, which become one space, and characters too rare to have a token.

    Words and numbers are cut into pieces; a space is written as "▁" before the word that follows it, as
    SentencePiece does. A CJK character is never joined to another: Chinese is read and written by characters. A row
    ends in [SEP], its `eos_token`; [CLS], its `bos_token`, is what a decoder starts from.

    Args:
        texts: source and target texts alike: there is one vocabulary.
        lower_case: whether "The" and "the" are one token; what is written is then lower-case too.
        vocab_size: the most tokens, special tokens included.
        min_frequency: characters and merges that occur less often get no token.

    Raises:
        ValueError: for a vocabulary too small for the characters, or no text at all.
        TypeError: for an item that is neither text nor a list of words.
    """
    specials = list(SPECIAL_TOKENS.values())
    lines = [text if isinstance(text, str) else " ".join(text) for text in checked_texts(texts)]
    backend = Tokenizer(models.BPE())
    backend.normalizer = _normalizer(lower_case)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(_PIECES)), "isolated")
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    alphabet = _alphabet(lines, backend, min_frequency)
    room = vocab_size - len(specials)
    if len(alphabet) > room:
        raise ValueError(
            f"vocab_size={vocab_size} has room for {max(room, 0)} characters, and the texts have {len(alphabet)} that "
            f"occur {min_frequency} times or more: write --vocab_size {2 * (len(alphabet) + len(specials))}"
        )
    # Without its rare characters, a text has none that the trainer would have to give a token.
    known = set(alphabet) | {" "}
    kept = ["".join(c if c in known else " " for c in backend.normalizer.normalize_str(line)) for line in lines]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=specials, show_progress=False
    )
    backend.train_from_iterator((line.replace(SPACE, " ") for line in kept), trainer)
    backend.model.unk_token = SPECIAL_TOKENS["unk_token"]
    backend.model.fuse_unk = True
    backend.add_special_tokens(specials)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=["input_ids", "attention_mask"],
        padding_side="right",
        clean_up_tokenization_spaces=False,
        **SPECIAL_TOKENS,
    )
    return for_writing(tokenizer)


def _normalizer(lower_case: bool) -> normalizers.Normalizer:
    """White space to single "▁", one before the first word too, none before a CJK character that begins the text."""
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lower_case else []
    return normalizers.Sequence(
        [
            *steps,
            normalizers.Replace(Regex(SEPARATORS), " "),
            normalizers.Strip(),
            normalizers.Replace(" ", SPACE),
            normalizers.Prepend(SPACE),
            normalizers.Replace(Regex(rf"^{SPACE}(?=[{CJK}])"), ""),
        ]
    )


def _alphabet(lines: list[str], backend: Tokenizer, min_frequency: int) -> list[str]:
    """The characters that occur often enough, as the normalizer writes them, the frequent first."""
    counts = Counter(c for line in lines for c in backend.normalizer.normalize_str(line))
    frequent = [c for c, count in counts.items() if count >= min_frequency or c == SPACE]
    return sorted(frequent, key=lambda c: (-counts[c], c))


def for_writing(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Rows that end in [SEP] and begin without [CLS]: what an encoder reads and a decoder has to write."""
    start, end = tokenizer.cls_token, tokenizer.sep_token
    tokenizer.bos_token, tokenizer.eos_token = start, end
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, tokenizer.convert_tokens_to_ids(end))]
    )
    return tokenizer


def start_and_end(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """
    The ids of the token that a decoder starts from and of the one that it ends with.

    Raises:
        ValueError: the tokenizer has no such tokens.
    """
    starts = (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.pad_token_id)
    ends = (tokenizer.eos_token_id, tokenizer.sep_token_id)
    start, end = (next((index for index in ids if index is not None), None) for ids in (starts, ends))
    if start is None or end is None:
        raise ValueError(
            "The tokenizer has no token that ends a text, or none to start from: name another by --tokenizer_name, or "
            "leave it away to have one trained."
        )
    return start, end


__all__ = ["for_writing", "start_and_end", "train_subword_tokenizer"]
