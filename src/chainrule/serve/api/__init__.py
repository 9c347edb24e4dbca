"""The routes of the server: one file for each group of them.

In reading order:

    answers.py      what all routes share: the model, its work, answers and errors
    schemas.py      the fields of requests, and their bounds
    pieces.py       work off the event loop, in pieces; answers in JSON
    texts.py        texts under way: pieces that stream, stop sequences, ln p of each token
    completions.py  /v1/completions
    chat.py         /v1/chat/completions, /v1/responses
    tokens.py       /tokenize, /detokenize, /tokenizer_info, /v1/merges, /v1/embeddings
    reading.py      /v1/score, /v1/next, /v1/beam
    tasks.py        /v1/suggest, /v1/translate, /v1/tag, /v1/classify, /v1/fill
    inside.py       /v1/inside, /v1/neighbours
    runs.py         /v1/runs: trainings and comparisons
    lessons.py      /v1/lessons: the course, read and typed answers graded
"""
