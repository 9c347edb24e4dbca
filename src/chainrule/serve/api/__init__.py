"""What the server answers: one file for each group of routes.

In reading order:

    errors.py       errors in the shape of OpenAI's
    schemas.py      requests: what fields there are, and within which bounds
    texts.py        tokens as text: pieces that stream, stop sequences, ln p of each token
    completions.py  /v1/completions
    chat.py         /v1/chat/completions, /v1/responses
    tokens.py       /tokenize, /detokenize, /tokenizer_info, /v1/merges, /v1/embeddings
    reading.py      /v1/score, /v1/next, /v1/beam
    tasks.py        /v1/translate, /v1/tag, /v1/fill
    inside.py       /v1/inside, /v1/neighbours
    runs.py         /v1/runs: trainings and comparisons
"""
