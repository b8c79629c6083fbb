"""A checkpoint becomes a bundle that scores as the trainer did, or is refused with the reason."""

import subprocess
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from deltalake import write_deltalake
from made_bundle import fit_by_hand, golden_rows, make_bundle, make_rows, raw_schema

from rec.bundle.bundle import Bundle
from rec.bundle.goldens import Goldens, check_coverage
from rec.bundle.layout import read_manifest
from rec.bundle.verify import logits_agree, open_bundle
from rec.core.errors import BundleError
from rec.core.pins import read_pins
from rec.core.schema import Column, FeatureSchema
from rec.core.tables import Days, FeatureTable
from rec.model.config import DLRMConfig
from rec.model.registry import build_model
from rec.ops.fill_missing import FillMissing
from rec.ops.op import NoState
from rec.ops.pipeline import Pipeline
from rec.serve.environment import find_environment
from rec.train.checkpoint import load_model
from rec.train.config import TrainConfig
from rec.train.export import TrainedModel, bundle_schema, export, export_model
from rec.train.onnx_export import CHECKED_BATCH_SIZES, OPSET, onnx_bytes
from rec.train.records import TrainingJob
from rec.train.trainer import train

NUM_ROWS = 2100


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A root with a feature table of day 0 and golden rows of two states."""
    root = tmp_path_factory.mktemp("lake")
    fitted = replace(fit_by_hand(raw_schema()), root=str(root))
    encoded = fitted.replay(make_rows(fitted.schema, NUM_ROWS, seed=1))
    arrays = {name: values.data_B for name, values in encoded.items()}
    dense = {c.name: pa.array(np.clip(arrays[c.name], -5, 50), pa.float32()) for c in fitted.schema.dense}
    sparse = {c.name: pa.array(arrays[c.name], pa.int32()) for c in fitted.schema.sparse}
    label = pa.array(np.random.default_rng(0).integers(0, 2, NUM_ROWS), pa.int32())
    day = pa.array(np.zeros(NUM_ROWS), pa.int32())
    columns = {"row_key": pa.array(range(NUM_ROWS), pa.int64()), "label": label, **dense, **sparse, "day": day}
    write_deltalake(str(root / "features"), pa.table(columns), partition_by=["day"])
    for state_id in ("f" * 64, fitted.state_id):
        write_goldens(root, fitted, state_id)
    return fitted


def write_goldens(root, fitted, state_id):
    rows = golden_rows(fitted, bundle_schema(fitted).encoded)
    shift = 0 if state_id == fitted.state_id else 7
    columns = {"golden_id": pa.array(reversed(range(len(rows.ids_NF))), pa.int32())}
    for name, values in rows.raw.items():
        given = [None if gone else v for v, gone in zip(values.data_B.tolist(), values.missing_B)]
        columns[f"raw_{name}"] = pa.array([v.decode() if isinstance(v, bytes) else v for v in given])
    for place, column in enumerate(fitted.schema.dense):
        columns[column.name] = pa.array(rows.dense_ND[:, place], pa.float32())
    for place, column in enumerate(fitted.schema.sparse):
        columns[column.name] = pa.array(rows.ids_NF[:, place] + shift, pa.int32())
    columns["state_id"] = pa.array([state_id] * len(rows.ids_NF))
    write_deltalake(str(root / "goldens"), pa.table(columns), partition_by=["state_id"], mode="append")


def feature_table(fitted, state_id):
    columns = (
        Column(name="row_key", role="row_key", dtype="int64"),
        *fitted.encoded_schema.columns,
        Column(name="day", role="day", dtype="int32"),
    )
    return FeatureTable(
        uri=f"{fitted.root}/features",
        version=0,
        schema=FeatureSchema(columns=columns),
        num_rows=NUM_ROWS,
        days=(0,),
        state_id=state_id,
    )


@pytest.fixture(scope="module")
def checkpoint(lake, one_rank, tmp_path_factory):
    """One epoch on one rank."""
    job = TrainingJob(
        table=feature_table(lake, lake.state_id),
        days=Days(train=(0,)),
        model=DLRMConfig(embedding_dim=4),
        config=TrainConfig(global_batch_size=256, num_streams=4, max_epochs=1),
        folder=str(tmp_path_factory.mktemp("training")),
    )
    return one_rank.run(train, job)[0]


@pytest.fixture(scope="module")
def bundle(checkpoint, lake):
    return export(checkpoint, lake)


@pytest.mark.parametrize("batch_size", CHECKED_BATCH_SIZES)
def test_the_bundle_scores_as_the_trainer(bundle, checkpoint, lake, batch_size):
    model, tables = load_model(checkpoint)
    rows = make_rows(lake.schema, batch_size, seed=8)
    dense_BD, ids_BF = bundle.encode(rows)
    names = [c.name for c in bundle.encoded_schema.sparse]
    with torch.no_grad():
        embedded_BFE = torch.stack([tables[n][torch.from_numpy(ids_BF[:, k])] for k, n in enumerate(names)], 1)
        expected_B = model(torch.from_numpy(dense_BD), embedded_BFE).numpy()
    assert logits_agree(bundle.score(rows).logit_B, expected_B, dense_BD).all()


def test_the_manifest_tells_where_everything_came_from(bundle, checkpoint, lake):
    manifest = read_manifest(bundle.path)
    assert manifest.checkpoint.sha256 == checkpoint.sha256
    assert (manifest.feature_table.uri, manifest.feature_table.version) == (f"{lake.root}/features", 0)
    assert (manifest.state_id, manifest.opset) == (lake.state_id, OPSET)
    assert read_pins(lake.root) == {f"bundle-{bundle.bundle_id[:16]}": 0}


def test_goldens_come_from_the_table_in_order_of_their_number(bundle, lake):
    expected = golden_rows(lake, bundle.encoded_schema)
    np.testing.assert_array_equal(bundle.goldens().ids_NF, expected.ids_NF[::-1])
    np.testing.assert_array_equal(bundle.goldens().raw["I2"].data_B, expected.raw["I2"].data_B[::-1])


def test_the_same_export_again_opens_what_is_there(bundle, checkpoint, lake):
    assert export(checkpoint.path, lake).bundle_id == bundle.bundle_id


def test_a_chosen_folder_is_never_overwritten(bundle, checkpoint, lake, tmp_path):
    assert export(checkpoint, lake, tmp_path / "here").manifest.tables == bundle.manifest.tables
    with pytest.raises(BundleError, match="here: it exists and a bundle is never rewritten; remove it"):
        export(checkpoint, lake, tmp_path / "here")


def test_states_that_the_checkpoint_was_not_trained_on_are_refused(checkpoint, lake, tmp_path):
    other = replace(fit_by_hand(raw_schema(), scale=3.0), root=lake.root)
    with pytest.raises(BundleError, match=r"trained on state \w+…, given is \w+…; export with the states"):
        export(checkpoint, other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_root_without_goldens_of_the_state_is_refused(checkpoint, lake, tmp_path):
    with pytest.raises(BundleError, match=r"goldens: no table of golden rows .*write the feature table again"):
        export(checkpoint, replace(lake, root=str(tmp_path)), tmp_path / "out")
    write_goldens(tmp_path, lake, "e" * 64)
    with pytest.raises(BundleError, match=rf"goldens: no rows of state {lake.state_id[:16]}"):
        export(checkpoint, replace(lake, root=str(tmp_path)), tmp_path / "out")


@dataclass(frozen=True)
class Neighbours(FillMissing):
    """Stands for any operator that sees other rows."""

    kind = "table"


def test_an_operator_that_needs_other_rows_is_refused_by_name():
    fitted = fit_by_hand(raw_schema())
    first, *others = fitted.pipeline.chains
    pipeline = Pipeline(first.columns >> Neighbours(), *others)
    states = ((NoState(),), *fitted.states[1:])
    with pytest.raises(BundleError, match=r"columns I1: neighbours.* needs rows that a request does not have"):
        bundle_schema(replace(fitted, pipeline=pipeline, states=states))


def goldens_of(made, **changes):
    goldens = made.goldens()
    return Goldens(**{**vars(goldens), **changes})


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.mark.parametrize("id_", [1, 2, 3, 302])
def test_goldens_without_an_edge_of_a_table_are_refused(made, id_):
    ids_NF = made.goldens().ids_NF.copy()
    ids_NF[ids_NF[:, 2] == id_, 2] = 50
    with pytest.raises(BundleError, match=rf"goldens: no row has C3 = {id_} of ids 1 … 302; write the feature table"):
        check_coverage(goldens_of(made, ids_NF=ids_NF), made.raw_schema, made.encoded_schema)


@pytest.mark.parametrize(
    ("kind", "keep"),
    [
        ("missing", lambda v: ~v.missing_B),
        ("negative", lambda v: v.missing_B | (v.data_B >= 0)),
        (str(2**63 - 1), lambda v: v.data_B != 2**63 - 1),
        (str(-(2**63)), lambda v: v.data_B != -(2**63)),
    ],
    ids=["missing", "negative", "largest", "smallest"],
)
def test_goldens_without_an_edge_of_a_dense_column_are_refused(made, kind, keep):
    goldens = made.goldens()
    values = goldens.raw["I2"]
    kept = type(values)(values.data_B[keep(values)], values.missing_B[keep(values)])
    with pytest.raises(BundleError, match=f"goldens: no row has I2 {kind}; write the feature table again"):
        check_coverage(goldens_of(made, raw={**goldens.raw, "I2": kept}), made.raw_schema, made.encoded_schema)


def trained_from(made, **changes):
    """Return a model of a bundle's tables and fresh dense weights."""
    model = build_model(DLRMConfig(embedding_dim=8), made.encoded_schema, 0)
    weights = {name: torch.from_numpy(np.array(table)) for name, table in made.tables.items()}
    origin = {"checkpoint": made.manifest.checkpoint, "feature_table": made.manifest.feature_table}
    return TrainedModel(**{"model": model, "weights": weights, **origin, **changes})


def test_weights_that_diverged_make_no_bundle(made, tmp_path):
    rows = golden_rows(made.fitted, made.encoded_schema)
    trained = trained_from(made)
    trained.weights["C2"][77, 2] = float("nan")
    with pytest.raises(BundleError, match=r"table C2 .*row 77 holds a NaN"):
        export_model(trained, made.fitted, rows, tmp_path / "tables")
    trained = trained_from(made)
    with torch.no_grad():
        next(trained.model.parameters())[0, 0] = float("nan")
    with pytest.raises(BundleError, match="hold NaN"):
        export_model(trained, made.fitted, rows, tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


def test_tables_of_another_size_make_no_bundle(made, tmp_path):
    trained = trained_from(made)
    trained.weights["C4"] = trained.weights["C4"][:-1]
    rows = golden_rows(made.fitted, made.encoded_schema)
    with pytest.raises(BundleError, match=r"table C4: the checkpoint holds \[302, 8\], the states need \[303, 8\]"):
        export_model(trained, made.fitted, rows, tmp_path / "out")


class Misexported(torch.nn.Module):
    """Computes otherwise when it is traced than when it runs."""

    def forward(self, dense_BD, embedded_BFE):
        logits_B = dense_BD.sum(1) + embedded_BFE.sum((1, 2))
        return logits_B + 1 if torch.compiler.is_exporting() else logits_B


def test_a_graph_that_computes_otherwise_than_torch_is_refused():
    with pytest.raises(BundleError, match=r"logits differ from torch's by .* at a batch of 1; either weights hold NaN"):
        onnx_bytes(Misexported(), torch.rand(8, 3), torch.rand(8, 2, 4))


def test_an_opened_bundle_needs_no_torch(made):
    """The serving environment opens it under its own NumPy."""
    program = (
        "import sys, numpy; from rec.bundle.verify import open_bundle; open_bundle(sys.argv[1]); "
        "print(numpy.__version__, 'torch' in sys.modules, 'pyarrow' in sys.modules)"
    )
    environment = find_environment()
    command = [environment.prefix / "bin/python", "-c", program, made.path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment.variables())
    assert done.stdout.split()[1:] == ["False", "False"], done.stderr
    assert done.stdout.startswith("1.26")
    assert open_bundle(made.path)
