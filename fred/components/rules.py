"""Rules for settings that do not fit together: tables of options, the facts that exclude them, and messages with the cure."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic_core import PydanticCustomError

from fred.components.component import Component
from fred.components.problems import Keys

C = TypeVar("C", bound=Component)


class Rule(NamedTuple, Generic[C]):
    """Options of a component that a fact about the component excludes.

    Args:
        options: paths of the options, with spaces between them; `*` stands for each item of a list. The rule applies to options
            that are not at their default. Empty: it always applies.
        excluded: returns the fact that excludes the option, or anything false; called with the component and the option's
            value.
        message: the problem and its whole cure, a format string in which `fact` and `value` are these two, `option` is the last
            key of the option's path, and `self` is the component.
        part: key of the component's part that messages name instead of the component.

    Example: a rule for clusters of one worker:

        >>> import fred
        >>> lonely = Rule("workers", lambda cluster, number: number < 2, "`{option}` is {value}; expected 2 or more")
        >>> check_rules(fred.Cluster(workers=1), [lonely])
        Traceback (most recent call last):
        ValueError: `workers` is 1; expected 2 or more
    """

    options: str
    excluded: Callable[[C, Any], object]
    message: str
    part: str = ""

    def objection(self, component: C, keys: Keys, value: Any) -> str:
        """Return the message if the component's fact excludes an option; else nothing.

        Args:
            component: the component.
            keys, value: keys and value of one of the rule's options that is set.
        """
        fact = self.excluded(component, value)
        return self.message.format(self=component, fact=fact, value=value, option=keys[-1] if keys else "") if fact else ""


def check_rules(component: C, rules: Iterable[Rule[C]]) -> None:
    """Raise an error for the first broken rule, as a validator of the component.

    Args:
        component: the component, with valid parts.
        rules: its rules; a rule may rely on those before it.
    """
    for rule in rules:
        for keys, value in set_options(component, rule.options):
            if message := rule.objection(component, keys, value):
                raise error_at(rule.part, message) if rule.part else ValueError(message)


def set_options(component: Component, paths: str) -> Iterator[tuple[Keys, Any]]:
    """Yield the keys and the value of each option that is not its default.

    Args:
        component: the component.
        paths: paths of options as in `Rule`; empty: the component itself.
    """
    for path in paths.split() or [""]:
        yield from _set_values(component, tuple(path.split(".")) if path else (), ())


def _set_values(part: Any, path: tuple[str, ...], keys: Keys) -> Iterator[tuple[Keys, Any]]:
    if not path:
        yield keys, part
    elif path[0] == "*":
        for number, item in enumerate(part):
            yield from _set_values(item, path[1:], (*keys, number))
    elif isinstance(part, Component) and path[0] in type(part).model_fields:
        value = getattr(part, path[0])
        if value is not None and value != part.default_of(path[0]):
            yield from _set_values(value, path[1:], (*keys, path[0]))


def error_at(part: str, message: str) -> PydanticCustomError:
    """Return the error of a validator whose message names the line of a part.

    Args:
        part: key of the part.
        message: the message.
    """
    return PydanticCustomError("component", "{reason}", {"reason": message, "key": part})
