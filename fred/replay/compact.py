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
_MANY = 1 << 14  # words; a second lookup of this many examples made an update 6 % longer
_SOURCE, _SINK = 0, 1
_UNCUTTABLE = (1 << 30) - 1  # words; the sum with any smaller flow fits into 32 bits

Values = dict[Var, Any]


class Split(NamedTuple):
    """A function split into two, to be called one after the other."""

    begin: Callable[[Any, Any], list[jax.Array]]  # (first, always) -> intermediate values to store
    finish: Callable[[Sequence[jax.Array], Any, Any], Any]  # (stored values, always, later) -> the function's result
    kept: tuple[jax.ShapeDtypeStruct, ...]


def split(function: Callable[[Any, Any, Any], Any], first: Any, always: Any, later: Any, whole: bool = False) -> Split:
    """Split function(first, always, later), with arguments of these shapes; the first half does not use `later`.

    If `whole`, the first half computes everything, which is possible if `later` is not used.
    """
    program, result = jax.make_jaxpr(_inlined(function, first, always, later), return_shape=True)(first, always, later)
    counts = [len(jax.tree.leaves(part)) for part in (first, always, later)]
    variables = iter(program.jaxpr.invars)
    firsts, alwayses, laters = ([next(variables) for _ in range(count)] for count in counts)
    constants = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    equations, outputs = program.jaxpr.eqns, program.jaxpr.outvars
    kept = list(dict.fromkeys(_variables(outputs))) if whole else _cut(equations, outputs, firsts, laters)

    def begin(first: Any, always: Any) -> list[jax.Array]:
        return _evaluate(equations, kept, constants | _values(firsts, first) | _values(alwayses, always))

    def finish(between: Sequence[jax.Array], always: Any, later: Any) -> Any:
        known = constants | _values(kept, between) | _values(alwayses, always) | _values(laters, later)
        return jax.tree.unflatten(jax.tree.structure(result), _evaluate(equations, outputs, known))

    return Split(begin, finish, tuple(map(_shape, kept)))


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
    return [_read(values, each) for each in program.jaxpr.outvars]


def _execute(equation: JaxprEqn, values: Values) -> None:
    operands = [_read(values, each) for each in equation.invars]
    if equation.primitive is jit_p:
        results = _executed(equation.params["jaxpr"], operands)
    elif equation.primitive.name == "optimization_barrier":  # of several values; each would otherwise need all others
        results = [jax.lax.optimization_barrier(each) for each in operands]
    else:
        with equation.ctx.manager:
            results = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(equation.params))
    values.update(zip(equation.outvars, results if equation.primitive.multiple_results else [results], strict=True))


def _read(values: Values, atom: Any) -> Any:
    return atom.val if isinstance(atom, Literal) else values[atom]


def _evaluate(equations: Sequence[JaxprEqn], wanted: Sequence[Any], values: Values) -> list[Any]:
    """Return the wanted values, computed with only those equations that the known values make necessary."""
    missing = {each for each in wanted if isinstance(each, Var)} - values.keys()
    needed = []
    for equation in reversed(equations):
        if missing.intersection(equation.outvars):
            needed.append(equation)
            missing.update(set(_variables(equation.invars)) - values.keys())
    for equation in reversed(needed):
        _execute(equation, values)
    return [_read(values, each) for each in wanted]


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [each for each in atoms if isinstance(each, Var)]


def _reached(equations: Sequence[JaxprEqn], start: Sequence[Var]) -> dict[Var, None]:
    """Return all values that depend on these, in order."""
    reached = dict.fromkeys(start)
    for equation in equations:
        if any(each in reached for each in _variables(equation.invars)):
            reached.update(dict.fromkeys(equation.outvars))
    return reached


def _cut(equations: Sequence[JaxprEqn], outputs: Sequence[Any], firsts: Sequence[Var], laters: Sequence[Var]) -> list[Var]:
    """Return the smallest set of values that separates `firsts` from results and `laters`: the one nearest the results."""
    late = _reached(equations, laters)
    early = [each for each in _reached(equations, firsts) if each not in late]
    number = {each: 2 + 3 * i for i, each in enumerate(early)}  # entry; the next two: exit and computation
    ends = [each for each in _variables(outputs) if each in number]
    edges = [(_SOURCE, number[each], _UNCUTTABLE) for each in firsts if each in number]
    edges += [(number[each], number[each] + 1, _words(each)) for each in early]
    for equation in equations:
        sources = [each for each in _variables(equation.invars) if each in number]
        targets = [number[each] for each in equation.outvars if each in number]
        edges += [(number[each] + 1, target, _UNCUTTABLE) for each in sources for target in targets]
        edges += _repetition(targets, [number[each] for each in sources], _costly(equation))
        if any(each in late for each in equation.outvars):
            ends += sources
    edges += [(number[each] + 1, _SINK, _UNCUTTABLE) for each in set(ends)]
    if sum(map(_words, set(ends))) >= _UNCUTTABLE:
        return [each for each in early if each in ends]
    behind = _behind(edges, 2 + 3 * len(early))
    return [each for each in early if number[each] not in behind and number[each] + 1 in behind]


def _repetition(targets: Sequence[int], sources: Sequence[int], costly: bool) -> list[tuple[int, int, int]]:
    """Return edges of the graph: computing a value requires its operands, and no costly operation is repeated."""
    edges = [(target, target + 2, _UNCUTTABLE) for target in targets]
    edges += [(target + 2, source + 2, _UNCUTTABLE) for target in targets for source in sources]
    if costly:
        edges += [(target + 2, other, _UNCUTTABLE) for target in targets for other in targets]
    return edges


def _costly(equation: JaxprEqn) -> bool:
    inner = (each for part in jaxprs_in_params(equation.params) for each in part.eqns)
    large = equation.primitive.name == "gather" and sum(map(_words, equation.outvars)) >= _MANY
    return large or equation.primitive.name in _COSTLY or any(map(_costly, inner))


def _shape(variable: Var) -> jax.ShapeDtypeStruct:
    aval: Any = variable.aval
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _words(variable: Var) -> int:
    shape = _shape(variable)
    return min(_UNCUTTABLE, -(-shape.size * shape.dtype.itemsize // 4))


def _behind(edges: Sequence[tuple[int, int, int]], nodes: int) -> set[int]:
    """Return the nodes from which the sink can still be reached after a maximum flow."""
    capacities: dict[tuple[int, int], int] = {(start, end): size for start, end, size in edges}
    starts, ends = np.array(list(capacities)).T
    graph = scipy.sparse.csr_array((np.array(list(capacities.values()), np.int32), (starts, ends)), shape=(nodes, nodes))
    residual = scipy.sparse.csr_array(graph - scipy.sparse.csgraph.maximum_flow(graph, _SOURCE, _SINK).flow)
    residual.eliminate_zeros()
    return set(scipy.sparse.csgraph.breadth_first_order(residual.T.tocsr(), _SINK, return_predecessors=False).tolist())
