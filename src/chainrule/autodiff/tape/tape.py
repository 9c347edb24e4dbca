"""The tape: a stack that modules push themselves on in the forward pass, and are popped from in the backward pass.

A module is one application of an operation. It computes its value y from the values of its inputs, and, given the
gradient of the loss with respect to y, computes the gradient with respect to each input (the chain rule):

    forward:   y = f(x_1, ..., x_n)
    backward:  dL/dx_i += dL/dy · dy/dx_i

>>> import numpy as np
>>> from chainrule.autodiff import Linear, Parameter, Sum, Tape, Tanh, tape_bwd
>>> w, b = Parameter("w", np.ones((1, 2))), Parameter("b", np.zeros(1))
>>> with Tape():
...     z = Linear().apply_fwd(np.array([[0.5, -0.5]]), w, b)
...     loss = Sum().apply_fwd(Tanh().apply_fwd(z))
...     tape_bwd()
>>> w.out_gradient
array([[ 0.5, -0.5]])
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from chainrule.autodiff.tape.nodes import (
    Array,
    Gradient,
    InGradients,
    Node,
    Parameter,
    Part,
    SparseRows,
    Value,
    add_to,
)
from chainrule.autodiff.tape.pool import Pool
from chainrule.errors import AutodiffError, NotANumberError

_OF_ONE_APPLICATION = (
    *("stage", "in_modules", "needs_gradient", "out_tensor", "out_gradient"),
    *("_owns_gradient", "_tape", "_gave", "_uses"),
)


class Stage(Enum):
    """The last pass that a module has gone through. Emptying its tape counts as backward."""

    NEW = "new"
    FORWARD = "forward done"
    BACKWARD = "backward done"


class Module(Node):
    """One application of an operation. Applied again, it applies and returns a copy of itself.

    A subclass defines `forward`, which maps the tensors of the inputs to the module's own, and `backward`, which
    maps the module's gradient to a tuple with the gradient of each input, or None for an input that gets none.
    Neither may write into its arguments. A `backward` that takes more than the gradient g is given the inputs, the
    value and g, as lectures write it: backward(self, a, b, g) of b = f(a).

    >>> from chainrule.autodiff import Parameter
    >>> class Square(Module):
    ...     def forward(self, a):
    ...         return a * a
    ...
    ...     def backward(self, a, b, g):
    ...         return 2 * a * g
    >>> with Tape():
    ...     square = Square().apply_fwd([Parameter("x", 3.0)])
    ...     tape_bwd()
    >>> square.in_gradients[0]
    array(6.)
    """

    forward: Callable[..., Array]
    backward: Callable[..., Any]
    formula = ""
    """The right-hand side of the equation that the module computes, with {} for each input, such as tanh({})."""

    gate: str = ""
    """The name of the gate of a cell that the module computes, such as forget; empty for other modules."""
    out_gradient: Array | None = None
    stage = Stage.NEW
    _owns_gradient = False
    _tape: Tape
    _backward_takes = 1
    _gave: tuple[Gradient | None, ...] | None = None
    _uses: tuple[Module, ...] = ()
    """The applications in the newest pass, if the module was applied again."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        if "backward" in vars(cls):
            cls._backward_takes = _required(cls.backward) - 1  # without self

    def apply_fwd(self, *in_modules: Node | ArrayLike | Sequence[Node]) -> Self:
        """Compute the value, push the module on the current tape, and return it. Arrays are wrapped in a Value.

        The inputs may also be given as one list. A module that was applied before stays as it is; a copy of it is
        applied and returned.
        """
        if self.stage is not Stage.NEW:
            return self._apply_again(in_modules)
        # a list of nodes and arrays has the inputs; any other is one input, of numbers
        only = in_modules[0] if len(in_modules) == 1 else None
        is_list = isinstance(only, (list, tuple)) and any(isinstance(one, Node | np.ndarray) for one in only)
        inputs: Sequence[Any] = only if is_list else in_modules  # type: ignore[assignment]
        tape = current_tape()
        if not tape.is_checking:
            self._tape, self.stage = tape, Stage.FORWARD
            values = [node.out_tensor if isinstance(node, Node) else np.asarray(node) for node in inputs]
            self.out_tensor = self.forward(*values)
            return self
        nodes = [node if isinstance(node, Node) else Value(node) for node in inputs]
        for i, node in enumerate(nodes):
            self._check_input(i, node, tape)
        dtype = self._share_type(nodes)
        self._tape = tape
        with _quiet():
            self.out_tensor = self._computed(nodes)
            if dtype not in (None, self.out_tensor.dtype):
                raise AutodiffError(
                    f"{self.name}: made {self.out_tensor.dtype} of {dtype}: give it numbers of that type"
                )
            if has_nan(self.out_tensor):
                bad = [one.name for one in nodes if one.out_tensor.dtype.kind == "f" and has_nan(one.out_tensor)]
                reason = f"{', '.join(bad)} had NaN before" if bad else "its inputs have none"
                raise NotANumberError(
                    f"{self.name} is the first module that made NaN, from {_shapes(nodes)}: {reason}"
                )
        self.stage = Stage.FORWARD
        if tape.is_recording:
            self.in_modules = tuple(nodes)
            self.needs_gradient = any(node.needs_gradient for node in nodes)
            tape.push(self)
        return self

    def apply_bwd(self) -> None:
        """Run `backward` on the module's gradient, and add each result to the gradient of its input."""
        if self.stage is not Stage.FORWARD:
            is_new = self.stage is Stage.NEW
            reason = "backward before forward" if is_new else "backward twice, or after its tape was emptied"
            raise AutodiffError(f"{self.name}: {reason}: run forward first")
        if self.out_gradient is None:
            raise AutodiffError(f"{self.name}: backward, but no gradient has flowed in; start at the loss")
        self.stage = Stage.BACKWARD
        self._check_has("backward", "g")
        is_short = self._backward_takes <= 1
        gradients = self.backward(self.out_gradient) if is_short else self._backward_of_all(self.out_gradient)
        if gradients is None:
            raise AutodiffError(f"{self.name}: backward returned None; is there a return?")
        if not isinstance(gradients, tuple):
            gradients = tuple(gradients) if isinstance(gradients, list) else (gradients,)
        if len(gradients) != len(self.in_modules):
            raise AutodiffError(
                f"{self.name}: {len(gradients)} gradients for {len(self.in_modules)} inputs: "
                "return one for each, in order, and None for an input that gets none"
            )
        for node, gradient in zip(self.in_modules, gradients, strict=True):
            if gradient is not None:
                fitting = _fitting(self.name, node, gradient, "; keep the order of the inputs")
                if node.needs_gradient:
                    node.receive(fitting)
        if not self._tape.reuse:
            self._gave = gradients

    @property
    def gave(self) -> tuple[Gradient | None, ...]:
        """What `backward` returned: the gradient of each input, dense or sparse, or None."""
        return self._gave or (None,) * len(self.in_modules)

    @property
    def in_gradients(self) -> InGradients:
        """The gradient that the module gave to each of its inputs in the backward pass, in order.

        Gradients of a layer that was applied several times in the pass are added, where all applications have the
        same node as input, such as the weights. There are none for data.
        """
        uses = [module for module in self._uses or (self,) if module._gave]
        if not uses:
            raise AutodiffError(f"{self.name}: there are no in_gradients: {self._why_no_gradients()}")
        columns = zip(*(zip(module.in_modules, module.gave, strict=True) for module in uses), strict=False)
        return InGradients(self.name, columns)

    def receive(self, gradient: Gradient) -> None:
        if self.out_gradient is None and isinstance(gradient, np.ndarray):
            # not copied; other modules may hold the same array, so nothing is ever added to it in place
            self.out_gradient = gradient
            return
        if not self._owns_gradient:
            own = self.empty(self.out_tensor.shape, self.out_tensor.dtype)
            own[...] = 0 if self.out_gradient is None else self.out_gradient
            self.out_gradient, self._owns_gradient = own, True
        assert self.out_gradient is not None
        add_to(self.out_gradient, gradient)

    @property
    def flops(self) -> int:
        """The multiplications and additions in matrix products of the forward pass; 0 of a module without any."""
        return 0

    def equation(self, *names: str) -> str:
        """Return the right-hand side of the module's equation, in the names of its inputs."""
        return self.formula.format(*names) if self.formula else f"{self.name}({', '.join(names)})"

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an uninitialised array of the tape, for the module's value or for values that `backward` uses."""
        return self._tape.empty(shape, dtype)

    def empty_like(self, tensor: Array) -> Array:
        """Return the same as `empty`, with the shape and dtype of a tensor; float64 if the dtype is not a float."""
        return self._tape.empty(tensor.shape, tensor.dtype if tensor.dtype.kind == "f" else np.float64)

    def room_for(self, i: int) -> Array:
        """Return an uninitialised array for the gradient of input i, which `backward` fills and returns."""
        node = self.in_modules[i]
        # a parameter's own buffer saves a copy, but gradients of its other uses are then added to it
        own = node.lend() if self._tape.reuse and isinstance(node, Parameter) else None
        return self.empty_like(node.out_tensor) if own is None else own

    def _apply_again(self, in_modules: tuple[Any, ...]) -> Self:
        """Apply a copy, which has the settings of the module and nothing of its earlier application."""
        again = copy.copy(self)
        for name in _OF_ONE_APPLICATION:
            vars(again).pop(name, None)
        again.apply_fwd(*in_modules)
        if again._tape.is_recording:
            before = self._uses or (self,)
            self._uses = (*(module for module in before if module._is_on_tape), again)
        return again

    @property
    def _is_on_tape(self) -> bool:
        return self.stage is Stage.FORWARD and self._tape.is_recording

    def _backward_of_all(self, g: Array) -> Any:
        """Return the result of a `backward` that takes the inputs, the value and the gradient."""
        number = len(self.in_modules)
        if self._backward_takes != number + 2:
            raise AutodiffError(
                f"{self.name}: backward takes {self._backward_takes} arguments: write backward(self, g), or "
                f"backward of the {number} inputs, the value and g, {number + 2} arguments in all"
            )
        return self.backward(*[node.out_tensor for node in self.in_modules], self.out_tensor, g)

    def _why_no_gradients(self) -> str:
        newest = (self._uses or (self,))[-1]
        if newest.stage is not Stage.BACKWARD:
            return "run apply_fwd, then tape_bwd"
        if newest._tape.reuse:
            return "its tape reuses arrays and keeps none; use Tape()"
        if not newest.needs_gradient:
            return 'all its inputs are data; make the weights parameters, such as Parameter("W", W)'
        return "the loss does not depend on it"

    def _check_input(self, i: int, node: Node, tape: Tape) -> None:
        if not isinstance(node, Module):
            return
        if node.stage is Stage.NEW:
            problem = "has no value yet: call its apply_fwd first"
        elif node._uses and not node._is_on_tape:
            problem = "was applied again: give what that apply_fwd returned"
        elif node.stage is Stage.BACKWARD:
            problem = "is of an emptied tape: run forward again, or wrap its out_tensor in a Value"
        elif tape.is_recording and node._tape is not tape and node._tape.is_recording:
            # the input's gradient would be lost or overwritten when one of the two tapes is emptied
            problem = "is of another tape: wrap its out_tensor in a Value"
        else:
            return
        raise AutodiffError(f"{self.name}: input {i}, {node.name}, {problem}")

    def _check_has(self, method: str, argument: str) -> None:
        if not hasattr(self, method):
            raise AutodiffError(f"{self.name} has no {method}: write {method}(self, {argument})")

    def _computed(self, nodes: list[Node]) -> Array:
        self._check_has("forward", "a")
        try:
            value = self.forward(*[node.out_tensor for node in nodes])
            array = np.asarray(value)
        except (IndexError, TypeError, ValueError) as error:
            # an error that the checks in `forward` do not cover, or a user's module without checks
            given = _shapes(nodes) or "nothing"
            raise AutodiffError(f"{self.name}: cannot compute anything of {given}: {error}") from error
        if value is None:
            raise AutodiffError(f"{self.name}: forward returned None; is there a return?")
        return array

    def _share_type(self, nodes: list[Node]) -> np.dtype[Any] | None:
        """Return the floating-point type of the modules and parameters in `nodes`, or None if there are none.

        Data of another precision is replaced in `nodes` by a copy cast to that type.
        """
        floats = [node for node in nodes if node.out_tensor.dtype.kind == "f"]
        types = {node.out_tensor.dtype for node in floats if not isinstance(node, Value)}
        if not types:
            return None
        if len(types) > 1:
            found = ", ".join(f"{node.name} {node.out_tensor.dtype}" for node in floats)
            raise AutodiffError(f"{self.name}: expected inputs of one precision, found {found}")
        [dtype] = types
        for i, node in enumerate(nodes):
            if node.out_tensor.dtype.kind == "f" and node.out_tensor.dtype != dtype:
                nodes[i] = Value(node.out_tensor.astype(dtype), node.name)
        return dtype


class Tape:
    """A stack of modules. Inside `with`, modules push themselves on this tape and on no outer one.

    With `reuse`, large arrays come from a pool and are used again once the tape is emptied: copy values that should
    outlive it. Gradients of parameters are safe; modules have no `in_gradients` then. Without `is_recording`,
    nothing is pushed; without `is_checking`, inputs must be of one precision, and NaN is not looked for.
    """

    def __init__(self, *, reuse: bool = False, is_recording: bool = True, is_checking: bool = True) -> None:
        self.is_recording, self.is_checking, self.reuse = is_recording, is_checking, reuse
        self._modules: list[Module] = []
        self._pool = Pool() if reuse else None

    def __enter__(self) -> Self:
        _open.tapes.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        _open.tapes.pop()
        if kind is not None:
            self.clear()

    def __len__(self) -> int:
        return len(self._modules)

    @property
    def modules(self) -> tuple[Module, ...]:
        """The modules on the tape, in the order in which they were pushed."""
        return tuple(self._modules)

    @property
    def bytes_held(self) -> int:
        """The size of the pool of reused arrays, in bytes; 0 without one."""
        return self._pool.bytes_held if self._pool else 0

    def push(self, module: Module) -> None:
        self._modules.append(module)

    def backward(self, gradient: ArrayLike | None = None) -> None:
        """Run the backward pass: start with dL/dL = 1 at the last module pushed, the loss, then pop every module.

        `gradient` replaces the ones at the start. Afterwards the tape is empty.
        """
        if not self._modules:
            reason = (
                "emptied by an earlier backward, or nothing was pushed" if self.is_recording else "under no_grad"
            )
            raise AutodiffError(f"backward on an empty tape ({reason}): run forward first")
        loss = self._modules[-1]
        start = np.ones_like(loss.out_tensor) if gradient is None else gradient
        loss.receive(_fitting("the start of backward", loss, start))
        try:
            with _quiet():
                while self._modules:
                    module = self._modules.pop()
                    if module.out_gradient is None:  # the loss does not depend on it
                        module.stage = Stage.BACKWARD
                    else:
                        module.apply_bwd()
        finally:
            self.clear()

    def clear(self) -> None:
        """Drop all modules, without a backward pass, and return their arrays to the pool."""
        for module in self._modules:
            module.stage = Stage.BACKWARD
        self._modules.clear()
        if self._pool:
            self._pool.take_back()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an uninitialised array, which with `reuse` is valid only until the tape is emptied."""
        return self._pool.empty(shape, dtype) if self._pool else np.empty(shape, dtype)


class _OpenTapes(threading.local):
    """The stack of tapes that a thread has entered, innermost last, on top of the thread's default tape."""

    def __init__(self) -> None:
        self.tapes = [Tape()]


_open = _OpenTapes()


def current_tape() -> Tape:
    """Return the tape that modules of this thread push themselves on."""
    return _open.tapes[-1]


def tape_bwd() -> None:
    """Run the backward pass of the current tape, which is empty afterwards."""
    current_tape().backward()


@contextmanager
def no_grad() -> Iterator[None]:
    """Compute values inside this block without recording them. A tape opened inside it records again."""
    with Tape(is_recording=False):
        yield


@contextmanager
def unchecked() -> Iterator[None]:
    """The same as `no_grad` without checks, which take half of the time to read a single token."""
    with Tape(is_recording=False, is_checking=False), _quiet():
        yield


def _quiet() -> np.errstate:
    """Silence NumPy's floating-point warnings: NaN is checked for explicitly, and infinities are allowed."""
    return np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")


def _required(function: Callable[..., Any]) -> int:
    """Return the number of arguments that a function must be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    arguments = inspect.signature(function).parameters.values()
    return sum(argument.kind in kinds and argument.default is argument.empty for argument in arguments)


def _shapes(nodes: Iterable[Node]) -> str:
    return ", ".join(f"{node.name} {list(node.out_tensor.shape)}" for node in nodes)


def _fitting(giver: str, node: Node, gradient: Gradient | ArrayLike, hint: str = "") -> Gradient:
    """Return the gradient, an array or sparse; refuse an array of another shape than the node's value."""
    if isinstance(gradient, SparseRows | Part):
        return gradient
    # NumPy's arithmetic turns arrays without axes into scalars, which are no ndarrays
    found = np.asarray(gradient)
    if found.shape != node.out_tensor.shape:
        raise AutodiffError(
            f"{giver}: gave {node.name} a gradient of {list(found.shape)}, "
            f"but its value has {list(node.out_tensor.shape)}{hint}"
        )
    return found


def has_nan(tensor: Array) -> bool:
    """Return True if a number of a tensor is NaN."""
    # Σ x² is NaN if and only if some x is: squares cannot cancel. One dot product is faster than np.isnan of each.
    flat = tensor.ravel(order="K")
    return bool(np.isnan(np.dot(flat, flat)))
