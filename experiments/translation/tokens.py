"""Train a byte-pair encoding whose tokens decode to the text."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from modeling_star.data.tokenizers import SPECIAL_TOKENS
from modeling_star.data.writing_systems import CJK, RUN, SEPARATORS


SPACE = "▁"  # SentencePiece's sign for a space
# In this order: a space alone (before a CJK character or another space), a CJK character, a word or number, any other
# character; all but the first two with the space before them.
_PIECES = [rf"{SPACE}(?=[{CJK}{SPACE}]|$)", rf"[{CJK}]\p{{M}}*", rf"{SPACE}?{RUN}", rf"{SPACE}?\X"]
# White space to single "▁", one before the first word too, none before a CJK character that begins the text.
_NORMALIZERS = (
    normalizers.Replace(Regex(SEPARATORS), " "),
    normalizers.Strip(),
    normalizers.Replace(" ", SPACE),
    normalizers.Prepend(SPACE),
    normalizers.Replace(Regex(rf"^{SPACE}(?=[{CJK}])"), ""),
)


def train_tokenizer(texts: Iterable[str], vocab_size: int = 8_000, min_frequency: int = 2) -> PreTrainedTokenizerFast:
    """
    Train a byte-pair encoding (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909) on sources and targets.

    Words and numbers are cut into pieces, with "▁" for the space before a word; CJK characters are never joined. A row
    ends in [SEP], its `eos_token`; a decoder starts from [CLS], its `bos_token`. Characters and merges that occur less
    often than `min_frequency` get no token.
    """
    specials = list(SPECIAL_TOKENS.values())
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.Sequence(list(_NORMALIZERS))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(_PIECES)), "isolated")
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    lines = [backend.normalizer.normalize_str(text) for text in texts]
    counts = Counter(character for line in lines for character in line)
    alphabet = {character for character, count in counts.items() if count >= min_frequency or character == SPACE}
    # The trainer gives every character a token: rare ones are removed before.
    lines = ["".join(c if c in alphabet else " " for c in line).replace(SPACE, " ") for line in lines]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=specials, show_progress=False
    )
    backend.train_from_iterator(lines, trainer)
    backend.model.unk_token, backend.model.fuse_unk = SPECIAL_TOKENS["unk_token"], True
    backend.add_special_tokens(specials)
    start, end = SPECIAL_TOKENS["cls_token"], SPECIAL_TOKENS["sep_token"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, backend.token_to_id(end))]
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
