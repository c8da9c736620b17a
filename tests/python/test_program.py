"""Automata, proofs and training from Python: the program's answers as objects."""
import json
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import signet
from signet import Automaton, program

try:
    program.find()
except FileNotFoundError:
    pytest.skip("the signet program is not here", allow_module_level=True)

PARITY = {"alphabet": ["a", "b"], "start": 0, "accept": [1], "delta": [[1, 0], [0, 1]]}


def test_analyze():
    report = Automaton("(aa|bb)*", alphabet="ab").analyze()
    assert report.states == 4 and not report.aperiodic
    assert not report.verdicts["diagonal[0,1]"]["possible"]
    assert report.verdicts["diagonal[-1,1]"]["possible"]
    assert "<table>" in report._repr_html_()
    with pytest.raises(AttributeError, match="states"):
        report.nothing
    assert Automaton.group("S5").analyze().solvable is False
    assert Automaton.from_dict(PARITY).analyze().group is True


def test_expressions_that_look_like_options():
    assert Automaton(r"\-a", alphabet="-a").analyze().states > 1


def test_pictures():
    for automaton in (Automaton("a*b"), Automaton.from_dict(PARITY), Automaton.language("parity")):
        assert automaton._repr_svg_().lstrip().startswith("<svg") or "<svg" in automaton._repr_svg_()


def test_compile_verify_run_extract(tmp_path):
    network = Automaton.from_dict(PARITY).compile(tmp_path / "parity.safetensors")
    assert network.report.exact
    proof = network.verify()
    assert proof.correct and proof.proved
    assert [r.accepted for r in network.run("", "a", "ab", "aab")] == [False, True, True, False]
    machine, report = network.extract()
    assert machine.analyze().states == 2
    assert Automaton("(aa)*", alphabet="a").verify().proved


def test_the_command_of_the_package():
    def command(own):
        code = f"import pathlib, sys; from signet import program; program._OWN = pathlib.Path({str(own)!r}); " \
               "sys.argv = ['signet', '--version']; program.main()"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert command(program.find()).stdout == f"signet {signet.__version__}\n"
    without = command("/none")
    assert without.returncode == 1 and "built without it" in without.stderr


def test_errors(tmp_path):
    with pytest.raises(TypeError, match="from_dict"):
        Automaton(PARITY)
    with pytest.raises(signet.SignetError, match="(?s).") as error:
        Automaton("(a").analyze()
    assert error.value.code in (2, 3)
    with pytest.raises(ValueError, match="delta"):
        Automaton.from_dict({"alphabet": ["a"], "start": 0})
    with pytest.raises(FileNotFoundError, match="no run directory"):
        signet.Run(tmp_path)
    with pytest.raises(signet.SignetError):
        signet.train("no-such-task", out=tmp_path / "x", progress=False)


def test_groups_are_trained_with_their_own_letters(tmp_path):
    for action in (None, "natural"):
        group = Automaton.group("S3", generators="swaps", action=action)
        run = group.train(tmp_path / str(action), model="deltanet", steps=1, progress=False, settings={"model.width": 8, "train.batch": 4})
        trained = json.loads(re.search(r'^  dfa: (".*")$', run.config, re.M)[1])
        machine, report = json.loads(trained), group.analyze()
        assert (machine["alphabet"], machine["delta"]) == (report.alphabet, report.delta) and len(machine["alphabet"]) == 3
        assert machine.get("output") == report.output


def test_natural_arguments(tmp_path):
    assert Automaton("(ab)*", alphabet=["a", "b"]).analyze().alphabet == ["a", "b"]
    with pytest.raises(TypeError, match="alphabet: give letters of one character"):
        Automaton("(ab)*", alphabet=["ab"])
    numpy = {**PARITY, "start": np.int64(0), "accept": np.array([1]), "delta": [list(row) for row in np.array(PARITY["delta"])]}
    assert Automaton.from_dict(numpy).analyze().delta == Automaton.from_dict(PARITY).analyze().delta
    with pytest.raises(TypeError, match="machine: give numbers"):
        Automaton.from_dict({**PARITY, "accept": {1}})
    (tmp_path / "config.yaml").write_text("")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "lo')
    assert signet.Run(tmp_path).metrics == [{"step": 1, "loss": 2.5}]


def test_errors_go_from_one_process_to_another():
    error = pickle.loads(pickle.dumps(signet.SignetError("a check", 4)))
    assert (str(error), error.code, error.kind) == ("a check", 4, "a check did not hold")


def test_train_and_sweep(tmp_path):
    run = Automaton("(aa)*", alphabet="ab").train(
        tmp_path / "run", model="deltanet", eigenvalues=(-1, 1), steps=2, progress=False, settings={"model.width": 8, "train.batch": 8})
    assert run.results["model"] == "deltanet"
    assert run.metrics and "model" in run.config
    assert run.evaluate(lengths="4:6", samples=16).samples == 16


def test_other_packages():
    dfa = pytest.importorskip("automata.fa.dfa")
    even = dfa.DFA(states={"x", "y"}, input_symbols={"0", "1"}, initial_state="x", final_states={"x"},
                   transitions={"x": {"0": "x", "1": "y"}, "y": {"0": "y", "1": "x"}})
    assert Automaton.from_automata_lib(even).analyze().group is True
    finite = pytest.importorskip("pyformlang.finite_automaton")
    partial = finite.DeterministicFiniteAutomaton()
    partial.add_start_state(finite.State(0))
    partial.add_final_state(finite.State(1))
    partial.add_transition(finite.State(0), finite.Symbol("a"), finite.State(1))
    report = Automaton.from_pyformlang(partial).analyze()
    assert report.states == 3 and report.alphabet == ["a"]
    with pytest.raises(ValueError, match="no start state"):
        Automaton.from_pyformlang(finite.DeterministicFiniteAutomaton())
    aalpy = pytest.importorskip("aalpy.automata")
    first, second = aalpy.DfaState("s0", False), aalpy.DfaState("s1", True)
    for state, other in ((first, second), (second, first)):
        state.transitions = {"a": other, "b": state}
    assert Automaton.from_aalpy(aalpy.Dfa(first, [first, second])).analyze().group is True


def test_json_is_what_the_program_prints():
    assert json.loads(json.dumps(program.call("info")))
