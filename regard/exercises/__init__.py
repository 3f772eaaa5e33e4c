"""Exercises with a checker that recognises the usual mistakes: `regard exercise list | start | check | solution`.

exercise.py    what an exercise is: a question, a skeleton, a reference, and mistakes as options of the reference
catalogue.py   the list of all exercises, ordered by lecture topic and difficulty
topics/        one file per exercise
solutions/     one file per exercise; `regard exercise solution` prints it
values.py      when two results are the same, and how they differ
diagnosis.py   which mistake explains an answer
checking.py    check the answer in a file, or a function in a notebook
isolated.py    check files in processes of their own, with a time limit
child.py       the program that runs in such a process
answer_file.py write the file of an exercise, and recognise it
verdict.py     what a check says
"""
