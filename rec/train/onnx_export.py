"""The dense part of a model as an ONNX graph, proven against torch.

Shapes: B batch, D dense features, F sparse features, E embedding_dim.
"""

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn

from rec.bundle.verify import logits_agree
from rec.core.errors import BundleError
from rec.model.base import Model

# The operator set that torch's exporter writes without a conversion.
OPSET = 18
CHECKED_BATCH_SIZES = (1, 7, 64, 2048)


class _Column(nn.Module):
    """Logits as [B, 1], the form in which they are served."""

    def __init__(self, model: Model):
        super().__init__()
        self.model = model

    def forward(self, dense_BD: torch.Tensor, embedded_BFE: torch.Tensor) -> torch.Tensor:
        return self.model(dense_BD, embedded_BFE).unsqueeze(1)


def onnx_bytes(model: Model, dense_BD: torch.Tensor, embedded_BFE: torch.Tensor) -> bytes:
    """Return the graph (dense, embedded) -> logit with a free batch dimension, weights inside.

    The rows given are those it is compared on, repeated to each batch size. Raises BundleError where onnxruntime's
    logits leave torch's at a batch of 1, 7, 64 or 2,048 rows.
    """
    model = model.cpu().eval()
    batch = torch.export.Dim("batch", min=1, max=1 << 20)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), _quiet():
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            _Column(model).eval(),
            (dense_BD[:2], embedded_BFE[:2]),
            str(path),
            input_names=["dense", "embedded"],
            output_names=["logit"],
            dynamic_shapes=({0: batch}, {0: batch}),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        content = path.read_bytes()
    _check_against_torch(content, model, dense_BD, embedded_BFE)
    return content


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks on its own passes out of the log; what it refuses it raises."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels):
                logger.setLevel(level)


def _check_against_torch(content: bytes, model: Model, dense_BD: torch.Tensor, embedded_BFE: torch.Tensor) -> None:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for batch_size in CHECKED_BATCH_SIZES:
        rows = torch.arange(batch_size) % len(dense_BD)
        with torch.no_grad():
            expected_B = model(dense_BD[rows], embedded_BFE[rows]).numpy()
        (given_B1,) = session.run(["logit"], {"dense": dense_BD[rows].numpy(), "embedded": embedded_BFE[rows].numpy()})
        given_B = np.asarray(given_B1)[:, 0]
        if not logits_agree(given_B, expected_B, dense_BD[rows].numpy()).all():
            worst = float(np.abs(given_B - expected_B).max())
            raise BundleError(
                f"model.onnx: logits differ from torch's by {worst:.3g} at a batch of {batch_size}; either weights "
                "hold NaN (train again) or onnxruntime computes one of the model's operators otherwise (replace it)"
            )
