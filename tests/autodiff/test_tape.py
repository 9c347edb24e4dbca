"""The tape: what is pushed, in which order it comes back, and whose it is."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from chainrule.autodiff import (
    Add,
    Embedding,
    Linear,
    MatMul,
    Module,
    Multiply,
    Parameter,
    Scale,
    Slice,
    SparseRows,
    Stage,
    Sum,
    Tanh,
    Tape,
    Value,
    current_tape,
    no_grad,
    tape_bwd,
)
from chainrule.errors import AutodiffError, ChainruleError, NotANumberError


def parameter(*numbers: float) -> Parameter:
    return Parameter("x", np.array(numbers))


def test_modules_are_pushed_in_order_and_popped_to_the_last() -> None:
    x = parameter(0.5)
    with Tape() as tape:
        tanh = Tanh().apply_fwd(x)
        total = Sum().apply_fwd(tanh)
        assert tape.modules == (tanh, total)
        assert total.in_modules == (tanh,) and tanh.in_modules == (x,)
        tape_bwd()
        assert len(tape) == 0
    # d tanh(x)/dx = 1 - tanh²(x)
    assert x.out_gradient == pytest.approx(1 - np.tanh(0.5) ** 2)
    assert total.out_gradient == 1 and tanh.out_gradient == pytest.approx(1)


def test_gradients_of_a_value_used_twice_add_up() -> None:
    x = parameter(3.0)
    with Tape():
        Multiply().apply_fwd(x, x)
        tape_bwd()
    assert x.out_gradient == pytest.approx(2 * 3)  # d x²/dx = 2 x


def test_a_module_used_three_times_does_not_spoil_its_neighbour() -> None:
    # Add hands the same array to both inputs: what then flows into a alone must not be seen in b
    x, y = parameter(2.0), parameter(5.0)
    with Tape():
        a, b = Scale(1).apply_fwd(x), Scale(1).apply_fwd(y)
        both = Add().apply_fwd(a, b)
        more = Add().apply_fwd(Multiply().apply_fwd(a, a), both)
        Sum().apply_fwd(more)
        tape_bwd()
    # L = a² + a + b
    assert x.out_gradient == pytest.approx(2 * 2 + 1)
    assert y.out_gradient == pytest.approx(1)


def test_parameter_gradients_add_up_until_forgotten() -> None:
    x = parameter(1.0, 2.0)
    for times in (1, 2):
        with Tape():
            Sum().apply_fwd(Scale(4).apply_fwd(x))
            tape_bwd()
        assert x.dense_gradient() == pytest.approx([4 * times, 4 * times])
    x.forget()
    assert x.out_gradient is None
    assert x.dense_gradient() == pytest.approx([0, 0])


def test_a_parameter_given_twice_to_one_module() -> None:
    W = Parameter("W", np.array([[1.0, 2.0], [3.0, 4.0]]))
    with Tape():
        Sum().apply_fwd(MatMul().apply_fwd(W, W))
        tape_bwd()
    ones = np.ones((2, 2))
    assert W.dense_gradient() == pytest.approx(ones @ W.out_tensor.T + W.out_tensor.T @ ones)
    W.forget()
    with Tape():  # both write into what the parameter keeps for its gradient
        Sum().apply_fwd(Linear().apply_fwd(W, W, parameter(0.0, 0.0)))
        tape_bwd()
    assert W.dense_gradient() == pytest.approx(ones @ W.out_tensor + ones.T @ W.out_tensor)


@pytest.mark.parametrize("table_first", [True, False])
def test_rows_and_a_whole_table_add_up(table_first: bool) -> None:
    E = Parameter("E", np.arange(6.0).reshape(3, 2))
    with Tape():
        terms: list[Module] = [Scale(1).apply_fwd(E), Embedding().apply_fwd(E, np.array([0, 2, 0]))]
        ordered = terms if table_first else terms[::-1]
        Add().apply_fwd(*[Sum().apply_fwd(term) for term in ordered])
        tape_bwd()
    # every row once in the table, row 0 twice more, row 2 once more
    assert E.dense_gradient() == pytest.approx(np.array([[3, 3], [1, 1], [2, 2]]))


def test_modules_that_do_not_lead_to_the_loss_are_skipped() -> None:
    x = parameter(1.0)
    with Tape():
        aside = Tanh().apply_fwd(x)
        Sum().apply_fwd(Scale(2).apply_fwd(x))
        tape_bwd()
    assert aside.out_gradient is None and aside.stage is Stage.BACKWARD
    assert x.out_gradient == pytest.approx(2)


def test_nothing_flows_into_data() -> None:
    data = Value(np.ones(2))
    with Tape():
        Sum().apply_fwd(Multiply().apply_fwd(data, parameter(1.0, 2.0)))
        tape_bwd()
    assert data.out_gradient is None


def test_parts_of_a_value_are_put_together() -> None:
    x = parameter(1.0, 2.0, 3.0)
    with Tape():
        copy = Scale(1).apply_fwd(x)
        first, last = Slice(np.s_[:2]).apply_fwd(copy), Slice(np.s_[1:]).apply_fwd(copy)
        Sum().apply_fwd(Multiply().apply_fwd(first, last))
        tape_bwd()
    # L = x0 x1 + x1 x2
    assert x.out_gradient == pytest.approx([2, 1 + 3, 2])


def test_a_place_may_be_numpys_number() -> None:
    x = parameter(1.0, 2.0)
    with Tape():
        assert Slice(np.int64(1)).apply_fwd(x).out_tensor == 2
        tape_bwd()
    assert x.out_gradient == pytest.approx([0, 1])


def test_the_inner_tape_hides_the_outer_one() -> None:
    x = parameter(1.0)
    with Tape() as outer:
        Scale(3).apply_fwd(x)
        with Tape() as inner:
            assert current_tape() is inner
            Scale(5).apply_fwd(x)
            tape_bwd()
            assert len(inner) == 0 and len(outer) == 1
        assert x.out_gradient == pytest.approx(5)
        assert current_tape() is outer
        tape_bwd()
    assert x.out_gradient == pytest.approx(5 + 3)


def test_a_module_of_another_tape_is_no_input() -> None:
    with Tape():
        tanh = Tanh().apply_fwd(parameter(1.0))
        with Tape() as inner:
            with pytest.raises(AutodiffError, match="Sum: input 0, Tanh, is of another tape"):
                Sum().apply_fwd(tanh)
            assert Sum().apply_fwd(Value(tanh.out_tensor)) in inner.modules
        with no_grad():
            assert Sum().apply_fwd(tanh).out_tensor == pytest.approx(np.tanh(1))


def test_threads_do_not_see_each_others_tapes() -> None:
    gradients, tapes = {}, {}
    meet = threading.Barrier(2, timeout=600)

    def work(factor: float) -> None:
        x = parameter(1.0)
        scaled = Scale(factor).apply_fwd(x)  # on the thread's own default tape
        meet.wait()  # both have pushed
        tapes[factor] = current_tape().modules == (scaled,)
        meet.wait()
        tape_bwd()
        gradients[factor] = float(x.dense_gradient()[0])

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2.0, 7.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gradients == {2.0: 2.0, 7.0: 7.0}
    assert tapes == {2.0: True, 7.0: True}


def test_no_grad_pushes_nothing_and_lets_go_of_the_inputs() -> None:
    with Tape() as tape:
        with no_grad():
            x = parameter(0.5)
            kept = weakref.ref(x)
            tanh = Tanh().apply_fwd(x)
            del x
            gc.collect()
            assert kept() is None
            with pytest.raises(AutodiffError, match="no_grad"):
                tape_bwd()
        assert len(tape) == 0
        # what was made there is data to the rest
        y = parameter(2.0)
        Multiply().apply_fwd(tanh, y)
        tape_bwd()
    assert y.out_gradient == pytest.approx(np.tanh(0.5)) and tanh.out_gradient is None


def test_backward_can_start_with_a_gradient() -> None:
    x = parameter(1.0, 2.0)
    with Tape() as tape:
        Scale(2).apply_fwd(x)
        with pytest.raises(AutodiffError, match=r"gave Scale a gradient of \[1\], but its value has \[2\]"):
            tape.backward(np.ones(1))
        tape.backward([1, -3])
    assert x.out_gradient == pytest.approx([2, -6])


def test_numbers_without_axes() -> None:
    """NumPy makes plain numbers of them, which are no arrays."""

    class Double(Module):
        def forward(self, x: np.ndarray) -> np.ndarray:
            return x * 2

        def backward(self, g: np.ndarray) -> tuple[np.ndarray]:
            return (g * 2,)

    x = Parameter("x", 3.0)
    with Tape():
        twice = Double().apply_fwd(x)
        assert isinstance(Double().apply_fwd(twice).out_tensor, np.ndarray)
        tape_bwd()
    assert x.out_gradient == 4


class TestMisuse:
    def test_errors_are_chainrules_own(self) -> None:
        assert issubclass(NotANumberError, AutodiffError) and issubclass(AutodiffError, ChainruleError)

    def test_backward_on_an_empty_tape(self) -> None:
        with Tape(), pytest.raises(AutodiffError, match="empty tape"):
            tape_bwd()

    def test_backward_through_the_tape_twice(self) -> None:
        with Tape():
            Tanh().apply_fwd(parameter(1.0))
            tape_bwd()
            with pytest.raises(AutodiffError, match="emptied by an earlier backward"):
                tape_bwd()

    def test_backward_of_a_module(self) -> None:
        module = Tanh()
        with pytest.raises(AutodiffError, match="Tanh: backward before forward"):
            module.apply_bwd()
        with Tape():
            module.apply_fwd(parameter(1.0))
            with pytest.raises(AutodiffError, match="no gradient has flowed in"):
                module.apply_bwd()
            tape_bwd()
            with pytest.raises(AutodiffError, match="Tanh: backward twice"):
                module.apply_bwd()

    def test_inputs_that_are_not_there_yet_or_no_longer(self) -> None:
        with Tape():
            with pytest.raises(AutodiffError, match="Sum: input 0, Tanh, has no value yet"):
                Sum().apply_fwd(Tanh())
            tanh = Tanh().apply_fwd(parameter(1.0))
            tape_bwd()
            with pytest.raises(AutodiffError, match="Sum: input 0, Tanh, is of an emptied tape"):
                Sum().apply_fwd(tanh)

    def test_a_parameter_of_whole_numbers(self) -> None:
        with pytest.raises(AutodiffError, match=r"'n'.*floating.*int64"):
            Parameter("n", np.array([1, 2]))

    def test_an_error_inside_empties_the_tape(self) -> None:
        tape = Tape(reuse=True)
        with pytest.raises(RuntimeError), tape:
            Tanh().apply_fwd(parameter(1.0))
            raise RuntimeError
        assert len(tape) == 0 and current_tape() is not tape


class TestNotANumber:
    def test_names_the_first_module_that_made_it(self) -> None:
        with Tape():
            infinite = Scale(np.inf).apply_fwd(parameter(1.0, -1.0))  # infinities are no fault
            scaled = Scale(2).apply_fwd(infinite)
            with pytest.raises(
                NotANumberError, match=r"Sum is the first module.*Scale \[2\]: its inputs have none"
            ):
                Sum().apply_fwd(scaled)  # ∞ - ∞

    def test_names_the_parameter_that_had_it(self) -> None:
        with Tape(), pytest.raises(NotANumberError, match=r"Multiply.*x \[1\]: x had NaN before"):
            Multiply().apply_fwd(np.ones(1), parameter(np.nan))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_large_numbers_are_not_nan(self, dtype: type) -> None:
        largest = np.finfo(dtype).max  # its square is infinite
        with Tape():
            Scale(1).apply_fwd(np.array([largest, -largest, -np.inf], dtype))


def test_neither_torch_nor_numba_is_needed() -> None:
    code = (
        "import sys, chainrule.autodiff.checks; print([name for name in ('torch', 'numba') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_sparse_rows() -> None:
    rows = SparseRows(np.array([2, 0, 2]), np.array([[1.0], [2.0], [3.0]]))
    assert rows.dense((4, 1)).tolist() == [[2], [0], [1 + 3], [0]]
    merged = rows.merged()
    assert merged.ids.tolist() == [0, 2] and merged.rows.tolist() == [[2], [4]]
    assert (rows + merged).dense((4, 1)).tolist() == [[4], [0], [8], [0]]
    with pytest.raises(AutodiffError, match=r"\[3, 1\].*\[4, 2\].*axis 1"):
        rows.dense((4, 2))
    nothing = SparseRows(np.empty(0, np.int64), np.empty((0, 1)))
    assert nothing.dense((2, 1)).tolist() == [[0], [0]]
