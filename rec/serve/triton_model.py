"""What the Python backend runs: an open bundle behind Triton's execute call.

A model folder's model.py names one of the two classes as ``TritonPythonModel``. The module runs in the server's stub:
``triton_python_backend_utils`` exists nowhere else.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as triton

from rec.bundle.bundle import Bundle, Scores
from rec.bundle.layout import BundleSchema
from rec.bundle.verify import open_bundle
from rec.core.errors import InputError, RecError, RequestError, ServingError
from rec.serve.batching import score_together
from rec.serve.request import NUMPY_TYPES, Arrays, Kind, check_finite, input_specs, to_columns, unpack_bytes
from rec.serve.triton_config import ServedState

BUNDLE_FOLDER = "bundle"
# The stub calls it by this name for every input of bytes; its own looks at one value at a time, in seven times as long.
triton.deserialize_bytes_tensor = unpack_bytes


class _Model:
    """Shared by both kinds; opening a bundle proves it and, by its goldens, warms the graph up."""

    kind: Kind

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        state = ServedState.model_validate_json(parameters["state"]["string_value"])
        folder = Path(args["model_repository"]) / args["model_version"] / BUNDLE_FOLDER
        self.bundle: Bundle = open_bundle(folder, state.threads)
        self.max_batch_size = state.max_batch_size
        schema = BundleSchema(raw=self.bundle.raw_schema, encoded=self.bundle.encoded_schema)
        self.inputs = input_specs(schema, self.kind)

    def execute(self, requests: list[Any]) -> list[Any]:
        read = [self._read(request) for request in requests]
        outcomes = iter(score_together([r for r in read if not isinstance(r, RecError)], self.check, self.score))
        results = [r if isinstance(r, RecError) else next(outcomes) for r in read]
        return [self._respond(request, result) for request, result in zip(requests, results)]

    def check(self, arrays: Arrays) -> Arrays:
        """Do what can refuse a row, without the dense graph."""
        raise NotImplementedError

    def score(self, arrays: Arrays) -> Arrays:
        """Return every output of the model."""
        raise NotImplementedError

    def _read(self, request: Any) -> Arrays | RecError:
        arrays: Arrays = {}
        try:
            for spec in self.inputs:
                tensor = triton.get_input_tensor_by_name(request, spec.name)
                if tensor is not None:
                    array = arrays[spec.name] = tensor.as_numpy()
                    _check_form(spec.name, array, NUMPY_TYPES[spec.datatype], spec.width)
                elif not spec.optional:
                    raise RequestError(
                        f"input {spec.name!r}: expected {spec.datatype} [batch, {spec.width}], not given"
                    )
        except RecError as error:
            return error
        if "dense" in arrays and any(s.name == "dense_missing" for s in self.inputs):
            arrays.setdefault("dense_missing", np.zeros(arrays["dense"].shape, bool))
        return arrays

    def _respond(self, request: Any, result: Arrays | RecError) -> Any:
        if not isinstance(result, RecError) and not np.isfinite(result["logit"]).all():
            row = int(np.argmin(np.isfinite(result["logit"][:, 0])))
            result = ServingError(f"logit of row {row} is {result['logit'][row, 0]}; the row leaves float32's range")
        if isinstance(result, RecError):
            code = triton.TritonError.INTERNAL if isinstance(result, ServingError) else triton.TritonError.INVALID_ARG
            return triton.InferenceResponse([], triton.TritonError(str(result), code))
        wanted = request.requested_output_names()
        return triton.InferenceResponse([triton.Tensor(n, np.ascontiguousarray(result[n])) for n in wanted])


class RawModel(_Model):
    """``NAME``: raw values, encoded here by the bundle's own states."""

    kind: Kind = "raw"

    def check(self, arrays: Arrays) -> Arrays:
        try:
            dense_BD, ids_BF = self.bundle.encode(to_columns(arrays, self.bundle.raw_schema))
        except InputError as error:
            raise RequestError(f"input 'sparse': {error}") from None
        return {"encoded_dense": dense_BD, "encoded_ids": ids_BF}

    def score(self, arrays: Arrays) -> Arrays:
        encoded = self.check(arrays)
        return encoded | _outputs(self.bundle.score_encoded(encoded["encoded_dense"], encoded["encoded_ids"]))


class EncodedModel(_Model):
    """``NAME_encoded``: dense numbers and ids as the feature table holds them."""

    kind: Kind = "encoded"

    def check(self, arrays: Arrays) -> Arrays:
        check_finite("dense", arrays["dense"], [c.name for c in self.bundle.encoded_schema.dense])
        self.bundle.check_ids(arrays["ids"])
        return {}

    def score(self, arrays: Arrays) -> Arrays:
        return _outputs(self.bundle.score_encoded(arrays["dense"], arrays["ids"]))


def _outputs(scores: Scores) -> Arrays:
    return {"prob": scores.prob_B[:, None], "logit": scores.logit_B[:, None]}


def _check_form(name: str, array: np.ndarray, dtype: type, width: int) -> None:
    if array.dtype != dtype or array.ndim != 2 or array.shape[1] != width:
        raise RequestError(
            f"input {name!r}: expected {np.dtype(dtype)} [batch, {width}], given {array.dtype} {list(array.shape)}"
        )
