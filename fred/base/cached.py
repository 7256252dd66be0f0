"""What is made once for all runs that share it: data, and what components' functions have come to.

A program or a notebook may change the files that data come from, and the globals that its own functions look at: what has been
made of them must then be made anew.
"""

import sys
from collections.abc import Callable
from copy import deepcopy
from functools import _lru_cache_wrapper, lru_cache, wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fred.base import options

T = TypeVar("T")
_DATA: "list[_lru_cache_wrapper[Any]]" = []
_CODE: "list[_lru_cache_wrapper[Any]]" = []
_OPTIONS: list[dict[str, str]] = []  # jax's, at the experiment before


def data(size: int) -> "Callable[[Callable[..., T]], _lru_cache_wrapper[T]]":
    """`lru_cache` for what is read from files, or follows from it.

    Args:
        size: how many answers are kept.

    >>> @data(4)
    ... def doubled(number):
    ...     print("made")
    ...     return 2 * number
    >>> doubled(2), doubled(2)
    made
    (4, 4)
    >>> forget(compiled=False)
    >>> doubled(2)
    made
    4
    """
    return _kept(size, _DATA)


def code(size: int) -> "Callable[[Callable[..., T]], _lru_cache_wrapper[T]]":
    """`lru_cache` for what a component's functions have come to.

    Args:
        size: how many answers are kept.
    """
    return _kept(size, _CODE)


def with_each(function: "Callable[..., T]") -> "Callable[..., T]":
    """What follows from an object, worked out once as long as that lives; whoever asks gets a copy.

    Args:
        function: of an object that never changes, and perhaps of more that can be told apart.

    >>> class Book(list): __hash__ = object.__hash__
    >>> @with_each
    ... def words(book, letter):
    ...     print("counted")
    ...     return [word for word in book if letter in word]
    >>> book = Book(["much", "ado"])
    >>> words(book, "a"), words(book, "a")
    counted
    (['ado'], ['ado'])
    """
    answers: WeakKeyDictionary[Any, dict[Any, T]] = WeakKeyDictionary()

    @wraps(function)
    def asked(thing: Any, *more: Any) -> T:
        known = answers.setdefault(thing, {})
        if more not in known:
            known[more] = function(thing, *more)
        return deepcopy(known[more])

    return asked


def forget(compiled: bool) -> None:
    """Forget, before an experiment, what was read from files; and what code has come to, where jax's options have changed.

    Args:
        compiled: whether to forget what code has come to, compiled programs among it, in any case.
    """
    if (now := [options.telling()]) != _OPTIONS:
        _OPTIONS[:], compiled = now, True
    for cache in [*_DATA, *(_CODE if compiled else ())]:
        cache.cache_clear()
    if compiled and "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


def _kept(size: int, caches: "list[_lru_cache_wrapper[Any]]") -> "Callable[[Callable[..., T]], _lru_cache_wrapper[T]]":
    def decorated(function: Callable[..., T]) -> "_lru_cache_wrapper[T]":
        caches.append(lru_cache(size)(function))
        return caches[-1]

    return decorated
