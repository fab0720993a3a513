#include "megalith/runtime/profile_page_text.h"

namespace megalith::runtime {

const char* const kProfilePage = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Megalith profile</title>
<style>
  body { font: 13px/1.4 system-ui, sans-serif; margin: 16px; color: #222; background: #fff; }
  h1 { font-size: 18px; margin: 0 0 4px; }
  h2 { font-size: 14px; margin: 16px 0 4px; }
  #help { color: #666; }
  canvas { display: block; width: 100%; cursor: crosshair; }
  #tip { position: fixed; display: none; pointer-events: none; background: #222; color: #fff; padding: 6px 8px;
         border-radius: 4px; max-width: 480px; white-space: pre-line; z-index: 1; }
  #tables { display: flex; gap: 32px; flex-wrap: wrap; align-items: flex-start; }
  table { border-collapse: collapse; }
  th, td { padding: 1px 10px 1px 0; text-align: right; }
  th:first-child, td:first-child { text-align: left; }
  tbody tr { cursor: pointer; }
  tbody tr.chosen { background: #eef; font-weight: 600; }
  .swatch { display: inline-block; width: 10px; height: 10px; margin-right: 6px; }
</style>
<h1 id="title"></h1>
<div id="help">Wheel: zoom. Drag: move. Left and right arrow: the step before and after. Double click: all steps.
A click on an operator or a wait shows it alone. A line leads to the task that a wait was for. <span id="step"></span></div>
<h2 id="rate_title">Weights read, GB/s</h2>
<canvas id="rate" height="90"></canvas>
<h2>Workers</h2>
<canvas id="timeline"></canvas>
<div id="tables">
  <div><h2>Time by operator</h2><table id="operators"></table></div>
  <div><h2>Waiting by event or tensor</h2><table id="events"></table></div>
</div>
<div id="tip"></div>
<script id="data" type="application/json">PROFILE_DATA</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const FIELDS = 5; // of a record: task, iteration, begin, waited, ran; times in nanoseconds
const at = id => document.getElementById(id);
const color = op => `hsl(${(op * 137.5) % 360} 62% ${46 + (op % 3) * 9}%)`;
const ns = t => t >= 1e6 ? (t / 1e6).toFixed(3) + " ms" : (t / 1e3).toFixed(2) + " us";
let end = 1;
for (const w of data.workers)
  for (let i = 0; i < w.length; i += FIELDS) end = Math.max(end, w[i + 2] + w[i + 3] + w[i + 4]);
let chosen = null;               // {operator} or {event}
let pointed = null;              // the record under the mouse
const spans = new Map();         // from when to when an iteration, which is a step, lasted
for (const w of data.workers)
  for (let i = 0; i < w.length; i += FIELDS) {
    const span = spans.get(w[i + 1]) || {from: Infinity, to: 0};
    span.from = Math.min(span.from, w[i + 2]);
    span.to = Math.max(span.to, w[i + 2] + w[i + 3] + w[i + 4]);
    spans.set(w[i + 1], span);
  }
const steps = [...spans.keys()].sort((a, b) => a - b);
const length = step => spans.get(step).to - spans.get(step).from;
// All steps at once are a wall of colour: the page opens on the one of median length.
let step = [...steps].sort((a, b) => length(a) - length(b))[steps.length >> 1];
let from, to;                    // what is seen, in nanoseconds
function showStep() {
  ({from, to} = spans.get(step));
  at("step").textContent = `Step ${step}, ${ns(length(step))}, from the ${steps.length} that were recorded.`;
}
showStep();
at("title").textContent = `${data.name}: ${data.workers.length} workers, ${steps.length} iterations, ${ns(end)}`;
// What a task waits for: an event by its number; behind those, a tensor by the flags of its values; -1: nothing.
const waitOf = t => data.eventOf[t] >= 0 ? data.eventOf[t] : data.flagsOf[t] >= 0 ? data.events.length + data.flagsOf[t] : -1;
const waitName = n => n < data.events.length ? data.events[n] : "flags of " + data.flags[n - data.events.length];
// Where a task ran: of each iteration worker and record.
const places = new Map();
data.workers.forEach((w, row) => {
  for (let i = 0; i < w.length; i += FIELDS) places.set(w[i] + "," + w[i + 1], {row, i, w});
});

// ---- tables
function table(id, heads, rows, pick) {
  const sum = rows.reduce((a, r) => a + r.time, 0) || 1;
  const head = "<thead><tr>" + heads.map(h => `<th>${h}</th>`).join("") + "</tr></thead>";
  const element = at(id);
  element.innerHTML = head;
  const body = element.createTBody();
  for (const row of rows.sort((a, b) => b.time - a.time).slice(0, 24)) {
    const tr = body.insertRow(), name = tr.insertCell();
    if (row.color) {
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = row.color;
      name.append(swatch);
    }
    name.append(row.name);
    for (const text of [ns(row.time), (100 * row.time / sum).toFixed(1) + " %", row.count, ns(row.time / row.count)])
      tr.insertCell().textContent = text;
    tr.onclick = () => {
      const same = tr.classList.contains("chosen");
      document.querySelectorAll("tr.chosen").forEach(t => t.classList.remove("chosen"));
      chosen = same ? null : pick(row);
      if (!same) tr.classList.add("chosen");
      draw();
    };
  }
}
const ran = new Map(), waited = new Map();
const add = (map, key, time) => {
  const row = map.get(key) || {time: 0, count: 0};
  row.time += time;
  ++row.count;
  map.set(key, row);
};
for (const w of data.workers)
  for (let i = 0; i < w.length; i += FIELDS) {
    add(ran, data.operatorOf[w[i]], w[i + 4]);
    if (waitOf(w[i]) >= 0) add(waited, waitOf(w[i]), w[i + 3]);
  }
table("operators", ["operator", "sum", "share", "tasks", "each"],
      [...ran].map(([op, row]) => ({...row, op, name: data.operators[op], color: color(op)})),
      row => ({operator: row.op}));
table("events", ["wait for", "sum", "share", "waits", "each"],
      [...waited].map(([event, row]) => ({...row, event, name: waitName(event)})), row => ({event: row.event}));

// ---- drawing
const timeline = at("timeline"), rate = at("rate");
const rowHeight = Math.max(5, Math.min(26, Math.floor(900 / data.workers.length)));
function fit(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return {pen, width, height};
}
// The first record of a worker that ends after `time`.
function firstAfter(w, time) {
  let low = 0, high = w.length / FIELDS;
  while (low < high) {
    const middle = (low + high) >> 1, i = middle * FIELDS;
    if (w[i + 2] + w[i + 3] + w[i + 4] <= time) low = middle + 1;
    else high = middle;
  }
  return low * FIELDS;
}
function drawTimeline() {
  const {pen, width} = fit(timeline, rowHeight * data.workers.length + 18);
  const x = t => (t - from) / (to - from) * width;
  data.workers.forEach((w, row) => {
    const y = row * rowHeight, height = rowHeight - (rowHeight > 6 ? 2 : 1);
    for (let i = firstAfter(w, from); i < w.length && w[i + 2] < to; i += FIELDS) {
      const ready = w[i + 2] + w[i + 3], op = data.operatorOf[w[i]], event = waitOf(w[i]);
      const shownOp = !chosen || chosen.operator === op, shownEvent = !chosen || chosen.event === event;
      if (w[i + 3] > 0) {
        pen.fillStyle = chosen && chosen.event === event ? "#c33" : "#e4e4e4";
        if (shownEvent) pen.fillRect(x(w[i + 2]), y, Math.max(x(ready) - x(w[i + 2]), 0.5), height);
      }
      pen.fillStyle = shownOp ? color(op) : "#f2f2f2";
      pen.fillRect(x(ready), y, Math.max(x(ready + w[i + 4]) - x(ready), 0.5), height);
    }
  });
  const last = pointed && lastOf(pointed);
  if (last) {
    const end = last.w[last.i + 2] + last.w[last.i + 3] + last.w[last.i + 4], middle = r => (r + 0.5) * rowHeight;
    pen.strokeStyle = "#c33";
    pen.beginPath();
    pen.moveTo(x(end), middle(last.row));
    pen.lineTo(x(pointed.w[pointed.i + 2] + pointed.w[pointed.i + 3]), middle(pointed.row));
    pen.stroke();
  }
  pen.fillStyle = "#666";
  const y = rowHeight * data.workers.length + 13;
  for (let i = 0; i <= 8; ++i) {
    const text = ns(from + (to - from) * i / 8);
    pen.textAlign = i === 0 ? "left" : i === 8 ? "right" : "center";
    pen.fillText(text, width * i / 8, y);
  }
}
// A task's weights are taken as read evenly while it ran.
function drawRate() {
  const {pen, width, height} = fit(rate, 90), bins = new Float64Array(Math.max(1, Math.floor(width / 2)));
  const step = (to - from) / bins.length;
  for (const w of data.workers)
    for (let i = firstAfter(w, from); i < w.length && w[i + 2] < to; i += FIELDS) {
      const bytes = data.bytesOf[w[i]], begin = w[i + 2] + w[i + 3], length = Math.max(w[i + 4], 1);
      if (bytes === 0) continue;
      const first = Math.max(0, Math.floor((begin - from) / step));
      const last = Math.min(bins.length - 1, Math.floor((begin + length - from) / step));
      for (let b = first; b <= last; ++b) {
        const low = Math.max(begin, from + b * step), high = Math.min(begin + length, from + (b + 1) * step);
        if (high > low) bins[b] += bytes * (high - low) / length / step;
      }
    }
  const most = Math.max(1e-9, ...bins);
  pen.fillStyle = "#3a6ea5";
  bins.forEach((v, b) => pen.fillRect(b * 2, height - v / most * (height - 14), 2, v / most * (height - 14)));
  pen.fillStyle = "#666";
  pen.fillText(most.toFixed(1) + " GB/s at most", 2, 10);
}
function draw() {
  drawTimeline();
  drawRate();
}

// ---- looking around
function recordAt(event) {
  const box = timeline.getBoundingClientRect(), row = Math.floor((event.clientY - box.top) / rowHeight);
  const w = data.workers[row];
  if (!w) return null;
  const time = from + (event.clientX - box.left) / box.width * (to - from), i = firstAfter(w, time);
  return i < w.length && w[i + 2] <= time ? {row, i, w} : null;
}
// The record of the task that a record's wait was for.
function lastOf(record) {
  const task = data.lastOf[record.row][record.i / FIELDS];
  return task < 0 ? null : places.get(task + "," + record.w[record.i + 1]) || null;
}
function tell(event) {
  const found = recordAt(event), tip = at("tip");
  if (found?.i !== pointed?.i || found?.row !== pointed?.row) {
    pointed = found;
    drawTimeline();
  }
  tip.style.display = found ? "block" : "none";
  if (!found) return;
  const {row, i, w} = found, task = w[i], bytes = data.bytesOf[task];
  const last = lastOf(found);
  const cause = waitOf(task) < 0 ? "" : ` for ${waitName(waitOf(task))}` +
    (last ? `, last from ${data.tasks[last.w[last.i]]} (worker ${last.row})` : "");
  tip.textContent = `${data.tasks[task]}\nworker ${row}, iteration ${w[i + 1]}, ${data.operators[data.operatorOf[task]]}\n` +
    `waited ${ns(w[i + 3])}${cause}\nran ${ns(w[i + 4])}` +
    (bytes > 0 ? `, ${(bytes / 1e6).toFixed(2)} MB of weights at ${(bytes / Math.max(w[i + 4], 1)).toFixed(1)} GB/s` : "");
  tip.style.left = Math.min(event.clientX + 14, innerWidth - 320) + "px";
  tip.style.top = event.clientY + 14 + "px";
}
let dragged = null;
timeline.onmousedown = event => dragged = {x: event.clientX, from, to};
window.onmouseup = () => dragged = null;
timeline.onmouseleave = () => {
  at("tip").style.display = "none";
  pointed = null;
  drawTimeline();
};
timeline.onmousemove = event => {
  if (!dragged) return tell(event);
  const shift = (dragged.x - event.clientX) / timeline.clientWidth * (dragged.to - dragged.from);
  const held = Math.max(-dragged.from, Math.min(end - dragged.to, shift));
  from = dragged.from + held;
  to = dragged.to + held;
  draw();
};
timeline.ondblclick = () => { from = 0; to = end; at("step").textContent = `All ${steps.length} steps.`; draw(); };
window.onkeydown = event => {
  const way = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  if (!way) return;
  step = steps[Math.max(0, Math.min(steps.length - 1, steps.indexOf(step) + way))];
  showStep();
  draw();
};
timeline.addEventListener("wheel", event => {
  event.preventDefault();
  const box = timeline.getBoundingClientRect(), part = (event.clientX - box.left) / box.width;
  const middle = from + part * (to - from), span = Math.min(end, Math.max(200, (to - from) * Math.exp(event.deltaY / 400)));
  from = Math.max(0, Math.min(end - span, middle - part * span));
  to = from + span;
  draw();
}, {passive: false});
window.onresize = draw;
draw();
document.body.dataset.ready = "yes";
</script>
</html>
)html";

}  // namespace megalith::runtime
