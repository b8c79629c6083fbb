"""Records of a run as the stages write them: six days of Criteo-shaped clicks, seeded."""

import hashlib
import math
import random
from pathlib import Path

import pytest
from chromium import Chromium, find_chromium

from rec.core.records import Artifact, Run, StageRecord

CONFIG = {
    "name": "criteo_demo",
    "root": "lake/criteo_demo",
    "source": {"path": "raw/day_*", "layout": "criteo", "day": {"path": r"day_(\d+)"}},
    "days": {"train": [0, 1, 2, 3], "valid": [4], "test": [5]},
    "features": {
        "dense": {"columns": "I*", "ops": ["fill_missing", {"clip": {"min": 0}}, "log"]},
        "sparse": {"columns": "C*", "ops": [{"categorify": {"freq_threshold": 15}}]},
    },
    "model": {"name": "dlrm", "embedding_dim": 16, "bottom_mlp_hidden": [64], "top_mlp_hidden": [64]},
    "train": {"num_proc": 2, "global_batch_size": 1024, "max_epochs": 8, "seed": 1},
    "serve": {"repository": "models", "model_name": "criteo"},
}


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def ledger() -> list[dict]:
    rows = []
    for day in range(6):
        reasons = {"short:37": 41 + day, "int:I3": 7, "cat:C9": 3, **({"blank": 12} if day == 0 else {})}
        header, quarantined, lines = int(day == 0), sum(reasons.values()), 250_113 if day < 4 else 100_077
        accepted = lines - header - quarantined
        rows.append(
            {"file": f"raw/day_{day}", "day": day, "lines": lines, "accepted": accepted, "padded": 0, "header": header}
            | {"quarantined": quarantined, "unlabelled": 17, "reasons": reasons}
        )
    return rows


def columns() -> list[dict]:
    draw, rows = random.Random(5), 1_200_000
    dense = [
        {
            "name": f"I{i}",
            "role": "dense",
            "rows": rows,
            "missing": draw.choice([0, 37, draw.randrange(600_000)]),
            "min": -3.0 if i == 2 else 0.0,
            "max": float(10 ** draw.randint(2, 6)),
            "mean": draw.uniform(1, 900),
            "histogram": [[b, b + 1, int(9e4 * math.exp(-(((b - 12) / draw.uniform(5, 9)) ** 2)))] for b in range(64)],
        }
        for i in range(1, 14)
    ]
    sparse = []
    for i in range(1, 27):
        vocabulary = int(10 ** draw.uniform(0.8, 6))
        most = draw.uniform(0.05, 0.6) * rows
        values = [f"{draw.getrandbits(32):08x}" for _ in range(min(10, vocabulary))]
        sparse.append(
            {"name": f"C{i}", "role": "sparse", "rows": rows, "missing": draw.choice([0, draw.randrange(500_000)])}
            | {"unseen": draw.randrange(60_000), "vocabulary": vocabulary, "num_embeddings": vocabulary + 3}
            | {"top_values": [[value, int(most / (rank + 1) ** 1.2)] for rank, value in enumerate(values)]}
        )
    return dense + sparse


def evaluation(day: int, auc: float) -> dict:
    return {
        "days": [day],
        "num_rows": 100_011,
        "num_positive": 25_402,
        "auc": auc,
        "log_loss": 0.4713 + 0.79 - auc,
        "normalized_entropy": 0.8312 + 0.79 - auc,
        "calibration": 1.0042,
    }


def train_figures() -> dict:
    draw = random.Random(7)
    aucs = [0.7701, 0.7818, 0.7862, 0.7849]
    plan = [
        {"table": c["name"], "num_embeddings": c["num_embeddings"], "megabytes": c["num_embeddings"] * 64 / 1e6}
        | ({"sharding": "data_parallel", "ranks": [0, 1]} if c["vocabulary"] < 2000 else {"sharding": "table_wise"})
        for c in columns()
        if c["role"] == "sparse"
    ]
    for i, table in enumerate(plan):
        table.setdefault("ranks", [i % 2])
    return {
        "loss_curve": [[s, 0.47 + 0.22 * math.exp(-s / 400) + draw.gauss(0, 0.012)] for s in range(1, 3905)],
        "epochs": [
            {"epoch": i + 1, "train_loss": 0.51 - 0.012 * i, "valid": evaluation(4, auc)} for i, auc in enumerate(aucs)
        ],
        "best_epoch": 3,
        "metric": "auc",
        "max_epochs": 8,
        "patience": 1,
        "stopped_early": True,
        "rows_per_second": 41_870.4,
        "num_steps": 3904,
        "num_parameters": 61_450_113,
        "world_size": 2,
        "plan": plan,
    }


def evaluate_figures() -> dict:
    predicted = [0.03 + 0.042 * i for i in range(20)]
    return {
        "valid": evaluation(4, 0.7862),
        "test": evaluation(5, 0.7849),
        "interval": [0.7817, 0.7881],
        "roc": [[i / 199, (i / 199) ** 0.27] for i in range(200)],
        "calibration": [[p, p + 0.012 * math.sin(9 * p), 5000 - 220 * i] for i, p in enumerate(predicted)],
        "baselines": {
            "logistic_regression": {"auc": 0.7712, "interval": [0.7679, 0.7745]},
            "planted": {"auc": 0.8043},
        },
    }


def push_figures() -> dict:
    parity = {
        "rows": 100_011,
        "ids_differ": 0,
        "dense_differ": 0,
        "dense_ulp": 214,
        "scores_differ": 0,
    }
    return {
        "model": "criteo",
        "version": 3,
        "goldens": 312,
        "parity": parity | {"max_logit_delta": 3.81e-6, "auc_delta": 2.1e-9},
        "latency_ms": {"1": [1.92, 3.40], "64": [3.11, 5.02], "2048": [21.7, 33.9]},
        "in_process_ms": {"1": [0.31, 0.55], "64": [2.26, 2.90], "2048": [18.9, 24.2]},
        "latency_ratio": {"1": 6.19, "64": 1.376, "2048": 1.148},
    }


def stage_records(run_id: str = "20260301T021500000000") -> dict[str, StageRecord]:
    """Return the four records of a whole run."""
    raw = {f"day_{d}": Artifact(uri=f"raw/day_{d}", sha256=digest(f"day_{d}")) for d in range(6)}
    features = Artifact(uri="lake/criteo_demo/features", version=6)
    state = Artifact(uri="lake/criteo_demo/states/9f3c21", sha256=digest("state"))
    checkpoint = Artifact(uri="lake/criteo_demo/checkpoints/final", sha256=digest("checkpoint"))
    bundle = Artifact(uri="lake/criteo_demo/bundles/3", sha256=digest("bundle"))
    served = Artifact(uri="models/criteo/3", version=3, sha256=digest("bundle"))
    etl = {"ledger": ledger(), "num_rows": sum(r["accepted"] for r in ledger()), "days": list(range(6))}
    etl |= {"state_id": "9f3c21", "no_op": False, "columns": columns()}
    etl["gpu_receipt"] = {"operators_on_gpu": 418, "fallbacks": [], "queries": 31, "plans": 31}
    etl["gpu_receipt"] |= {"is_whole": True, "broadcasts": True}
    etl["gpu_receipt"]["run_id"] = "20260228T190000000000"
    made = [
        ("etl", raw, {"features": features, "state": state}, etl, 96.2, ()),
        ("train", {"features": features}, {"checkpoint": checkpoint}, train_figures(), 251.9, ()),
        ("evaluate", {"features": features, "checkpoint": checkpoint}, {}, evaluate_figures(), 31.4, ()),
        (
            "push",
            {"checkpoint": checkpoint, "state": state},
            {"bundle": bundle, "served": served},
            push_figures(),
            24.0,
            ("serve.http_port 8000 was taken, 8010 is used",),
        ),
    ]
    return {
        stage: StageRecord(
            run_id=run_id,
            stage=stage,
            config=CONFIG,
            inputs=inputs,
            outputs=outputs,
            figures=figures,
            warnings=warnings,
            started_utc=f"2026-03-01T02:1{5 + i}:00+00:00",
            seconds=seconds,
        )
        for i, (stage, inputs, outputs, figures, seconds, warnings) in enumerate(made)
    }


def write_run(root: Path, records: dict[str, StageRecord]) -> Path:
    """Write the records as the stages do; return the run's folder."""
    run = Run(root, next(iter(records.values())).run_id)
    for record in records.values():
        run.write(record)
    return run.folder


@pytest.fixture
def records() -> dict[str, StageRecord]:
    return stage_records()


@pytest.fixture(scope="session")
def chromium():
    program = find_chromium()
    if program is None:
        pytest.skip("no chromium on PATH: apt-get install chromium")
    with Chromium(program) as browser:
        yield browser
