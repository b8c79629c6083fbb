"""Every key of a recipe is read by the code it steers: one that nothing reads would be taken and ignored."""

import ast
import dataclasses
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from rec.ops.registry import OPS
from rec.run import Recipe

PACKAGE = Path(__file__).resolve().parents[2] / "rec"
# What only checks or names a config does not read it.
CHECKS = {"model_validator", "field_validator"}
NAMES = {"__post_init__", "canonical"}


class Read(NamedTuple):
    """An attribute that is read, and the class and function it is read in."""

    attribute: str
    inside: str
    function: str


def sections(annotation, found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the field names of every config class that an annotation leads to, by class."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation.__name__ not in found:
        found[annotation.__name__] = list(annotation.model_fields)
        for field in annotation.model_fields.values():
            sections(field.annotation, found)
    for part in getattr(annotation, "__args__", ()):
        sections(part, found)
    return found


def reads(source: str) -> list[Read]:
    found = []

    def visit(node: ast.AST, inside: str, function: str) -> None:
        if isinstance(node, ast.FunctionDef):
            if node.name in NAMES or CHECKS & {n.id for d in node.decorator_list for n in names_in(d)}:
                return
            function = node.name
        if isinstance(node, ast.ClassDef):
            inside = node.name
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.append(Read(node.attr, inside, function))
        for child in ast.iter_child_nodes(node):
            visit(child, inside, function)

    visit(ast.parse(source), "", "")
    return found


def names_in(node: ast.AST) -> list[ast.Name]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Name)]


def unread(fields: dict[str, list[str]], found: list[Read]) -> list[str]:
    """Return ``CLASS.FIELD`` of what no code reads but its own class, in properties that nobody reads either."""
    missing = []
    for name, keys in fields.items():
        outside = {r.attribute for r in found if r.inside != name}
        within = {r.attribute for r in found if r.inside == name and r.function in outside}
        missing += [f"{name}.{key}" for key in keys if key not in outside | within]
    return missing


def test_every_key_is_read():
    fields = sections(Recipe, {})
    assert {"Recipe", "SourceConfig", "ChainConfig", "DLRMConfig", "TrainConfig", "LaunchConfig", "ServeConfig"} <= set(
        fields
    )
    operators = {op.__name__: [f.name for f in dataclasses.fields(op)] for op in OPS.values()}
    found = [read for path in sorted(PACKAGE.rglob("*.py")) for read in reads(path.read_text(encoding="utf-8"))]
    assert unread(fields | operators, found) == []


def test_a_key_that_nothing_reads_is_found():
    source = """
class PlantedConfig(Config):
    read: int
    derived: int
    checked: int
    unread: int

    @model_validator(mode="after")
    def _holds(self):
        assert self.checked

    @property
    def twice(self):
        return 2 * self.derived

    @property
    def unasked(self):
        return self.unread

def use(config):
    return config.read + config.twice
"""
    fields = {"PlantedConfig": ["read", "derived", "checked", "unread"]}
    assert unread(fields, reads(source)) == ["PlantedConfig.checked", "PlantedConfig.unread"]
