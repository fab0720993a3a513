#!/usr/bin/env python3
"""Draws one layer of a profiled step as an SVG: a line per worker, a bar per task, waits in grey.

    megalith profile MODEL -o trace.json
    tools/draw_layer.py trace.json --layer 12 -o layer.svg

The step is the one of median length. Of many workers an even selection is shown.
"""

import argparse
import html
import json
import re
import sys
from collections import defaultdict

WIDTH, LEFT, ROW, TOP = 1000, 78, 16, 64
COLORS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#44bb99", "#99ddff", "#bbcc33"]


def median_step(events):
    """The iteration whose length is the median of all that the trace has whole."""
    spans = defaultdict(lambda: [float("inf"), 0.0, 0])
    for e in events:
        if e["cat"] == "wait":
            continue
        span = spans[e["args"]["iteration"]]
        span[0], span[1], span[2] = min(span[0], e["ts"]), max(span[1], e["ts"] + e["dur"]), span[2] + 1
    most = max(span[2] for span in spans.values())
    whole = [i for i, span in spans.items() if span[2] == most]
    by_length = sorted(whole, key=lambda i: spans[i][1] - spans[i][0])
    return by_length[len(by_length) // 2]


def draw(name, events, layer, most_rows):
    step = median_step(events)
    events = [e for e in events if e["args"]["iteration"] == step]
    prefix = re.compile(rf"(?:wait for .*|layer\.{layer}\.(?P<part>[A-Za-z_]+)\b.*)$")
    tasks = [e for e in events if e["name"].startswith(f"layer.{layer}.")]
    if not tasks:
        layers = sorted({int(m[1]) for e in events if (m := re.match(r"layer\.(\d+)\.", e["name"]))})
        raise SystemExit(f"draw_layer: no task of layer {layer} in the trace; it has the layers {layers}")
    begin, end = min(e["ts"] for e in tasks), max(e["ts"] + e["dur"] for e in tasks)
    of_worker = defaultdict(list)
    for e in events:
        if e["ts"] < end and e["ts"] + e["dur"] > begin:
            of_worker[e["tid"]].append(e)
    workers = sorted(of_worker)
    shown = workers if len(workers) <= most_rows else [workers[i * len(workers) // most_rows] for i in range(most_rows)]
    parts = []  # in the order in which they begin
    for e in sorted(tasks, key=lambda e: e["ts"]):
        part = prefix.match(e["name"])["part"]
        if part not in parts:
            parts.append(part)
    color = {part: COLORS[i % len(COLORS)] for i, part in enumerate(parts)}
    x = lambda ts: LEFT + (min(max(ts, begin), end) - begin) / (end - begin) * (WIDTH - LEFT - 12)
    height = TOP + ROW * len(shown) + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="18" font-size="14">{html.escape(name)}: layer {layer} of one step, '
        f"{end - begin:.1f} us, {len(shown)} of {len(workers)} workers</text>",
    ]
    at = LEFT
    for part in parts:
        out.append(f'<rect x="{at}" y="30" width="10" height="10" fill="{color[part]}"/>')
        out.append(f'<text x="{at + 14}" y="39">{html.escape(part)}</text>')
        at += 30 + 6.2 * len(part)
    out.append(f'<rect x="{at:.0f}" y="30" width="10" height="10" fill="#dddddd"/><text x="{at + 14:.0f}" y="39">waits</text>')
    at += 60
    out.append(f'<rect x="{at:.0f}" y="30" width="10" height="10" fill="#f3efe4"/><text x="{at + 14:.0f}" y="39">another layer</text>')
    for row, worker in enumerate(shown):
        y = TOP + row * ROW
        out.append(f'<text x="8" y="{y + 11}">worker {worker}</text>')
        for e in sorted(of_worker[worker], key=lambda e: e["ts"]):
            m = prefix.match(e["name"])
            fill = "#f3efe4" if not m else "#dddddd" if e["cat"] == "wait" else color[m["part"]]
            width = max(x(e["ts"] + e["dur"]) - x(e["ts"]), 0.4)
            out.append(f'<rect x="{x(e["ts"]):.1f}" y="{y}" width="{width:.1f}" height="{ROW - 3}" fill="{fill}"/>')
    base = TOP + ROW * len(shown) + 6
    for i in range(9):
        ts = begin + (end - begin) * i / 8
        out.append(f'<line x1="{x(ts):.1f}" y1="{TOP - 6}" x2="{x(ts):.1f}" y2="{base}" stroke="#999" stroke-width="0.4"/>')
        anchor = "end" if i == 8 else "middle"  # what is beyond the picture would be cut off
        out.append(f'<text x="{x(ts):.1f}" y="{base + 14}" text-anchor="{anchor}" fill="#555">{ts - begin:.1f} us</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="what megalith profile -o wrote")
    parser.add_argument("--layer", type=int, default=1)
    parser.add_argument("--rows", type=int, default=16, help="most workers to show (default: 16)")
    parser.add_argument("-o", "--output", default="-", help="the SVG; - for stdout (default)")
    args = parser.parse_args()
    with open(args.trace, encoding="utf-8") as file:
        trace = json.load(file)["traceEvents"]
    name = next((e["args"]["name"] for e in trace if e["ph"] == "M" and e["name"] == "process_name"), "a trace")
    events = [e for e in trace if e["ph"] == "X"]
    if not events:
        raise SystemExit(f"draw_layer: {args.trace} has no tasks")
    svg = draw(name.removeprefix("megalith "), events, args.layer, args.rows)
    if args.output == "-":
        sys.stdout.write(svg)
    else:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(svg)


if __name__ == "__main__":
    main()
