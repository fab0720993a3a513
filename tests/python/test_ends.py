"""Processes that end, fork, or are interrupted while a model or a kernel is at work: a clean end, or an error that says what
to do; never a crash, never a hang. Each script runs in a process of its own."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = f"""
import atexit, gc, os, signal, sys, threading, time
import numpy as np
import megalith

def model():
    return megalith.load({str(ROOT / "models" / "storyteller")!r}, max_seq_len=256)

def kernel():
    made = megalith.PersistentKernel(test_mode=True, num_workers=2)
    made.tensor_init_layer(made.attach_input(np.zeros((64, 4096), np.float32), name="x"))
    made.compile()
    return made

def forever(function):
    def go():
        while True:
            function()
    threading.Thread(target=go, daemon=True).start()
    time.sleep(0.1)

def in_a_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()

def said(function):
    try:
        function()
        print("no error")
    except megalith.UserError as error:
        print(error)

def after(seconds, handler):
    signal.signal(signal.SIGALRM, lambda *_: handler())
    signal.setitimer(signal.ITIMER_REAL, seconds)
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # Python takes its handlers away before it ends

def in_a_fork(function):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        function()
        sys.exit(0)
    print("child", os.waitpid(child, 0)[1])
"""
FOREVER = "max_new_tokens=250, ignore_stop_tokens=True"
STREAM = f"m = model(); s = m.generate('A', {FOREVER}, stream=True); next(s)"
ENDED = "has ended and left a stream open: close() it where it is still held"
FORKED = (
    "this process was forked while the {} was at work, and its workers stayed in the parent: load or compile after the fork"
)
CAME_BETWEEN = "is at work in this thread, and this call came in between, from a signal handler, a callback or a destructor"


def run(code, timeout=120, **environment):
    """What the script printed; it ends with 0 and without a word on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


# ---- the interpreter ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        STREAM,
        f"{STREAM}; import builtins; builtins.kept = s",
        f"{STREAM}; cycle = [s]; cycle.append(cycle); del s",
        f"m = model(); forever(lambda: m.generate('A', {FOREVER}))",
        f"m = model(); [forever(lambda: m.generate('A', {FOREVER})) for _ in range(3)]",
        f"m = model(); forever(lambda: [time.sleep(0.01) for _ in m.generate('A', {FOREVER}, stream=True)])",
        f"{STREAM}; forever(lambda: m.generate('A'))",  # waits for its turn
        "m = model(); forever(lambda: m.logits('A'))",
        "m = model(); forever(lambda: m.encode('once ' * 1000))",
        "k = kernel(); [forever(k.run_test_mode) for _ in range(3)]",
        "forever(model)",
        "g = megalith.Graph('g'); g.add('copy', 'c', [g.state('x', 'f32', [8, 64])]); "
        "forever(lambda: megalith.compile(g, plan_only=True))",
        f"{STREAM}; sys.exit(0)",
        f"{STREAM}; os._exit(0)",
        f"m = model(); after(0.1, sys.exit); m.generate('A', {FOREVER})",
        f"m = model()\nfor piece in m.generate('A', {FOREVER}, stream=True): sys.exit(0)",
        f"m = model(); t = threading.Thread(target=lambda: m.generate('A', max_new_tokens=30)); t.start()",
        f"{STREAM}; atexit.register(s.close)",
    ],
)
def test_a_clean_end(code):
    assert run(code) == []


def test_exit_handlers_may_still_run_kernels():
    # Registered before Megalith is imported, so it is called when calls of other threads have been ended.
    code = "k = kernel(); forever(k.run_test_mode)"
    before = "import atexit; atexit.register(lambda: (k.run_test_mode(), print('ran')))\n"
    done = subprocess.run([sys.executable, "-c", before + HEAD + code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_a_compiler_ends_with_the_interpreter(tmp_path):
    started, late = tmp_path / "started", tmp_path / "late"
    compiler = tmp_path / "c++"
    compiler.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--version) echo made up 1.0; exit 0;; esac\n'
        f"touch {started}\nsleep 3\ntouch {late}\n"
    )
    compiler.chmod(0o755)
    code = (
        "threading.Thread(target=kernel, daemon=True).start()\n"
        f"while not os.path.exists({str(started)!r}): time.sleep(0.01)"
    )
    assert run(code, MEGALITH_CXX=str(compiler), MEGALITH_CACHE_DIR=str(tmp_path / "cache")) == []
    subprocess.run(["sleep", "3.5"], check=True)
    assert not late.exists()
    entries = list((tmp_path / "cache").glob("kernels/*"))  # the plan is one, and whole
    assert all(re.fullmatch("[0-9a-f]+", entry.name) and not (entry / "kernel.so").exists() for entry in entries)
    assert not list((tmp_path / "cache").glob("failed/*"))


# ---- calls that come in between -----------------------------------------------------------------------------------


def test_a_signal_handler_that_generates():
    lines = run(
        "m = model(); seen = []\n"
        "def handler():\n"
        "    try: m.generate('A', max_new_tokens=1)\n"
        "    except megalith.UserError as error: seen.append(str(error))\n"
        "signal.signal(signal.SIGALRM, lambda *_: handler())\n"
        "while not seen:\n"  # one signal at a time: on a busy machine handlers would interrupt handlers without end
        "    signal.setitimer(signal.ITIMER_REAL, 0.005)\n"
        f"    count = len(m.generate('A', {FOREVER}).tokens)\n"
        "print(seen[0]); print(count)"
    )
    assert len(lines) == 2 and lines[0].startswith("[generate] the model " + CAME_BETWEEN) and lines[1] == "250"


def test_a_signal_handler_that_runs_the_kernel():
    lines = run(
        "k = kernel(); seen = []\n"
        "def handler():\n"
        "    try: k.run_test_mode()\n"
        "    except megalith.UserError as error: seen.append(str(error))\n"
        "signal.signal(signal.SIGALRM, lambda *_: handler())\n"
        "while not seen:\n"  # one signal at a time, as above; a call may be over before it comes
        "    signal.setitimer(signal.ITIMER_REAL, 0.005)\n"
        "    while not seen and signal.getitimer(signal.ITIMER_REAL)[0] > 0: k.run_test_mode()\n"
        "k.run_test_mode(); print(seen[0])"
    )
    assert lines[0].startswith("[run_test_mode] the kernel " + CAME_BETWEEN)


def test_a_destructor_within_a_stream():
    lines = run(
        "m = model()\n"
        "class Late:\n"
        "    def __del__(self): said(lambda: m.generate('A'))\n"
        "for piece in m.generate('A', max_new_tokens=1, stream=True): Late()"
    )
    assert lines == ["[generate] a stream of this model is not read to its end: read it, or close() it"]


def test_a_thread_that_ended_with_its_stream_open():
    lines = run(
        "m = model()\n"
        f"def go(): global s; s = m.generate('A', {FOREVER}, stream=True); next(s)\n"
        "in_a_thread(go)\n"
        "said(lambda: m.generate('A')); said(lambda: m.logits('A'))\n"
        "print(next(s).request); s.close(); print(len(m.generate('A', max_new_tokens=2).tokens))"
    )
    assert [ENDED in line for line in lines] == [True, True, False, False] and lines[2:] == ["0", "2"]


def test_streams_change_threads():
    lines = run(
        "m = model(); s = m.generate('A', max_new_tokens=5, stream=True)\n"
        "for _ in range(5): in_a_thread(lambda: print(next(s).request))\n"
        "in_a_thread(lambda: print(next(s, None)))\n"
        f"s = m.generate('A', {FOREVER}, stream=True); next(s); in_a_thread(s.close)\n"
        f"s = m.generate('A', {FOREVER}, stream=True); next(s); in_a_thread(lambda: globals().pop('s')); gc.collect()\n"
        "print(len(m.generate('A', max_new_tokens=2).tokens))"
    )
    assert lines == ["0"] * 5 + ["None", "2"]


# ---- forks --------------------------------------------------------------------------------------------------------


def test_a_fork_of_an_idle_process_works():
    assert run("m = model(); in_a_fork(lambda: print(len(m.generate('A', max_new_tokens=3).tokens)))") == ["3", "child 0"]
    assert run("k = kernel(); k.run_test_mode(); in_a_fork(k.run_test_mode)") == ["child 0"]
    assert run("in_a_fork(lambda: kernel().run_test_mode())") == ["child 0"]


def test_a_fork_beside_an_open_stream():
    lines = run(
        f"{STREAM}; calls = [lambda: m.generate('A'), lambda: m.logits('A'), lambda: next(s)]\n"
        "in_a_fork(lambda: [said(call) for call in calls]); print(len(list(s)))"
    )
    assert [FORKED.format("model") in line for line in lines] == [True] * 3 + [False] * 2
    assert lines[3] == "child 0" and int(lines[4]) > 200


def test_a_fork_beside_a_thread_at_work():
    lines = run(
        f"m = model(); forever(lambda: m.generate('A', {FOREVER}))\nin_a_fork(lambda: said(lambda: m.generate('A')))"
    )
    assert FORKED.format("model") in lines[0] and lines[1] == "child 0"
    pool = (
        "import multiprocessing\n"
        "def work(_):\n"
        "    try: return len(m.generate('A', max_new_tokens=2).tokens)\n"
        "    except megalith.UserError as error: return str(error)\n"
        "m = model(); print(multiprocessing.get_context('fork').Pool(2).map(work, [1, 2]))\n"
        f"forever(lambda: m.generate('A', {FOREVER})); print(multiprocessing.get_context('fork').Pool(1).map(work, [1]))"
    )
    lines = run(pool)
    assert lines[0] == "[2, 2]" and FORKED.format("model") in lines[1]


# ---- Ctrl-C -------------------------------------------------------------------------------------------------------

INTERRUPT = """
def interrupted(function, seconds=0.2):
    begun = time.time()
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        while time.time() - begun < 60: function()
        print("no interrupt")
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize(
    "before,call,after",
    [
        ("m = model()", f"lambda: m.generate('A', {FOREVER})", "len(m.generate('A', max_new_tokens=2).tokens)"),
        (
            "m = model()",
            f"lambda: list(m.generate('A', {FOREVER}, stream=True))",
            "len(m.generate('A', max_new_tokens=2).tokens)",
        ),
        ("m = model()", "lambda: m.logits('A')", "2 * len(m.logits('A').shape)"),
        ("k = kernel()", "k.run_test_mode", "k.run_test_mode() or 2"),
    ],
)
def test_ctrl_c_ends_a_call_and_nothing_else(before, call, after):
    assert run(f"{INTERRUPT}{before}; interrupted({call}); print({after})") == ["interrupted", "2"]


def test_ctrl_c_reaches_a_wait_for_another_thread():
    code = (
        "m = model()\n"
        f"def go(): global s; s = m.generate('A', {FOREVER}, stream=True); next(s); time.sleep(60)\n"
        "threading.Thread(target=go, daemon=True).start()\n"
        "while 's' not in globals(): time.sleep(0.01)\n"
        "time.sleep(0.1); interrupted(lambda: m.generate('A'))"
    )
    assert run(INTERRUPT + code) == ["interrupted"]


def test_ctrl_c_reaches_a_kernel_that_never_ends():
    """A token loop of hours: ended within a fraction of a second, and the kernel runs again."""
    code = (
        "import megalith.mirage\n"
        "body = '''template <class Task> void endless(const Task& task) { "
        "for (volatile long i = 0; i < 30000000; i = i + 1) {} for (long t = task.t_begin; t < task.t_end; ++t) "
        "for (long n = 0; n < task.N; ++n) task.y(t, n) = task.x(t, n); }'''\n"
        "@megalith.operator(tests=[{'T': 3, 'N': 10}], cpu=body)\n"
        "def endless():\n"
        "    return '''input x: f32[T, N]\\noutput y: f32[T, N]\\n"
        "{ [t, n] : 0 <= t < T and 0 <= n < N }\\ny[t, n] = f32(x[t, n])'''\n"
        "x = np.arange(40, dtype=np.float32).reshape(4, 10); y = np.zeros_like(x)\n"
        "g = megalith.Graph('g'); x_id, y_id = (g.state(n, 'f32', [4, 10]) for n in 'xy')\n"
        "g.add('endless', 'e', [x_id], outputs={'y': y_id})\n"
        "made = megalith.compile(g)\n"
        "r = megalith.GraphRunner(g, made, {'x': (x.ctypes.data, False, 4, -1), 'y': (y.ctypes.data, False, 4, -1)})\n"
        "interrupted(lambda: r.run(1000000)); y[:] = 0; r.run(1); print(bool((x == y).all()))"
    )
    assert run(INTERRUPT + code) == ["interrupted", "True"]
