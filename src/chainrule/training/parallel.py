"""Training on many processes, as torchrun starts them; nothing else in the package knows of torch.distributed.

A training is the same on any number of processes. Each takes its share of the rows of every batch, and gradients
are averaged, so that a step is that of the whole batch:

    ddp     every process has the whole network (DistributedDataParallel)
    fsdp    weights, gradients and the state of the optimiser are divided among the processes (fully_shard)

Decisions depend on the clock. So the first process reads the clock and measures for all of them, and writes all
files; with fsdp, each process writes its share of a checkpoint.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from chainrule.errors import ChainruleError, TrainingError
from chainrule.training.checkpoints.checkpoint import Checkpoint, Checkpoints
from chainrule.training.layouts import Step
from chainrule.training.team import ALONE, TEAM, Loss, Team, current_team, is_divided, processes, restarts

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from chainrule.networks.network import BatchLoss, Trainable
    from chainrule.training.optimisers import Optimiser

T = TypeVar("T")

_LOST = (
    "closed by peer",
    "reset by peer",
    "connection refused",
    "broken pipe",
    "socket closed",
    "was likely closed",
)


_TEAMS = itertools.count()  # a process may train several networks in succession


@contextmanager
def together(device: str, parallel: str) -> Iterator[Team]:
    """Return a block in which the processes that torchrun started train together on devices like this one."""
    if processes() == 1 or current_team() is not ALONE:
        yield current_team()
        return
    team = Processes(device, shards=parallel == "fsdp")
    token = TEAM.set(team)
    try:
        yield team
    except RuntimeError as error:
        if not any(words in str(error).lower() for words in _LOST):
            raise
        raise TrainingError(
            f"process {team.rank} of {team.size} has lost another one, whose message says why; with torchrun "
            "--max-restarts training goes on from its last checkpoint"
        ) from error
    except ChainruleError:
        team.leave(is_over=False)
        raise
    finally:
        TEAM.reset(token)
    team.leave()


class Processes(Team):
    """The processes that torchrun started."""

    def __init__(self, device: str, *, shards: bool) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        kind = torch.device(device).type
        if kind == "cuda":
            torch.cuda.set_device(device)
        # torchrun keeps its store when it starts processes again: addresses of those that died are still in it
        store, number, size = next(iter(rendezvous("env://")))
        store = PrefixStore(f"chainrule/{restarts()}/{next(_TEAMS)}", store)
        # decisions are sent between the hosts, which then do not wait for their GPUs
        backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=number, world_size=size)
        self.dist, self.rank, self.size, self.shards = dist, dist.get_rank(), dist.get_world_size(), shards
        self.hosts = dist.new_group(backend="gloo")  # in which they exchange values, whatever their devices
        if shards:
            self.mesh = init_device_mesh(kind, (self.size,))
            self.host_mesh = self.mesh if kind == "cpu" else init_device_mesh("cpu", (self.size,))

    def leave(self, *, is_over: bool = True) -> None:
        """Leave the group; wait for the others if the training is over."""
        if is_over:
            self.agree(None)
        if is_over or self.dist.get_backend() == "gloo":  # others may wait for processes that are gone
            self.dist.destroy_process_group()

    def agree(self, value: T) -> T:
        import torch

        values = [value]
        self.dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    def _all(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        self.dist.all_gather_object(values, value, group=self.hosts)
        return values

    def tick(self, now: float, received: int | None) -> tuple[float, int | None]:
        import torch

        both = torch.tensor([now if self.rank == 0 else -np.inf, received or 0], dtype=torch.float64)
        self.dist.all_reduce(both, self.dist.ReduceOp.MAX)
        return float(both[0]), int(both[1]) or None

    def check_same(self, values: Mapping[str, Any], what: str = "") -> None:
        first, *others = self._all(dict(values))
        for number, other in enumerate(others, start=1):
            names = [name for name in {**first, **other} if first.get(name) != other.get(name)]
            if not names:
                continue
            found = f"another {what} than process 0 ({', '.join(names)})"
            if not what:
                listed = "; ".join(f"{name}={other.get(name)}, not {first.get(name)}" for name in names[:5])
                found = f"other settings than process 0: {listed}"
            error = TrainingError(
                f"process {number} has {found}: the same command and the same text are wanted everywhere"
            )
            error.is_reported = self.rank > 0
            raise error

    # -- steps --------------------------------------------------------------------------------------------

    def share(self, step: Step) -> Step:
        # rows beside each other are about as long, so that the processes take turns
        return Step([rows.every(self.rank, self.size) for rows in step.parts], step.scale, of=step.targets)

    def placed(self, network: Trainable, device: torch.device) -> Trainable:
        if not self.shards:
            return network.to(device)
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        # a memory is a view, and is never changed
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        network = deepcopy(network)  # the model keeps a whole network, which gets the weights at the end
        for module in (*network.units(), network):
            fully_shard(module, mesh=self.mesh)
        register_fsdp_forward_method(network, "loss")
        return network

    def averaging(self, network: Trainable, loss: Callable[..., BatchLoss]) -> Loss:
        return Loss(loss, self.size) if self.shards else _Averaged(network, loss, self.size)

    def prepare(self, optimiser: Optimiser) -> None:
        from chainrule.training.optimisers import Muon

        for part in optimiser.parts:
            if self.shards and isinstance(part, Muon):
                part.orthogonal_all = self._divided(part.orthogonal_all)

    def _divided(self, work: Callable[[Sequence[Any]], list[Any]]) -> Callable[[Sequence[Any]], list[Any]]:
        """Return a function that does the work on matrices that are divided among the processes."""
        from torch.distributed.tensor import distribute_tensor

        def on_whole(matrices: Sequence[Any]) -> list[Any]:
            done = work([matrix.full_tensor() for matrix in matrices])
            pairs = zip(done, matrices, strict=True)
            return [distribute_tensor(one, of.device_mesh, of.placements, src_data_rank=None) for one, of in pairs]

        return on_whole

    def summed(self, tensor: Tensor) -> Tensor:
        self.dist.all_reduce(tensor)
        return tensor

    # -- snapshots ----------------------------------------------------------------------------------------

    def gathered_rows(self, memory: Mapping[str, Tensor], rows: list[int]) -> dict[str, Tensor]:
        if not any(self._all(bool(memory))):
            return {}
        import torch

        parts, every = self._all({name: tensor.cpu() for name, tensor in memory.items()}), {}
        for name, tensor in memory.items():
            count = rows[int(name.partition(".")[0])]
            every[name] = torch.empty(count, *tensor.shape[1:], dtype=tensor.dtype)
            for number, part in enumerate(parts):
                mine = len(range(number, count, self.size))
                every[name][number :: self.size] = part[name][:mine]  # one without rows has an empty one
        return every

    def own_rows(self, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: tensor[self.rank :: self.size] if self.rank < len(tensor) else tensor[:1]
            for name, tensor in memory.items()
        }

    def gathered(self, values: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        return self._all(values)

    def spread(self, tensors: Mapping[str, Any], divided: Callable[[str], bool]) -> dict[str, Any]:
        if not self.shards:
            return dict(tensors)
        from torch.distributed.tensor import DTensor, Shard, distribute_tensor

        found: dict[str, Any] = {}
        for name, tensor in tensors.items():
            if is_divided(tensor):
                local, shape, stride = tensor.to_local().to(self.mesh.device_type), tensor.shape, tensor.stride()
                tensor = DTensor.from_local(
                    local, self.mesh, [Shard(0)], run_check=False, shape=shape, stride=stride
                )
            elif tensor.ndim and divided(name):
                tensor = distribute_tensor(
                    tensor.to(self.mesh.device_type), self.mesh, [Shard(0)], src_data_rank=None
                )
            found[name] = tensor
        return found

    def on_host(self, tensor: Any) -> Any:
        from torch.distributed.tensor import DTensor

        local = tensor.detach().to_local().to("cpu", copy=True)
        mesh, placed = self.host_mesh, tensor.placements
        return DTensor.from_local(local, mesh, placed, run_check=False, shape=tensor.shape, stride=tensor.stride())

    # -- checkpoints --------------------------------------------------------------------------------------

    def newest(self, checkpoints: Checkpoints | None) -> Checkpoint | None:
        import torch

        found = None if checkpoints is None else checkpoints.newest()
        content = None
        if found is not None:
            content = found.state, found.shards, [(name, a.dtype.str, a.shape) for name, a in found.arrays.items()]
        content = self.agree(content)
        if content is None:
            return None
        state, shards, described = content
        arrays: dict[str, Any] = {}
        for name, dtype, shape in described:
            arrays[name] = np.empty(shape, dtype) if found is None else np.array(found.arrays[name])
            self.dist.broadcast(torch.from_numpy(arrays[name].reshape(-1).view(np.uint8)), src=0)
        if shards is not None:
            arrays |= read_shards(shards, self.host_mesh if self.shards else None)
        return Checkpoint(arrays, state)

    def write(self, checkpoints: Checkpoints | None, step: int, checkpoint: Checkpoint) -> None:
        divided = {name: array for name, array in checkpoint.arrays.items() if is_divided(array)}
        whole = {name: array for name, array in checkpoint.arrays.items() if name not in divided}
        folders: list[Path] = []

        def save(folder: Path | None) -> None:
            folders.append(self.agree(folder))  # type: ignore[arg-type]
            if folders[-1] is not None:
                _save_shards(divided, folders[-1], self.hosts)

        error = None
        try:
            if self.rank > 0 and divided:
                save(None)
            elif checkpoints is not None:
                checkpoints.write(step, Checkpoint(whole, checkpoint.state), save if divided else None)
        except OSError as problem:
            error = str(problem)
            if self.rank == 0 and divided and not folders:
                save(None)
        if (error := self.agree(error)) is not None:
            raise OSError(error)


class _Averaged(Loss):
    """The loss of a network whose gradients DistributedDataParallel averages while they are computed."""

    def __init__(self, network: Trainable, loss: Callable[..., BatchLoss], size: int) -> None:
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        class Forward(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def forward(self, *batch: Any) -> BatchLoss:
                return loss(*batch)

        varies = not network.uses_every_weight
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the new name of an option that older versions have
            self.module = DistributedDataParallel(
                Forward(), broadcast_buffers=False, find_unused_parameters=varies, gradient_as_bucket_view=True
            )
        super().__init__(self.module, size)

    def part(self, *, is_last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if is_last else self.module.no_sync()


# -- checkpoints of divided weights ----------------------------------------------------------------------


def _save_shards(tensors: dict[str, Any], folder: Path, group: Any) -> None:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    try:
        save(tensors, storage_writer=FileSystemWriter(folder), process_group=group)
    except CheckpointException as error:
        raise OSError(f"{folder}: {next(iter(error.failures.values()))[0]}") from error


def read_shards(folder: Path, mesh: Any = None) -> dict[str, Any]:
    """Return the tensors of a checkpoint of many processes, divided among those of `mesh`, or whole (None)."""
    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        reader = FileSystemReader(folder)
        described: Any = reader.read_metadata().state_dict_metadata
    except OSError as error:
        raise TrainingError(
            f"{folder}: {error.strerror}: a run of many machines keeps its folder on a disk that all of them see"
        ) from error
    if mesh is None:
        tensors = {name: torch.empty(one.size, dtype=one.properties.dtype) for name, one in described.items()}
    else:
        from torch.distributed.tensor import Shard, empty

        tensors = {
            name: empty(one.size, dtype=one.properties.dtype, device_mesh=mesh, placements=[Shard(0)])
            for name, one in described.items()
        }
    with warnings.catch_warnings():  # each process reads its own part: torch says that it is alone
        warnings.simplefilter("ignore", UserWarning)
        load(tensors, storage_reader=reader, no_dist=True)
    return tensors if mesh is not None else {name: tensor.numpy() for name, tensor in tensors.items()}
