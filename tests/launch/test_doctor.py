"""What the doctor finds on a machine that was set up, and what it says where something is missing."""

import socket

import pytest

from rec.launch import doctor


@pytest.fixture(scope="module")
def findings():
    return {finding.name: finding for finding in doctor.examine()}


@pytest.mark.parametrize(
    "name", ["Java 17", "Delta jars", "Horovod", "torch, fbgemm, torchrec", "Petastorm", "serving environment"]
)
def test_what_make_test_installs_is_found(findings, name):
    assert findings[name].ok, findings[name]


def test_horovod_says_which_operations_it_was_built_with(findings):
    assert "gloo" in findings["Horovod"].detail


def test_a_port_in_use_is_named(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "TRITON_PORTS", (port,))
        found = {f.name: f for f in doctor.examine() if f.name == "ports"}["ports"]
    assert found.ok is False
    assert str(port) in found.detail
    assert "serve.http_port" in found.remedy


def test_what_is_missing_comes_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "SERVE_PYTHON", tmp_path / "python")
    found = {f.name: f for f in doctor.examine()}["serving environment"]
    assert found.ok is False
    assert found.remedy == "run: make serve"
