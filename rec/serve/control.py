"""Triton's own HTTP interface for loading models and asking what is there."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from rec.core.errors import ServingError
from rec.serve.triton_config import ServedState


class Control:
    """A running server at ``url`` (host:port)."""

    def __init__(self, url: str, timeout_s: float):
        self.url = url
        self.timeout_s = timeout_s

    def live(self) -> bool:
        """Tell whether a server answers. Never asks for readiness: one failed load turns that off for good."""
        try:
            self._call("GET", "v2/health/live")
        except ServingError:
            return False
        return True

    def require_live(self) -> None:
        """Raise ServingError naming url and remedy where no server answers."""
        self._call("GET", "v2/health/live")

    def load(self, name: str) -> None:
        """Load what the model's folder says. Raises ServingError with the server's own text; the old version stays."""
        self._call("POST", f"v2/repository/models/{quote(name)}/load", {})

    def load_all(self, names: Iterable[str]) -> None:
        """Load several models at once: most of a load is its process starting. Raises the first error of them."""
        names = list(names)
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            for _ in pool.map(self.load, names):
                pass

    def unload(self, name: str) -> None:
        self._call("POST", f"v2/repository/models/{quote(name)}/unload", {})

    def config(self, name: str) -> dict[str, Any]:
        """Return a loaded model's config."""
        return self._call("GET", f"v2/models/{quote(name)}/config")

    def state(self, name: str) -> ServedState | None:
        """Return what a push wrote into a loaded model's config; None where no model of that name is loaded."""
        index = self._call("POST", "v2/repository/index", {"ready": True})
        if name not in {model["name"] for model in index}:
            return None
        parameters = self.config(name).get("parameters", {})
        if "state" not in parameters:
            raise ServingError(f"server {self.url}: its model {name} is not of a push; choose another model name")
        return ServedState.model_validate_json(parameters["state"]["string_value"])

    def statistics(self, name: str) -> dict[str, Any]:
        """Return a loaded model's counts: ``inference_count`` rows, ``execution_count`` runs."""
        return self._call("GET", f"v2/models/{quote(name)}/stats")["model_stats"][0]

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.url}/{path}", data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as reply:
                content = reply.read()
            return json.loads(content) if content else {}
        except urllib.error.HTTPError as error:
            raise ServingError(f"server {self.url}: {path}: {_reason(error)}") from None
        except (OSError, ValueError, HTTPException) as error:
            cause = getattr(error, "reason", error)
            raise ServingError(
                f"server {self.url}: no answer ({cause}); start one with `rec serve`, or correct serve.url (host:port)"
            ) from None


def _reason(error: urllib.error.HTTPError) -> str:
    content = error.read()
    try:
        text = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        text = content.decode("utf-8", "replace") or error.reason
    return " ".join(str(text).split())
