"""Settings of serving: the recipe's section ``serve``."""

from pathlib import Path

from pydantic import Field

from rec.core.config import Config, LocalFolder

Port = int | None


class ServeConfig(Config):
    """Where models are kept and how a server answers.

    ``url``: a running server (host:port of its HTTP side); without one, the server that already runs on
    ``repository`` is used, or one is started. ``http_port`` without a number: any free one; ``grpc_port`` and
    ``metrics_port`` without a number: not opened. ``threads``: onnxruntime's threads per model. ``environment``: the
    virtual environment that holds tritonserver; without one, ``.venv-serve`` beside the package or the running one.
    """

    repository: LocalFolder = Path("models")
    model_name: str = Field(default="ranker", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    max_batch_size: int = Field(default=4096, ge=1)
    url: str | None = None
    host: str = "127.0.0.1"
    http_port: Port = Field(default=None, ge=1, le=65535)
    grpc_port: Port = Field(default=None, ge=1, le=65535)
    metrics_port: Port = Field(default=None, ge=1, le=65535)
    threads: int = Field(default=1, ge=1)
    environment: LocalFolder | None = None
    timeout_s: float = Field(default=120.0, gt=0)
