"""The notebook docs/tour.ipynb runs from its first cell to its last."""
import ast
import importlib.util
import json
import pathlib

import pytest

from signet import program


def test_tour(tmp_path, monkeypatch):
    try:
        program.find()
    except FileNotFoundError:
        pytest.skip("the signet program is not here")
    notebook = json.loads((pathlib.Path(__file__).parents[2] / "docs" / "tour.ipynb").read_text())
    monkeypatch.chdir(tmp_path)
    space, shown = {}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        *before, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(before, []), "tour.ipynb", "exec"), space)
        if isinstance(last, ast.Expr):  # what a notebook shows under the cell
            shown.append(eval(compile(ast.Expression(last.value), "tour.ipynb", "eval"), space))
        else:
            exec(compile(ast.Module([last], []), "tour.ipynb", "exec"), space)
    assert "<svg" in shown[0]._repr_svg_()
    assert space["proof"].proved and len(space["sweep"].summary["runs"]) == 4
    assert shown[-1].tolist() == [0, 1, 0, 0, 1]
    if importlib.util.find_spec("matplotlib"):
        import matplotlib

        matplotlib.use("Agg")
        assert len(space["sweep"].plot().lines) == 4
