"""Choices about embedding tables that a recipe makes."""

from typing import Literal

SparseOptimizerName = Literal["sgd", "adagrad", "rowwise_adagrad"]
