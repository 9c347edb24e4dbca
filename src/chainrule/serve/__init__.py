"""The server: every model behind the interface that clients already speak, and a page to look inside.

In reading order:

    batching/   the thread of each model: requests join and leave a running batch
    models.py   the models that are served, by name
    runs.py     trainings and comparisons below a folder, by name
    scoring.py  ln p of each token of texts, for all requests that wait
    api/        the routes: completions, chats, tokens, scores, tasks, the inside of models, trainings, lessons
    page/       the page: plain HTML, CSS and ES modules, a file for each view
    metrics.py  counters of requests and tokens, for Prometheus
    guard.py    hosts, origins, keys, sizes and deadlines
    app.py      all of it together, as one application
    run.py      a process that serves until it is stopped
"""
