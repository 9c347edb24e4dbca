"""Every family of language models in one file of NumPy, an essay to be read from top to bottom.

A language model gives each possible next token a probability, p(x_t | x_1 ... x_{t-1}). The product of these is the
probability of a text: the chain rule of probability. Each section begins with the problem that the one before it
leaves. All models have the same five methods, which are those of chainrule. With the same counts or weights they
compute the same numbers as chainrule, only slower (tests/examples/test_tiny.py). docs/essay.md has their results.

    python examples/tiny.py                       every family, on Tiny Shakespeare, about a minute each
    python examples/tiny.py FILE lstm gru         two of them, on a text of yours

Letters at the end of a name are axes: B rows of a batch, T time, S time in a source, V vocabulary, D features.
"""

import argparse
import json
import lzma
import math
import re
import time
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np

PAD, UNK, BOS, EOS = -1, 0, 1, 2  # padding, which is no token; <unk>; <s>; and </s>, which is the end of a line


# 1. TOKENS. A model reads numbers, so a text becomes a sequence of ids. Characters are the simplest tokens: they
# are few and can write every text, but texts are long. Words make texts short, but nobody knows them all. Byte-pair
# encoding (BPE) lies between the two. It begins with characters and, again and again, makes the most frequent pair
# of neighbours one new token; here never across the start of a word or the end of a line.
class Tokenizer:  # characters, and the pairs of ids that are merged, in the order in which they were learned
    def __init__(self, characters, merges=()):
        self.characters, self.merges = characters, [tuple(pair) for pair in merges]
        self.tokens = ["<unk>", "", "\n", *characters]
        for left, right in self.merges:
            self.tokens.append(self.tokens[left] + self.tokens[right])

    def encode(self, text):
        number = {"\n": EOS} | {character: i for i, character in enumerate(self.characters, start=3)}
        ids = np.array([number.get(character, UNK) for character in text], dtype=np.int64)
        for new, pair in enumerate(self.merges, start=3 + len(self.characters)):
            ids = merge(ids, *pair, new)
        return ids

    def decode(self, ids):
        return "".join(self.tokens[i] for i in ids)


def learn_tokens(text, merges=0):  # the characters of a text, the most frequent first, and so many merges
    tokenizer = Tokenizer("".join(c for c, _ in Counter(text).most_common() if c != "\n"))
    ids = tokenizer.encode(text)
    for new in range(len(tokenizer.tokens), len(tokenizer.tokens) + merges):
        counts = np.bincount(ids[:-1] * new + ids[1:], minlength=new * new).reshape(new, new)
        counts[: EOS + 1] = 0
        counts[:, [token in ("<unk>", "", "\n") or token[0] == " " for token in tokenizer.tokens]] = 0
        pair = divmod(int(counts.argmax()), new)
        if counts[pair] < 2:
            break
        ids, tokenizer = merge(ids, *pair, new), Tokenizer(tokenizer.characters, [*tokenizer.merges, pair])
    return tokenizer


def merge(ids, left, right, new):  # of three equal ids in a row, the first two are a pair
    here = np.flatnonzero((ids[:-1] == left) & (ids[1:] == right))
    run = np.maximum.accumulate(np.where(np.diff(here, prepend=-2) > 1, here, 0))  # where adjoining places begin
    here, ids = here[(here - run) % 2 == 0], ids.copy()
    ids[here] = new
    return np.delete(ids, here + 1)


def pad(rows):
    longest = max(map(len, rows))
    return np.array([[*row, *[PAD] * (longest - len(row))] for row in rows])


# 2. THE CONTRACT. Models differ in what they remember of a text and how they predict from it. The code that uses a
# model need not know: five methods are enough. They give the state after nothing (`start`) and after more tokens
# (`extend`), ln p of every next token (`next_log_probs`) and of given tokens (`score`), and a copy on disk
# (`save`). Logarithms are added, because a product of a few hundred probabilities underflows to 0.
class State:  # ln p of every next token, and what else a model remembers: arrays with a row for each text
    def __init__(self, *arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays[0])

    def select(self, rows):
        return State(*(array[rows] for array in self.arrays))

    def join(self, other):
        return State(*map(np.concatenate, zip(self.arrays, other.arrays, strict=True)))


class LanguageModel:  # a family says what it remembers at first (`begin`) and predicts after each token (`predict`)
    def __init__(self, tokenizer, **settings):
        self.tokenizer, self.settings, self.V = tokenizer, settings, len(tokenizer.tokens)
        self.first = EOS  # a text begins as if after a line

    def start(self, batch_size):
        memory = self.begin(batch_size)
        nothing = State(np.zeros((len(memory[0]), self.V)), *memory)
        return self.extend(nothing, np.full((len(nothing), 1), self.first))

    def extend(self, state, ids_BT):
        return self.read(state, ids_BT)[1]

    def next_log_probs(self, state):
        return state.arrays[0]

    def score(self, ids_BT, state=None):
        return self.read(self.start(len(ids_BT)) if state is None else state, ids_BT)[0]

    def save(self, path):
        about = [type(self).__name__, self.tokenizer.characters, self.tokenizer.merges, self.settings]
        arrays = {name: getattr(x, "value", x) for name, x in self.weights.items()}
        np.savez(path, about=json.dumps(about), **arrays)

    def read(self, state, ids_BT):
        """Return ln p of each token, 0 for padding, and the state after each row's last token."""
        ids_BT = np.asarray(ids_BT)
        if ids_BT.shape[:-1] != (len(state),) or ((ids_BT < PAD) | (ids_BT >= self.V)).any():
            raise ValueError(f"ids should be [{len(state)}, T], each from 0 to {self.V - 1} or {PAD} as padding")
        if not ids_BT.size:
            return np.zeros(ids_BT.shape), state
        is_token_BT, known_BT = ids_BT != PAD, np.maximum(ids_BT, 0)
        z_BTV, memory = self.predict(known_BT, is_token_BT.sum(axis=1), *state.arrays[1:])
        after_BTV = log_softmax(np.where(np.arange(self.V) == BOS, -np.inf, z_BTV))  # <s> is never predicted
        every_BTV = np.concatenate([state.arrays[0][:, None].astype(after_BTV.dtype), after_BTV], axis=1)
        scores_BT = np.take_along_axis(every_BTV[:, :-1], known_BT[..., None], axis=2)[..., 0]
        last_BV = every_BTV[np.arange(len(ids_BT)), is_token_BT.sum(axis=1)]
        return np.where(is_token_BT, scores_BT, 0), State(last_BV, *memory)


def load(path):
    with np.load(path) as file:
        family, characters, merges, settings = json.loads(str(file["about"]))
        model = globals()[family](Tokenizer(characters, merges), **settings)
        model.fill(file)
    return model


# 3. COUNTING. There are too many texts to count how often each occurred. An n-gram model looks at the last N-1
# tokens only, the context h, and counts what followed: c(h w) / c(h). Most of what can follow was never seen, and a
# single zero makes a whole text impossible. Add-k adds k to every count, as if all tokens were alike. Kneser-Ney
# takes a discount D from each count and gives what it took to the shorter context h', h without its first token.
# There a token counts once for each different token before it: "Francisco" is frequent, but follows one word.
class Ngram(LanguageModel):  # interpolated Kneser-Ney; add-k if there is a k
    def __init__(self, tokenizer, order=5, k=None):
        super().__init__(tokenizer, order=order, k=k)
        self.N, self.k, self.first = order, k, BOS

    def fill(self, weights):  # count the n-grams of texts, each of which begins with <s>
        self.weights, self.after, self.D = {"ids": weights["ids"]}, {}, []
        shifted = [self.weights["ids"][n:].tolist() for n in range(self.N)]
        c = [Counter(x for x in zip(*shifted[: n + 1], strict=False) if BOS not in x[1:]) for n in range(self.N)]
        del c[0][BOS,]
        for n in range(self.N - 1 if self.k is None else 0):  # n-grams that begin with <s> have nothing before them
            c[n] = Counter(x[1:] for x in c[n + 1]) | Counter({x: c[n][x] for x in c[n] if x[0] == BOS})
        for level in c:
            n1, n2 = (sum(count == r for count in level.values()) for r in (1, 2))
            self.D.append(n1 / (n1 + 2 * n2) if n1 and n2 else 0.75)
            for (*h, w), count in level.items():
                self.after.setdefault(tuple(h), []).append((w, count))
        self.p = lru_cache(1 << 15)(self.kneser_ney if self.k is None else self.add_k)

    def add_k(self, h):
        # p(w | h) = (c(h w) + k) / (c(h) + k V)
        p = np.where(np.arange(self.V) == BOS, 0.0, self.k)
        for w, count in self.after.get(h, ()):
            p[w] += count
        return p / p.sum()

    def kneser_ney(self, h):
        # p(w | h) = (c(h w) - D) / c(h) + γ(h) p(w | h'), where γ(h) is all that was taken; uniform below h = ()
        lower = self.p(h[1:]) if h else np.where(np.arange(self.V) == BOS, 0, 1 / (self.V - 1))
        if h not in self.after:
            return lower
        (w, c), D = np.array(self.after[h]).T, self.D[len(h)]
        p = D * len(c) / c.sum() * lower
        p[w] += (c - D) / c.sum()
        return p

    def begin(self, batch_size):
        return (np.full((batch_size, self.N - 1), PAD),)

    def predict(self, ids_BT, lengths_B, last_BN):
        every = np.concatenate([last_BN, ids_BT], axis=1)
        h_BTN = [[row[t + 1 : t + self.N] for t in range(ids_BT.shape[1])] for row in every.tolist()]
        p_BTV = np.array([[self.p(tuple(i for i in h if i != PAD)) for h in row] for row in h_BTN])
        last_BN = np.take_along_axis(every, lengths_B[:, None] + np.arange(self.N - 1), axis=1)
        return np.log(np.maximum(p_BTV, 1e-300)), (last_BN,)


# 4. THE TAPE. Counts know nothing of a context that they never saw, even if it is nearly one that they did. A
# network computes p from numbers that it learns, so that similar contexts get similar probabilities. To learn,
# it needs the slope of the loss by each number. A tape records every operation with its own small derivative. Read
# backwards, by the chain rule of calculus, dL/dx = dL/dy · dy/dx, it gives all slopes for the price of about two
# more passes.
TAPE = None  # while something is recorded, a list of steps back


class Node:  # an array, and the gradient of the loss by it
    def __init__(self, value):
        self.value, self.grad = value, None

    def receive(self, g):
        if g.ndim > self.value.ndim:  # it was broadcast, as a bias is: every copy of it sends a gradient
            g = g.sum(axis=tuple(range(g.ndim - self.value.ndim)))
        self.grad = g if self.grad is None else self.grad + g

    def __add__(self, other):
        return made(self.value + getattr(other, "value", other), (self, lambda g: g), (other, lambda g: g))

    def __mul__(self, other):
        a, b = self.value, getattr(other, "value", other)
        return made(a * b, (self, lambda g: g * b), (other, lambda g: g * a))

    def __rsub__(self, number):
        return made(number - self.value, (self, lambda g: -g))

    def __matmul__(self, other):
        a, b = self.value, other.value
        if b.ndim > 2:  # a product for each row of the batch
            return made(a @ b, (self, lambda g: g @ b.swapaxes(-1, -2)), (other, lambda g: a.swapaxes(-1, -2) @ g))
        flat = a.reshape(-1, a.shape[-1])  # one large product is faster than many small ones
        back_a = (self, lambda g: (g.reshape(-1, b.shape[1]) @ b.T).reshape(a.shape))
        back_b = (other, lambda g: flat.T @ g.reshape(-1, b.shape[1]))
        return made((flat @ b).reshape(*a.shape[:-1], b.shape[1]), back_a, back_b)

    def reshape(self, *shape):
        return made(self.value.reshape(shape), (self, lambda g: g.reshape(self.value.shape)))

    def swap(self, i, j):
        return made(self.value.swapaxes(i, j), (self, lambda g: g.swapaxes(i, j)))


def made(result, *inputs):  # each input with the function that makes its gradient from that of the result
    node, nodes = Node(result), [(x, back) for x, back in inputs if isinstance(x, Node)]
    if TAPE is not None:
        TAPE.append(lambda: node.grad is not None and [x.receive(back(node.grad)) for x, back in nodes])
    return node


def backward(function, *arguments):  # call for a loss, and leave its gradient in each node that was used
    global TAPE  # noqa: PLW0603
    TAPE = []
    loss = function(*arguments)
    loss.grad, steps, TAPE = np.ones_like(loss.value), TAPE, None
    for step in reversed(steps):
        step()


def tanh(x):
    y = np.tanh(x.value)
    return made(y, (x, lambda g: g * (1 - y * y)))


def sigmoid(x):
    y = 0.5 * np.tanh(0.5 * x.value) + 0.5  # 1 / (1 + e^-x), without overflow
    return made(y, (x, lambda g: g * y * (1 - y)))


def lookup(E, ids):  # rows of a table: products of one-hot vectors and E, as the way back shows
    one_hot = lambda: (ids.reshape(-1, 1) == np.arange(len(E.value))).astype(E.value.dtype)  # noqa: E731
    return made(E.value[ids], (E, lambda g: one_hot().T @ g.reshape(ids.size, -1)))


def concat(nodes, axis):
    ends = np.cumsum([0, *(node.value.shape[axis] for node in nodes)])
    parts = zip(nodes, ends, ends[1:], strict=False)
    backs = [(node, lambda g, a=a, b=b: g.swapaxes(0, axis)[a:b].swapaxes(0, axis)) for node, a, b in parts]
    return made(np.concatenate([node.value for node in nodes], axis=axis), *backs)


def split(x, parts, axis):
    nodes = [Node(part) for part in np.split(x.value, parts, axis=axis)]

    def step():  # all parts together: a gradient from each by itself would be as large as x
        gs = [np.zeros_like(node.value) if node.grad is None else node.grad for node in nodes]
        x.receive(np.concatenate(gs, axis=axis))

    if TAPE is not None:
        TAPE.append(step)
    return nodes


def log_softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def softmax(x, seen):
    y = np.exp(log_softmax(np.where(seen, x.value, -np.inf)))
    return made(y, (x, lambda g: y * (g - (g * y).sum(axis=-1, keepdims=True))))


def layer_norm(x):
    d = x.value - x.value.mean(axis=-1, keepdims=True)
    s = np.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5)
    y = d / s
    return made(y, (x, lambda g: (g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True)) / s))


def cross_entropy(z, targets):
    """Return the mean of -ln softmax(z) of the targets. Its gradient is p - y, where y is the one-hot target."""
    here, log_p = (targets != PAD)[..., None], log_softmax(z.value)
    y, n = targets[..., None] == np.arange(z.value.shape[-1]), int(here.sum())
    return made(-log_p[y].sum() / n, (z, lambda g: (np.exp(log_p) * here - y) * (g / n)))


# 5. A NETWORK OVER A WINDOW. The tape learns functions of numbers, and a token is no number. So each token gets a
# vector, its row of E, which is learned as well: tokens that are used alike come to lie close together. The
# feed-forward network puts the vectors of the last N-1 tokens side by side: an n-gram model that generalises.
class Network(LanguageModel):  # a family says what its logits are, of which a softmax makes probabilities
    def __init__(self, tokenizer, **settings):
        super().__init__(tokenizer, **settings)
        self.weights, self.rng = {}, np.random.default_rng(0)

    def weight(self, name, *shape, std=None):  # products are about as large as inputs; a bias is 0
        std = std or (shape[0] ** -0.5 if len(shape) == 2 else 0)
        self.weights[name] = Node(self.rng.normal(0, std, shape).astype(np.float32))
        return self.weights[name]

    def fill(self, weights):
        for name, node in self.weights.items():
            node.value = weights[name]

    def predict(self, ids_BT, lengths_B, *memory):
        logits, memory = self.logits(ids_BT, lengths_B, *map(Node, memory))
        return logits.value, tuple(node.value for node in memory)

    def loss(self, inputs, targets):
        B, T = np.shape(inputs)
        logits, _ = self.logits(np.array(inputs), np.full(B, T), *map(Node, self.begin(B)))
        return cross_entropy(logits, np.array(targets))


class Feedforward(Network):
    def __init__(self, tokenizer, order=8, embedding=32, hidden=256):
        super().__init__(tokenizer, order=order, embedding=embedding, hidden=hidden)
        self.N, self.E = order, self.weight("E", self.V, embedding, std=1)
        self.W, self.b = self.weight("W", (order - 1) * embedding, hidden), self.weight("b", hidden)
        self.U, self.c = self.weight("U", hidden, self.V), self.weight("c", self.V)

    def begin(self, batch_size):
        return (np.full((batch_size, self.N - 2), BOS),)

    def logits(self, ids_BT, lengths_B, last):
        every = np.concatenate([last.value, ids_BT], axis=1)
        # x_t = [E x_{t-N+2}; ...; E x_t], h_t = tanh(W x_t + b), z_t = U h_t + c
        x = lookup(self.E, np.lib.stride_tricks.sliding_window_view(every, self.N - 1, axis=1))
        h = tanh(x.reshape(*ids_BT.shape, -1) @ self.W + self.b)
        last_BN = np.take_along_axis(every, lengths_B[:, None] + np.arange(self.N - 2), axis=1)
        return h @ self.U + self.c, [Node(last_BN)]


# 6. MEMORY. A window ends somewhere, and a longer one costs weights. A recurrent network reads token after token
# and keeps a state h, so that the same weights serve any length. In an Elman network every step multiplies the
# state by U and squashes it. Back through many steps the gradient is a product of such factors: it vanishes or
# explodes. The LSTM has a memory c, to which it only adds, and gates between 0 and 1 that decide what to forget
# (f), to write (i) and to show (o). The GRU has one state and two gates, reset (r) and update (z).
def elman(Wx, U, h):
    # h_t = tanh(W x_t + U h_{t-1} + b)
    return (tanh(Wx + h @ U),)


def lstm(Wx, U, h, c):
    i, f, g, o = split(Wx + h @ U, 4, axis=-1)
    # c_t = σ(f) ⊙ c_{t-1} + σ(i) ⊙ tanh(g), h_t = σ(o) ⊙ tanh(c_t)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def gru(Wx, U, h, reset_after=False):
    (Wx_rz, Wx_n), (U_rz, U_n) = (split(x, [2 * len(U.value)], axis=-1) for x in (Wx, U))
    r, z = split(sigmoid(Wx_rz + h @ U_rz), 2, axis=-1)
    # n = tanh(W x_t + U (r ⊙ h_{t-1}) + b), h_t = (1 - z) ⊙ n + z ⊙ h_{t-1}; cuDNN has r ⊙ (U h_{t-1})
    n = tanh(Wx_n + (r * (h @ U_n) if reset_after else (r * h) @ U_n))
    return ((1 - z) * n + z * h,)


class Layer:  # a layer of H cells, which read x_1 ... x_T one after the other
    def __init__(self, net, cell, D, H, name=""):
        self.cell, gates, self.parts = {"elman": (elman, 1, 1), "lstm": (lstm, 4, 2), "gru": (gru, 3, 1)}[cell]
        self.W, self.b = net.weight(name + "W", D, gates * H), net.weight(name + "b", gates * H)
        self.U, self.H = net.weight(name + "U", H, gates * H), H
        if cell == "lstm":
            self.b.value[H : 2 * H] = 1  # forget little at first

    def begin(self, batch_size):
        return (np.zeros((batch_size, 1, self.H), self.U.value.dtype),) * self.parts

    def read(self, x, lengths_B, *state):  # h at each time, and the state after the last token of each row
        history = [state]
        for Wx in split(x @ self.W + self.b, x.value.shape[1], axis=1):  # W x_t + b needs no state: all t at once
            history.append(self.cell(Wx, self.U, *history[-1]))
        last = np.arange(len(lengths_B)) * len(history) + lengths_B  # places in `every`, where rows are joined
        every = (concat(part, axis=1).reshape(-1, self.H) for part in zip(*history, strict=True))
        return concat([h for h, *_ in history[1:]], axis=1), [lookup(part, last[:, None]) for part in every]


class Recurrent(Network):
    def __init__(self, tokenizer, cell="lstm", embedding=32, hidden=128):
        super().__init__(tokenizer, cell=cell, embedding=embedding, hidden=hidden)
        self.E, self.layer = self.weight("E", self.V, embedding, std=1), Layer(self, cell, embedding, hidden)
        self.O, self.c = self.weight("O", hidden, self.V), self.weight("c", self.V)
        self.begin = self.layer.begin

    def logits(self, ids_BT, lengths_B, *state):
        h, state = self.layer.read(lookup(self.E, ids_BT), lengths_B, *state)
        return h @ self.O + self.c, state


# 7. ATTENTION. To translate, an encoder reads a source, and a decoder writes the target from the encoder's last
# state. So all of a long sentence must fit into one vector. Attention lets the decoder look back at every state of
# the encoder. Its own state is a query q, each state of the encoder is a key k with a value v, and it gets the mean
# of the values, weighted by how well their keys fit the query.
def attention(q, k, v, seen, scale=1.0):
    # softmax(q kᵀ · scale) v
    return softmax((q @ k.swap(-1, -2)) * scale, seen) @ v


class EncoderDecoder(Network):  # `start` takes sources; a number stands for so many empty ones
    def __init__(self, tokenizer, cell="gru", width=128):
        super().__init__(tokenizer, cell=cell, width=width)
        self.E, self.c = self.weight("E", self.V, width, std=1), self.weight("c", self.V)
        self.encoder, self.decoder = (Layer(self, cell, width, width, side) for side in ("encoder.", "decoder."))
        self.M, self.O, self.first = self.weight("M", 2 * width, width), self.weight("O", width, self.V), BOS

    def encode(self, sources):
        ids_BS = pad(sources)
        seen_BS, nothing = ids_BS != PAD, map(Node, self.encoder.begin(len(ids_BS)))
        s, last = self.encoder.read(lookup(self.E, np.maximum(ids_BS, 0)), seen_BS.sum(axis=1), *nothing)
        return s, Node(seen_BS[:, None]), *last

    def begin(self, sources):
        return [node.value for node in self.encode([[EOS]] * sources if isinstance(sources, int) else sources)]

    def logits(self, ids_BT, lengths_B, s, seen, *state):
        h, state = self.decoder.read(lookup(self.E, ids_BT), lengths_B, *state)
        # a_t = Σ_i softmax_i(h_t · s_i) s_i, z_t = O tanh(M [a_t; h_t]) + c
        a = attention(h, s, s, seen.value)
        return tanh(concat([a, h], axis=-1) @ self.M) @ self.O + self.c, [s, seen, *state]

    def loss(self, sources, targets):
        y_BT = pad(targets)
        inputs_BT = np.concatenate([np.full((len(y_BT), 1), BOS), np.maximum(y_BT[:, :-1], 0)], axis=1)
        return cross_entropy(self.logits(inputs_BT, (y_BT != PAD).sum(axis=1), *self.encode(sources))[0], y_BT)


# 8. THE TRANSFORMER. What is far away reaches a recurrent network only through all states between, one after the
# other. If attention can look anywhere, recurrence is not needed. Here each token asks all tokens so far, in
# several heads at once, and then a small network works on each token by itself. What a part finds is added to what
# was there, and normalised. Attention sees a set without an order, so waves of many lengths mark the positions.
class Transformer(Network):
    def __init__(self, tokenizer, layers=2, width=64, heads=4, window=64):
        super().__init__(tokenizer, layers=layers, width=width, heads=heads, window=window)
        self.layers, self.D, self.H, self.window = layers, width, heads, window
        self.E, self.O = self.weight("E", self.V, width), self.weight("O", width, self.V)
        for i in range(layers):
            for part, (rows, columns) in {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}.items():
                self.weight(f"{part}{i}", rows * width, columns * width)

    def logits(self, ids_BT, *_):
        (B, T), D, H = ids_BT.shape, self.D, self.H
        # PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i+1) = cos(t / 10000^(2i/D))
        angles = np.arange(T)[:, None] / 10000 ** (np.arange(0, D, 2) / D)
        positions_TD = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(T, D).astype(self.E.value.dtype)
        x, seen_TT = lookup(self.E, ids_BT) * math.sqrt(D) + positions_TD, np.tri(T, dtype=bool)
        for i in range(self.layers):
            W_qkv, W_out, W_up, W_down = (self.weights[f"{part}{i}"] for part in ("qkv", "out", "up", "down"))
            q, k, v = (part.reshape(B, T, H, D // H).swap(1, 2) for part in split(x @ W_qkv, 3, axis=-1))
            A = attention(q, k, v, seen_TT, 1 / math.sqrt(D // H)).swap(1, 2).reshape(B, T, D)
            x = layer_norm(x + A @ W_out)
            up = x @ W_up
            x = layer_norm(x + (up * (up.value > 0)) @ W_down)  # max(0, W x)
        return x @ self.O, []

    def begin(self, batch_size):
        return np.zeros((batch_size, self.window), np.int64), np.zeros(batch_size, np.int64)

    def predict(self, ids_BT, lengths_B, window_BW, count_B):  # a full window drops its older half
        window_BW, count_B, found, t, W = window_BW.copy(), count_B.copy(), [], 0, self.window
        while t < ids_BT.shape[1]:
            full = count_B == W
            window_BW[full, : W // 2], count_B[full] = window_BW[full, W - W // 2 :], W // 2
            new = min(W - count_B.max(), ids_BT.shape[1] - t)
            places = np.arange(len(ids_BT))[:, None], count_B[:, None] + np.arange(new)
            window_BW[places] = ids_BT[:, t : t + new]
            found.append(self.logits(window_BW[:, : count_B.max() + new])[0].value[places])
            count_B, t = count_B + np.clip(lengths_B - t, 0, new), t + new
        return np.concatenate(found, axis=1), (window_BW, count_B)


# 9. LEARNING. The gradient says which way is down, not how far. Adam divides each slope by its usual size, so that
# rare and frequent weights learn at one speed. The rate rises while these sizes are guesses, and then falls.
def learn(model, pairs, rows, steps, rate):
    weights, rng = model.weights.values(), np.random.default_rng(0)
    m, v = ([np.zeros_like(node.value) for node in weights] for _ in range(2))
    for step in range(1, steps + 1):
        backward(model.loss, *zip(*(pairs[i] for i in rng.integers(len(pairs), size=rows)), strict=True))
        size = math.sqrt(sum(float((node.grad**2).sum()) for node in weights))
        eta = rate * min(1, 20 * step / steps) * (1 + math.cos(math.pi * step / steps)) / 2
        for i, node in enumerate(weights):
            g = node.grad / max(1, size)  # a gradient that explodes is cut to the length 1
            m[i], v[i] = 0.9 * m[i] + 0.1 * g, 0.99 * v[i] + 0.01 * g * g
            node.value -= eta * m[i] / (1 - 0.9**step) / (np.sqrt(v[i] / (1 - 0.99**step)) + 1e-8)
            node.grad = None


# 10. WRITING. To write, draw a token, read it, and go on. The unlikely tokens are many, and together they are drawn
# too often: a temperature below 1 sharpens the probabilities, top-k and top-p keep only the best tokens. Where one
# answer is right, as in a translation, beam search follows the few best beginnings to the most likely text.
def sample(model, state, length, rng, temperature=1.0, top_k=None, top_p=1.0):
    ids = []
    for _ in range(length):
        p = np.exp(log_softmax(model.next_log_probs(state)[0].astype(np.float64) / temperature))
        best = np.argsort(-p)[:top_k]
        best = best[: int(np.searchsorted(np.cumsum(p[best]), top_p)) + 1]
        ids.append(int(rng.choice(best, p=p[best] / p[best].sum())))
        state = model.extend(state, [ids[-1:]])
    return ids


def beam_search(model, state, width=4, longest=100, power=1.0):  # to the highest ln p / length^power
    beams, done = [((), 0.0)], []
    while beams and len(beams[0][0]) < longest:
        total = np.array([log_p for _, log_p in beams])[:, None] + model.next_log_probs(state)
        best = [divmod(int(i), model.V) for i in np.argsort(-total, axis=None, kind="stable")[: width - len(done)]]
        grown = [(row, (*beams[row][0], w), float(total[row, w])) for row, w in best if total[row, w] > -np.inf]
        done += [(ids, log_p) for _, ids, log_p in grown if ids[-1] == EOS]
        going = [one for one in grown if one[1][-1] != EOS]
        beams = [(ids, log_p) for _, ids, log_p in going]
        if beams:
            state = model.extend(state.select([row for row, _, _ in going]), [ids[-1:] for ids, _ in beams])
    return max(done + beams, key=lambda one: one[1] / len(one[0]) ** power)


# 11. MEASURING. A model is good if text that it has not learned from seldom surprises it. The mean of -ln p is the
# cross-entropy. e to its power is the perplexity: so many equally likely tokens would be as hard to guess. Models
# differ in their tokens and not in their characters, so bits per character compare them all.
SHAKESPEARE = Path(__file__).parents[1] / "src/chainrule/text/builtin/shakespeare.txt.xz"
FAMILIES = {  # merges of tokens, the model, and for a network: rows of a batch, steps, rate
    "add-k": (0, lambda tokens: Ngram(tokens, order=3, k=0.01)),
    "kneser-ney": (0, lambda tokens: Ngram(tokens, order=5)),
    "bpe": (300, lambda tokens: Ngram(tokens, order=3)),
    "feedforward": (0, Feedforward, 32, 1200, 3e-3),
    "elman": (0, lambda tokens: Recurrent(tokens, "elman"), 32, 2000, 3e-3),
    "lstm": (0, lambda tokens: Recurrent(tokens, "lstm"), 32, 600, 1e-2),
    "gru": (0, lambda tokens: Recurrent(tokens, "gru"), 32, 700, 1e-2),
    "transformer": (0, Transformer, 16, 1000, 3e-3),
    "encoder-decoder": (0, EncoderDecoder, 16, 600, 5e-3),
}


def without_vowels(tokens, text):  # lines that have lost their vowels, each with what it was
    lines = [line[:60] + "\n" for line in text.split("\n") if line]
    return [(tokens.encode(re.sub("[aeiouAEIOU]", "", line)), tokens.encode(line)) for line in lines]


def run(text, held_out, share, merges, make, rows=0, steps=0, rate=0.0):
    """Train a model. Return Σ -ln p of held-out text, its tokens and characters, and something that it writes."""
    tokens = learn_tokens(text, merges)
    model, ids, new = make(tokens), tokens.encode(text), tokens.encode(held_out)
    if isinstance(model, EncoderDecoder):
        learn(model, without_vowels(tokens, text), rows, math.ceil(steps * share), rate)
        x, y = zip(*without_vowels(tokens, held_out)[:500], strict=True)
        found = [tokens.decode(beam_search(model, model.start([one]))[0]) for one in x[:4]]
        written = "".join(f"{tokens.decode(a[:-1])} -> {b}" for a, b in zip(x[:4], found, strict=True))
        return -model.score(pad(y), model.start(x)).sum(), sum(map(len, y)), sum(map(len, y)), written
    if isinstance(model, Ngram):
        model.fill({"ids": np.array([BOS, *ids])})
    else:  # the targets are the inputs, shifted by one
        pairs = [(ids[i : i + 64], ids[i + 1 : i + 65]) for i in range(0, len(ids) - 64, 8)]
        learn(model, pairs, rows, math.ceil(steps * share), rate)
    written = sample(model, model.start(1), 150, np.random.default_rng(0), temperature=0.8)
    return -model.score(pad(np.array_split(new, 32))).sum(), len(new), len(held_out), tokens.decode(written)


def main():
    parser = argparse.ArgumentParser(description="Train language models, and print what each has learned.")
    parser.add_argument("given", nargs="*", metavar="FILE|FAMILY", help=f"a text; {', '.join(FAMILIES)}")
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps to take, for a quick look")
    options = parser.parse_intermixed_args()
    families, files = ([name for name in options.given if (name in FAMILIES) == known] for known in (True, False))
    if len(files) > 1 or any(not Path(name).is_file() or Path(name).stat().st_size < 1000 for name in files):
        parser.error(f"{files[-1]} should be a text of 1,000 characters or more, or one of {', '.join(FAMILIES)}")
    text = Path(files[0]).read_text() if files else lzma.decompress(SHAKESPEARE.read_bytes()).decode()
    for name in families or FAMILIES:
        began, cut = time.perf_counter(), len(text) * 9 // 10
        nats, count, characters, written = run(text[:cut], text[cut:][:200_000], options.share, *FAMILIES[name])
        seconds, bits = time.perf_counter() - began, nats / math.log(2) / characters
        print(f"== {name}: {seconds:.0f} s, {bits:.3f} bits per character, perplexity {math.exp(nats / count):.2f}")
        print(written, flush=True)


if __name__ == "__main__":
    main()
