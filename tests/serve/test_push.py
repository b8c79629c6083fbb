"""A push serves the next version or changes nothing; a rollback serves an earlier one; a restart serves the same."""

import json
import shutil
import threading

import numpy as np
import pytest
from made_bundle import make_bundle, make_rows, raw_schema

from rec.bundle.layout import read_manifest
from rec.bundle.write import sign
from rec.core.errors import BundleError, RecError, ServingError
from rec.core.manifest import canonical_json
from rec.serve.client import Client
from rec.serve.config import ServeConfig
from rec.serve.push import push, rollback
from rec.serve.repository import CONFIG, Repository
from rec.serve.server import Server


@pytest.fixture(scope="module")
def rows():
    return make_rows(raw_schema(), 64, seed=11)


@pytest.fixture
def answers(served, rows):
    """Return what requests that name no version get."""

    def ask(model_name=served.model_name):
        with Client(served.url, model_name) as client:
            return client.score(rows)

    return ask


def assert_serves(answers, bundle, version, rows):
    scores = answers()
    assert scores.version == version
    np.testing.assert_array_equal(scores.logit_B, bundle.score(rows).logit_B)


def config_files(repository):
    return {p: p.read_text() for p in repository.glob(f"*/{CONFIG}")}


def test_pushes_and_rollbacks_follow_each_other(bundles, served, answers, rows):
    first, second = bundles
    home = served.repository
    start = Repository(home).state("ranker").version
    assert_serves(answers, first, start, rows)
    later = push(second, home)
    assert (later.version, later.url) == (start + 1, served.url)
    assert_serves(answers, second, start + 1, rows)
    assert rollback(home).version == start
    assert_serves(answers, first, start, rows)
    # The number of the version that was taken back is not given again, and it is no target of the next rollback.
    assert push(second, home).version == start + 2
    assert rollback(home).version == start
    with pytest.raises(ServingError, match=rf"version {start + 1} cannot be served again; {start} is served"):
        rollback(home, version=start + 1)
    assert_serves(answers, first, start, rows)


def test_both_models_of_a_bundle_answer_with_its_version(bundles, served):
    version = Repository(served.repository).state("ranker").version
    dense_BD, ids_BF = bundles[0].encode(make_rows(raw_schema(), 5))
    with Client(served.url, "ranker_encoded") as client:
        assert client.score_encoded(dense_BD, ids_BF).version == version


def test_requests_go_on_while_a_version_changes(bundles, served, rows):
    expected = [bundle.score(rows).logit_B for bundle in bundles]
    start = Repository(served.repository).state("ranker").version
    faults, seen, over = [], set(), threading.Event()

    def keep_asking():
        with Client(served.url, "ranker") as client:
            while not over.is_set():
                try:
                    scores = client.score(rows)
                    seen.add(scores.version)
                    if not np.array_equal(scores.logit_B, expected[scores.version != start]):
                        faults.append(scores)
                except RecError as error:
                    faults.append(error)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        pushed = push(bundles[1], served.repository)
    finally:
        over.set()
        asking.join()
    assert faults == []
    assert seen == {start, pushed.version}
    rollback(served.repository)


def flip_byte(folder):
    content = bytearray((folder / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.onnx").write_bytes(content)


def edit_table(change):
    def damage(folder):
        file = folder / "tables/0000.npy"
        np.save(file, change(np.load(file)))
        sign(folder, read_manifest(folder))

    return damage


def set_nan(table):
    table[40, 3] = np.nan
    return table


def change_scale(folder):
    file = folder / "pipeline/pipeline.json"
    content = json.loads(file.read_text())
    content["chains"][0]["states"][0]["scales"]["I1"][1] *= 2
    file.write_text(canonical_json(content))
    sign(folder, read_manifest(folder))


DAMAGE = {
    "a flipped byte": (flip_byte, r"model\.onnx was changed"),
    "a wrong shape": (edit_table(lambda t: t[:, :-1]), r"expected float32 \[303, 8\]"),
    "NaN weights": (edit_table(set_nan), "row 40 holds a NaN"),
    "swapped rows": (edit_table(lambda t: t[::-1]), "not those the trainer had"),
    "a changed scale": (change_scale, "state_id"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_bundle_is_refused_and_nothing_changes(bundles, served, answers, rows, tmp_path, kind):
    damage, message = DAMAGE[kind]
    folder = shutil.copytree(bundles[1].path, tmp_path / "damaged")
    damage(folder)
    version, before = Repository(served.repository).state("ranker").version, config_files(served.repository)
    with pytest.raises(BundleError, match=message):
        push(folder, served.repository)
    assert config_files(served.repository) == before
    assert_serves(answers, bundles[0], version, rows)


def test_files_damaged_on_the_way_are_refused_by_the_throwaway_server(bundles, served, answers, rows, monkeypatch):
    stage = Repository.stage

    def stage_and_damage(home, bundle, name, state):
        staged = stage(home, bundle, name, state)
        flip_byte(staged.bundle_folder(name, state.version))
        return staged

    monkeypatch.setattr(Repository, "stage", stage_and_damage)
    home = Repository(served.repository)
    version, before = home.state("ranker").version, sorted(home.path.rglob("*"))
    with pytest.raises(ServingError, match=r"model\.onnx was changed"):
        push(bundles[1], served.repository)
    assert sorted(p for p in home.path.rglob("*") if ".staging" not in p.parts) == [
        p for p in before if ".staging" not in p.parts
    ]
    assert_serves(answers, bundles[0], version, rows)


def test_a_version_that_fails_at_the_last_step_is_taken_back_and_its_number_kept(
    bundles, served, answers, rows, monkeypatch
):
    adopt = Repository.adopt

    def adopt_and_damage(home, staged, name, version):
        adopt(home, staged, name, version)
        flip_byte(home.bundle_folder(name, version))

    monkeypatch.setattr(Repository, "adopt", adopt_and_damage)
    home = Repository(served.repository)
    version, number, before = home.state("ranker").version, home.next_version("ranker"), config_files(home.path)
    with pytest.raises(ServingError, match=rf"version {number} is refused: .*model\.onnx was changed"):
        push(bundles[1], served.repository)
    assert config_files(home.path) == before
    assert not home.bundle_folder("ranker", number).exists()
    assert home.next_version("ranker") == number + 1
    assert_serves(answers, bundles[0], version, rows)


def test_two_pushes_at_once_are_one_too_many(bundles, served):
    with Repository(served.repository).locked(), pytest.raises(ServingError, match="another push is under way"):
        push(bundles[1], served.repository)


def test_other_inputs_need_another_name(tmp_path, served, answers, rows, bundles):
    other = make_bundle(tmp_path / "other", schema=raw_schema(num_dense=2))
    version = Repository(served.repository).state("ranker").version
    with pytest.raises(
        ServingError, match=r"model ranker: other inputs than version .*column 'I3' was dense int64, is not there"
    ):
        push(other, served.repository)
    assert_serves(answers, bundles[0], version, rows)
    named = push(other, served.repository, config=ServeConfig(model_name="narrow"))
    assert (named.version, named.url) == (1, served.url)
    assert len(named.score(make_rows(other.raw_schema, 3))) == 3


def test_a_column_that_is_of_an_earlier_day_now_is_no_other_input(tmp_path, served, answers, rows, bundles):
    schema = raw_schema()
    dated = schema.replace(schema["I2"].model_copy(update={"first_day": 3}))
    version = push(make_bundle(tmp_path / "dated", schema=dated), served.repository).version
    again = make_bundle(tmp_path / "again")
    assert push(again, served.repository).version == version + 1
    assert_serves(answers, again, version + 1, rows)
    assert rollback(served.repository).version == version


def test_a_server_that_is_down_or_serves_another_repository_is_no_place_to_push_to(bundles, served, tmp_path):
    with pytest.raises(ServingError, match=r"server 127\.0\.0\.1:9: no answer"):
        push(bundles[0], tmp_path / "models", url="127.0.0.1:9")
    version = Repository(served.repository).state("ranker").version
    with pytest.raises(ServingError, match=rf"it serves version {version} of ranker, .*models has none; give the"):
        push(bundles[1], tmp_path / "models", url=served.url)
    assert Repository(tmp_path / "models").names() == []
    assert served.score(make_rows(raw_schema(), 3)).version == version


def test_a_restart_serves_what_was_served(bundles, served, rows):
    """Comes last of those that share the server: it stops it."""
    home = Repository(served.repository)
    version = home.state("ranker").version
    served.stop()
    # As if a push had died between its two configs.
    twin = home.path / "ranker_encoded" / CONFIG
    twin.write_text(twin.read_text().replace(f"versions: [ {version} ]", f"versions: [ {version + 1} ]"))
    with Server(ServeConfig(repository=home.path)) as server:
        for name in ("ranker", "ranker_encoded"):
            with Client(server.url, name) as client:
                assert client.state.version == version
        with Client(server.url, "ranker") as client:
            assert_serves(lambda: client.score(rows), bundles[0], version, rows)


def test_a_second_server_on_a_repository_is_refused_and_the_first_goes_on(bundles, tmp_path):
    """Pushes reach one server: the other would go on with what was served before."""
    first = push(bundles[0], tmp_path / "models")
    try:
        with pytest.raises(ServingError, match=rf"models: the server at {first.url} runs on it, .*stop it first"):
            Server(ServeConfig(repository=tmp_path / "models")).start()
        assert (push(bundles[1], tmp_path / "models").version, first.client().state.version) == (2, 2)
    finally:
        first.stop()


def test_nothing_to_roll_back_to_is_said(tmp_path):
    with pytest.raises(ServingError, match=r"nothing is served from .*; push a bundle first"):
        rollback(tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_the_ending_of_the_encoded_twin_is_no_model_name(bundles, tmp_path):
    with pytest.raises(ServingError, match="'x_encoded': the ending is the encoded twin's"):
        push(bundles[0], tmp_path / "models", config=ServeConfig(model_name="x_encoded"))
