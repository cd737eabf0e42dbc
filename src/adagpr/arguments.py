"""Arguments checked against their annotations, all mistakes at once, in one wording.

A constructor marked with `checked` states the range of each argument in its signature, such as ``alpha: Fraction``. The
same signature then serves direct calls, configuration files and the command line, and the checked values are kept as
``self.arguments``, from which the object can be built again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from adagpr.errors import InputError, unknown_name


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError("must be a whole number")
    return int(value)


Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[Whole, Field(ge=1, le=10_000_000)]
# Of layers, hops and heads, each of which takes its time and is an object of its own.
Depth = Annotated[Whole, Field(ge=1, le=10_000)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Finite, Field(gt=0.0)]
Nonnegative = Annotated[Finite, Field(ge=0.0)]
MetricName = Literal["accuracy", "balanced_accuracy", "macro_f1", "roc_auc", "average_precision"]

P = ParamSpec("P")
M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """Data whose fields are checked: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def check(owner: str, fields: type[M], values: Mapping[str, Any]) -> M:
    """Validates what was given to ``owner``, such as ``"AdaGPR"``; one `InputError` names every mistake."""
    try:
        return fields.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(" ".join(_sentences(owner, fields, error))) from None


def _sentences(owner: str, fields: type[BaseModel], error: ValidationError) -> list[str]:
    found: dict[str, str] = {}
    for item in error.errors():
        key = str(item["loc"][0]) if item["loc"] else ""
        if item["type"] == "extra_forbidden":
            sentence = str(unknown_name(f"key of {owner}", key, fields.model_fields))
        elif item["type"] == "missing":
            sentence = f"{owner}: {key} is missing."
        else:
            rule = item["msg"].replace("Input should", "must").replace("Value error, ", "")
            sentence = f"{owner}: {key} {rule[0].lower()}{rule[1:]}, got {item['input']!r}."
        # A union reports once for each of its members; the first is the plain one.
        found.setdefault(key, sentence)
    return list(found.values())


@cache
def signature_fields(function: Callable[..., Any]) -> type[BaseModel]:
    """A pydantic model with one field for each argument of ``function`` but ``self``."""
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = inspect.signature(function).parameters.values()
    fields: dict[str, Any] = {
        item.name: (hints[item.name], ... if item.default is item.empty else item.default) for item in parameters
    }
    config = ConfigDict(extra="forbid", protected_namespaces=())
    return create_model(function.__qualname__, __config__=config, **fields)


def check_call(owner: str, function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``function`` with defaults filled in, converted and checked."""
    checked_values = check(owner, signature_fields(function), values)
    return {name: getattr(checked_values, name) for name in type(checked_values).model_fields}


def checked(init: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[Any, P], None]:
    """Checks the arguments of a constructor and keeps them as ``self.arguments``."""
    signature = inspect.signature(init)

    @wraps(init)
    def wrapper(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        _, *given = signature.bind(self, *args, **kwargs).arguments.items()
        arguments = check_call(type(self).__name__, init, dict(given))
        init(self, **arguments)  # type: ignore[call-arg]
        self.arguments = arguments

    return wrapper
