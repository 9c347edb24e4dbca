"""Grade a file of answers. It is the student's code: it runs in a process of its own, for a limited time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

from chainrule.course.graders.grader import fault
from chainrule.course.lesson import Grade, Lesson, lesson
from chainrule.errors import CourseError

SECONDS = 120.0
"""The time that a file of answers may take."""
_PACKAGES = Path(__file__).parents[2]
_EVERY = 0.3  # seconds between two looks at a file
_MOST_PRINTED = 20_000  # bytes of what answers print: an endless loop would fill the memory


@dataclass(frozen=True)
class Graded:
    """The grades of a file of answers."""

    grades: list[Grade]
    fault: str = ""
    """Where the file itself failed, before an answer was graded."""
    printed: str = ""
    """What the student's code printed."""

    @property
    def is_right(self) -> bool:
        return all(grade.state == "right" for grade in self.grades)

    def to_json(self) -> dict[str, Any]:
        """Return the grades as autograders exchange them: Gradescope reads this as results.json."""
        tests: list[dict[str, Any]] = [
            {
                "number": grade.id,
                "name": grade.title,
                "score": grade.points if grade.state == "right" else 0,
                "max_score": grade.points,
                "status": "passed" if grade.state == "right" else "failed",
                "output": f"{grade.state}: {grade.message}" if grade.message else grade.state,
            }
            for grade in self.grades
        ]
        return {"score": sum(one["score"] for one in tests), "output": self.fault, "tests": tests}


def grade_file(asked: Lesson, path: Path, seconds: float = SECONDS) -> Graded:
    """Grade a file of answers in a process of its own; what is graded when the time is over counts."""
    if not path.is_file():
        raise CourseError(f"{path}: there is no such file; chainrule lesson {asked.number} --start DIR makes one")
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "grades"
        given = [str(asked.number), asked.student, str(path.resolve()), str(found)]
        here = os.pathsep.join([str(_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])])  # this chainrule
        command = [sys.executable, "-m", __name__, *given]
        printed, ended = _run(command, {**os.environ, "PYTHONPATH": here}, seconds)
        lines = found.read_text(encoding="utf-8").splitlines() if found.exists() else []
    records = [json.loads(line) for line in lines]
    grades = {record["id"]: Grade(**record) for record in records[1:]}
    every = [grades.get(one.id) or asked.not_yet(one.id) for one in asked.exercises]
    said = records[0]["fault"] if records else f"{path.name}: {ended}"
    if records and ended and len(grades) < len(every):  # the first one without a grade did not end
        every[len(grades)] = replace(every[len(grades)], state="wrong", message=ended)
    return Graded(every, said, printed)


def _run(command: list[str], environment: dict[str, str], seconds: float) -> tuple[str, str]:
    """Run a command; return what it printed, cut where it is long, and why it ended early, if it did."""
    kept, ended = bytearray(), ""
    how: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environment, **how) as process:

        def read() -> None:
            while block := process.stdout.read1(1 << 16):  # type: ignore[union-attr]
                kept.extend(block[: max(0, _MOST_PRINTED + 1 - len(kept))])

        reader = Thread(target=read, daemon=True)
        reader.start()
        try:
            if status := process.wait(seconds):
                said = f"was stopped by the signal {-status}", f"stopped with the exit status {status}"
                ended = f"Python {said[status > 0]}"
        except subprocess.TimeoutExpired:
            ended = f"it takes more than {seconds:g} seconds"
        finally:
            process.kill()
            reader.join(_EVERY)  # a process that the answers have started may still hold the pipe
    cut = "\n… and more\n" if len(kept) > _MOST_PRINTED else ""
    return bytes(kept[:_MOST_PRINTED]).decode(errors="replace") + cut, ended


def changes(path: Path) -> Iterator[None]:
    """Yield now, and each time that a file was saved."""
    before: tuple[int, int] | None = None
    while True:
        try:
            now = path.stat().st_mtime_ns, path.stat().st_size
        except FileNotFoundError:  # some editors write another file and rename it
            now = before or (0, 0)
        if now != before:
            before = now
            yield
        sleep(_EVERY)


def main(number: str, student: str, path: str, out: str) -> None:
    """Run a file of answers, and write a line of JSON for each grade."""
    asked, file = lesson(int(number), student), Path(path)
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    names: dict[str, Any] = {"__name__": "answers", "__file__": path}
    with Path(out).open("w", encoding="utf-8") as lines:

        def write(record: dict[str, Any]) -> None:
            lines.write(json.dumps(record) + "\n")
            lines.flush()

        said = ""
        try:
            exec(compile(file.read_bytes(), path, "exec"), names)
        except BaseException as error:  # answers above the fault are still graded
            is_read = not isinstance(error, SyntaxError)
            said = f"{fault(error)}; {'what stands below it' if is_read else 'the file'} is not graded"
        write({"fault": said})
        for exercise in asked.exercises:
            write(asdict(asked.check_in(names, exercise.id)))


if __name__ == "__main__":
    main(*sys.argv[1:])
