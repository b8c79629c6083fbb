"""Scoring over HTTP, each request checked here before it is sent.

Shapes: B batch, D dense features, F sparse features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from types import TracebackType
from typing import Any

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from rec.core.errors import RequestError, ServingError
from rec.core.values import Values
from rec.serve.control import Control
from rec.serve.request import ENCODED_SUFFIX, NUMPY_TYPES, Arrays, TensorSpec, check_finite, pack_bytes, to_arrays
from rec.serve.triton_config import ServedState


@dataclass(frozen=True)
class ServedScores:
    """Scores of one call, row by row, and the version that gave them. Encoded rows where they were asked for."""

    version: int
    prob_B: np.ndarray
    logit_B: np.ndarray
    dense_BD: np.ndarray | None = field(default=None, repr=False)
    ids_BF: np.ndarray | None = field(default=None, repr=False)
    row_key_B: np.ndarray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.logit_B)


class Client:
    """A connection to one served model. Use it in the thread that made it."""

    def __init__(self, url: str, model_name: str, timeout_s: float = 60.0):
        """Ask the server for the model's form. Raises ServingError where it is not up or has no such model."""
        self.url, self.model_name = url, model_name
        config = Control(url, timeout_s).config(model_name)
        self.inputs = {i["name"]: _spec(i) for i in config["input"]}
        self.outputs = [o["name"] for o in config["output"]]
        if "state" not in config.get("parameters", {}):
            raise ServingError(f"server {url}: its model {model_name} is not of a push; choose another model name")
        self.state = ServedState.model_validate_json(config["parameters"]["state"]["string_value"])
        self._client = triton.InferenceServerClient(url, network_timeout=timeout_s, connection_timeout=timeout_s)

    def infer(self, arrays: Arrays, outputs: Sequence[str] = ("prob", "logit"), version: int | None = None) -> Arrays:
        """Send one request and return its outputs, with the answering version as ``version`` (int64 scalar array).

        Raises RequestError where a name, dtype, shape or number does not fit, before anything is sent.
        """
        self._check(arrays, outputs)
        inputs: list[_Input] = []
        for name, array in arrays.items():
            inputs.append(_Input(name, list(array.shape), self.inputs[name].datatype))
            try:
                inputs[-1].set_data_from_numpy(array)
            except TypeError:
                raise RequestError(f"model {self.model_name}: {_not_bytes(name, array)}") from None
        wanted = [triton.InferRequestedOutput(name) for name in outputs]
        try:
            reply = self._client.infer(self.model_name, inputs, model_version=str(version or ""), outputs=wanted)
        except InferenceServerException as error:
            text = " ".join(str(error.message()).split())
            kind = RequestError if error.status() in ("400", "StatusCode.INVALID_ARGUMENT") else ServingError
            raise kind(f"model {self.model_name} at {self.url}: {text}") from None
        except (OSError, HTTPException) as error:
            raise ServingError(
                f"server {self.url}: no answer ({error}); start one with `rec serve`, or correct serve.url"
            ) from None
        result = {name: reply.as_numpy(name) for name in outputs}
        return result | {"version": np.int64(reply.get_response()["model_version"])}

    def score(
        self,
        columns: dict[str, Values],
        *,
        encoded: bool = False,
        batch_size: int | None = None,
        version: int | None = None,
    ) -> ServedScores:
        """Score raw columns by name in requests of ``batch_size`` rows; ``encoded`` asks for the encoded rows too."""
        outputs = ["prob", "logit", *(n for n in self.outputs if encoded and n.startswith("encoded_"))]
        arrays = to_arrays(columns, self.state.raw)
        return self._score(arrays, outputs, batch_size, version)

    def score_encoded(
        self, dense_BD: np.ndarray, ids_BF: np.ndarray, *, batch_size: int | None = None, version: int | None = None
    ) -> ServedScores:
        """Score encoded rows; the client must be one of the model ``NAME_encoded``."""
        return self._score({"dense": dense_BD, "ids": ids_BF}, ["prob", "logit"], batch_size, version)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.close()

    def _score(
        self, arrays: Arrays, outputs: Sequence[str], batch_size: int | None, version: int | None
    ) -> ServedScores:
        num_rows = max((len(a) for a in arrays.values()), default=0)
        step = min(batch_size or self.state.max_batch_size, self.state.max_batch_size)
        replies = [
            self.infer({k: v[start : start + step] for k, v in arrays.items()}, outputs, version)
            for start in range(0, num_rows, step)
        ]
        versions = sorted({int(r["version"]) for r in replies}) or [self.state.version]
        if len(versions) > 1:
            raise ServingError(f"model {self.model_name}: versions {versions} answered one call; score again")
        joined = {name: _joined([r[name] for r in replies]) for name in outputs}
        return ServedScores(
            version=versions[0],
            prob_B=joined["prob"].reshape(-1),
            logit_B=joined["logit"].reshape(-1),
            dense_BD=joined.get("encoded_dense"),
            ids_BF=joined.get("encoded_ids"),
        )

    def _check(self, arrays: Arrays, outputs: Sequence[str]) -> None:
        where = f"model {self.model_name}"
        required = [s.name for s in self.inputs.values() if not s.optional]
        for name in [n for n in required if n not in arrays] + [n for n in arrays if n not in self.inputs]:
            raise RequestError(f"{where}: input {name!r}: expected {sorted(self.inputs)}, given {sorted(arrays)}")
        unknown = [n for n in outputs if n not in self.outputs]
        if unknown:
            raise RequestError(f"{where}: output {unknown[0]!r}: expected some of {self.outputs}, given {unknown}")
        num_rows = len(next(iter(arrays.values())))
        for name, array in arrays.items():
            spec = self.inputs[name]
            if (
                array.dtype != NUMPY_TYPES[spec.datatype]
                or array.shape != (num_rows, spec.width)
                or not 1 <= num_rows <= self.state.max_batch_size
            ):
                raise RequestError(
                    f"{where}: input {name!r}: expected {spec.datatype} [1 … {self.state.max_batch_size}, {spec.width}]"
                    f" with as many rows as the others, given {_triton_name(array)} {list(array.shape)}"
                )
            check_finite(name, array, [c.name for c in self.state.raw.dense] or ["?"])


class _Input(triton.InferInput):
    """tritonclient's input, with bytes packed all at once."""

    def set_data_from_numpy(self, input_tensor: np.ndarray, binary_data: bool = True) -> "_Input":
        if self._datatype != "BYTES":
            return super().set_data_from_numpy(input_tensor, binary_data)
        self._raw_data = pack_bytes(input_tensor)
        self._parameters["binary_data_size"] = len(self._raw_data)
        return self


def encoded_name(model_name: str) -> str:
    """Return the name of a model's encoded twin."""
    return f"{model_name}{ENCODED_SUFFIX}"


def _spec(tensor: dict[str, Any]) -> TensorSpec:
    datatype = tensor["data_type"].removeprefix("TYPE_").replace("STRING", "BYTES")
    return TensorSpec(tensor["name"], datatype, int(tensor["dims"][0]), bool(tensor.get("optional")))


def _triton_name(array: np.ndarray) -> str:
    for name, dtype in NUMPY_TYPES.items():
        if array.dtype == dtype:
            return name
    return str(array.dtype)


def _not_bytes(name: str, array: np.ndarray) -> str:
    position, value = next((p, v) for p, v in enumerate(array.flat) if not isinstance(v, bytes))
    row, column = divmod(position, array.shape[1])
    return f"input {name!r}: row {row}, column {column} is {value!r}; expected bytes, empty for missing"


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty((0, 1), np.float32)
