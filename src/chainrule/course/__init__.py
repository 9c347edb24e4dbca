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
    example_models.py  models for a reader who has none
    own_model.py    a language model from one function, for exercises

How to write a lesson
=====================

A lesson is lessons/NN-name.md. Its first line is `# Lesson N: Title`, its second paragraph `Time: 40 minutes.` and
what it needs. Maths is Unicode (Σ, λ, p(w | h)), since a terminal shows it as it is; `<s>` is written as code. Then
come 600 to 1,200 words with code, a `## Summary`, and `## Exercises`, four to seven of them. The words behind ```
say what a block is:

    python            code for the reader. The blocks of a lesson run in order, in a folder that has its texts.
    python shared     the same, and exercises use its names. It runs at every grading, so it takes little time.
    python exercises  makes what the exercises need, and no reader sees it. It draws from `student_rng`, which
                      differs from student to student. Names of data without a leading underscore are given to the
                      student; references and wrong functions are called _so. Here and in a shared block, every list
                      of strings, be they lines or single words, is also a file of the student's folder: `corpus`
                      is corpus.txt, with a string on each line. With a leading underscore it is none.
    sh                commands, each on a line that begins with `chainrule`; a backslash continues a line.
    output            what the block above it prints. `python docs/update_lessons.py` writes it, a test compares.
    exercise          how an answer is graded, in TOML; it ends an exercise.

A ```card block is a textbook card, in TOML. The page has its sliders; other readers see it as a function of them.

    title = "Add k"
    formula = "p(w | c) = (count(c w) + k) / (count(c) + k |V|)"
    symbols = { "k" = "what is added to every count" }
    sliders = { k = [0.01, 2.0, 0.01, 1.0] }   # lowest, highest, step, at first; whole numbers if the step is one
    setup = "import chainrule as cr"           # runs once, so it may train a small model
    code = "cr.train(..., k=k)"                # runs for each place of the sliders

The last line of `code` is what the card shows: a dict of numbers, which have bars if all are between 0 and 1, or
what a notebook would draw as SVG, such as cr.explain(network, text) or a picture of system/pictures.py. A card may
use the names of shared blocks, and no others.

A link such as [Tokens](view:tokens?text=love+cats) opens a view of the server's page (chainrule serve --learn) in
that state; elsewhere only its words are shown. A link to another lesson is [Lesson 4](04-never-seen.md).

An exercise is `### Exercise 2 ★★ Title`, the question, and that block. One to three stars are the difficulty and
the points. {{expression}} in a text or a hint stands for its value. Strings of the table are Python expressions, so
nothing that code can compute is typed twice:

    ### Exercise 2 ★ The first word

    What is `p({{word}} | <s>)` in the corpus?

    ```exercise
    kind = "value"                       # a number, a word, a list or a table (dict) of these
    answer = "_p(word)"
    wrong = [
      { value = "_count(word)", hint = "this is the count; divide it by the number of lines" },
    ]
    ```

A number may be off by 0.5 %, in a list by 0.5 % of the largest; whole numbers have to be equal. Another `tolerance`
needs a reason, in a comment beside it.

The other kinds take `code`, the blank that the student fills: a definition whose body is `raise
NotImplementedError`, with the imports that it needs. `wrong` has functions or classes as values, and for a claim
the names that a student may give.

    kind = "function" reference = "_f"; inputs = "(rng.normal(size=3),)" draws arguments from `rng`. Return a
                      dict of the steps in order, and the first step that differs is named.
    kind = "module"   a Module of the tape. reference = a function of arrays; inputs = a dict of arrays. Gradients
                      are checked by finite differences.
    kind = "model"    a function from a list of texts to a LanguageModel, such as a subclass of
                      `own_model.OwnModel`. train, test = lists of texts; peers = { "name" = "model" };
                      beats = "name". The laws of language models are checked.
    kind = "claim"    a function of a folder that returns (cr.compare(...), "name of the better model").
                      models = ["name", "name"]; the comparison may have more. The interval of the difference of
                      these two has to exclude 0.

Every kind takes `hint`, which follows any other wrong answer. tests/course/solutions/NN.py has the right answers
under the names of the blanks. The tests run the blocks, grade solutions and blanks, and see that each known wrong
answer gets its hint, for several students: so a wrong answer must never equal the right one, whatever `student_rng`
draws.
"""
