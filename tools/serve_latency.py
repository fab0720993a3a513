#!/usr/bin/env python3
"""How soon a running server has forgotten a client that hangs up, and what its first token takes after a quiet time.

    megalith serve MODEL --port 8000 &
    tools/serve_latency.py --port 8000 [--requests 100] [--idle 60]

Milliseconds, seen from the same machine. `http` is what an answer takes that needs no model, and is part of all others; `step` the time
between two tokens of one sequence; `hang up` from closing a stream until /metrics tells of no page in use, which is asked again and
again; `beside` answers that need no model, asked for as long as that behind each: where those stall it is the machine, and not the
model; `first token` that of requests one behind the other, and the one behind the quiet time.
"""
import argparse
import gc
import http.client
import json
import time


class Client:
    def __init__(self, host: str, port: int):
        self.host, self.port = host, port
        self.kept = http.client.HTTPConnection(host, port)

    def get(self, path: str) -> str:
        self.kept.request("GET", path)
        return self.kept.getresponse().read().decode()

    def stream(self, prompt: list[int], tokens: int):
        """The time of each event with a token. Closing it hangs up."""
        connection = http.client.HTTPConnection(self.host, self.port)
        try:
            body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise SystemExit(f"{answer.status}: {answer.read().decode()}")
            for line in answer:
                if line.startswith(b"data: {"):
                    yield time.perf_counter()
        finally:
            connection.close()

    def pages_in_use(self) -> float:
        for line in self.get("/metrics").splitlines():
            if line.startswith("vllm:kv_cache_usage_perc"):
                return float(line.rsplit(" ", 1)[1])
        raise SystemExit("the server has no vllm:kv_cache_usage_perc")


def milliseconds(call) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def percentile(values: list[float], percent: float) -> float:
    """Between two of the sorted values on the line through them, as in `megalith bench`."""
    at = percent / 100 * (len(values) - 1)
    below = values[int(at)]
    return below + (at - int(at)) * (values[min(int(at) + 1, len(values) - 1)] - below)


def tell(what: str, values: list[float], more: str = "") -> None:
    values = sorted(values)
    p50, p99 = percentile(values, 50), percentile(values, 99)
    print(f"{what:12} p50 {p50:8.3f}  p99 {p99:8.3f}  most {values[-1]:8.3f}{more}", flush=True)


def hang_up(client: Client, number: int, tokens: int) -> float:
    stream = client.stream([1, 2, 3 + number % 50], tokens)
    for _ in range(3 + number % 5):
        next(stream)
    begin = time.perf_counter()
    stream.close()
    while client.pages_in_use() > 0:
        pass
    return (time.perf_counter() - begin) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--requests", type=int, default=100, help="of each kind")
    parser.add_argument("--output-len", type=int, default=200, help="tokens of a stream that nobody hangs up on")
    parser.add_argument("--idle", type=float, default=0, help="seconds without a request")
    given = parser.parse_args()
    client = Client(given.host, given.port)
    gc.disable()  # a collection takes this process 2 ms, which would be told as the server's
    tell("http", [milliseconds(lambda: client.get("/version")) for _ in range(300)][100:])
    times = list(client.stream([1, 2, 3], given.output_len))
    gaps = [(b - a) * 1e3 for a, b in zip(times[8:], times[9:])]
    tell("step", gaps)
    hung_up, beside = [], []
    for i in range(given.requests):
        hung_up.append(hang_up(client, i, given.output_len))
        asked = 0.0
        while asked < hung_up[-1]:
            beside.append(milliseconds(lambda: client.get("/version")))
            asked += beside[-1]
    step = percentile(sorted(gaps), 50)
    tell("hang up", hung_up, f"  over a step and 2 ms: {sum(took > step + 2 for took in hung_up)} of {len(hung_up)}")
    tell("beside", beside, f"  over 2 ms: {sum(took > 2 for took in beside)} of {len(beside)}")
    first = lambda: milliseconds(lambda: list(client.stream([7, 8, 9], 1)))
    usual = [first() for _ in range(given.requests)]
    if given.idle > 0:
        time.sleep(given.idle)
    tell("first token", usual, f"  after {given.idle:g} s: {first():.3f}" if given.idle > 0 else "")


if __name__ == "__main__":
    main()
