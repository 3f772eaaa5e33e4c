"""Random features in training: draws by the count of steps, resumed runs, and a recipe with the one word learns."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.random_rows import draw_rows
from regard.models.config import TransformerConfig
from regard.models.presets import make_model
from regard.training.checkpoint.files import average_weights, load_checkpoint, save_checkpoint
from regard.training.recipe.schema import TrainingRecipe
from regard.training.run.training_run import train
from regard.training.state.optimizer import make_optimizer, set_learning_rate, trainable_parameters
from regard.training.state.tensors import load_weights, model_weights

WORDS = {
    "model.attention": "random-features",
    "model.random_features.exact_heads": "encoder",
    "model.random_features.features": 8,
    "model.random_features.redraw": 4,
    "model.attention_dropout": 0.1,
}


def features(model: Any) -> list[RandomFeatures]:
    return [module for module in model.modules() if isinstance(module, RandomFeatures)]


def test_a_recipe_with_the_one_word_trains_and_resumes_with_the_right_draw(
    make_recipe: Callable[..., Path], tmp_path: Path
) -> None:
    settings = {
        **WORDS,
        "training.steps": 10,
        "training.save_every": 5,
        "training.keep": 9,
        "training.validate_every": 10,
    }
    run = train(make_recipe("transformer"), out=tmp_path / "run", overrides=settings)
    kept = run.folder / "training"
    whole = load_checkpoint(kept)
    # As if it had been stopped after the fifth step.
    for path in (kept / "step-00000010", *kept.glob("finished*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (kept / "latest").write_text("step-00000005")
    train(make_recipe("transformer"), out=tmp_path / "run", overrides=settings)
    again = load_checkpoint(kept)
    assert whole is not None and again is not None and whole.step == again.step == 10
    for name, weight in whole.weights.items():
        assert torch.equal(weight, again.weights[name]), name
    for one in features(run.load().model):
        assert one.draw[1] == 2  # the tenth step is made after nine, and 9 // 4 = 2
        want = draw_rows(one.rows, one.dim, heads=one.heads, seed=one.draw[0], number=2)
        torch.testing.assert_close(one.W, want.float())
    assert isinstance(run.load().translate("un deux").text, str)


def test_random_features_learn() -> None:
    """Copying with decoder self- and cross-attention by features: the loss falls far below that of guessing."""
    torch.manual_seed(0)
    config = TransformerConfig(
        source_vocabulary=12, target_vocabulary=12, layers=1, dim=32, heads=4, hidden=32, dropout=0.0, order="pre",
        attention="random-features", random_features={"features": 32, "exact_heads": ("encoder",), "redraw": 50},
    )  # fmt: skip
    model: Any = make_model(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(150):
        for one in features(model):
            one.redraw(step)
        text = torch.randint(4, 12, (32, 5))
        logits = model(text, torch.cat([torch.full((32, 1), 2), text[:, :-1]], dim=1))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.7  # log 8 = 2.08 is guessing
    assert all(one.draw[1] == 2 and (one.sigma != 1).any() for one in features(model))  # type: ignore[union-attr]


def test_the_mean_of_checkpoints_has_the_newest_draw(tmp_path: Path) -> None:
    config = TransformerConfig(
        source_vocabulary=9, target_vocabulary=9, layers=1, dim=8, heads=2, hidden=8, attention="random-features",
        random_features={"features": 4, "redraw": 1},
    )  # fmt: skip
    model = make_model(config).train()
    for step in (1, 2):
        for one in features(model):
            one.redraw(step)
        with torch.no_grad():
            for weight in model.parameters():
                weight.fill_(step)
        save_checkpoint(tmp_path, step, weights=model_weights(model), optimizer={}, state={}, keep=3)
    newest = {name: buffer.clone() for name, buffer in model.named_buffers()}
    weights, _ = average_weights(tmp_path, 2, fixed=newest)
    other = make_model(config)
    load_weights(other, weights)
    assert all((weight == 1.5).all() for weight in other.parameters())
    assert all(torch.equal(buffer, newest[name]) for name, buffer in other.named_buffers())
    assert [one.draw for one in features(other)] == [one.draw for one in features(model)]


def test_a_learned_scale_does_not_decay() -> None:
    config = TransformerConfig(
        source_vocabulary=9, target_vocabulary=9, layers=1, dim=8, heads=2, hidden=8, attention="random-features"
    )
    model = make_model(config)
    names = trainable_parameters(model)
    optimizer = make_optimizer(model, TrainingRecipe(weight_decay=0.1, optimizer="adamw"))
    decayed = [names[weight] for group in optimizer.param_groups if group["weight_decay"] for weight in group["params"]]
    assert decayed and not any(name.endswith("sigma") for name in decayed)
    assert sum(name.endswith("sigma") for name in names.values()) == 3
    set_learning_rate(optimizer, 0.01)
    fast = [names[weight] for group in optimizer.param_groups if group["lr"] == 0.1 for weight in group["params"]]
    assert len(fast) == 3 and all(name.endswith("sigma") for name in fast)
    assert {group["lr"] for group in optimizer.param_groups} == {0.01, 0.1}


def test_the_name_sigma_alone_means_nothing() -> None:
    """A model of the user may call any parameter sigma; only the scales of random features learn faster."""

    class Gaussian(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.sigma = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(2, 3))

    model = nn.Sequential(Gaussian())
    recipe = TrainingRecipe(weight_decay=0.1, optimizer="adamw")
    (matrices, vectors) = make_optimizer(model, recipe).param_groups
    assert matrices["params"] == [model[0].sigma] and matrices["weight_decay"] == 0.1
    assert vectors["params"] == [model[0].mean]
    assert matrices["rate_factor"] == vectors["rate_factor"] == 1.0
