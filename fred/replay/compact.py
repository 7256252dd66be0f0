"""Functions split in two where the least data lies between; for gradients, which are computed before they are applied.

The gradient of a fully connected layer is inputs^T deltas: a minibatch's example indices, activations and deltas are far
fewer numbers than the gradient. The least data is a minimum cut of the function's dataflow graph. Products and loops are
computed in one half only: a convolution in both made an update 1.5 times as long. Cheap operations, such as looking up
examples, may be in both.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var, jaxprs_in_params
from jax.extend.core.primitives import jit_p

_COSTLY = {"dot_general", "conv_general_dilated", "scan", "while", "sort", "fft"}  # and everything that contains one of these
_MANY_WORDS = 1 << 14  # words; a second lookup of this many examples made an update 6 % longer
_SOURCE, _SINK = 0, 1
_UNCUTTABLE = (1 << 30) - 1  # words; the sum with any smaller flow fits into 32 bits

Values = dict[Var, Any]


class Split(NamedTuple):
    """A function split into two, to be called one after the other."""

    begin: Callable[[Any, Any], list[jax.Array]]  # (first, shared) -> intermediate values to store
    finish: Callable[[Sequence[jax.Array], Any, Any], Any]  # (stored values, shared, second) -> the function's result
    stored: tuple[jax.ShapeDtypeStruct, ...]


def split_function(
    function: Callable[[Any, Any, Any], Any], first: Any, shared: Any, second: Any, undivided: bool = False
) -> Split:
    """Split function(first, shared, second), with arguments of these shapes.

    Only the first half uses `first`, only the second half uses `second`, and both may use `shared`.

    If `undivided`, the first half computes everything, which is possible if `second` is not used.
    """
    program, result = jax.make_jaxpr(_inlined(function, first, shared, second), return_shape=True)(first, shared, second)
    counts = [len(jax.tree.leaves(part)) for part in (first, shared, second)]
    variables = iter(program.jaxpr.invars)
    firsts, shared_variables, seconds = ([next(variables) for _ in range(count)] for count in counts)
    constants = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    equations, outputs = program.jaxpr.eqns, program.jaxpr.outvars
    stored = list(dict.fromkeys(_variables(outputs))) if undivided else _minimum_cut(equations, outputs, firsts, seconds)

    def begin(first: Any, shared: Any) -> list[jax.Array]:
        return _evaluate(equations, stored, constants | _values(firsts, first) | _values(shared_variables, shared))

    def finish(stored_values: Sequence[jax.Array], shared: Any, second: Any) -> Any:
        values = constants | _values(stored, stored_values) | _values(shared_variables, shared) | _values(seconds, second)
        return jax.tree.unflatten(jax.tree.structure(result), _evaluate(equations, outputs, values))

    return Split(begin, finish, tuple(map(_shape, stored)))


def _values(variables: Sequence[Var], tree: Any) -> Values:
    return dict(zip(variables, jax.tree.leaves(tree), strict=True))


def _inlined(function: Callable, *arguments: Any) -> Callable:
    """Return the same function with all jitted functions inside it inlined."""
    program, result = jax.make_jaxpr(function, return_shape=True)(*arguments)

    def inlined(*arguments: Any) -> Any:
        return jax.tree.unflatten(jax.tree.structure(result), _executed(program, jax.tree.leaves(arguments)))

    return inlined


def _executed(program: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    values = dict(zip((*program.jaxpr.constvars, *program.jaxpr.invars), (*program.consts, *arguments), strict=True))
    for equation in program.jaxpr.eqns:
        _execute(equation, values)
    return [_lookup(values, atom) for atom in program.jaxpr.outvars]


def _execute(equation: JaxprEqn, values: Values) -> None:
    operands = [_lookup(values, operand) for operand in equation.invars]
    if equation.primitive is jit_p:
        results = _executed(equation.params["jaxpr"], operands)
    elif equation.primitive.name == "optimization_barrier":  # of several values; each would otherwise need all others
        results = [jax.lax.optimization_barrier(operand) for operand in operands]
    else:
        with equation.ctx.manager:
            results = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(equation.params))
    values.update(zip(equation.outvars, results if equation.primitive.multiple_results else [results], strict=True))


def _lookup(values: Values, atom: Any) -> Any:
    return atom.val if isinstance(atom, Literal) else values[atom]


def _evaluate(equations: Sequence[JaxprEqn], atoms: Sequence[Any], values: Values) -> list[Any]:
    """Return the values of these atoms, computed by only those equations that are necessary if `values` are known."""
    missing = {atom for atom in atoms if isinstance(atom, Var)} - values.keys()
    required = []
    for equation in reversed(equations):
        if missing.intersection(equation.outvars):
            required.append(equation)
            missing.update(set(_variables(equation.invars)) - values.keys())
    for equation in reversed(required):
        _execute(equation, values)
    return [_lookup(values, atom) for atom in atoms]


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [atom for atom in atoms if isinstance(atom, Var)]


def _reached(equations: Sequence[JaxprEqn], start: Sequence[Var]) -> dict[Var, None]:
    """Return all values that depend on these, and these themselves, in order."""
    reached = dict.fromkeys(start)
    for equation in equations:
        if any(variable in reached for variable in _variables(equation.invars)):
            reached.update(dict.fromkeys(equation.outvars))
    return reached


def _minimum_cut(
    equations: Sequence[JaxprEqn], outputs: Sequence[Any], firsts: Sequence[Var], seconds: Sequence[Var]
) -> list[Var]:
    """Return the smallest set of values that separates `firsts` from results and `seconds`: the one nearest the results."""
    # Each value has three nodes. The edge from its entry to its exit costs its words: cut, it means that the value is stored.
    # An edge that cannot be cut from one node to another means that the second is in the first half if the first is. A value
    # whose entry is in the first half is computed there, and so are its operands, one by one (`_repetition`). A value whose
    # entry is in the second half is computed there, perhaps for the second time. If the first half computes a costly operation,
    # the entries of its results are in the first half, so the second half never computes it again.
    late = _reached(equations, seconds)
    early = [variable for variable in _reached(equations, firsts) if variable not in late]
    entry = {variable: 2 + 3 * i for i, variable in enumerate(early)}  # node; the next two: exit and computation
    needed_late = [variable for variable in _variables(outputs) if variable in entry]  # early values that the second half reads
    edges = [(_SOURCE, entry[variable], _UNCUTTABLE) for variable in firsts if variable in entry]
    edges += [(entry[variable], entry[variable] + 1, _words(variable)) for variable in early]
    for equation in equations:
        sources = [variable for variable in _variables(equation.invars) if variable in entry]
        targets = [entry[variable] for variable in equation.outvars if variable in entry]
        edges += [(entry[variable] + 1, target, _UNCUTTABLE) for variable in sources for target in targets]
        edges += _repetition(targets, [entry[variable] for variable in sources], costly=_is_costly(equation))
        if any(variable in late for variable in equation.outvars):
            needed_late += sources
    edges += [(entry[variable] + 1, _SINK, _UNCUTTABLE) for variable in set(needed_late)]
    if sum(map(_words, set(needed_late))) >= _UNCUTTABLE:  # a cut might take an edge that cannot be cut
        return [variable for variable in early if variable in needed_late]
    sink_side = _sink_side(edges, 2 + 3 * len(early))
    return [variable for variable in early if entry[variable] not in sink_side and entry[variable] + 1 in sink_side]


def _repetition(targets: Sequence[int], sources: Sequence[int], costly: bool) -> list[tuple[int, int, int]]:
    """Return edges of the graph: computing a value requires its operands, and no costly operation is repeated."""
    edges = [(target, target + 2, _UNCUTTABLE) for target in targets]
    edges += [(target + 2, source + 2, _UNCUTTABLE) for target in targets for source in sources]
    if costly:
        edges += [(target + 2, other, _UNCUTTABLE) for target in targets for other in targets]  # stays in the first half
    return edges


def _is_costly(equation: JaxprEqn) -> bool:
    inner = (inner_equation for part in jaxprs_in_params(equation.params) for inner_equation in part.eqns)
    is_large_lookup = equation.primitive.name == "gather" and sum(map(_words, equation.outvars)) >= _MANY_WORDS
    return is_large_lookup or equation.primitive.name in _COSTLY or any(map(_is_costly, inner))


def _shape(variable: Var) -> jax.ShapeDtypeStruct:
    aval: Any = variable.aval
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _words(variable: Var) -> int:
    shape = _shape(variable)
    return min(_UNCUTTABLE, -(-shape.size * shape.dtype.itemsize // 4))


def _sink_side(edges: Sequence[tuple[int, int, int]], nodes: int) -> set[int]:
    """Return the nodes from which the sink can still be reached after a maximum flow."""
    capacities: dict[tuple[int, int], int] = {(start, end): size for start, end, size in edges}
    starts, ends = np.array(list(capacities)).T
    graph = scipy.sparse.csr_array((np.array(list(capacities.values()), np.int32), (starts, ends)), shape=(nodes, nodes))
    # the capacities that remain; backwards from the sink along them, no edge of the cut is passed
    residual = scipy.sparse.csr_array(graph - scipy.sparse.csgraph.maximum_flow(graph, _SOURCE, _SINK).flow)
    residual.eliminate_zeros()
    return set(scipy.sparse.csgraph.breadth_first_order(residual.T.tocsr(), _SINK, return_predecessors=False).tolist())
