"""
The attentions of the encoders: in the Star-Transformer a token over its few candidates and the relay over a whole
sequence, in the BiG-Transformer a token over the words that contain it.

Axes: b batch  N flat tokens  m longest sequence  d width  h heads  c width of a head  r candidate roles
      L longest word  w places of the band, 2 * reach + 1  k relays
"""

import functools
import math
import os
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.utils import logging

from .sparse_attention import sequence_scores, sequence_sums
from .token_layout import TokenLayout, is_traced
from .utils import is_plain, readable


logger = logging.get_logger(__name__)

# The furthest place of a band that kernels take. A program holds the weights of a token's roles in registers, and
# these are the words around it: 55 for words of up to ten tokens.
LONGEST_KERNEL_REACH = 9


def use_kernels(tokens: Tensor, layout: TokenLayout, reach: int = 1, relays: int = 1) -> bool:
    """
    Whether Triton kernels compute the attentions (candidate_kernels.py, relay_kernels.py), in place of PyTorch's
    operations: the one place where this is decided.

    The environment variable MODELING_STAR_KERNELS, looked at on every call, says when: "auto", its default, on a CUDA
    GPU where Triton works; "0" never; "1" always, so that it is an error where they cannot run. Not even then do they
    run where a model is compiled or exported, or where attention weights are recorded, which they do not return: there
    the layout is padded. Nor do they for words of more than ten tokens, for a ring of a radius over nine, for several
    relays, and on a CPU for tokens taken in parts.

    Args:
        tokens: anything that lies where the tokens do and has their type.
        layout: where the tokens lie.
        reach: furthest place of the band, or of the ring, that a token attends to.
        relays: how many relays a sequence has.

    Raises:
        ValueError: the variable has another value.
        RuntimeError: it is "1" and they cannot run.
    """
    if is_traced() or not layout.is_packed or reach > LONGEST_KERNEL_REACH or relays > 1:
        return False
    setting = os.environ.get("MODELING_STAR_KERNELS", "auto")
    if setting not in ("auto", "0", "1"):
        raise ValueError(
            f'MODELING_STAR_KERNELS={setting} is set; "auto", "0" (never) and "1" (always) are allowed: '
            "export MODELING_STAR_KERNELS=auto."
        )
    if setting == "0" or (setting == "auto" and (tokens.device.type != "cuda" or tokens.dtype == torch.float64)):
        return False
    failure = _kernel_failure(tokens.device)
    if failure is None:
        return True
    reason = str(failure).rstrip(".")
    if setting == "1":
        raise RuntimeError(
            f"MODELING_STAR_KERNELS=1 is set, and the Triton kernels do not run on {tokens.device}: {reason}. They "
            "need a CUDA GPU, or, for tests, TRITON_INTERPRET=1 set before Python starts. PyTorch's operations run "
            "anywhere: export MODELING_STAR_KERNELS=0."
        ) from failure
    logger.warning_once(
        f"Attention is computed without Triton kernels, which do not run on {tokens.device}: {reason}. To go without "
        "them and not be told: export MODELING_STAR_KERNELS=0."
    )
    return False


@functools.lru_cache
def _kernel_failure(device: torch.device) -> Exception | None:
    """What keeps the Triton kernels from running on a device; `None` where they do."""
    try:
        from .triton_utils import failure_on
    except ImportError as error:
        return error
    return failure_on(device)


def ring_attention(
    query: Tensor,
    keys: list[Tensor],
    values: list[Tensor],
    value_bias: Tensor,
    role_bias: Tensor | None,
    dropout_p: float,
) -> tuple[Tensor, Tensor]:
    """
    Each token attends to one candidate per role (Eqs 1-5 of https://arxiv.org/abs/1902.09113).

    Args:
        query: `[N, h, c]`, not yet scaled.
        keys, values: for each of the r roles, `[N, h, c]` or what broadcasts to it: the candidate that token i has in
            that role, the values without their bias.
        value_bias: `[h, c]`, added once, times the sum of the weights, which is not 1 under dropout.
        role_bias: `[h, r]`, added to the scores; or `None`.
        dropout_p: probability with which a weight is dropped; 0 outside training.

    Returns:
        The context `[N, h, c]` and the weights `[N, h, r]` as they were applied.
    """
    # Before the products, which in float16 would not be numbers where scaled ones are.
    query = query * query.shape[-1] ** -0.5
    # Roles come first: a softmax over a last axis of five takes ten times as long.
    scores = torch.stack([(query * key).sum(-1) for key in keys])
    if role_bias is not None:
        scores = scores + role_bias.T[:, None]
    weights, total = _drop(scores.softmax(0).to(query.dtype), dropout_p, dim=0)
    context = value_bias if total is None else total[..., None] * value_bias
    return add_weighted(context, weights, values), weights.permute(1, 2, 0)


def add_weighted(start: Tensor, weights: Tensor, values: list[Tensor]) -> Tensor:
    """`start` plus, over r, weights `[r, N, h]` times values `[N, h, c]`; `[N, h, c]`."""
    total = torch.addcmul(start, weights[0, ..., None], values[0])
    # In place where nothing looks back: one tensor less to go through memory.
    add = torch.addcmul if total.requires_grad else Tensor.addcmul_
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = add(total, weight[..., None], value)
    return total


def relay_attention(
    query: Tensor,
    relays: Tensor,
    tokens: Tensor,
    layout: TokenLayout,
    key_weight: Tensor,
    value_weight: Tensor,
    value_bias: Tensor,
    dropout_p: float,
) -> tuple[Tensor, Tensor | None]:
    """
    Each relay attends to itself and to every token of its sequence (Eq 7), without projecting the tokens.

    A score is `q . (W_K x) = (W_K^T q) . x`, and a sum of projected values is the projection of the sum, so a token
    costs 2 d h multiply-adds in place of the 2 d^2 of its key and value.

    Args:
        query: `[b, k, h, c]`, not yet scaled.
        relays: `[b, k, d]`, each the first of its own candidates.
        tokens: `[N, d]`, laid out by `layout`.
        key_weight, value_weight: `[h, c, d]`.
        value_bias: `[h, c]`, added once, times the sum of the weights.
        dropout_p: probability with which a weight is dropped; 0 outside training.

    Returns:
        The context `[b, k, h, c]` and the weights `[b, k h, 1 + m]` over the relay and the places of `layout.to_rows`,
        the first relay's heads first; `None` in place of the weights where kernels are used.
    """
    query = _by_head(query / math.sqrt(query.shape[-1]), key_weight)
    weights: Tensor | None = None
    if use_kernels(query, layout, relays=relays.shape[1]):
        from .triton_relay_attention import relay_mix

        mixed, total = relay_mix(query[:, 0], relays[:, 0], tokens, layout, dropout_p)
        mixed, total = mixed[:, None].to(query.dtype), None if total is None else total[:, None].to(query.dtype)
    elif layout.is_ragged:
        # Rows named by number are of one precision. In bfloat16 they would be laid out as `[b, m, d]` instead, beside
        # one long text nearly all of it padding.
        dtype, wide = query.dtype, torch.promote_types(tokens.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            mixed, weights, total = _relay_mix(query.to(wide), relays.to(wide), tokens.to(wide), layout, dropout_p)
        mixed, total = mixed.to(dtype), None if total is None else total.to(dtype)
    else:
        mixed, weights, total = _relay_mix(query, relays, tokens, layout, dropout_p)
    context = _by_head(mixed, value_weight.transpose(1, 2))
    return context + (value_bias if total is None else total[..., None] * value_bias), weights


def _by_head(states: Tensor, weight: Tensor) -> Tensor:
    """A product for each head: states `[b, k, h, x]` times weights `[h, x, y]`, `[b, k, h, y]`."""
    # As torch.einsum computes it, which starts 13 operations for it.
    product = torch.bmm(states.flatten(0, 1).transpose(0, 1), weight)
    return product.transpose(0, 1).unflatten(0, (-1, states.shape[1]))


def _relay_mix(
    query: Tensor, relays: Tensor, tokens: Tensor, layout: TokenLayout, dropout_p: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """
    Relay and tokens of each sequence summed by their weights, `[b, k, h, d]` from queries `[b, k, h, d]`; the weights
    `[b, k h, 1 + m]`, and their sum under dropout `[b, k, h]`.
    """
    heads = query.shape[1:3]
    # One product a relay, as where there is one: with an axis more it would be summed in another order.
    own_score = torch.bmm(query.flatten(0, 1), relays.flatten(0, 1)[..., None]).view(-1, heads[0] * heads[1], 1)
    query = query.flatten(1, 2)
    by_row = layout.is_ragged
    rows = None if by_row else layout.to_rows(tokens)
    if by_row:
        scores = layout.to_rows(sequence_scores(tokens, query, layout)).transpose(1, 2)
    else:
        scores = torch.bmm(query, rows.transpose(1, 2))
    if not layout.is_full:
        scores = scores.masked_fill(~layout.row_mask[:, None], torch.finfo(scores.dtype).min)
    weights = torch.cat([own_score, scores], dim=-1).softmax(-1).to(tokens.dtype)
    weights, total = _drop(weights, dropout_p)
    if by_row:
        mixed = sequence_sums(tokens, layout.from_rows(weights[..., 1:].transpose(1, 2)), layout)
    else:
        mixed = torch.bmm(weights[..., 1:], rows)
    mixed = mixed.unflatten(1, heads) + weights[..., :1].unflatten(1, heads) * relays[:, :, None]
    return mixed, weights, None if total is None else total.unflatten(1, heads)


@dataclass(frozen=True)
class BandCandidates:
    """
    What each token may attend to around it: sums of neighbouring tokens at most `reach` places away.

    Args:
        exists: `[N, r]`, bool: whether a token has the candidate of each role.
        spans: `[w, r]`, bool: which places of the band, from `-reach` to `reach`, a role is the sum of.
        reach: furthest place on either side.
    """

    exists: Tensor
    spans: Tensor
    reach: int

    def __getitem__(self, tokens: slice) -> "BandCandidates":
        """Those of some of the tokens."""
        return BandCandidates(self.exists[tokens], self.spans, self.reach)

    def with_node(self) -> "BandCandidates":
        """As they are, and after the band one place more, which makes one candidate more that every token has."""
        places, roles = self.spans.shape
        spans = self.spans.new_zeros(places + 1, roles + 1)
        spans[:-1, :-1] = self.spans
        spans[-1, -1] = True
        return BandCandidates(nn.functional.pad(self.exists, (0, 1), value=True), spans, self.reach)

    @classmethod
    def words(cls, words: Tensor, layout: TokenLayout, self_word: bool) -> "BandCandidates":
        """
        The words that contain a token: by length, and by the token's place in a word of that length.

        Args:
            words: `[N, L]`, bool: at (i, l - 1) whether a word of l tokens starts at token i. It must end in the
                sequence of i; column 0 is not looked at.
            layout: where the tokens lie.
            self_word: every token is a word by itself too.
        """
        longest = words.shape[1]
        # Row by row, a lower triangle holds the places below each length.
        length, place = torch.tril_indices(longest, longest, device=words.device)
        offset = torch.arange(1 - longest, longest, device=words.device)[:, None]
        spans = (offset >= -place) & (offset <= length - place)
        # The words with each token in that place, `[N, L]`: they end in their sequence, so none comes from another.
        having = [layout.shifted(words, -o) for o in range(longest)]
        roles = [having[o][:, column] for column in range(1, longest) for o in range(column + 1)]
        if self_word:
            return cls(torch.stack([torch.ones_like(roles[0]), *roles], dim=-1), spans, longest - 1)
        return cls(torch.stack(roles, dim=-1), spans[:, 1:], longest - 1)

    @classmethod
    def adjacent(cls, layout: TokenLayout) -> "BandCandidates":
        """The tokens before, at and after each, every one a candidate of its own; the ends have no other side."""
        left, right = layout.has_shifted(-1), layout.has_shifted(1)
        exists = torch.stack([left, torch.ones_like(left), right], dim=-1)
        return cls(exists, torch.eye(3, dtype=torch.bool, device=left.device), reach=1)


def band_attention(
    query: Tensor,
    keys: list[Tensor],
    values: list[Tensor],
    value_bias: Tensor,
    node: tuple[Tensor, Tensor] | None,
    candidates: BandCandidates | None,
    dropout_p: float,
) -> tuple[Tensor, Tensor]:
    """
    Each token attends to sums of the tokens around it and to one node of its sequence (Eqs 5-7 of
    https://openreview.net/forum?id=xulJokm5GeE).

    The sums are never formed. As `q . (k_1 + k_2) = q . k_1 + q . k_2`, scores of candidates are sums of scores on the
    band, and as `a (v_1 + v_2) = a v_1 + a v_2`, each token that a candidate is made of takes the candidate's weight.

    Args:
        query: `[N, h, c]`, not yet scaled.
        keys, values: for each of the w places of the band `[N, h, c]`, the values without their bias.
        value_bias: `[h, c]`, added once for each candidate, however many tokens it is the sum of.
        node: its key and value for each token, `[N, h, c]`; or `None`.
        candidates: what is made of the band; or `None`. One of the two is needed.
        dropout_p: probability with which a weight is dropped; 0 outside training.

    Returns:
        The context `[N, h, c]`, zeros where a token has nothing to attend to, and the weights as they were applied,
        `[N, h, r + 1]`, the node's last, or `[N, h, r]` without a node.
    """
    query = query * query.shape[-1] ** -0.5  # as in `ring_attention`
    scores: list[Tensor] = []
    # Roles come first, as in `ring_attention`.
    if candidates is not None:
        missing = ~candidates.exists.T[..., None]
        spans = candidates.spans.to(query.dtype)
        band = torch.stack([(query * key).sum(-1) for key in keys]).to(query.dtype)
        local = (spans.T @ band.flatten(1)).unflatten(1, band.shape[1:])
        scores.append(local.masked_fill(missing, torch.finfo(local.dtype).min))
    if node is not None:
        scores.append((query * node[0]).sum(-1)[None])
    weights = torch.cat(scores).softmax(0).to(query.dtype)
    if node is None:
        # A softmax over nothing is not nothing.
        weights = weights.masked_fill(missing, 0)
    weights, total = _drop(weights, dropout_p, dim=0)
    if node is None:
        total = weights.sum(0)
    context = value_bias if total is None else total[..., None] * value_bias
    if node is not None:
        context = add_weighted(context, weights[-1:], [node[1]])
    if candidates is not None:
        local = weights[: spans.shape[1]]
        spread = (spans @ local.flatten(1)).unflatten(1, local.shape[1:])
        context = add_weighted(context, spread, values)
    return context, weights.permute(1, 2, 0)


def _drop(weights: Tensor, dropout_p: float, dim: int = -1) -> tuple[Tensor, Tensor | None]:
    """Weights after dropout, and their sum over an axis; `None` without dropout, where it is 1."""
    if dropout_p == 0.0:
        return weights, None
    weights = nn.functional.dropout(weights, dropout_p)
    return weights, weights.sum(dim)


class AttentionProjections(nn.Module):
    """
    W_Q, W_K, W_V and W_O of one multi-head attention (Eqs 2 and 3).

    Keys carry no bias: within one softmax it would add the same to every score and cancel.

    Args:
        hidden_size: d.
        num_heads, head_dim: h and c; h * c may differ from d.
    """

    def __init__(self, hidden_size: int, num_heads: int, head_dim: int):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.query = nn.Linear(hidden_size, num_heads * head_dim)
        self.key = nn.Linear(hidden_size, num_heads * head_dim, bias=False)
        self.value = nn.Linear(hidden_size, num_heads * head_dim)
        self.output = nn.Linear(num_heads * head_dim, hidden_size)

    def split(self, projected: Tensor) -> Tensor:
        """`[..., h * c]` to `[..., h, c]`."""
        return projected.unflatten(-1, (self.num_heads, self.head_dim))

    def project_query(self, states: Tensor) -> Tensor:
        """`[..., d]` to queries `[..., h, c]`."""
        return self.split(self.query(states))

    def project_key_value(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """`[..., d]` to keys and values `[..., h, c]`, the values without their bias."""
        return self.split(self.key(states)), self.split(nn.functional.linear(states, self.weight_of("value")))

    def weight_of(self, name: str) -> Tensor:
        """
        The weight of a projection that is computed without calling it.

        Raises:
            TypeError: an adapter or a quantised layer has taken its place, or a hook changes what it gives.
        """
        return self._readable(name).weight

    def _readable(self, name: str) -> nn.Linear:
        instead = "Adapters may stand at query and output, e.g. LoraConfig(target_modules=['query', 'output'])."
        return readable(getattr(self, name), f"projections.{name}", instead)

    def key_value_weight(self) -> Tensor:
        """W_K above W_V, `[2 h c, d]`: one product is faster than two."""
        return torch.cat([self.weight_of("key"), self.weight_of("value")])

    @property
    def value_bias(self) -> Tensor:
        """`[h, c]`"""
        return self.split(self._readable("value").bias)

    def project_output(self, context: Tensor) -> Tensor:
        """`[..., h, c]` to `[..., d]`."""
        return self.output(context.flatten(-2))

    def project_unbiased(self, context: Tensor, total: Tensor | None) -> Tensor:
        """
        As `project_output`, of a context without the values' bias.

        Args:
            context: `[..., h, c]`.
            total: `[..., h]`, the sum of the weights, by which the bias counts; `None` where it is 1.
        """
        if total is not None:
            return self.project_output(context + total[..., None] * self.value_bias)
        if not is_plain(self.output, nn.Linear):
            return self.project_output(context + self.value_bias)
        # The last bits of torch.addmv depend on where in memory a weight lies, and a loaded one lies elsewhere.
        weight = self.output.weight
        bias = self.output.bias + (weight * self._readable("value").bias).sum(-1)
        return nn.functional.linear(context.flatten(-2), weight, bias)
