"""The recurrent layers of a model: made from its settings, and run.

C1; Sutskever et al. 2014.

    B batch   T time
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.layers.recurrent import GRU, LSTM, RNN
from regard.models.config import RecurrentConfig
from regard.models.decoding_state import Hidden


def make_recurrent(
    config: RecurrentConfig, input_size: int, hidden_size: int, *, bidirectional: bool = False
) -> RNN | GRU | LSTM:
    """Make the recurrent layers of these settings, batch first."""
    kind = {"rnn": RNN, "gru": GRU, "lstm": LSTM}[config.cell]
    return kind(
        input_size,
        hidden_size,
        num_layers=config.layers,
        batch_first=True,
        dropout=config.dropout if config.layers > 1 else 0.0,  # between layers, so one layer has none
        bidirectional=bidirectional,
    )


def run_recurrent(
    rnn: RNN | GRU | LSTM, x: Tensor, hidden: Hidden | None = None, *, lengths: Tensor | None = None
) -> tuple[Tensor, Hidden]:
    """x (B, T, ·) through the layers.

    A single step inside torch.compile uses the written-out loop, so that the graph contains it. So do sequences whose
    lengths are on the GPU: PyTorch's implementation would synchronize to read them.
    """
    step = x.shape[1] == 1 and lengths is None and torch.compiler.is_compiling()
    lengths_on_gpu = lengths is not None and lengths.is_cuda
    return rnn(x, hidden, lengths=lengths, backend="reference" if step or lengths_on_gpu else "auto")
