"""Every model's config; the recipe's ``model.name`` chooses one of them."""

from typing import Literal

from pydantic import Field, PositiveInt

from rec.core.config import Config


class DLRMConfig(Config):
    """Deep learning recommendation model (Naumov et al. 2019): hidden layer widths, input and output left out."""

    name: Literal["dlrm"] = "dlrm"
    embedding_dim: int = Field(default=16, ge=4, multiple_of=4)
    bottom_mlp_hidden: tuple[PositiveInt, ...] = (64,)
    top_mlp_hidden: tuple[PositiveInt, ...] = (128, 64)
    pooling: Literal["sum", "mean"] = "sum"


# A second model makes this a union with ``name`` as its discriminator.
ModelConfig = DLRMConfig
