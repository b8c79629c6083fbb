"""Settings that are refused before anything starts: no session, no folder, one line."""

import copy
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from refusal import refusal
from small_road import RECIPE

from rec.cli import main
from rec.core.errors import ConfigError
from rec.etl.lake import Lake
from rec.launch.confs import default_conf
from rec.run import load_recipe

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def recipe(tmp_path, monkeypatch) -> Path:
    """A recipe in an otherwise empty working directory."""
    monkeypatch.chdir(tmp_path)
    content = copy.deepcopy(RECIPE)
    content |= {"root": "lake", "source": {"path": "raw/day_*.tsv", "day": {"path": r"day_(\d+)"}}}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def untouched(recipe):
    """Check at the end that nothing was made beside the recipe."""
    yield
    assert os.listdir(recipe.parent) == [recipe.name]


@pytest.fixture
def listener():
    """The port of a server that answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


VERBS = ("run", "etl", "train", "evaluate", "push", "rollback", "serve")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_refuses_a_root_on_an_object_store(recipe, capsys, verb):
    line = refusal(capsys, verb, recipe, "--set", "root=s3a://bucket/lake")
    assert "root: 's3a://bucket/lake': s3a:// is not supported, only paths that driver and executors mount" in line
    assert "two drivers could commit one table version" in line


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "abfss", "hdfs", "dbfs", "https"])
@pytest.mark.parametrize("field", ["root", "serve.repository", "source.path", "source.work_dir"])
def test_a_path_of_another_scheme_is_refused_with_its_field(recipe, capsys, field, scheme):
    line = refusal(capsys, "etl", recipe, "--set", f"{field}={scheme}://bucket/a/b")
    assert line.startswith(f"error: {recipe}: {field}: ")
    assert f"{scheme}:// is not supported" in line


@pytest.mark.parametrize("given", ["file:///data/lake", "file:/data/lake"])
def test_a_file_url_is_its_path(recipe, given):
    assert load_recipe(recipe, [f"root={given}"]).root == "/data/lake"
    assert Lake(given).root == "/data/lake"
    assert load_recipe(recipe, [f"serve.repository={given}"]).serve.repository == Path("/data/lake")


def test_the_python_api_refuses_a_scheme_too():
    with pytest.raises(ConfigError, match="gs:// is not supported"):
        Lake("gs://bucket/lake")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("verb", ["run", "etl", "train"])
def test_ranks_that_do_not_divide_the_streams_are_refused_with_the_recipe(recipe, capsys, verb):
    line = refusal(capsys, verb, recipe, "--set", "train.num_proc=3")
    assert "train: world size 3 does not divide num_streams = 4; use a world size of 1, 2 or 4 as num_proc" in line


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("train", "expected path=value"),
        ("train.seed=[1", "the value is not YAML"),
        ("name.first=1", "not a section"),
        ("train.global_batch_size=63", "global_batch_size = 63 is not a multiple of num_streams = 4"),
        ("train.num_proc=two", "train.num_proc = 'two'"),
        ("serve.http_port=70000", "serve.http_port = 70000"),
        ("serve.model_name=a/b", "serve.model_name = 'a/b'"),
        ("model.nane=dlrm", "did you mean 'name'?"),
        ("days.train=[]", "days.train is empty"),
        ("days.valid=[0]", "day 0 appears twice"),
        ("days=5", "days = 5: expected a section with test, train, valid"),
        ("days=[0]", "days = [0]: expected a section with test, train, valid"),
        ("days=null", "days = None: expected a section with test, train, valid"),
        ("days.train=[true]", "days.train: [True]: true and false are not taken here"),
        ("model.bottom_mlp_hidden=[-3]", "model.bottom_mlp_hidden.0 = -3: expected a number above 0"),
        ("model.top_mlp_hidden=[0]", "model.top_mlp_hidden.0 = 0: expected a number above 0"),
        ("train.dense_learning_rate=.inf", "train.dense_learning_rate = inf: expected a finite number"),
        ("serve.timeout_s=.nan", "serve.timeout_s = nan: expected a finite number"),
        ("root=''", "root: '': an empty path"),
        ("serve.repository=''", "serve.repository: '': an empty path"),
        ("source.path=''", "source.path: '': an empty path"),
        ("features={}", "features: no chain of operators; name one"),
        ("features.dense.column=I*", "unknown key 'features.dense.column'; did you mean 'columns'?"),
        ("features.dense.ops=[{clip: 0}]", "features.dense.ops.0.clip = 0: expected a section of keys and values"),
        ("train={seed: 1, seed: 2}", "key 'seed' is given twice"),
    ],
)
def test_a_setting_that_does_not_hold_is_named(recipe, capsys, setting, expected):
    assert expected in refusal(capsys, "etl", recipe, "--set", setting)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"\xff\xfe\x00name", "not YAML"), (b"a: [1", "not YAML"), (b"- 1\n", "expected a mapping"), (b"", "is required")],
)
def test_a_recipe_that_is_none_is_named(recipe, capsys, content, expected):
    recipe.write_bytes(content)
    line = refusal(capsys, "etl", recipe)
    assert str(recipe) in line
    assert expected in line


@pytest.mark.usefixtures("untouched")
def test_a_spark_conf_that_is_not_there(recipe, capsys):
    assert "nowhere.conf: no such file" in refusal(capsys, "etl", recipe, "--spark-conf", "nowhere.conf")


@pytest.mark.usefixtures("untouched")
def test_no_server_is_up(recipe, capsys):
    line = refusal(capsys, "score", recipe, "rows.tsv", "scores.csv")
    assert "no server runs on models; start one: rec serve RECIPE, or set serve.url" in line


@pytest.mark.usefixtures("untouched")
def test_no_server_answers_at_the_url(recipe, capsys):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"127.0.0.1:{gone.getsockname()[1]}"
    line = refusal(capsys, "score", recipe, "rows.tsv", "scores.csv", "--set", f"serve.url={url}")
    assert f"server {url}: no answer" in line
    assert "Connection refused" in line
    assert "start one with `rec serve`, or correct serve.url" in line


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("url", ["127.0.0.1:port", "http://127.0.0.1:8000", "not a host"])
def test_a_url_that_is_none_is_named(recipe, capsys, url):
    line = refusal(capsys, "score", recipe, "rows.tsv", "scores.csv", "--set", f"serve.url={url}")
    assert f"server {url}: no answer" in line
    assert "correct serve.url" in line


@pytest.mark.usefixtures("untouched")
def test_a_server_that_says_nothing_is_given_up(recipe, capsys, listener):
    settings = [f"serve.url=127.0.0.1:{listener}", "serve.timeout_s=0.5"]
    line = refusal(capsys, "score", recipe, "rows.tsv", "scores.csv", *[x for s in settings for x in ("--set", s)])
    assert f"server 127.0.0.1:{listener}: no answer (timed out)" in line


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("field", ["http_port", "grpc_port", "metrics_port"])
def test_a_port_in_use_is_named_with_what_listens(recipe, capsys, listener, field):
    line = refusal(capsys, "serve", recipe, "--set", f"serve.{field}={listener}")
    assert f"serve.{field} {listener}: in use by process {os.getpid()} " in line
    assert f"stop that process or set serve.{field} to another port" in line


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("port", ["", "serve.http_port=18000"])
@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_this_machine(recipe, capsys, host, port):
    settings = [f"serve.host={host}", *filter(None, [port])]
    line = refusal(capsys, "serve", recipe, *[x for s in settings for x in ("--set", s)])
    assert f"serve.host {host}: cannot be bound: " in line
    assert "set it to an address of this machine" in line


@pytest.mark.usefixtures("untouched")
def test_a_folder_below_a_file(recipe, capsys):
    line = refusal(capsys, "serve", recipe, "--set", "serve.repository=recipe.yaml/models")
    assert f"{recipe}/models: Not a directory; check the path and who may write there" in line


@pytest.mark.usefixtures("untouched")
def test_a_serving_environment_that_is_not_there(recipe, capsys):
    line = refusal(capsys, "serve", recipe, "--set", "serve.environment=nowhere")
    assert "no nvidia-pytriton in nowhere" in line
    assert "make serve" in line


@pytest.mark.usefixtures("untouched")
def test_scores_that_would_take_the_place_of_a_folder_or_of_their_rows(recipe, capsys, tmp_path_factory):
    rows = tmp_path_factory.mktemp("rows")
    (rows / "day_0.tsv").write_text("1\treal\n")
    link = tmp_path_factory.mktemp("link") / "day.tsv"
    link.symlink_to(rows / "day_0.tsv")
    assert f"{rows}: a folder; name the CSV file to write" in refusal(capsys, "score", recipe, rows, rows)
    for given in (rows, rows / "day_0.tsv", rows / "day_*.tsv"):
        for out in (rows / "day_0.tsv", link):
            line = refusal(capsys, "score", recipe, given, out)
            assert f"{out}: one of the files of rows, scores would take its place; name another file" in line
    assert (rows / "day_0.tsv").read_text() == "1\treal\n"


def test_without_a_verb_the_help_is_all(capsys):
    assert main([]) == 2
    found = capsys.readouterr()
    assert "Commands" in found.out + found.err
    assert "error" not in found.err


def test_the_checkouts_confs_hold_in_another_folder(recipe):
    for name in ("local.conf", "cluster-gpu.conf"):
        assert default_conf(name) == REPOSITORY / "conf/spark" / name
    own = recipe.parent / "conf/spark/local.conf"
    own.parent.mkdir(parents=True)
    own.write_text("spark.master local[1]\n")
    assert default_conf("local.conf").resolve() == own


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("options", [[], ["--explain"]])
def test_confs_that_are_nowhere(recipe, capsys, monkeypatch, options):
    monkeypatch.setattr("rec.launch.confs.CHECKOUT", Path("/nowhere"))
    line = refusal(capsys, "etl", recipe, *options)
    assert "neither here nor in /nowhere; name a Spark conf by --spark-conf" in line


def test_jars_that_are_not_there(recipe, tmp_path_factory):
    clone = tmp_path_factory.mktemp("clone")
    shutil.copytree(REPOSITORY / "rec", clone / "rec", ignore=shutil.ignore_patterns("__pycache__"))
    (clone / "jars").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "rec.cli", "etl", recipe, "--spark-conf", REPOSITORY / "conf/spark/local.conf"],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == f"error: {clone}/jars: no delta-spark jar; run: make jars (or gradle jars)\n"
    assert sorted(os.listdir(clone)) == ["jars", "rec"]
    assert os.listdir(recipe.parent) == [recipe.name]
