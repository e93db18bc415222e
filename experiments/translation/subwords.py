"""Train a byte-pair encoding whose tokens decode to the text, for translation."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from modeling_star.data.tokenizers import SPECIAL_TOKENS
from modeling_star.data.writing_systems import CJK, RUN, SEPARATORS


SPACE = "▁"  # SentencePiece's sign for a space, and so that of most translation models
# In this order: a space alone (before a CJK character or another space), a CJK character, a word or number, any other
# character; all but the first two with the space before them.
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
    ends in [SEP], its `eos_token`; a decoder starts from [CLS], its `bos_token`.

    Args:
        texts: source and target texts alike: there is one vocabulary.
        lower_case: whether "The" and "the" are one token; translations are then lower-case too.
        vocab_size: the most tokens, special tokens included.
        min_frequency: characters and merges that occur less often get no token.

    Raises:
        ValueError: for a vocabulary too small for the characters.
    """
    specials = list(SPECIAL_TOKENS.values())
    lines = [text if isinstance(text, str) else " ".join(text) for text in texts]
    backend = Tokenizer(models.BPE())
    backend.normalizer = _normalizer(lower_case)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(_PIECES)), "isolated")
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    lines = [backend.normalizer.normalize_str(line) for line in lines]
    counts = Counter(character for line in lines for character in line)
    alphabet = {character for character, count in counts.items() if count >= min_frequency or character == SPACE}
    if len(alphabet) > vocab_size - len(specials):
        raise ValueError(
            f"vocab_size={vocab_size} is too small for {len(alphabet)} characters that occur {min_frequency} times or "
            f"more: write --vocab_size {2 * (len(alphabet) + len(specials))}"
        )
    # The trainer gives every character a token: rare ones are removed before.
    lines = ["".join(c if c in alphabet else " " for c in line).replace(SPACE, " ") for line in lines]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=specials, show_progress=False
    )
    backend.train_from_iterator(lines, trainer)
    backend.model.unk_token = SPECIAL_TOKENS["unk_token"]
    backend.model.fuse_unk = True
    backend.add_special_tokens(specials)
    start, end = SPECIAL_TOKENS["cls_token"], SPECIAL_TOKENS["sep_token"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, backend.token_to_id(end))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=["input_ids", "attention_mask"],
        padding_side="right",
        clean_up_tokenization_spaces=False,
        bos_token=start,
        eos_token=end,
        **SPECIAL_TOKENS,
    )


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


def start_and_end(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    """The ids of a decoder's first and last token."""
    starts = (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.pad_token_id)
    ends = (tokenizer.eos_token_id, tokenizer.sep_token_id)
    start, end = (next((index for index in ids if index is not None), None) for ids in (starts, ends))
    if start is None or end is None:
        raise ValueError(
            "The tokenizer has no token to start or to end a text: name another with --tokenizer_name, or omit it to "
            "train one."
        )
    return start, end
