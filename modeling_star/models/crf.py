"""
A linear-chain conditional random field on top of a tagger (Lafferty, McCallum and Pereira 2001): the score of a tag
depends on the tag before it.

    score(y | x) = start[y_1] + sum_t emission_t[y_t] + sum_t transition[y_(t-1), y_t] + end[y_T]
    log p(y | x) = score(y | x) - log sum_y' exp score(y' | x)

Axes: b batch  n columns  k labels  g chains that are run side by side
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils import logging

from .tag_schemes import (
    IGNORE_INDEX,
    TagScheme,
    entity_tag,
    may_follow,
    tag_scheme,
    typed_labels,
)
from .token_layout import is_traced
from .vocabulary import Vocabulary, VocabularyTables


logger = logging.get_logger(__name__)

# Score of a transition that the constraints forbid: its probability is 0 in any precision, and losses stay finite.
FORBIDDEN = -1e4
# Score of a tag other than the known one: outweighs any number of forbidden transitions.
_RULED_OUT = -1e12
# Start and end count as O.
_LETTERS = "OBIES"
# A score is its parameter times this, with the gradient of the score itself, so that it learns this many times as fast
# as the weights of a layer, many of which change one logit together. At their rate it would learn too late
# (docs/decisions.md).
CRF_LR_MULTIPLIER = 30.0


@dataclass
class CrfTokenClassifierOutput(TokenClassifierOutput):
    """
    Output of a tagger with a CRF.

    Args:
        loss, hidden_states, attentions: as in every tagger; the loss is the negative log likelihood for each label.
        logits: `[b, n, k]`, the logarithms of the tags' probabilities, given the whole text.
        paths: `[b, n]`, the labels of the best path (Viterbi), -100 at padding; not computed in a training step.
        sequence_losses: `[b]`, the negative log likelihood of each row's labels.
        messages: `[b, n, k]`, without labels: the logarithm of the sum of all that may follow each tag, its emission
            included, up to a constant for each token. With `logits` they give the probability of any span.
    """

    paths: Tensor | None = None
    sequence_losses: Tensor | None = None
    messages: Tensor | None = None


class LinearChainCrf(VocabularyTables):
    """
    Scores of tags and of their transitions, with likelihoods, marginals and the best path.

    The scores are CRF_LR_MULTIPLIER times the parameters; the gradients of both are the same.

    The chain of a row is the real tokens that carry a tag: by the vocabulary (`set_vocabulary`: neither special tokens
    nor those that continue a word), by `tag_mask`, or else all. It is the same with and without labels: a label of
    -100 inside the chain is unknown, and summed over.

    Labels that begin or end as the constraints forbid, such as I-x first or B-x last under "iobes", belong to a part
    of a text, a window or a truncated text: neither start nor end has a score there. Best paths are always those of a
    whole text.

    Args:
        labels: names of the k labels, in the order of their ids; used for `constraints`.
        constraints: which transitions are forbidden: a scheme, "auto" for the labels' scheme, or `None`.
        vocab_size: rows of the table of the entries that carry no tag.

    Raises:
        ValueError: there are constraints, and the labels are no entity labels.
    """

    vocabulary_tables = ("carries_no_tag",)
    carries_no_tag: Tensor
    forbidden: Tensor

    def __init__(self, labels: Sequence[str], constraints: TagScheme | Literal["auto"] | None, vocab_size: int):
        super().__init__()
        k = len(labels)
        self.labels = tuple(labels)
        self.start_transitions = nn.Parameter(torch.zeros(k))
        self.end_transitions = nn.Parameter(torch.zeros(k))
        self.transitions = nn.Parameter(torch.zeros(k, k))
        self.scheme: TagScheme | None = None
        if constraints is not None:
            scheme = tag_scheme(typed_labels(self.labels))
            self.scheme = scheme if constraints == "auto" else constraints
        self.register_buffer("forbidden", self._forbidden(), persistent=False)
        self.register_buffer("carries_no_tag", torch.zeros(vocab_size, dtype=torch.bool))
        self.register_load_state_dict_post_hook(_renew_constraints)

    def _forbidden(self) -> Tensor:
        """`[k + 1, k + 1]`, bool, from the row's label to the column's; the last row is the start, column the end."""
        if self.scheme is None:
            return torch.zeros(len(self.labels) + 1, len(self.labels) + 1, dtype=torch.bool, device="cpu")
        tags = [*(entity_tag(label) or ("S", label) for label in typed_labels(self.labels)), ("O", "")]
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kind for _, kind in tags))}
        letters = torch.tensor([_LETTERS.index(letter) for letter, _ in tags], device="cpu")
        kinds = torch.tensor([numbers[kind] for _, kind in tags], device="cpu")
        # Asked for each pair of letters, with another type and the same one: there may be many labels.
        x, y = (["O", *(f"{letter}-{kind}" for letter in _LETTERS[1:])] for kind in "xy")
        may = [[[may_follow(before, after, self.scheme) for after in x_or_y] for before in x] for x_or_y in (y, x)]
        is_same = (kinds[:, None] == kinds).long()
        return ~torch.tensor(may, device="cpu")[is_same, letters[:, None], letters]

    def init_own_weights(self) -> None:
        """For `_init_weights`: scores of 0, which equal a tagger without a CRF; no vocabulary."""
        for parameter in (self.start_transitions, self.end_transitions, self.transitions):
            init.zeros_(parameter)
        init.zeros_(self.carries_no_tag)
        # Not saved: it follows from the labels.
        init.copy_(self.forbidden, self._forbidden())

    # ------ the chain

    def load_vocabulary(self, vocabulary: Vocabulary) -> None:
        no_tag = vocabulary.special | vocabulary.continues
        self.carries_no_tag.zero_()
        self.carries_no_tag[: len(no_tag)] = no_tag

    def chain(self, real: Tensor, input_ids: Tensor | None, tag_mask: Tensor | None) -> Tensor:
        """
        Which tokens are tagged, one after the other, `[b, n]`: the `real` ones at `tag_mask`, or by the vocabulary and
        `input_ids`, or else all.
        """
        if tag_mask is not None:
            return real & (tag_mask != 0)
        if input_ids is None:
            if not is_traced() and self.has_vocabulary:
                raise ValueError(
                    "inputs_embeds are given to a CRF, which needs to know the tokens with a tag: add tag_mask, 1 at "
                    "the first token of each word and 0 elsewhere."
                )
            return real
        # Padding may hold any number.
        return real & ~self.carries_no_tag[input_ids.masked_fill(~real, 0)]

    def breaks_constraints(self, labels: Tensor, chain: Tensor) -> Tensor:
        """Which rows `[b]` have a label that may not follow the one before it; unknown labels break nothing."""
        tags = _without_gaps(labels, chain)
        before, after = tags[:, :-1], tags[:, 1:]
        known = (before != IGNORE_INDEX) & (after != IGNORE_INDEX)
        return (known & self.forbidden[before.masked_fill(~known, 0), after.masked_fill(~known, 0)]).any(1)

    # ------ the output of a tagger

    def forward(
        self,
        emissions: Tensor,
        labels: Tensor | None,
        attention_mask: Tensor | None,
        input_ids: Tensor | None,
        tag_mask: Tensor | None,
        num_items_in_batch: Tensor | int | None,
        temperature: float = 1.0,
    ) -> dict[str, Tensor | None]:
        """
        The fields of `CrfTokenClassifierOutput`, of emissions `[b, n, k]` and what the tagger's `forward` is given;
        the temperature divides the score of a sequence in `logits` and `messages`.
        """
        real = torch.ones_like(emissions[..., 0]).bool() if attention_mask is None else attention_mask != 0
        chain = self.chain(real, input_ids, tag_mask)
        loss, losses, paths = None, None, None
        if labels is not None:
            # A token with a label is tagged, whatever the vocabulary says.
            labelled = real & (labels != IGNORE_INDEX)
            is_complete = not is_traced() and self._check(labels, labelled, chain, emissions, tag_mask)
            losses = -self.log_likelihood(emissions, labels, chain | labelled, is_complete)
            count = labelled.sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
            loss = losses.sum() / count.to(emissions.device).clamp(min=1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and labels is None):
            logits, messages = self.log_marginals(emissions, chain, temperature)
        if labels is None or not self.training:
            paths = self.best_paths(emissions, chain).masked_fill(~real, IGNORE_INDEX)
        outputs = {"loss": loss, "logits": logits, "paths": paths, "sequence_losses": losses}
        return outputs if labels is not None else {**outputs, "messages": messages}

    def _check(
        self, labels: Tensor, labelled: Tensor, chain: Tensor, emissions: Tensor, tag_mask: Tensor | None
    ) -> bool:
        """
        Raise where a label is none of the model's, and warn of what makes a CRF learn badly. Returns whether every
        token of the chain has a label. All answers are one number: a GPU is waited for once.
        """
        k = len(self.labels)
        wrong = labelled & ((labels < 0) | (labels >= k))
        breaks = self.breaks_constraints(labels.masked_fill(wrong, IGNORE_INDEX), chain | labelled)
        known = self.carries_no_tag.any()
        answers = int((chain <= labelled).all() + 2 * breaks.any() + 4 * wrong.any() + 8 * known)
        if answers & 4:  # to the CRF it would rule out every tag
            raise IndexError(f"A label is {int(labels[wrong][0])}; 0 to {k - 1}, or -100, are allowed.")
        if tag_mask is None and not answers & 8:
            logger.warning_once(
                "The CRF does not know which tokens carry a tag, and runs over special tokens and pieces of words "
                "too, which can hurt quality: call model.set_vocabulary(tokenizer) before training."
            )
        if answers & 2:
            logger.warning_once(
                f"Some labels follow one another as crf_constraints={self.scheme!r} forbids, which costs "
                f"{-FORBIDDEN:.0f} each time: fix the labels, name their scheme, or set crf_constraints=None."
            )
        is_frozen = not any(parameter.requires_grad for parameter in self.parameters())
        if self.training and emissions.requires_grad and is_frozen:
            logger.warning_once(
                "The tagger is trained without its CRF, whose parameters are frozen. With adapters: "
                'LoraConfig(..., modules_to_save=["classifier", "crf"]).'
            )
        return bool(answers & 1)

    # ------ likelihood, marginals, best path

    def log_likelihood(
        self, emissions: Tensor, labels: Tensor, chain: Tensor, is_complete: bool | None = None
    ) -> Tensor:
        """
        Log probability of the labels of each row, `[b]`, the unknown ones (-100) summed over; 0 for a row without
        chain or labels. Emissions are `[b, n, k]`, labels and chain `[b, n]`; `is_complete`: whether all labels of the
        chain are known; `None` to look, for which a GPU is waited for.
        """
        emissions = _widened(emissions)
        start, end, transitions = self._scores(emissions.dtype)
        if self.scheme is not None:
            start = self._unless_cut(start, self.forbidden[-1, :-1], labels, chain)
            end = self._unless_cut(end, self.forbidden[:-1, -1], labels.flip(1), chain.flip(1))
        start, end = (scores.expand(len(chain), -1) for scores in (start, end))
        if is_complete is None:
            is_complete = not is_traced() and bool((chain <= (labels != IGNORE_INDEX)).all())
        if is_complete:
            last = _messages(emissions[None], chain[None], start[None], transitions[None])[-1, 0]
            of_labels = _path_scores(emissions, labels, chain, start, end, transitions)
            return of_labels - (last + end).logsumexp(-1).masked_fill(~chain.any(1), 0)
        tags = torch.arange(emissions.shape[-1], device=emissions.device)
        ruled_out = (labels[..., None] != tags) & (labels[..., None] != IGNORE_INDEX)
        # With all tags, and with the tags that the labels leave.
        last = _messages(
            torch.stack([emissions, emissions.masked_fill(ruled_out, _RULED_OUT)]),
            chain.expand(2, *chain.shape),
            start.expand(2, -1, -1),
            transitions.expand(2, -1, -1),
        )[-1]
        total, of_labels = (last + end).logsumexp(-1).masked_fill(~chain.any(1), 0)
        return of_labels - total

    def log_marginals(self, emissions: Tensor, chain: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """
        Log probability of each tag at each token, `[b, n, k]`, over all paths (forward-backward), outside the chain
        the log-softmax of the emissions; and the messages of `CrfTokenClassifierOutput`, `[b, n, k]`, in float32.
        """
        wide = _widened(emissions) / temperature
        start, end, transitions = self._scores(wide.dtype, temperature)
        # The backward pass is a forward pass over the reversed row.
        forward, backward = _messages(
            torch.stack([wide, wide.flip(1)]),
            torch.stack([chain, chain.flip(1)]),
            torch.stack([start, end])[:, None],
            torch.stack([transitions, transitions.T]),
            scaled=True,
        ).unbind(1)
        messages = backward.flip(0).transpose(0, 1)
        marginals = forward.transpose(0, 1) + messages - wide
        # The sum over the tags is the total of all paths, at each token.
        log_marginals = torch.where(chain[..., None], marginals, wide).log_softmax(-1)
        return log_marginals.to(emissions.dtype), messages

    def transition_scores(self, temperature: float = 1.0) -> Tensor:
        """`[k, k]`, float32, from the row's tag to the column's; forbidden ones have FORBIDDEN."""
        return self._scores(torch.float32, temperature)[2]

    @torch.no_grad()
    def best_paths(self, emissions: Tensor, chain: Tensor) -> Tensor:
        """The most likely path of each row (Viterbi), `[b, n]`; outside the chain the best label of the emissions."""
        emissions = _widened(emissions)
        start, end, transitions = self._scores(emissions.dtype)

        def arrive(
            state: tuple[Tensor, Tensor], column: tuple[Tensor, Tensor]
        ) -> tuple[tuple[Tensor, Tensor], Tensor]:
            (score, begun), (emission, here) = state, column
            arriving, before = (score[..., None] + transitions).max(1)
            arriving = torch.where(begun[:, None], arriving, start) + emission
            return (torch.where(here[:, None], arriving, score), begun | here), before

        def come_from(tag: Tensor, column: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            before, here = column
            return torch.where(here, before.gather(1, tag[:, None])[:, 0], tag), tag

        columns = chain.transpose(0, 1)
        begin = torch.zeros_like(emissions[:, 0]), torch.zeros_like(chain[:, 0])
        (score, _), came_from = _scan(arrive, begin, (emissions.transpose(0, 1), columns))
        _, path = _scan(come_from, (score + end).argmax(-1), (came_from, columns), reverse=True)
        return torch.where(chain, path.transpose(0, 1), emissions.argmax(-1))

    def _scores(self, dtype: torch.dtype, temperature: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of the start `[k]`, of the end `[k]` and of transitions `[k, k]`, with the constraints."""
        parts = (
            (self.start_transitions, self.forbidden[-1, :-1]),
            (self.end_transitions, self.forbidden[:-1, -1]),
            (self.transitions, self.forbidden[:-1, :-1]),
        )
        scores = (_scaled(x.to(dtype)) / temperature for x, _ in parts)
        start, end, transitions = (x.masked_fill(out, FORBIDDEN) for x, (_, out) in zip(scores, parts, strict=True))
        return start, end, transitions

    @staticmethod
    def _unless_cut(scores: Tensor, forbidden: Tensor, labels: Tensor, chain: Tensor) -> Tensor:
        """Scores of the start for each row, `[k]` to `[b, k]`: 0 where the first label of a chain may not be one."""
        first = labels.gather(1, chain.int().argmax(1, keepdim=True))
        known = chain.any(1, keepdim=True) & (first != IGNORE_INDEX)
        return scores.masked_fill(known & forbidden[first.masked_fill(~known, 0)], 0)


def _scaled(parameter: Tensor) -> Tensor:
    # A gradient scaled by CRF_LR_MULTIPLIER too would take up all that gradient clipping allows.
    return parameter + (CRF_LR_MULTIPLIER - 1) * parameter.detach()


def _renew_constraints(crf: LinearChainCrf, _: Any) -> None:
    """After `load_state_dict`: `to_empty` leaves memory of a model from the meta device uninitialised."""
    if not crf.forbidden.is_meta:
        crf.forbidden.copy_(crf._forbidden())


def _widened(emissions: Tensor) -> Tensor:
    return emissions.to(torch.promote_types(emissions.dtype, torch.float32))


def _without_gaps(labels: Tensor, chain: Tensor) -> Tensor:
    """Labels `[b, n]` of the chain, moved to the front, then -100."""
    order = (~chain).int().argsort(dim=1, stable=True)
    return labels.masked_fill(~chain, IGNORE_INDEX).gather(1, order)


def _path_scores(
    emissions: Tensor, labels: Tensor, chain: Tensor, start: Tensor, end: Tensor, transitions: Tensor
) -> Tensor:
    """The score of one path for each row, all of whose labels are known, `[b]`; 0 for a row without chain."""
    of_tokens = emissions.gather(-1, labels.masked_fill(~chain, 0)[..., None])[..., 0].masked_fill(~chain, 0)
    tags, lengths = _without_gaps(labels, chain).clamp(min=0), chain.sum(1, keepdim=True)
    steps = transitions[tags[:, :-1], tags[:, 1:]]
    columns = torch.arange(1, tags.shape[1], device=tags.device)
    ends = start.gather(1, tags[:, :1]) + end.gather(1, tags.gather(1, (lengths - 1).clamp(min=0)))
    return of_tokens.sum(1) + steps.masked_fill(columns >= lengths, 0).sum(1) + ends[:, 0] * (lengths[:, 0] > 0)


def _messages(emissions: Tensor, chain: Tensor, start: Tensor, transitions: Tensor, scaled: bool = False) -> Tensor:
    """
    The forward recursion: for each token and tag the log-sum-exp of the scores of all paths that end there.

    Args:
        emissions, chain: `[g, b, n, k]`, and `[g, b, n]`, bool; columns outside the chain are skipped.
        start, transitions: `[g, b, k]`, or the same for all rows `[g, 1, k]`; and `[g, k, k]`.
        scaled: take the largest of each message off it. Sums over long texts are not exact in float32.

    Returns:
        `[n, g, b, k]`, at a column outside the chain what the chain had before it, zeros where it had nothing.
    """
    g, b = chain.shape[:2]
    start = start.expand(g, b, -1)

    def arrive(state: tuple[Tensor, Tensor], column: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        (message, begun), (emission, here) = state, column
        # Not unsqueezed before: torch's scan gives an axis of 1 outside of it any size.
        arriving = (message[..., None] + transitions.unsqueeze(1)).logsumexp(-2)
        arriving = torch.where(begun[..., None], arriving, start) + emission
        message = torch.where(here[..., None], arriving, message)
        if scaled:
            message = message - message.amax(-1, keepdim=True)
        return (message, begun | here), message

    begin = torch.zeros_like(emissions[:, :, 0]), torch.zeros_like(chain[..., 0])
    return _scan(arrive, begin, (emissions.movedim(2, 0), chain.movedim(2, 0)))[1]


def _scan(step: Callable[[Any, Any], tuple[Any, Tensor]], state: Any, columns: Any, reverse: bool = False) -> Any:
    """
    A recursion over the columns of a batch, tensors `[n, ...]`; one loop of the graph, for every length, where a model
    is exported. `step` makes of the state and what one column has the new state and a tensor that is kept. Returns the
    last state, and what was kept, `[n, ...]`, in the order of the columns.
    """
    if is_traced() and torch.compiler.is_exporting():
        # Outputs must not be parts of the state.
        def cloned(state: Any, column: Any) -> tuple[Any, Tensor]:
            state, output = step(state, column)
            return state, output.clone()

        return _traced_scan()(cloned, state, columns, reverse=reverse)
    kept = []
    pairs = list(zip(*(x.unbind(0) for x in columns), strict=True))
    for column in reversed(pairs) if reverse else pairs:
        state, output = step(state, column)
        kept.append(output)
    return state, torch.stack(kept[::-1] if reverse else kept)


def _traced_scan() -> Callable[..., Any]:
    """
    torch's scan, a prototype without a public name (seen in 2.12 to 2.13): export has no other loop whose number of
    steps depends on the input.
    """
    try:
        from torch._higher_order_ops.scan import scan
    except ImportError as error:
        raise ImportError(
            f"A CRF is exported by a loop that torch {torch.__version__} does not have: export it with torch 2.13, "
            'pip install "torch==2.13.*".'
        ) from error
    return scan
