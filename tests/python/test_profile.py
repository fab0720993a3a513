"""What a run writes down of itself: a trace with every task of every worker."""

import json

import numpy as np
import pytest

import megalith
from megalith.mirage.mpk.persistent_kernel import PersistentKernel


def run(monkeypatch, folder, calls=1, **params):
    """Two layers, the second waiting for all of the first; the events of the trace that the last run left, by phase."""
    monkeypatch.chdir(folder)
    random = np.random.default_rng(0)
    params = dict(PersistentKernel.get_default_init_parameters(), test_mode=True, num_workers=2, **params)
    with PersistentKernel(**params) as kernel:
        x, w, y = (random.standard_normal((64, 64)).astype(np.float16) for _ in range(3))
        x_dt, w_dt, y_dt = (kernel.attach_input(a, name=n) for a, n in ((x, "x"), (w, "w"), (y, "y")))
        h = kernel.new_tensor(dims=(64, 64), name="h", dtype="f16")
        kernel.linear_layer(input=x_dt, weight=w_dt, output=h, grid_dim=(4, 1, 1))
        kernel.linear_layer(input=h, weight=w_dt, output=y_dt, grid_dim=(4, 1, 1))
        kernel.compile()
        for _ in range(calls):
            kernel.run_test_mode()
        tasks = [task.name for task in kernel.compiled.tasks.tasks]
    return tasks


def read(path):
    events = json.loads(path.read_text())["traceEvents"]
    return {phase: [e for e in events if e["ph"] == phase] for phase in "MXsf"}


@pytest.mark.parametrize("how", ["profile", "profiler_tensor"])
def test_a_trace_has_every_task(monkeypatch, tmp_path, how):
    value = True if how == "profile" else np.zeros((3000, 128), np.uint64)
    tasks = run(monkeypatch, tmp_path, calls=2, trace_name="mlp", **{how: value})
    events = read(tmp_path / "mlp.perfetto-trace")
    assert sorted(e["name"] for e in events["X"] if e["cat"] == "linear") == sorted(tasks)
    assert {e["args"]["name"] for e in events["M"]} >= {"worker 0", "worker 1"}
    assert all(e["dur"] >= 0 for e in events["X"])
    # What one worker waits for the other has made: an arrow begins inside the task that signalled, and ends where its
    # waiter goes on.
    assert events["s"] and len(events["s"]) == len(events["f"])
    for begin, end in zip(events["s"], events["f"]):
        assert begin["id"] == end["id"] and begin["ts"] <= end["ts"]
        assert any(e["tid"] == begin["tid"] and e["ts"] <= begin["ts"] <= e["ts"] + e["dur"] for e in events["X"])
        assert any(e["tid"] == end["tid"] and e["ts"] == end["ts"] for e in events["X"])


def test_a_page_has_every_task(monkeypatch, tmp_path):
    tasks = run(monkeypatch, tmp_path, trace_name="mlp", profile=True)
    text = (tmp_path / "mlp.profile.html").read_text()
    data = json.loads(text.split('type="application/json">')[1].split("</script>")[0])
    seen = [worker[i] for worker in data["workers"] for i in range(0, len(worker), 5)]
    assert sorted(data["tasks"][task] for task in seen) == sorted(tasks)
    assert data["operators"] == ["linear"] and "http" not in text


def test_nobody_asked(monkeypatch, tmp_path):
    run(monkeypatch, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(monkeypatch, tmp_path):
    with pytest.raises(megalith.UserError, match=r'\[trace_name\] the trace cannot be written to "no/such.perfetto-trace'):
        run(monkeypatch, tmp_path, profile=True, trace_name="no/such")
