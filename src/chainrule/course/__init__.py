"""The course: lessons that are read, run and graded.

    lessons/        a Markdown file for each lesson
    markdown.py     such a file, divided into prose, code, cards and exercises
    cards.py        textbook cards: a formula, sliders, and what chainrule computes for them
    graders/        the kinds of exercises
    lesson.py       a lesson: its text, the data of a student, grades
    answers.py      the folder of a student: texts, answers.py with blanks, what is right
    grading.py      a file of answers, graded in a process of its own
    notebook.py     a lesson as a notebook
    page.py         a lesson as HTML
    typed.py        an answer that was typed into a field, as a value
    own_model.py    a language model from one function, for exercises

How to write a lesson is in docs/course.md.
"""
