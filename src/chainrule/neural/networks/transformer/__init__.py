"""The Transformer decoder: self-attention over the tokens so far.

In reading order:

    attention.py   attention by the equation, by torch's fused kernels, and for a single query
    positions.py   positional encodings: learned, sinusoidal, rotary, ALiBi
    norms.py       the root-mean-square norm with its gradient
    blocks.py      norms, the feed-forward part, and the block
    cache.py       the key-value cache
    decoder.py     the network: embeddings, blocks, head
"""
