"""What `signet train --tensorboard` writes, read by TensorBoard itself."""
import pytest

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

import signet  # noqa: E402


def test_scalars_are_those_of_the_run(tmp_path):
    run = signet.train("parity", out=tmp_path / "run", model="deltanet", steps=20, progress=False, tensorboard=True,
                       settings={"model.width": 8, "train.batch": 8})
    events = accumulator.EventAccumulator(str(run.path))
    events.Reload()
    expected = [(m["step"], m["loss"]) for m in run.metrics if "loss" in m]
    got = [(e.step, e.value) for e in events.Scalars("loss")]
    assert [s for s, _ in got] == [s for s, _ in expected]
    assert all(abs(a - b) < 1e-6 for (_, a), (_, b) in zip(got, expected))
