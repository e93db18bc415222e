"""
The papers' algorithms as plain loops: one token, one head and one candidate at a time. The package is tested against
these, so they are written from the papers and from the readings that docs/decisions.md gives of them, never from the
package's code, and are slow on purpose.

Axes: n tokens  d width  w embedding width  h heads  c width of a head  r candidates

A vector is a tensor `[d]`, a sequence a list of vectors without padding, and weights come as `Parameters`: the names
and tensors of a model's `named_parameters()`. Nothing is detached, so autograd gives the reference's gradients.
"""

import itertools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


Vector = Tensor
Parameters = dict[str, Tensor]


@dataclass
class Encoded:
    """
    What an encoder makes of one sequence.

    Args:
        tokens: the last states, n of `[d]`.
        pooled: the sequence as one vector `[d]`; `None` where the weights for it do not exist.
        relay: the Star-Transformer's s^T `[d]`.
        hidden_states: the embeddings and the states after each layer, T + 1 of n of `[d]`.
        attentions: for each layer and token its weights, T of n of `[h, r]`; the DiSAN's, averaged over the features
            of each direction, are `[2, n]`.
        relay_attentions: for each update of the relay its weights over itself and the tokens, `[h, 1 + n]`; `[h, n]`
            of a first token that is the BiG-Transformer's global node.
    """

    tokens: list[Vector]
    pooled: Vector | None = None
    relay: Vector | None = None
    hidden_states: list[list[Vector]] = field(default_factory=list)
    attentions: list[list[Tensor]] = field(default_factory=list)
    relay_attentions: list[Tensor] = field(default_factory=list)


# ------ what every algorithm is made of


def under(parameters: Parameters, prefix: str) -> Parameters:
    """The parameters of the module called `prefix`, by their names within it."""
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in parameters.items() if name.startswith(start)}


def linear(parameters: Parameters, name: str, x: Vector) -> Vector:
    """W x + b."""
    return parameters[f"{name}.weight"] @ x + parameters[f"{name}.bias"]


def layer_norm(parameters: Parameters, name: str, x: Vector, eps: float) -> Vector:
    """Layer normalisation (Ba et al. 2016), the variance being that of the d numbers themselves."""
    mean = x.sum() / len(x)
    variance = ((x - mean) ** 2).sum() / len(x)
    return (x - mean) / torch.sqrt(variance + eps) * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]


def softmax(scores: Sequence[Tensor]) -> list[Tensor]:
    """Of numbers, each a tensor without axes."""
    largest = max(float(score.detach()) for score in scores)
    powers = [torch.exp(score - largest) for score in scores]
    total = sum_of(powers)
    return [power / total for power in powers]


def sum_of(vectors: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(vectors[0])
    for vector in vectors:
        total = total + vector
    return total


def mean_of(vectors: Sequence[Vector]) -> Vector:
    return sum_of(vectors) / len(vectors)


def max_of(vectors: Sequence[Vector]) -> Vector:
    """The largest number in each of the d places."""
    return torch.stack(list(vectors)).amax(0)


def activation(name: str) -> Callable[[Vector], Vector]:
    """The function that `hidden_act` names."""
    return {
        "relu": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
        "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
        "silu": lambda x: x / (1 + torch.exp(-x)),
        "tanh": torch.tanh,
    }[name]


def multi_att(
    parameters: Parameters,
    query: Vector,
    candidates: Sequence[Vector],
    heads: int,
    width: int,
    score_bias: Tensor | None = None,
) -> tuple[Vector, Tensor]:
    """
    MultiAtt(q, H) (Guo et al., Eqs 1 to 3): every candidate has a key and a value of its own, in every head.

    Args:
        parameters: `query`, `value` and `output` with biases, `key` without: it would cancel in the softmax.
        query: `[d]`.
        candidates: the rows of H, r of `[d]`.
        heads, width: h and c.
        score_bias: `[h, r]`, added to the scores.

    Returns:
        `[d]` and the weights `[h, r]`.
    """
    q = linear(parameters, "query", query)
    keys = [parameters["key.weight"] @ candidate for candidate in candidates]
    values = [linear(parameters, "value", candidate) for candidate in candidates]
    outputs, weights = [], []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = [torch.dot(q[part], key[part]) / math.sqrt(width) for key in keys]
        if score_bias is not None:
            scores = [score + score_bias[head, r] for r, score in enumerate(scores)]
        weights_of_head = softmax(scores)
        outputs.append(sum_of([a * value[part] for a, value in zip(weights_of_head, values, strict=True)]))
        weights.append(torch.stack(weights_of_head))
    return linear(parameters, "output", torch.cat(outputs)), torch.stack(weights)


# ------ embeddings


def window_attention(
    query: Tensor, key: Tensor, value: Tensor, left: int, right: int, real: Sequence[bool], seen: Container[int]
) -> Tensor:
    """
    Each token of one text over the real tokens near it and those that everybody sees, `[h, n, c]`; a token that
    everybody sees over all. Zeros at padding.
    """
    heads, count, width = query.shape
    context = torch.zeros_like(query)
    for head, i in itertools.product(range(heads), (i for i in range(count) if real[i])):
        near = [j for j in range(count) if real[j] and (-left <= j - i <= right or i in seen or j in seen)]
        weights = softmax([query[head, i] @ key[head, j] / math.sqrt(width) for j in near])
        attended = sum_of([weight * value[head, j] for weight, j in zip(weights, near, strict=True)])
        context = context.index_put((torch.tensor(head), torch.tensor(i)), attended)
    return context


def sinusoid(position: int, width: int, base: float, like: Tensor) -> Vector:
    """PE(pos, 2k) = sin(pos / base^(2k / d)) and PE(pos, 2k + 1) = cos of the same (Vaswani et al. 2017)."""
    numbers = []
    for column in range(width):
        angle = position / base ** (2 * (column // 2) / width)
        numbers.append(math.sin(angle) if column % 2 == 0 else math.cos(angle))
    return torch.tensor(numbers, dtype=like.dtype)


def embed(
    parameters: Parameters, config: Any, tokens: Sequence[int] | Sequence[Vector], types: Sequence[int] | None = None
) -> list[Vector]:
    """
    E: the token embedding, times the square root of its width w where the configuration says so and projected where
    w is not d, plus that of its position and of its type.

    Args:
        parameters: those of the embeddings.
        tokens: ids, or vectors `[w]` in place of the table's rows.
        types: token types; all 0 when left out.
    """
    embedded = []
    for position, token in enumerate(tokens):
        x = token if isinstance(token, Tensor) else parameters["word_embeddings.weight"][token]
        if config.scale_embedding:
            x = x * math.sqrt(config.embedding_size)
        if config.embedding_size != config.hidden_size:
            x = linear(parameters, "projection", x)
        if config.position_embedding_type == "learned":
            x = x + parameters["position_embeddings.weight"][position]
        if config.position_embedding_type == "sinusoidal":
            x = x + sinusoid(position, config.hidden_size, config.sinusoidal_base, like=x)
        if config.type_vocab_size > 0:
            x = x + parameters["token_type_embeddings.weight"][0 if types is None else types[position]]
        if config.embedding_norm:
            x = layer_norm(parameters, "norm", x, config.layer_norm_eps)
        embedded.append(x)
    return embedded


# ------ encoders: parameters, config and embeddings to Encoded


def star_transformer(parameters: Parameters, config: Any, e: list[Vector], with_pooler: bool = True) -> Encoded:
    """
    Algorithm 1 of Guo et al. 2019 (https://arxiv.org/abs/1902.09113), its variants (a) and (b), and our options.

    Args:
        e: the embeddings e_1 .. e_n, n >= 1.
        with_pooler: whether the last update of the relay and the pooled vector exist.
    """
    n, steps = len(e), config.num_hidden_layers
    act = activation(config.hidden_act)

    def norm(parameters: Parameters, name: str, x: Vector) -> Vector:
        return layer_norm(parameters, name, x, config.layer_norm_eps)

    def update(parameters: Parameters, name: str, state: Vector, attended: Vector) -> Vector:
        """Eqs 6 and 8, with the option of a residual."""
        new = act(attended)
        if config.residual:
            new = state + new
        return norm(parameters, name, new)

    h: list[Vector] = list(e)
    relay = mean_of(e) if config.use_radial else None
    if config.use_radial and config.relay_start_norm:
        relay = norm(parameters, "relay_start_norm", relay)
    encoded = Encoded(h, hidden_states=[h])
    for t in range(1, steps + 1):
        layer = under(parameters, f"layers.{t - 1}")
        # update the satellite nodes
        new_h, weights = [], []
        for i in range(n):
            reach = config.ring_radius if config.use_ring else 0
            context = [h[(i + place) % n] for place in range(-reach, reach + 1)]
            context.append(e[i])
            if config.use_radial:
                context.append(relay)
            attended, weights_of_token = multi_att(
                under(layer, "ring_attention.projections"),
                h[i],
                context,
                config.num_attention_heads,
                config.head_dim,
                layer["ring_attention.role_bias"] if config.role_bias else None,
            )
            new_h.append(update(layer, "ring_norm", h[i], attended))
            weights.append(weights_of_token)
        h = new_h
        encoded.attentions.append(weights)
        # update the relay node
        if config.use_radial and (with_pooler or t < steps):
            attended, relay_weights = multi_att(
                under(layer, "relay_attention.projections"),
                relay,
                [relay, *h],
                config.num_attention_heads,
                config.head_dim,
            )
            relay = update(layer, "relay_norm", relay, attended)
            encoded.relay_attentions.append(relay_weights)
        encoded.hidden_states.append(h)
    encoded.tokens = h
    if with_pooler:
        pooled = mean_of(h) if config.pooling == "mean" else max_of(h)
        encoded.relay = relay
        encoded.pooled = pooled if encoded.relay is None else encoded.relay + pooled
    return encoded


def vanilla_transformer(parameters: Parameters, config: Any, e: list[Vector], with_pooler: bool = True) -> Encoded:
    """
    The standard Transformer's encoder (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762), post-norm; the pooled
    vector is the mean plus the maximum of the last states.
    """
    width = config.hidden_size // config.num_attention_heads
    act = activation(config.hidden_act)
    x = list(e)
    encoded = Encoded(x, hidden_states=[x])
    for layer_index in range(config.num_hidden_layers):
        layer = under(parameters, f"layers.{layer_index}.layer")
        # torch keeps W_Q, W_K and W_V, and their biases, on top of one another.
        w_q, w_k, w_v = layer["self_attn.in_proj_weight"].chunk(3)
        b_q, b_k, b_v = layer["self_attn.in_proj_bias"].chunk(3)
        queries, keys, values = ([w @ y + b for y in x] for w, b in ((w_q, b_q), (w_k, b_k), (w_v, b_v)))
        states, weights = [], []
        for state, query in zip(x, queries, strict=True):
            outputs, weights_of_token = [], []
            for head in range(config.num_attention_heads):
                part = slice(head * width, (head + 1) * width)
                scores = softmax([torch.dot(query[part], key[part]) / math.sqrt(width) for key in keys])
                outputs.append(sum_of([a * value[part] for a, value in zip(scores, values, strict=True)]))
                weights_of_token.append(torch.stack(scores))
            attended = linear(layer, "self_attn.out_proj", torch.cat(outputs))
            state = layer_norm(layer, "norm1", state + attended, config.layer_norm_eps)
            fed_forward = linear(layer, "linear2", act(linear(layer, "linear1", state)))
            states.append(layer_norm(layer, "norm2", state + fed_forward, config.layer_norm_eps))
            weights.append(torch.stack(weights_of_token))
        x = states
        encoded.hidden_states.append(x)
        encoded.attentions.append(weights)
    encoded.tokens = x
    encoded.pooled = mean_of(x) + max_of(x) if with_pooler else None
    return encoded


def find_words(ids: Sequence[int], lexicon: Iterable[Sequence[int]], longest: int) -> set[tuple[int, int]]:
    """Start and length of every stretch of 2 to `longest` ids that is a word of the lexicon, nested ones too."""
    words = {tuple(word) for word in lexicon}
    n = len(ids)
    return {
        (start, length)
        for start in range(n)
        for length in range(2, longest + 1)
        if start + length <= n and tuple(ids[start : start + length]) in words
    }


def word_features(
    ids: Sequence[int], vectors: Mapping[tuple[int, ...], torch.Tensor], longest: int, width: int
) -> torch.Tensor:
    """For each id the mean vectors of the words that begin at it, that it is inside of, that end at it, `[n, 3 w]`."""
    rows = []
    for token in range(len(ids)):
        found: list[list[torch.Tensor]] = [[], [], []]
        for start, length in sorted(find_words(ids, vectors, longest)):
            if start <= token < start + length:
                place = 0 if token == start else 2 if token == start + length - 1 else 1
                found[place].append(vectors[tuple(ids[start : start + length])])
        means = [torch.stack(of).mean(0) if of else torch.zeros(width, dtype=torch.float64) for of in found]
        rows.append(torch.cat(means))
    return torch.stack(rows)


def find_whole_words(
    ids: Sequence[int], continues: Container[int], alone: Container[int], longest: int
) -> set[tuple[int, int]]:
    """Start and length of every token with all that continue its word, where these are 2 to `longest` together."""

    def goes_on(i: int) -> bool:
        return 0 < i < len(ids) and ids[i] in continues and ids[i - 1] not in alone

    words = set()
    for start in range(len(ids)):
        end = start + 1
        while goes_on(end):
            end += 1
        if not goes_on(start) and 2 <= end - start <= longest:
            words.add((start, end - start))
    return words


def big_transformer(
    parameters: Parameters,
    config: Any,
    e: list[Vector],
    with_pooler: bool = True,
    words: Container[tuple[int, int]] = (),
) -> Encoded:
    """
    Algorithm 1 of Shu et al. 2020 (https://openreview.net/forum?id=xulJokm5GeE) in the block of the standard
    Transformer, its ablations (section IV-G), and our options.

    Args:
        e: the embeddings e_1 .. e_n, n >= 1.
        words: start and length of each lexicon word, of two tokens or more.
    """
    n = len(e)
    width = config.hidden_size // config.num_attention_heads
    act = activation(config.hidden_act)
    first_is_global = config.global_node == "first"
    neighbours = range(int(first_is_global), n)

    def vector_of(h: list[Vector], start: int, length: int) -> Vector:
        """Eq 3."""
        return (mean_of if config.word_vector == "mean" else sum_of)(h[start : start + length])

    def around(h: list[Vector], i: int) -> list[Vector | None]:
        """U_i: the vectors that token i may attend to, each in the column of its role; `None` where there is none."""
        if config.local_connection == "none":
            return []
        if config.local_connection == "adjacent":
            return [h[j] if 0 <= j < n else None for j in (i - 1, i, i + 1)]
        columns: list[Vector | None] = [h[i]] if config.include_self else []
        if config.local_connection == "window":
            reach = range(i - config.window_radius, i + config.window_radius + 1)
            columns = [h[j] if j in neighbours else None for j in reach]
            if config.lexicon_kind is None:
                return columns
        for length in range(2, config.max_word_length + 1):
            for place in range(length):
                start = i - place
                columns.append(vector_of(h, start, length) if (start, length) in words else None)
        return columns

    h = list(e)
    encoded = Encoded(h, hidden_states=[h])
    for step in range(1, config.num_hidden_layers + 1):
        layer = under(parameters, f"layers.{step - 1}")
        # Eq 4: s^(l-1) with its W_s
        s = None
        if first_is_global:
            s = h[0]
        elif config.global_connection:
            s = layer["attention.global_node.weight"] @ mean_of(h)
        new_h, weights = [], []
        for i in range(n):
            columns = around(h, i)
            if s is not None:
                columns.append(s)
            if first_is_global and i == 0:
                columns = list(h)
            present = [column for column, x in enumerate(columns) if x is not None]
            state = h[i]
            weights_of_token = torch.zeros(config.num_attention_heads, len(columns), dtype=state.dtype)
            if present:
                attended, found = multi_att(
                    under(layer, "attention.projections"),
                    h[i],
                    [x for x in columns if x is not None],
                    config.num_attention_heads,
                    width,
                )
                state = state + attended
                weights_of_token = weights_of_token.index_copy(1, torch.tensor(present), found)
            state = layer_norm(layer, "attention_norm", state, config.layer_norm_eps)
            fed_forward = linear(layer, "output", act(linear(layer, "intermediate", state)))
            new_h.append(layer_norm(layer, "output_norm", state + fed_forward, config.layer_norm_eps))
            weights.append(weights_of_token)
        h = new_h
        encoded.hidden_states.append(h)
        if first_is_global:
            encoded.relay_attentions.append(weights[0])
            weights[0] = weights[0].new_zeros(len(weights[0]), len(config.candidate_roles))
        encoded.attentions.append(weights)
    encoded.tokens = h
    if with_pooler:
        encoded.pooled = max_of(h) if config.pooling == "max" else mean_of(h)
        if config.pooling == "global" and first_is_global:
            encoded.pooled = h[0]
        elif config.pooling == "global":
            encoded.pooled = parameters["global_pooling.weight"] @ encoded.pooled
    return encoded


def disan(parameters: Parameters, config: Any, e: list[Vector], with_pooler: bool = True) -> Encoded:
    """
    The Directional Self-Attention Network (Shen et al. 2018, https://arxiv.org/abs/1709.04696), sections 3 and 4, a
    direction as wide as half the state, without the bias of source2token's scores.

    Args:
        e: the embeddings e_1 .. e_n, n >= 1.
        with_pooler: whether the pooled vector exists.
    """
    n, features, c = len(e), config.hidden_size // 2, 5

    def elu(x: Vector) -> Vector:
        return torch.where(x > 0, x, torch.exp(x) - 1)

    def token2token(parameters: Parameters, h: list[Vector], i: int, others: list[int]) -> tuple[Vector, Tensor]:
        """s_i from h_j for the j in `others`, one feature at a time, and the weights of all n, averaged."""
        scores = [
            c * torch.tanh((linear(parameters, "query", h[i]) + parameters["key.weight"] @ h[j]) / c) for j in others
        ]
        mean_weights = torch.zeros(n, dtype=h[i].dtype)
        attended = []
        for feature in range(features):
            weights = softmax([score[feature] for score in scores]) if others else []
            terms = [weight * h[j][feature] for weight, j in zip(weights, others, strict=True)]
            attended.append(sum_of(terms) if terms else torch.zeros((), dtype=h[i].dtype))
            for weight, j in zip(weights, others, strict=True):
                mean_weights = mean_weights.index_add(0, torch.tensor([j]), weight[None] / features)
        return torch.stack(attended), mean_weights

    def direction(parameters: Parameters, x: list[Vector], backwards: bool) -> tuple[list[Vector], list[Tensor]]:
        """u_1 .. u_n of one DiSA block."""
        h = [elu(linear(parameters, "dense", state)) for state in x]
        outputs, weights = [], []
        for i in range(n):
            s, weights_of_token = token2token(parameters, h, i, [*range(i + 1, n)] if backwards else [*range(i)])
            gate = parameters["gate_context.weight"] @ s + linear(parameters, "gate_state", h[i])
            f = 1 / (1 + torch.exp(-gate))
            outputs.append(f * h[i] + (1 - f) * s)
            weights.append(weights_of_token)
        return outputs, weights

    u = list(e)
    encoded = Encoded(u, hidden_states=[u])
    for step in range(config.num_hidden_layers):
        layer = under(parameters, f"layers.{step}")
        forwards, forward_weights = direction(under(layer, "forwards"), u, backwards=False)
        backwards, backward_weights = direction(under(layer, "backwards"), u, backwards=True)
        u = [torch.cat(both) for both in zip(forwards, backwards, strict=True)]
        encoded.hidden_states.append(u)
        encoded.attentions.append([torch.stack(both) for both in zip(forward_weights, backward_weights, strict=True)])
    encoded.tokens = u
    if with_pooler:
        pooler = under(parameters, "pooler")
        scores = [pooler["score.weight"] @ elu(linear(pooler, "dense", state)) for state in u]
        weights_of_feature = [softmax([score[k] for score in scores]) for k in range(config.hidden_size)]
        encoded.pooled = torch.stack(
            [
                sum_of([w * state[k] for w, state in zip(weights, u, strict=True)])
                for k, weights in enumerate(weights_of_feature)
            ]
        )
    return encoded


def lstm(parameters: Parameters, x: Sequence[Vector], ending: str) -> list[Vector]:
    """
    The states of a long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000)
    that reads x_1 .. x_n, from states of 0.

    Args:
        ending: of the parameters' names; torch keeps the input, forget, cell and output gates on top of one another.
    """
    w_x, w_h = parameters[f"weight_ih_{ending}"], parameters[f"weight_hh_{ending}"]
    bias = parameters[f"bias_ih_{ending}"] + parameters[f"bias_hh_{ending}"]
    h = cell = torch.zeros(w_h.shape[1], dtype=w_h.dtype)
    states = []
    for vector in x:
        i, f, g, o = (w_x @ vector + w_h @ h + bias).chunk(4)
        cell = cell / (1 + torch.exp(-f)) + torch.tanh(g) / (1 + torch.exp(-i))
        h = torch.tanh(cell) / (1 + torch.exp(-o))
        states.append(h)
    return states


def bilstm(parameters: Parameters, config: Any, e: list[Vector], with_pooler: bool = True) -> Encoded:
    """
    A bidirectional LSTM: each layer reads the states of the one below from either end, or, in one direction, from the
    first; the pooled vector is the maximum or the mean of the last states.
    """
    x = list(e)
    encoded = Encoded(x, hidden_states=[x])
    for step in range(config.num_hidden_layers):
        layer = under(parameters, f"layers.{step}.lstm")
        directions = [lstm(layer, x, "l0")]
        if config.bidirectional:
            directions.append(lstm(layer, x[::-1], "l0_reverse")[::-1])
        x = [torch.cat(states) for states in zip(*directions, strict=True)]
        encoded.hidden_states.append(x)
    encoded.tokens = x
    if with_pooler:
        encoded.pooled = mean_of(x) if config.pooling == "mean" else max_of(x)
    return encoded


ENCODERS: dict[str, Callable[..., Encoded]] = {
    "star_transformer": star_transformer,
    "vanilla_transformer": vanilla_transformer,
    "big_transformer": big_transformer,
    "disan": disan,
    "bilstm": bilstm,
}


# ------ heads


def pair_features(first: Vector, second: Vector) -> Vector:
    """concat(r1, r2, |r1 - r2|, r1 - r2) (Guo et al. 2019, section 5.3)."""
    return torch.cat([first, second, torch.abs(first - second), first - second])


def classify(parameters: Parameters, config: Any, features: Vector) -> Vector:
    """Logits of a text or a pair: a multi-layer perceptron on its vector."""
    hidden = activation(config.head_act or config.hidden_act)(linear(parameters, "classifier.dense", features))
    return linear(parameters, "classifier.out_proj", hidden)


def ngram_logits(weight: Tensor, ids: Sequence[int], longest: int) -> Vector:
    """
    Logits that are linear in the n-grams of a text (https://arxiv.org/abs/1606.07792, the wide part): the weights of
    each, found by its hash (https://arxiv.org/abs/0902.2206), over the square root of the number of tokens.
    """
    logits = torch.zeros(weight.shape[1], dtype=weight.dtype)
    for length in range(1, longest + 1):
        for start in range(len(ids) - length + 1):
            first, second = 1, 2
            for token in ids[start : start + length]:
                low, high = token % 46_337, token // 46_337
                first = (first * 41_959 + low + high * 10_946) % 46_337
                second = (second * 18_693 + low + high * 6_765) % 46_337
            key = first * 28_411 % 46_337 % 4096 * 4096 + second * 17_389 % 46_337 % 4096
            logits = logits + weight[key % len(weight)]
    return 10 * logits / max(len(ids), 1) ** 0.5


def tfidf_logits(
    terms: Mapping[tuple[int, ...], tuple[float, Vector]], bias: Vector, ids: Sequence[int], longest: int
) -> Vector:
    """
    Logits of a linear model over the TF-IDF of a text: the idf and the weights of each term, a run of tokens.
    """
    runs = [tuple(ids[k : k + length]) for length in range(1, longest + 1) for k in range(len(ids) - length + 1)]
    values = {run: (1 + math.log(runs.count(run))) * terms[run][0] for run in set(runs) & set(terms)}
    norm = math.sqrt(sum(value**2 for value in values.values())) or 1.0
    return bias + sum((value / norm * terms[run][1] for run, value in values.items()), torch.zeros_like(bias))


def tag(parameters: Parameters, config: Any, token: Vector) -> Vector:
    """Logits of a token's label."""
    return linear(parameters, "classifier", token)


def crf_paths(
    emissions: Sequence[Vector], start: Vector, end: Vector, transitions: Tensor
) -> dict[tuple[int, ...], Tensor]:
    """
    The score of every sequence of labels (Lafferty et al. 2001): what its labels score at their tokens, from one to
    the next, at the start and at the end.

    Args:
        emissions: for each token of the chain the scores of the k labels `[k]`.
        start, end: `[k]`.
        transitions: `[k, k]`, from the row's label to the column's.
    """
    paths = {}
    for path in itertools.product(range(len(start)), repeat=len(emissions)):
        score = torch.zeros((), dtype=start.dtype)
        if path:
            score = start[path[0]] + end[path[-1]]
        for emission, label in zip(emissions, path, strict=True):
            score = score + emission[label]
        for before, label in itertools.pairwise(path):
            score = score + transitions[before, label]
        paths[path] = score
    return paths


def spelling(parameters: Parameters, symbols: Sequence[int], kernel: int) -> Vector:
    """
    A convolution over the characters of one entry and its maximum (Ma and Hovy 2016, section 2.1), `[f]`.

    Args:
        parameters: `embeddings.weight` and `convolution.weight`, `convolution.bias`.
        symbols: rows of the embeddings, with those before and after the characters.
        kernel: characters that are seen at once.
    """
    vectors = [parameters["embeddings.weight"][symbol] for symbol in symbols]
    nothing = torch.zeros_like(vectors[0])
    weight, bias = parameters["convolution.weight"].unflatten(1, (-1, kernel)), parameters["convolution.bias"]
    outputs = []
    for middle in range(len(vectors)):
        output = bias
        for place in range(kernel):
            at = middle + place - kernel // 2
            output = output + weight[:, :, place] @ (vectors[at] if 0 <= at < len(vectors) else nothing)
        outputs.append(output)
    return max_of(outputs)


def span(parameters: Parameters, config: Any, token: Vector) -> Vector:
    """Scores of a token as the start and as the end of the answer, `[2]`."""
    return linear(parameters, "qa_outputs", token)


def masked_lm(parameters: Parameters, config: Any, token: Vector) -> Vector:
    """Logits of the token here: a transform to width w, then the embedding table as the output."""
    hidden = activation(config.head_act or config.hidden_act)(linear(parameters, "lm_head.dense", token))
    hidden = layer_norm(parameters, "lm_head.layer_norm", hidden, config.layer_norm_eps)
    table = parameters["model.embeddings.word_embeddings.weight"]
    return table @ hidden + parameters["lm_head.decoder.bias"]
