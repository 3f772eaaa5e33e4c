"""What Fourier integral attention is good for: reading a function off its samples (Nguyen et al. 2022; F4).

    python benchmarks/attention/fourier_attention.py

Attention as regression: keys are the points x_i of 64 samples, values are y_i = f(x_i), and a query asks for f at a new
point. Queries and keys are x times one trained matrix, so every score can weigh and rotate the features. A dot product
adds up the agreement of the features: where one feature differs, another can make up for it, and a long key scores high
for many queries. The Fourier score multiplies over the features, so a key counts only if it is near in all of them. f
is a sum of one function per feature, or a product of all of them, so that no feature says anything alone.

    B contexts   n samples   m queries   d features
"""

from __future__ import annotations

import argparse
import json
import sys

import torch
from torch import Tensor, nn

import regard
from regard.attention.scores import make_score

SCORES = ("scaled", "bilinear", "additive", "fourier")
FUNCTIONS = {
    "sum": lambda x: torch.sin(2 * x).sum(-1, keepdim=True) / x.shape[-1] ** 0.5,
    "product": lambda x: torch.sin(2 * x).prod(-1, keepdim=True) * 2 ** (x.shape[-1] / 2),
}


class Regression(nn.Module):
    """Attention with one head whose values are the samples themselves: only where to look is learned."""

    def __init__(self, score: str, d: int, width: int) -> None:
        super().__init__()
        self.matrix = nn.Linear(d, width, bias=False)
        self.score = make_score(score, query_dim=width, key_dim=width, hidden=width)

    def forward(self, x: Tensor, points: Tensor, values: Tensor) -> Tensor:
        """x (B, m, d), points (B, n, d), values (B, n, 1) -> (B, m, 1)."""
        return regard.attend(self.matrix(x), self.matrix(points), values, score=self.score)


def draw(function: str, B: int, d: int, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries, their true values, and samples of the function, at points uniform on a cube."""
    x, points = (3 * torch.rand(B, count, d, generator=random) - 1.5 for count in (16, 64))
    f = FUNCTIONS[function]
    return x, f(x), points, f(points)


def measure(score: str, function: str, *, d: int, steps: int, seed: int) -> float:
    """Train, and return the mean squared error on new contexts as a share of the variance of f."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    model = Regression(score, d, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / steps)
        x, y, points, values = draw(function, 32, d, random)
        loss = (model(x, points, values) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        x, y, points, values = draw(function, 256, d, random)
        return float((model(x, points, values) - y).square().mean() / y.var())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--features", type=int, default=2, help="of a point: d")
    args = parser.parse_args()
    results: dict[str, dict[str, list[float]]] = {function: {} for function in FUNCTIONS}
    sys.stdout.write(f"| function of {args.features} features | " + " | ".join(SCORES) + " |\n" + "|---" * 5 + "|\n")
    for function in FUNCTIONS:
        for score in SCORES:
            errors = [
                measure(score, function, d=args.features, steps=args.steps, seed=seed) for seed in range(args.seeds)
            ]
            results[function][score] = sorted(errors)
        medians = [values[len(values) // 2] for values in results[function].values()]
        sys.stdout.write(f"| {function} | " + " | ".join(f"{error:.1%}" for error in medians) + " |\n")
    settings = {"steps": args.steps, "seeds": args.seeds, "features": args.features}
    sys.stdout.write(json.dumps({"benchmark": "fourier_attention", **settings, "unexplained": results}) + "\n")


if __name__ == "__main__":
    main()
