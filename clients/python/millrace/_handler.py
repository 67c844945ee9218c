"""What a handler has to be: a plain function of one argument, which is called in a thread."""

from __future__ import annotations

import inspect
from typing import Any, Optional


def handler_problem(handler: Any) -> Optional[str]:
    """Say why a worker cannot call a handler, or None. The body of a function that is async, or a
    generator, does not run when it is called, so its job would be completed and not done."""
    if not callable(handler):
        return f"handler {handler!r} cannot be called"
    for function in (handler, getattr(handler, "__call__")):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return f"handler {handler!r} is async: a handler is a plain function (asyncio.run)"
        if inspect.isgeneratorfunction(function):
            return f"handler {handler!r} is a generator: a handler is a plain function"
    try:
        inspect.signature(handler).bind(None)
    except ValueError:  # a builtin function may have no signature
        return None
    except TypeError as error:
        return f"handler {handler!r} does not take one argument, the run: {error}"
    return None


def check_result(result: Any) -> None:
    """Fail a run whose handler has returned something that has still to run, as a wrapped async
    function does."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    elif not inspect.isawaitable(result) and not inspect.isasyncgen(result):
        return
    raise TypeError(f"the handler returned a {type(result).__name__}, which did not run")
