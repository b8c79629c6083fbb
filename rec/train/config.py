"""What a recipe says about training, beside how rows become batches."""

from typing import Literal

from pydantic import Field, model_validator

from rec.data.config import LoaderConfig
from rec.data.schedule import streams_of_rank
from rec.embedding.config import SparseOptimizerName

DenseOptimizerName = Literal["sgd", "adagrad", "adam"]
Metric = Literal["auc", "log_loss"]


class TrainConfig(LoaderConfig):
    """One flat section. ``num_proc`` ranks train the same model as one would, to float tolerance.

    After each epoch the valid days are scored; training stops when ``metric`` has not improved for ``patience`` epochs
    and the best epoch's checkpoint is the result. Without valid days all ``max_epochs`` are trained. ``refit`` asks
    the run for a second training, on train and valid days together, for as many epochs as the best had.
    """

    num_proc: int = Field(default=1, ge=1)
    max_epochs: int = Field(default=1, ge=1)
    metric: Metric = "auc"
    patience: int = Field(default=1, ge=1)
    refit: bool = False
    dense_optimizer: DenseOptimizerName = "adam"
    dense_learning_rate: float = Field(default=1e-3, gt=0)
    dense_weight_decay: float = Field(default=0.0, ge=0)
    sparse_optimizer: SparseOptimizerName = "rowwise_adagrad"
    sparse_learning_rate: float = Field(default=0.05, gt=0)
    data_parallel_max_bytes: int = Field(default=16_384, ge=0, description="tables up to this size are on every rank")
    embedding_bytes_per_rank: int | None = Field(default=None, ge=1, description="unset: the memory of the device")
    checkpoint_every_steps: int | None = Field(default=None, ge=1, description="unset: at the end of epochs only")

    @model_validator(mode="after")
    def _ranks_share_evenly(self) -> "TrainConfig":
        # Told with the recipe: a run would find out after its features were made.
        streams_of_rank(0, self.num_proc, self.num_streams)
        return self
