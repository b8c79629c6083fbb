"""build.gradle runs on Debian's Gradle 4.4.1 and on 9: constructs that either lacks are refused."""

import re
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build.gradle"
# Missing in 4.4.1 (metadataSources only where it is asked for first) or gone in 9.
REFUSED = {
    r"tasks\.register": "missing in 4.4.1; use: task NAME",
    r"providers\.gradleProperty": "missing in 4.4.1; use: project.hasProperty",
    r"^\s*constraints\s*\{": "missing in 4.4.1",
    r"\bplatform\s*\(": "missing in 4.4.1",
    r"dependencyLocking": "missing in 4.4.1",
    r"^\s*url\s+[^=\s]": "gone in 9; use: url =",
    r"\bbuildDir\b": "gone in 9",
    r"\bconvention\b": "gone in 9",
    r"(?<!'metadataSources'\)\) \{\n)^\s*metadataSources\s*\{": "missing in 4.4.1; ask respondsTo first",
}


def refused(text: str) -> list[str]:
    code = re.sub(r"//.*", "", text)
    return [f"{pattern}: {why}" for pattern, why in REFUSED.items() if re.search(pattern, code, re.MULTILINE)]


def test_build_gradle_has_none():
    assert refused(BUILD.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "tasks.register('jars') {}",
        "def x = providers.gradleProperty('gpu')",
        "  constraints { }",
        "implementation platform('a:b:1')",
        "dependencyLocking { }",
        "    url central.url",
        "into buildDir",
        "project.convention.plugins",
        "    metadataSources { artifact() }",
    ],
)
def test_a_planted_construct_is_found(line):
    assert refused(line)
