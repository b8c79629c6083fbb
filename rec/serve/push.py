"""Putting a bundle into service, and taking it back.

A bundle is proven three times: its own files, a throwaway server on a copy of them, and the server that answers
requests. Whatever refuses it, what was served before goes on.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rec.bundle.bundle import Bundle
from rec.bundle.layout import BundleSchema
from rec.bundle.verify import open_bundle
from rec.core.errors import RecError, ServingError
from rec.core.schema import Column, FeatureSchema
from rec.serve.client import Client, ServedScores
from rec.serve.config import ServeConfig
from rec.serve.control import Control
from rec.serve.frames import raw_columns
from rec.serve.prove import prove
from rec.serve.repository import Repository
from rec.serve.request import ENCODED_SUFFIX, model_names
from rec.serve.server import Server, running_server
from rec.serve.triton_config import ServedState

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServedVersion:
    """A version that answers requests. ``stop`` ends the server where the push started it, and only then."""

    model_name: str
    version: int
    url: str
    repository: Path
    bundle_id: str
    _server: Server | None = field(default=None, repr=False)

    def client(self) -> Client:
        """Return a client of the raw model."""
        return Client(self.url, self.model_name)

    def score(self, rows: Any, *, encoded: bool = False, batch_size: int | None = None) -> ServedScores:
        """Score rows of a Spark DataFrame, an Arrow table, a pandas frame, or a dict of Values by column name."""
        with self.client() as client:
            columns, row_key_B = raw_columns(rows, client.state.raw)
            scores = client.score(columns, encoded=encoded, batch_size=batch_size)
        return ServedScores(**{**vars(scores), "row_key_B": row_key_B})

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


def push(
    bundle: Bundle | str | Path,
    repository: str | Path | None = None,
    url: str | None = None,
    config: ServeConfig | None = None,
) -> ServedVersion:
    """Serve a bundle as the next version of its model. Raises BundleError or ServingError; the old version stays.

    ``repository`` and ``url`` given here win over the config's.
    """
    config = _settings(config, repository, url)
    proven = open_bundle(bundle.path if isinstance(bundle, Bundle) else bundle, config.threads)
    home = Repository(config.repository)
    with home.locked():
        previous = home.state(config.model_name)
        _check_inputs(config.model_name, previous, proven)
        state = ServedState(
            history=(*(previous.history if previous else ()), home.next_version(config.model_name)),
            bundle_id=proven.bundle_id,
            raw=_inputs(proven.raw_schema),
            threads=config.threads,
            max_batch_size=config.max_batch_size,
        )
        control, server = _serving(home, config)
        try:
            _bring_in(home, proven, config, state)
            _switch(home, control, config.model_name, state, reject=True)
        except BaseException:
            if server:
                server.stop()
            raise
    return _served(home, config, state, control, server)


def rollback(
    repository: str | Path | None = None,
    version: int | None = None,
    url: str | None = None,
    config: ServeConfig | None = None,
) -> ServedVersion:
    """Serve an earlier version again: the one before the present one, or ``version`` of those that were served."""
    config = _settings(config, repository, url)
    name, home = config.model_name, Repository(config.repository)
    # Before the lock, which would make a folder where there is none.
    _present(home, name)
    with home.locked():
        present = _present(home, name)
        earlier = present.history[:-1]
        target = version if version is not None else (earlier[-1] if earlier else None)
        if target is None:
            raise ServingError(
                f"model {name}: version {present.version} is served and none was before it; push a second bundle first"
            )
        if target not in earlier:
            raise ServingError(
                f"model {name}: version {target} cannot be served again; {present.version} is served and before it "
                f"were {list(earlier) or 'none'}: push a bundle, or choose one of these"
            )
        history = earlier[: len(earlier) - earlier[::-1].index(target)]
        bundle_id = Bundle(home.bundle_folder(name, target)).bundle_id
        state = present.model_copy(update={"history": history, "bundle_id": bundle_id})
        control, server = _serving(home, config)
        try:
            _switch(home, control, name, state, reject=False)
        except BaseException:
            if server:
                server.stop()
            raise
    return _served(home, config, state, control, server)


def _present(home: Repository, name: str) -> ServedState:
    state = home.state(name)
    if state is None:
        raise ServingError(f"model {name}: nothing is served from {home.path}; push a bundle first")
    return state


def _settings(config: ServeConfig | None, repository: str | Path | None, url: str | None) -> ServeConfig:
    changes: dict[str, Any] = {"repository": repository and Path(repository), "url": url}
    config = (config or ServeConfig()).model_copy(update={k: v for k, v in changes.items() if v})
    if config.model_name.endswith(ENCODED_SUFFIX):
        raise ServingError(f"serve.model_name {config.model_name!r}: the ending is the encoded twin's; drop it")
    return config


def _inputs(raw: FeatureSchema) -> FeatureSchema:
    """Return the columns of a request; since when a column is there, or how it is trained on, is not the client's."""
    columns = (*raw.dense, *raw.sparse)
    return FeatureSchema(columns=tuple(Column(name=c.name, role=c.role, dtype=c.dtype, key=c.key) for c in columns))


def _check_inputs(name: str, previous: ServedState | None, bundle: Bundle) -> None:
    """Refuse other input columns under a name that clients already use."""
    if previous is None:
        return
    old, new = ({c.name: c for c in _inputs(s).columns} for s in (previous.raw, bundle.raw_schema))
    if [*old.values()] == [*new.values()]:
        return
    changed = [n for n in dict.fromkeys([*old, *new]) if old.get(n) != new.get(n)]
    cause = (
        f"column {changed[0]!r} was {_told(old.get(changed[0]))}, is {_told(new.get(changed[0]))}"
        if changed
        else f"the columns were {list(old)}, are {list(new)}"
    )
    raise ServingError(f"model {name}: other inputs than version {previous.version}: {cause}; push under another name")


def _told(column: Column | None) -> str:
    if column is None:
        return "not there"
    return f"{column.role} {column.dtype}" + (f" ({column.key})" if column.key else "")


def _bring_in(home: Repository, bundle: Bundle, config: ServeConfig, state: ServedState) -> None:
    """Copy the bundle, reproduce its goldens in a server of its own, and only then give the copy its number."""
    staged = home.stage(bundle, config.model_name, state)
    alone = {"repository": staged.path, "http_port": None, "grpc_port": None, "metrics_port": None, "host": "127.0.0.1"}
    try:
        with Server(config.model_copy(update=alone)) as server:
            prove(server.url, config.model_name, bundle)
        home.adopt(staged, config.model_name, state.version)
    finally:
        home.discard(staged)


def _served(
    home: Repository, config: ServeConfig, state: ServedState, control: Control, server: Server | None
) -> ServedVersion:
    log.info("model %s: version %d is served at %s", config.model_name, state.version, control.url)
    return ServedVersion(
        model_name=config.model_name,
        version=state.version,
        url=control.url,
        repository=home.path,
        bundle_id=state.bundle_id,
        _server=server,
    )


def _serving(home: Repository, config: ServeConfig) -> tuple[Control, Server | None]:
    """Return the server to push to, and it again where it was started here."""
    control = Control(config.url, config.timeout_s) if config.url else running_server(home, config.timeout_s)
    if control:
        control.require_live()
        _check_repository(home, control, config.model_name)
        return control, None
    server = Server(config).start()
    return server.control, server


def _check_repository(home: Repository, control: Control, name: str) -> None:
    """Refuse a server that serves the name from elsewhere: a load or unload there would take that model down."""
    served, state = control.state(name), home.state(name)
    if served is not None and served != state:
        raise ServingError(
            f"server {control.url}: it serves version {served.version} of {name}, {home.path} has "
            f"{f'version {state.version}' if state else 'none'}; give the repository that the server was started on"
        )


def _switch(home: Repository, control: Control, name: str, state: ServedState, *, reject: bool) -> None:
    """Serve the state's version, or what was served before; with ``reject``, remove a version that is refused."""
    before = home.read_configs(name)
    try:
        bundle = Bundle(home.bundle_folder(name, state.version), state.threads)
        home.write_configs(name, BundleSchema(raw=bundle.raw_schema, encoded=bundle.encoded_schema), state)
        control.load_all(model_names(name).values())
        prove(control.url, name, bundle, state.version)
    except BaseException as error:
        home.restore_configs(before)
        _go_back(control, before)
        if reject:
            home.reject(name, state.version)
        if isinstance(error, RecError):
            raise ServingError(f"model {name}: version {state.version} is refused: {error}") from None
        raise


def _go_back(control: Control, before: dict[str, str | None]) -> None:
    for model, text in before.items():
        try:
            if text is None:
                control.unload(model)
            else:
                control.load(model)
        except ServingError as error:
            log.warning("model %s: %s", model, error)
