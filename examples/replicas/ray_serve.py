"""Replicas of a model under Ray Serve, as many as the load needs (docs/replicas.md):

    pip install "ray[serve]" httpx
    MEGALITH_MODEL=models/storyteller serve run ray_serve:app

Each replica runs `megalith serve` and hands requests to it. A request goes to another replica if its own is lost before the answer
has begun.
"""

import asyncio
import math
import os
import re
import subprocess
import sys
import threading

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

COMMAND = os.environ.get("MEGALITH_COMMAND", "megalith")
MODEL = os.environ.get("MEGALITH_MODEL", "models/storyteller")
OPTIONS = os.environ.get("MEGALITH_OPTIONS", "").split()
LEAST, MOST = int(os.environ.get("MIN_REPLICAS", 2)), int(os.environ.get("MAX_REPLICAS", 8))
SEQUENCES = int(os.environ.get("SEQUENCES_A_REPLICA", 6))  # what one may have before there is another
# On a machine without a GPU each is a worker or more of its cores; with GPUs each has one of them.
RESOURCES = {
    "num_cpus": float(os.environ.get("CPUS_A_REPLICA", 1)),
    "num_gpus": float(os.environ.get("GPUS_A_REPLICA", 0)),
}
TRIES = 6
OF_CONNECTION = {"host", "connection", "content-length", "transfer-encoding", "keep-alive"}

api = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)


def replicas_for(context: AutoscalingContext):
    """Of what the replicas say that they work on and have waiting."""
    sequences = sum((context.aggregated_metrics or {}).get("sequences", {}).values())
    return min(max(math.ceil(sequences / SEQUENCES), LEAST), MOST), {}


@serve.deployment(
    ray_actor_options=RESOURCES,
    max_ongoing_requests=512,
    health_check_period_s=2,
    autoscaling_config=AutoscalingConfig(
        min_replicas=LEAST,
        max_replicas=MOST,
        upscale_delay_s=5,
        policy=AutoscalingPolicy(policy_function=replicas_for),
    ),
)
class Replica:
    def __init__(self):
        self.server = subprocess.Popen(
            [COMMAND, "serve", MODEL, "--port", "0", *OPTIONS], stderr=subprocess.PIPE, text=True
        )
        for line in self.server.stderr:
            if found := re.search(r"^serving .* at (http://\S+)/v1", line):
                break
            sys.stderr.write(line)
        else:
            raise RuntimeError(f"megalith serve ended with {self.server.wait()}; above it says why")
        threading.Thread(target=lambda: sys.stderr.writelines(self.server.stderr), daemon=True).start()
        limits = httpx.Limits(max_connections=None)
        self.client = httpx.AsyncClient(base_url=found[1], limits=limits, timeout=httpx.Timeout(None, connect=5))

    async def forward(self, method, path, headers, body):
        """Status and headers of the answer, which come with its first token, then its bytes."""
        async with self.client.stream(method, path, headers=headers, content=body) as answer:
            yield answer.status_code, dict(answer.headers)
            async for piece in answer.aiter_raw():
                yield piece

    def check_health(self):
        if self.server.poll() is not None:
            raise RuntimeError(f"megalith serve ended with {self.server.returncode}")

    async def record_autoscaling_stats(self):
        metrics = (await self.client.get("/metrics")).text
        values = re.findall(r"^vllm:num_requests_(?:running|waiting)(?:\{.*\})? (\S+)$", metrics, re.MULTILINE)
        return {"sequences": sum(map(float, values))}

    def __del__(self):
        if hasattr(self, "server"):
            self.server.terminate()  # it ends what it has begun


@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=10_000)
@serve.ingress(api)
class Front:
    def __init__(self, replicas):
        self.replicas = replicas.options(stream=True)

    @api.api_route("/{path:path}", methods=["GET", "POST"])
    async def forward(self, path: str, request: Request):
        headers = {name: value for name, value in request.headers.items() if name not in OF_CONNECTION}
        body = await request.body()
        for attempt in range(TRIES):
            # Whoever fails is quick to, and would be asked again: time for Ray to find out.
            await asyncio.sleep(0 if attempt == 0 else 0.25 * 2**attempt)
            pieces = self.replicas.forward.remote(request.method, f"/{path}", headers, body)
            try:
                status, answered = await pieces.__anext__()
            except (RayError, httpx.TransportError):
                continue
            if status != 503:
                kept = {name: value for name, value in answered.items() if name not in OF_CONNECTION}
                return StreamingResponse(pieces, status, kept)
        return Response(f"no replica answered in {TRIES} tries", 503, {"Retry-After": "1"})


app = Front.bind(Replica.bind())
