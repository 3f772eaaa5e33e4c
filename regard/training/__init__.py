"""From a recipe to a trained model.

A module imports only from modules above it in this list:

    recipe/       whole recipes: TOML files, the check against the task, defaults chosen from data and machine
    prepared      a complete recipe with its data, tokenizers and model: what a training and a forecast start from
    signals       Ctrl-C and SIGTERM set a flag
    parallel/     several processes that train one model
    state/        what a training run changes: weights, optimizer, moving average, progress
    checkpoint/   write that state to files, verify it, resume from it
    loop/         the training step, and the loop that repeats it, validates, saves and reports
    budget/       memory and time that a training run needs, measured with trial steps before it starts
    run/          a whole run: from a recipe to a model folder
"""
