"""The examples of docs/python.md run, one after the other as a reader would type them."""
import pathlib
import re
import tomllib

import pytest

from signet import program

ROOT = pathlib.Path(__file__).parents[2]


def test_examples(tmp_path, monkeypatch):
    for package in ("torch", "jax", "transformers"):
        pytest.importorskip(package)
    program.find()
    text = (ROOT / "docs" / "python.md").read_text()
    monkeypatch.chdir(tmp_path)
    space = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(block, space)
    space["signet"].unpatch()
    assert (space["o"] is not None) and space["network"].verify().proved


def test_pip_shows_the_name_of_the_license():
    """Not its text, which lies in the wheel as a file."""
    for folder in (ROOT, ROOT / "python" / "cuda"):
        assert tomllib.loads((folder / "pyproject.toml").read_text())["project"]["license"] == {"text": "Apache-2.0"}
