"""The Transformer: a decoder, whose tokens attend to those before them, and an encoder, whose tokens see all.

In reading order:

    config.py         the configuration of a Transformer and its presets, without torch
    settings.py       the settings of decoders and of masked models, without torch
    attention.py      attention by the equation, by torch's fused kernels, and for a single query
    positions.py      positional encodings: learned, sinusoidal, rotary, ALiBi
    blocks.py         norms, the feed-forward part, and the block
    stack.py          embeddings, positions and blocks, which both share; the encoder
    cache.py          the key-value cache
    masked.py         the network of a masked model: an encoder and a head
    decoder.py        the network: embeddings, blocks, head
    step_on_cpu.py    one token a row on a CPU, for torch and the tape
    loops_on_cpu.py   its compiled loops, through all layers in one call
"""
