"""config.pbtxt: what Triton must know of a model, and what we read back from it.

The file is shared by all versions of a model, so it is also the one place that says which version is served: a restart
serves what it names, and replacing it is the moment of a push.
"""

import json
import re

from pydantic import BaseModel, ConfigDict

from rec.bundle.layout import BundleSchema
from rec.core.schema import FeatureSchema
from rec.serve.request import Kind, TensorSpec, input_specs, output_specs


class ServedState(BaseModel):
    """Which version a model serves, and all that served before it, oldest first, itself last."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    history: tuple[int, ...]
    bundle_id: str
    raw: FeatureSchema
    threads: int
    max_batch_size: int

    @property
    def version(self) -> int:
        return self.history[-1]


def config_text(name: str, kind: Kind, schema: BundleSchema, state: ServedState) -> str:
    """Return the config.pbtxt of one of the two models of a bundle.

    One instance: requests that wait together are scored in one run, and tables are mapped once.
    """
    inputs = ",\n".join(_tensor(s) for s in input_specs(schema, kind))
    outputs = ",\n".join(_tensor(s) for s in output_specs(schema, kind))
    return (
        f'name: "{name}"\n'
        'backend: "python"\n'
        f"max_batch_size: {state.max_batch_size}\n"
        f"input [\n{inputs}\n]\n"
        f"output [\n{outputs}\n]\n"
        "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
        "dynamic_batching { }\n"
        f"version_policy {{ specific {{ versions: [ {state.version} ] }} }}\n"
        # JSON twice: once for the value, once for the quoting, which protobuf's text form shares.
        f'parameters {{ key: "state" value {{ string_value: {json.dumps(state.model_dump_json())} }} }}\n'
    )


def read_state(text: str) -> ServedState:
    """Return the state that ``config_text`` wrote down. Raises ValueError where the text is not ours."""
    found = re.search(r'^parameters \{ key: "state" value \{ string_value: (".*") \} \}$', text, re.MULTILINE)
    if not found:
        raise ValueError("no parameter 'state'")
    return ServedState.model_validate_json(json.loads(found[1]))


def _tensor(spec: TensorSpec) -> str:
    optional = " optional: true" if spec.optional else ""
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return f'  {{ name: "{spec.name}" data_type: TYPE_{datatype} dims: [ {spec.width} ]{optional} }}'
