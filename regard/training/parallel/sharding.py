"""FSDP2: every process holds a shard of each weight, and a block's weights are gathered when its turn comes.

Zhao et al. 2023. A process gathers a block's weights before it computes the block, frees them afterwards, and the
gradients are reduced to the processes that own the shards.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from regard.layers.block import Block
from regard.tasks.losses import Loss, Objective
from regard.text.batches.batch import Batch
from regard.training.parallel.group import Group


class ShardedModel(nn.Module):
    """A model whose weights are sharded. Its forward pass takes the loss function, so the loss is computed inside.

    FSDP2 gathers weights when a module's forward method is called; a loss calls several methods of the model and reads
    its output table, so the whole loss has to run inside one forward call.
    """

    def __init__(self, model: nn.Module, world: int) -> None:
        super().__init__()
        self.model, self.world = model, world

    def forward(self, loss_function: Objective, batch: Batch) -> Loss:
        loss = loss_function(self.model, batch)
        # FSDP2 averages gradients over the processes, and training needs their sum.
        return loss._replace(total=loss.total * self.world)


def shard(model: nn.Module, group: Group) -> ShardedModel:
    """Shard the weights of `model` over the processes, in place."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (group.world,))
    for module in list(model.modules()):
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    sharded = ShardedModel(model, group.world)
    fully_shard(sharded, mesh=mesh)
    return sharded


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole value of a tensor. If it is sharded, all processes must call this."""
    value: Any = tensor.detach()
    return value.full_tensor() if is_sharded(value) else value


def shard_like(value: Tensor, like: Any) -> Tensor:
    """Return the shard of `value` that this process holds of `like`; all of `value` if `like` is not sharded."""
    if not is_sharded(like):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether a tensor is a DTensor, of which each process holds one shard."""
    return hasattr(tensor, "full_tensor")
