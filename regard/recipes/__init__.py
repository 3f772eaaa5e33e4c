"""What a recipe consists of: its tables, with their checks, and the shipped recipes, one folder per data set.

Tasks read these tables, so this folder is above `tasks`. A whole recipe also needs its task, for example to reject
settings that the task would ignore. It is therefore assembled below `tasks`, in `regard/training/recipe`, together with
everything that reads, completes or writes whole recipes.
"""
