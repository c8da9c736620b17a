"""Automata: from expressions, groups, other packages; what networks can follow them, and exact weights."""

import json
import tempfile
from pathlib import Path

from . import program
from .program import Network, Report, _options


def _letters(alphabet):
    """The alphabet of an expression as the program takes it: its letters side by side."""
    if alphabet is None or isinstance(alphabet, str):
        return alphabet
    if isinstance(alphabet, (list, tuple)) and all(isinstance(a, str) and len(a) == 1 for a in alphabet):
        return "".join(alphabet)
    raise TypeError(f"alphabet: give letters of one character each, as a string or a list, not {alphabet!r}; "
                    "Automaton.from_dict takes longer ones")


def _plain(value):
    """NumPy's numbers and arrays as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"machine: give numbers, letters and lists of them, not {type(value).__name__}")


class Automaton:
    """A deterministic automaton, or the expression or name that stands for one.

        Automaton("(aa|bb)*")                       a regular expression (docs/automata.md)
        Automaton.group("S5"), Automaton.language("parity"), Automaton.task("modular-arithmetic")
        Automaton.from_dict({"alphabet": ["a"], "start": 0, "accept": [0], "delta": [[1], [0]]})
        Automaton.from_automata_lib(dfa), .from_pyformlang(dfa), .from_aalpy(dfa)
    """

    def __init__(self, regex, alphabet=None):
        if not isinstance(regex, str):
            raise TypeError(f"regex: give an expression, not {type(regex).__name__}; Automaton.from_dict takes a dictionary")
        alphabet = _letters(alphabet)
        self._name, self._machine = repr(regex), None
        self._arguments = [f"--regex={regex}", *_options(dict(alphabet=alphabet))]
        self._expression = (regex, alphabet)

    @classmethod
    def _of(cls, name, arguments, machine=None):
        new = cls.__new__(cls)
        new._name, new._arguments, new._machine, new._expression = name, arguments, machine, None
        return new

    @classmethod
    def group(cls, name, generators=None, action=None):
        """The word problem of a group: does a product of its letters give the identity? With action="natural" every
        letter announces the point that it leads to. Automaton.task("S5:swaps") is the task that asks for every product."""
        return cls._of(f"group {name}", _options(dict(group=name, generators=generators, action=action)))

    @classmethod
    def language(cls, name):
        return cls._of(f"language {name}", [f"--language={name}"])

    @classmethod
    def task(cls, name):
        return cls._of(f"task {name}", [f"--task={name}"])

    @classmethod
    def from_dict(cls, machine):
        """alphabet, start, accept (or output) and delta[state][letter], as in docs/automata.md."""
        for key in ("alphabet", "start", "delta"):
            if key not in machine:
                raise ValueError(f"machine: it has no {key!r}")
        machine = json.loads(json.dumps(machine, default=_plain))
        return cls._of(f"{len(machine['delta'])} states over {machine['alphabet']}", [], machine)

    @classmethod
    def from_json(cls, path):
        return cls.from_dict(json.loads(Path(path).read_text()))

    @classmethod
    def _from_table(cls, states, alphabet, start, accepting, step):
        """`step(state, letter)` gives the next state or None, which leads to a sink."""
        number = {state: i for i, state in enumerate(states)}
        sink = len(number)
        delta = [[number.get(step(s, a), sink) for a in alphabet] for s in states]
        if any(sink in row for row in delta):
            delta.append([sink] * len(alphabet))
        letters = [str(getattr(a, "value", a)) for a in alphabet]
        return cls.from_dict({"alphabet": letters, "start": number[start],
                              "accept": sorted(number[s] for s in accepting), "delta": delta})

    @classmethod
    def from_automata_lib(cls, dfa):
        """A `DFA` of automata-lib."""
        return cls._from_table(sorted(dfa.states, key=str), sorted(dfa.input_symbols), dfa.initial_state,
                               dfa.final_states, lambda s, a: dfa.transitions.get(s, {}).get(a))

    @classmethod
    def from_pyformlang(cls, dfa):
        """A `DeterministicFiniteAutomaton` of pyformlang (others are made deterministic)."""
        if not dfa.is_deterministic():
            dfa = dfa.to_deterministic()
        if not dfa.start_states:
            raise ValueError("the automaton has no start state; give it one with add_start_state()")
        table = dfa.to_dict()

        def step(state, letter):
            target = table.get(state, {}).get(letter)
            return next(iter(target), None) if isinstance(target, (set, frozenset, list)) else target

        return cls._from_table(sorted(dfa.states, key=lambda s: str(s.value)),
                               sorted(dfa.symbols, key=lambda a: str(a.value)), next(iter(dfa.start_states)),
                               dfa.final_states, step)

    @classmethod
    def from_aalpy(cls, dfa):
        """A `Dfa` of AALpy."""
        return cls._from_table(dfa.states, sorted(dfa.get_input_alphabet(), key=str), dfa.initial_state,
                               [s for s in dfa.states if s.is_accepting], lambda s, a: s.transitions.get(a))

    def _call(self, verb, *arguments, accept=(0,)):
        if self._machine is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
                json.dump(self._machine, file)
                file.flush()
                return program.call(verb, f"--dfa={file.name}", *arguments, accept=accept)
        if self._expression and verb != "verify":  # others take the expression by position
            regex, alphabet = self._expression
            return program.call(verb, *_options(dict(alphabet=alphabet)), *arguments, "--", regex, accept=accept)
        return program.call(verb, *self._arguments, *arguments, accept=accept)

    def _as_table(self):
        report = self.analyze()
        answers = {"accept": report.accepting} if report.output is None else {"output": report.output}
        return Automaton.from_dict({"alphabet": report.alphabet, "start": report.start, "delta": report.delta, **answers})

    def analyze(self, **options):
        """Which networks can recognise this language at every length, which cannot, and why."""
        return Report(self._call("analyze", *_options(options)))

    def decompose(self, **options):
        """The Krohn-Rhodes levels."""
        return Report(self._call("decompose", *_options(options)))

    def compile(self, output, target=None, dtype=None, **options):
        """Exact weights, written to a file: a Network."""
        report = self._call("compile", *_options(dict(output=output, target=target, dtype=dtype, **options)))
        return Network(output, report)

    def verify(self, target=None, dtype=None, **options):
        """Compiles in memory and proves the result."""
        return Report(self._call("verify", *_options(dict(target=target, dtype=dtype, **options)), accept=(0, 4)))

    def train(self, out, model=None, eigenvalues=None, settings=None, progress=True, **options):
        """Trains a model on words of this automaton: a Run. For a group, an expression or a dictionary targets="state"
        asks for states in place of answers."""
        if self._machine is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
                json.dump(self._machine, file)
                file.flush()
                return program.train(None, out, model, eigenvalues, settings, progress, dfa=file.name, **options)
        if self._expression:
            regex, alphabet = self._expression
            return program.train(None, out, model, eigenvalues, settings, progress, regex=regex, alphabet=alphabet,
                                 **options)
        kind, name = self._name.split(" ", 1)
        if kind == "group":
            return self._as_table().train(out, model, eigenvalues, settings, progress, **options)
        return program.train(f"language:{name}" if kind == "language" else name, out, model, eigenvalues, settings,
                             progress, **options)

    def _repr_svg_(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder) / "automaton.svg"
            self._call("analyze", f"--svg={picture}")
            return picture.read_text()

    def __repr__(self):
        return f"Automaton({self._name})"
