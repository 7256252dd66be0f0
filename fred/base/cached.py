"""Caches that runs share, for data and for results of components' functions.

Between experiments, a program or a notebook may change data files, and globals that its functions use. So caches that depend on
them are cleared before each experiment.
"""

import sys
from collections.abc import Callable
from copy import deepcopy
from functools import _lru_cache_wrapper, lru_cache, wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fred.base import environment

T = TypeVar("T")
_DATA: "list[_lru_cache_wrapper[Any]]" = []
_CODE: "list[_lru_cache_wrapper[Any]]" = []
_OPTIONS: list[dict[str, str]] = []  # jax's options in the last experiment


def data(size: int) -> "Callable[[Callable[..., T]], _lru_cache_wrapper[T]]":
    """Return an `lru_cache` decorator for functions that read files, or that depend on their content.

    Args:
        size: number of cached results.

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
    return _register(size, _DATA)


def code(size: int) -> "Callable[[Callable[..., T]], _lru_cache_wrapper[T]]":
    """Return an `lru_cache` decorator for functions that depend on the code of components.

    Args:
        size: number of cached results.
    """
    return _register(size, _CODE)


def cache_per_object(function: "Callable[..., T]") -> "Callable[..., T]":
    """Cache a function's results for the lifetime of its first argument. Each call returns a copy.

    Args:
        function: function of an immutable object and, optionally, of further hashable arguments.

    >>> class Book(list): __hash__ = object.__hash__
    >>> @cache_per_object
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
    def cached(key: Any, *arguments: Any) -> T:
        results = answers.setdefault(key, {})
        if arguments not in results:
            results[arguments] = function(key, *arguments)
        return deepcopy(results[arguments])

    return cached


def forget(compiled: bool) -> None:
    """Clear the caches of data before an experiment, and those of code if jax's options have changed.

    Args:
        compiled: True to clear the caches of code in any case, including jax's compiled programs.
    """
    if (options := [environment.changed_options()]) != _OPTIONS:
        _OPTIONS[:], compiled = options, True
    for cache in [*_DATA, *(_CODE if compiled else ())]:
        cache.cache_clear()
    if compiled and "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


def _register(size: int, caches: "list[_lru_cache_wrapper[Any]]") -> "Callable[[Callable[..., T]], _lru_cache_wrapper[T]]":
    """Return a decorator that caches a function's results, and adds the cache to a list that `forget` clears."""

    def decorate(function: Callable[..., T]) -> "_lru_cache_wrapper[T]":
        caches.append(lru_cache(size)(function))
        return caches[-1]

    return decorate
