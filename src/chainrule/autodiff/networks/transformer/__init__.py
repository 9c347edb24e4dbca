"""The Transformer decoder on the tape, with the parameters of `networks/transformer`.

In reading order:

    positions.py   positional encodings: learned, sinusoidal, rotary, ALiBi
    attention.py   multi-head self-attention, with shared keys and values
    blocks.py      norms, the feed-forward part, and the block
    decoder.py     the network: embeddings, blocks, head
"""
