"""From a model config to its model."""

from rec.core.schema import FeatureSchema
from rec.model.base import Model, initialize
from rec.model.config import ModelConfig
from rec.model.dlrm import DLRM

MODELS: dict[str, type[DLRM]] = {"dlrm": DLRM}


def build_model(config: ModelConfig, schema: FeatureSchema, seed: int) -> Model:
    """Return the model that ``config.name`` names, with the weights that the seed gives."""
    model = MODELS[config.name](config, schema)
    initialize(model, seed)
    return model
