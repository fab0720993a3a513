"""Requests to a server of completions, one or many at a time, and how each of them ended."""

import http.client
import json
import threading
import time

import pytest

PATIENCE = 60


class Outcome:
    """How a request ended: `replica` that answered, text that came, whether all of it did."""

    def __init__(self):
        self.replica, self.text, self.is_whole, self.error = None, "", False, ""


def ask(address, prefix=None, stream=True, tokens=24):
    outcome = Outcome()
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    body = {"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    headers = {"Content-Type": "application/json", **({"X-Prefix": prefix} if prefix else {})}
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        outcome.replica = answer.headers.get("X-Replica")
        if answer.status != 200:
            outcome.error = f"{answer.status}: {answer.read()[:200]}"
        elif stream:
            for line in answer:
                if line.strip() == b"data: [DONE]":
                    outcome.is_whole = True
                elif line.startswith(b"data: "):
                    outcome.text += json.loads(line[6:])["choices"][0]["text"]
        else:
            outcome.text = json.loads(answer.read())["choices"][0]["text"]
            outcome.is_whole = True
    except (OSError, http.client.HTTPException, ValueError) as error:
        outcome.error = repr(error)
    finally:
        connection.close()
    return outcome


class Load:
    """Clients that ask one after the other, whole answers, streams and such as belong together, until they are told to end."""

    CLIENTS = 12

    def __init__(self, address):
        self.outcomes, self.is_over = [], threading.Event()

        def client(number):
            prefix = f"conversation {number}" if number % 3 == 0 else None
            while not self.is_over.is_set():
                self.outcomes.append(ask(address, prefix, stream=number % 2 == 0))

        self.clients = [threading.Thread(target=client, args=(i,)) for i in range(self.CLIENTS)]
        for one in self.clients:
            one.start()

    def wait_for_more(self, number):
        want = len(self.outcomes) + number
        for _ in range(PATIENCE * 10):
            if len(self.outcomes) >= want:
                return
            time.sleep(0.1)
        pytest.fail(f"{len(self.outcomes)} answers, want {want}")

    def end(self):
        self.is_over.set()
        for one in self.clients:
            one.join(PATIENCE)
        return self.outcomes
