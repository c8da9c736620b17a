"""The examples of docs/python.md run, one after the other as a reader would type them."""
import pathlib
import re

import pytest

from signet import program


def test_examples(tmp_path, monkeypatch):
    for package in ("torch", "jax", "transformers"):
        pytest.importorskip(package)
    program.find()
    text = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
    monkeypatch.chdir(tmp_path)
    space = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(block, space)
    space["signet"].unpatch()
    assert (space["o"] is not None) and space["network"].verify().proved
