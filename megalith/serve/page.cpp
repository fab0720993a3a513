#include "megalith/serve/page.h"

namespace megalith::serve {

std::string_view page_policy() {
  return "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

std::string_view page_html() {
  return R"HTML(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Megalith</title>
<style>
  :root { color-scheme: light dark; --line: #8884; --soft: #8881; }
  * { box-sizing: border-box; }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 0; height: 100vh; display: grid; grid-template: auto 1fr / 1fr 17rem; }
  header { grid-column: 1 / 3; padding: .6rem 1rem; border-bottom: 1px solid var(--line); display: flex; gap: 1rem; }
  header b { flex: 1; }
  main { display: flex; flex-direction: column; min-height: 0; }
  #talk { flex: 1; overflow-y: auto; padding: 1rem; }
  .turn { white-space: pre-wrap; overflow-wrap: anywhere; max-width: 48rem; margin: 0 auto 1rem; }
  .user { background: var(--soft); border-radius: .5rem; padding: .5rem .8rem; }
  .error { color: #c33; }
  form { display: flex; gap: .5rem; padding: .8rem 1rem; border-top: 1px solid var(--line); }
  textarea { flex: 1; font: inherit; resize: none; padding: .4rem .6rem; }
  aside { border-left: 1px solid var(--line); padding: .8rem 1rem; overflow-y: auto; }
  aside label { display: block; margin-bottom: .5rem; }
  aside input { width: 100%; font: inherit; }
  table { width: 100%; border-collapse: collapse; margin-top: 1rem; }
  td { border-top: 1px solid var(--line); padding: .15rem 0; }
  td + td { text-align: right; font-variant-numeric: tabular-nums; }
  @media (max-width: 45rem) { body { grid-template: auto 1fr auto / 1fr; } header { grid-column: 1; } aside { border: 0; } }
</style>
</head>
<body>
<header><b id="model">Megalith</b><span id="state" role="status"></span></header>
<main>
  <div id="talk" aria-live="polite"></div>
  <form id="form">
    <textarea id="text" rows="2" aria-label="Message" placeholder="Enter sends, Shift+Enter begins a line" autofocus></textarea>
    <button id="send">Send</button>
    <button id="clear" type="button">Clear</button>
  </form>
</main>
<aside>
  <label>System prompt <input id="system"></label>
  <label>Temperature <input id="temperature" type="number" min="0" max="99" step="0.1" placeholder="the model's"></label>
  <label>Tokens at most <input id="tokens" type="number" min="1" value="256"></label>
  <label>API key <input id="key" type="password" autocomplete="off"></label>
  <table id="metrics"></table>
</aside>
<script>
"use strict";
const $ = id => document.getElementById(id);
const messages = [];
let running = null;  // what ends the answer that is being made

function headers() {
  const key = $("key").value;
  return { "Content-Type": "application/json", ...(key && { Authorization: "Bearer " + key }) };
}

function turn(kind, text) {
  const element = document.createElement("div");
  element.className = "turn " + kind;
  element.textContent = text;
  $("talk").append(element);
  element.scrollIntoView({ block: "end" });
  return element;
}

// Calls take(event) for each event of a stream, "[DONE]" left out.
async function read_events(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let at; (at = rest.indexOf("\n\n")) >= 0; rest = rest.slice(at + 2)) {
      const line = rest.slice(0, at);
      if (line.startsWith("data: ") && line !== "data: [DONE]") take(JSON.parse(line.slice(6)));
    }
  }
}

async function ask(text) {
  turn("user", text);
  messages.push({ role: "user", content: text });
  const system = $("system").value ? [{ role: "system", content: $("system").value }] : [];
  const body = { messages: [...system, ...messages], stream: true, stream_options: { include_usage: true } };
  if ($("temperature").value) body.temperature = Number($("temperature").value);
  if ($("tokens").value) body.max_tokens = Number($("tokens").value);
  const shown = turn("assistant", "");
  running = new AbortController();
  $("send").textContent = "Stop";
  const begun = performance.now();
  let first = 0, thought = null;
  try {
    const response = await fetch("v1/chat/completions",
      { method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal });
    if (!response.ok) throw new Error((await response.json()).error.message);
    await read_events(response, event => {
      if (event.error) throw new Error(event.error.message);
      const delta = event.choices[0]?.delta ?? {};
      if (delta.content || delta.reasoning_content) {
        first ||= performance.now();
        if (delta.reasoning_content && !thought) shown.before(thought = turn("reasoning", ""));
        (delta.content ? shown : thought).textContent += delta.content || delta.reasoning_content;
        $("talk").scrollTop = $("talk").scrollHeight;
      }
      if (event.usage) {
        const tokens = event.usage.completion_tokens;
        const rate = tokens > 1 ? `, ${Math.round((tokens - 1) / (performance.now() - first) * 1000)} tokens/s` : "";
        $("state").textContent = `${tokens} tokens, the first after ${Math.round(first - begun)} ms${rate}`;
      }
    });
  } catch (error) {
    if (error.name !== "AbortError") turn("error", error.message);
  }
  messages.push({ role: "assistant", content: shown.textContent });
  running = null;
  $("send").textContent = "Send";
}

function send() {
  if (running) return running.abort();
  const text = $("text").value;
  $("text").value = "";
  if (text.trim()) ask(text);
}
$("form").onsubmit = event => { event.preventDefault(); send(); };
$("text").onkeydown = event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!running) send(); }
};
$("clear").onclick = () => { running?.abort(); messages.length = 0; $("talk").replaceChildren(); };

// {"name": [[labels, value], ...]}
function parse_metrics(text) {
  const all = {};
  for (const line of text.split("\n")) {
    const found = /^([a-z_:]+)\{(.*)\} (\S+)$/.exec(line);
    if (found) (all[found[1]] ??= []).push([found[2], Number(found[3])]);
  }
  return all;
}

// The bucket that the middle of what came since `before` is in, in ms.
function median_ms(now, before, name) {
  const buckets = (now[name + "_bucket"] ?? []).map(([labels, count], i) =>
    [/le="(.*?)"/.exec(labels)[1], count - (before[name + "_bucket"]?.[i]?.[1] ?? 0)]);
  const total = buckets.at(-1)?.[1];
  if (!total) return "";
  const bound = buckets.find(([, count]) => count * 2 >= total)[0];
  return bound === "+Inf" ? "more" : `up to ${+(bound * 1000).toPrecision(3)} ms`;
}

let before = {}, before_time = 0;
async function watch() {
  try {
    const response = await fetch("metrics", { headers: headers() });
    if (!response.ok) throw new Error((await response.json()).error.message);
    const now = parse_metrics(await response.text()), time = performance.now();
    const value = name => now[name]?.[0]?.[1] ?? 0;
    const rate = name => before_time ? Math.round((value(name) - (before[name]?.[0]?.[1] ?? 0)) / (time - before_time) * 1000) : 0;
    const rows = [
      ["Running", value("vllm:num_requests_running")],
      ["Waiting", value("vllm:num_requests_waiting")],
      ["KV cache in use", (value("vllm:kv_cache_usage_perc") * 100).toFixed(0) + " %"],
      ["Tokens made per second", rate("vllm:generation_tokens_total")],
      ["Prompt tokens per second", rate("vllm:prompt_tokens_total")],
      ["First token", median_ms(now, before, "vllm:time_to_first_token_seconds")],
      ["Between tokens", median_ms(now, before, "vllm:inter_token_latency_seconds")],
      ["Tokens made", value("vllm:generation_tokens_total")],
      ["Connections", value("megalith:connections")],
    ];
    $("metrics").replaceChildren(...rows.map(([name, shown]) => {
      const row = document.createElement("tr");
      for (const text of [name, shown]) row.insertCell().textContent = text;
      return row;
    }));
    before = now, before_time = time;
  } catch (error) {
    $("metrics").textContent = error.message;
  }
  setTimeout(watch, 2000);
}

async function find_model() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (response.ok) $("model").textContent = document.title = (await response.json()).data[0].id;
  } catch { /* the metrics say what is wrong */ }
}
$("key").onchange = find_model;
find_model();
watch();
</script>
</body>
</html>
)HTML";
}

}  // namespace megalith::serve
