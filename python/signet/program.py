"""The `signet` program as functions: analyze, compile, verify, extract, train, evaluate, sweep.

Everything here runs the program that comes with the package (or SIGNET_PROGRAM, or the one on the PATH) with --json, so
Python and the command line give the same answers.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

_KINDS = {2: "usage", 3: "bad input", 4: "a check did not hold", 5: "numerical failure", 6: "out of memory or disk",
          75: "stopped, can be resumed", 130: "interrupted, can be resumed"}


class SignetError(RuntimeError):
    """What the program said, with its exit code."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code, self.kind = code, _KINDS.get(code, "failure")

    def __reduce__(self):  # from one process to another
        return type(self), (str(self), self.code)


_OWN = Path(__file__).parent / "bin" / "signet"  # the program that a wheel brings along
_NONE = ("the signet program is not there: this package was built without it. Build it with `make` and put it on the PATH, "
         "or set SIGNET_PROGRAM to its path")


def find():
    """The path of the program."""
    for path in (os.environ.get("SIGNET_PROGRAM"), _OWN if _OWN.exists() else None, shutil.which("signet")):
        if path:
            return str(path)
    raise FileNotFoundError(_NONE)


def main():
    """The command `signet` of an installed package. It never looks on the PATH, where it would find itself."""
    if not _OWN.exists():
        sys.exit(f"signet: {_NONE}")
    os.execv(_OWN, ["signet", *sys.argv[1:]])


def _message(said, code):
    """What the program says of an error is the last line with its name and what follows."""
    at = max((i for i, line in enumerate(said) if line.startswith("signet:")), default=max(0, len(said) - 3))
    return "".join(said[at:]).strip() or f"signet ended with code {code}"


def call(*arguments, progress=False, accept=(0,)):
    """Runs `signet arguments.. --json` and returns what it printed. Progress goes to sys.stderr line by line, in a
    notebook under the cell."""
    command = [find(), str(arguments[0]), "--json", *map(str, arguments[1:])]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, encoding="utf-8", errors="replace")
    said = []

    def listen():
        for line in process.stderr:
            said.append(line)
            if progress:
                sys.stderr.write(line)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        out = process.stdout.read()
        code = process.wait()
    except BaseException:  # an interrupt of the notebook stops the run, which can be resumed
        process.terminate()
        process.wait()
        raise
    finally:
        listener.join()
        process.stdout.close()
        process.stderr.close()
    if code not in accept:
        raise SignetError(_message(said, code), code)
    return json.loads(out) if out.strip() else None


def _options(options):
    """{'max_states': 10, 'force': True} to ['--max-states=10', '--force']."""
    arguments = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        arguments.append(flag if value is True else f"{flag}={value}")
    return arguments


class Report(dict):
    """A JSON object of the program whose keys are attributes as well; a notebook shows it as a table."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r}; there are {', '.join(self)}") from None

    def _repr_html_(self):
        from html import escape

        rows = "".join(f"<tr><th style='text-align:left'>{escape(str(k))}</th><td style='text-align:left'>"
                       f"{escape(json.dumps(v, ensure_ascii=False) if isinstance(v, (dict, list)) else str(v))}</td></tr>"
                       for k, v in self.items())
        return f"<table>{rows}</table>"


def factor(matrix):
    """A matrix as a product of generalised Householder factors."""
    return Report(call("factor", json.dumps([[float(x) for x in row] for row in matrix])))


class Network:
    """Weights compiled from an automaton, in a file."""

    def __init__(self, path, report=None):
        self.path, self.report = Path(path), Report(report or {})

    def verify(self, **options):
        """Proves the network for all lengths in its number type, or gives the shortest counterexample."""
        return Report(call("verify", self.path, *_options(options), accept=(0, 4)))

    def run(self, *words, **options):
        """What the network says to words: a list of reports. A word is a list of letters; a string is one of letters of
        one character each."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write("".join(json.dumps(list(word), ensure_ascii=False) + "\n" for word in words))
            file.flush()
            return _lines("run", self.path, "--file", file.name, "--json-words", *_options(options))

    def extract(self, **options):
        return extract(self.path, **options)

    def __repr__(self):
        return f"Network({str(self.path)!r})"


def _lines(*arguments):
    command = [find(), *map(str, arguments), "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        raise SignetError(done.stderr.strip(), done.returncode)
    return [Report(json.loads(line)) for line in done.stdout.splitlines() if line.strip()]


def extract(model, **options):
    """The automaton that a network has learned: (Automaton, report)."""
    from .automaton import Automaton

    report = Report(call("extract", model, *_options(options), accept=(0, 4)))
    machine = report.get("automaton")
    return (Automaton.from_dict(machine) if machine and "accept" in machine else None), report


def _parsed(line):
    try:
        return json.loads(line)
    except ValueError:
        return None


class Run:
    """A run directory of `signet train`."""

    def __init__(self, path):
        self.path = Path(path)
        if not (self.path / "config.yaml").exists():
            raise FileNotFoundError(f"{self.path} is no run directory: it has no config.yaml")

    @property
    def config(self):
        return (self.path / "config.yaml").read_text()

    @property
    def results(self):
        file = self.path / "results.json"
        return Report(json.loads(file.read_text())) if file.exists() else None

    @property
    def metrics(self):
        """The lines of metrics.jsonl, as dictionaries. One that is cut off is left out, as `signet report` does."""
        file = self.path / "metrics.jsonl"
        entries = map(_parsed, file.read_text().split("\n")) if file.exists() else []
        return [entry for entry in entries if isinstance(entry, dict)]

    def dataframe(self):
        import pandas

        return pandas.DataFrame(self.metrics)

    def resume(self, progress=True, **options):
        call("train", "--resume", self.path, *_options(options), progress=progress)
        return self

    def evaluate(self, lengths=None, progress=False, **options):
        return Report(call("eval", self.path, *_options(dict(lengths=lengths, **options)), progress=progress))

    def extract(self, **options):
        return extract(self.path, **options)

    def report(self, output, **options):
        """Writes the HTML page of this run."""
        return Report(call("report", self.path, *_options(dict(output=output, **options))))

    def plot(self, key="loss", ax=None):
        import matplotlib.pyplot as plt

        ax = ax or plt.gca()
        points = [(m["step"], m[key]) for m in self.metrics if "step" in m and key in m]
        ax.plot(*zip(*points), label=self.path.name) if points else None
        ax.set_xlabel("step")
        ax.set_ylabel(key)
        return ax

    def __repr__(self):
        return f"Run({str(self.path)!r})"


def _settings(settings):
    return [f"--set={key}={json.dumps(value) if isinstance(value, bool) else value}"
            for key, value in (settings or {}).items()]


def train(task=None, out=None, model=None, eigenvalues=None, settings=None, progress=True, **options):
    """`signet train`: train("parity", out="runs/a", model="deltanet", eigenvalues=(-1, 1), steps=500,
    settings={"model.width": 32}). Other options are those of the command line. Returns a Run."""
    if out is None:
        raise ValueError("out: give the run's directory")
    if eigenvalues is not None and not isinstance(eigenvalues, str):
        eigenvalues = ",".join(f"{x:g}" for x in eigenvalues)
    call("train", *([task] if task else []), *_options(dict(model=model, eigenvalues=eigenvalues, out=out, **options)),
         *_settings(settings), progress=progress)
    return Run(out)


class Sweep:
    """What a sweep found."""

    def __init__(self, path, summary):
        self.path, self.summary = Path(path), Report(summary)

    def dataframe(self):
        """One row a run, with its value on every axis."""
        import pandas

        rows = [{**run.get("values", {}), **{k: v for k, v in run.items() if not isinstance(v, (dict, list))}}
                for run in self.summary.get("runs", [])]
        return pandas.DataFrame(rows)

    def plot(self, key="score", ax=None):
        """A point for every run, by its place in the grid."""
        import matplotlib.pyplot as plt

        ax = ax or plt.gca()
        for run in self.summary.get("runs", []):
            values = {k: v for k, v in run.get("values", {}).items() if k != "train.seed"}
            if run.get(key) is not None:
                ax.plot("\n".join(f"{k} {v}" for k, v in values.items()), run[key], "o", color="C0", alpha=0.6)
        ax.set_ylabel(key)
        return ax

    def __repr__(self):
        return f"Sweep({str(self.path)!r})"


def sweep(grid, out, settings=None, progress=True, **options):
    """`signet sweep`: `grid` is a YAML file (docs/sweep.md), or its content as a dictionary."""
    if isinstance(grid, dict):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "grid.yaml"
            file.write_text(json.dumps(grid))  # JSON is YAML
            summary = call("sweep", file, *_options(dict(out=out, **options)), *_settings(settings), progress=progress)
    else:
        summary = call("sweep", grid, *_options(dict(out=out, **options)), *_settings(settings), progress=progress)
    return Sweep(out, summary)
