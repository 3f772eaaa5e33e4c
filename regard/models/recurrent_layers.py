"""The recurrent layers of a model: made from its settings, run by torch's kernels or as part of a compiled graph.

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
    """The recurrent layers of these settings, batch first."""
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

    One step inside torch.compile is written out, so that the graph holds it, and so are sequences whose lengths only
    the GPU knows: torch's kernels would have to wait for them.
    """
    step = x.shape[1] == 1 and lengths is None and torch.compiler.is_compiling()
    unknown = lengths is not None and lengths.is_cuda
    return rnn(x, hidden, lengths=lengths, backend="reference" if step or unknown else "auto")
