"""Requests that arrive together share one run; one that cannot be scored fails alone."""

from collections.abc import Callable, Sequence

import numpy as np

from rec.core.errors import RecError
from rec.serve.request import Arrays

Score = Callable[[Arrays], Arrays]


def score_together(requests: Sequence[Arrays], check: Score, score: Score) -> list[Arrays | RecError]:
    """Return the outputs of each request, or its error.

    ``check`` does the part of ``score`` that can refuse a row. It is called, request by request, only when the shared
    run was refused: then the good ones share a second run.
    """
    try:
        return [*_split(score(_joined(requests)), requests)] if requests else []
    except RecError as error:
        if len(requests) == 1:
            return [error]
    faults = [_fault(request, check) for request in requests]
    good = [request for request, fault in zip(requests, faults) if fault is None]
    scored = iter(_split(score(_joined(good)), good) if good else [])
    return [next(scored) if fault is None else fault for fault in faults]


def _fault(request: Arrays, check: Score) -> RecError | None:
    try:
        check(request)
    except RecError as error:
        return error
    return None


def _joined(requests: Sequence[Arrays]) -> Arrays:
    if len(requests) == 1:
        return requests[0]
    return {name: np.concatenate([r[name] for r in requests]) for name in requests[0]}


def _split(outputs: Arrays, requests: Sequence[Arrays]) -> list[Arrays]:
    ends = np.cumsum([len(next(iter(r.values()))) for r in requests])
    starts = [0, *ends[:-1]]
    return [{name: array[a:b] for name, array in outputs.items()} for a, b in zip(starts, ends)]
