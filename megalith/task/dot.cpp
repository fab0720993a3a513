#include "megalith/task/dot.h"

#include <fmt/format.h>

#include "megalith/task/flag_waits.h"

namespace megalith::task {

namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte == 0x7F ? ' ' : c;  // pictures are XML, which has no such characters
  }
  return result;
}

}  // namespace

std::string to_dot(const TaskGraph& graph) {
  std::string text =
      fmt::format("digraph \"{}\" {{\n  node [fontname=\"sans-serif\", fontsize=10];\n", escaped(graph.name));
  for (size_t w = 0; w < graph.workers.size(); ++w) {
    text += fmt::format("  subgraph cluster_{} {{\n    label=\"worker {}\"; color=gray;\n", w, w);
    std::string chain;
    for (int t : graph.workers[w]) {
      const Task& task = graph.tasks[static_cast<size_t>(t)];
      text += fmt::format("    t{} [shape=box, label=\"{}\"];\n", t, escaped(task.name));
      chain += fmt::format("{}t{}", chain.empty() ? "" : " -> ", t);
    }
    if (graph.workers[w].size() > 1) text += fmt::format("    {} [color=gray];\n", chain);
    text += "  }\n";
  }
  for (size_t e = 0; e < graph.events.size(); ++e)
    text += fmt::format("  e{} [shape=ellipse, label=\"{}\\n{} a time{}\"{}];\n", e, escaped(graph.events[e].name),
                        graph.events[e].arrivals, graph.gate == static_cast<int>(e) ? ", gate" : "",
                        graph.gate == static_cast<int>(e) ? ", peripheries=2" : "");
  for (size_t t = 0; t < graph.tasks.size(); ++t) {
    for (int event : graph.tasks[t].signals) text += fmt::format("  t{} -> e{};\n", t, event);
    for (const Wait& wait : graph.tasks[t].waits) {
      const bool full = wait.count == graph.events[static_cast<size_t>(wait.event)].arrivals;
      text += fmt::format("  e{} -> t{} [{}{}];\n", wait.event, t, wait.lag ? "style=dashed, constraint=false" : "",
                          full ? "" : fmt::format("{}label=\"{}\"", wait.lag ? ", " : "", wait.count));
    }
  }
  const FlagWaits flags(graph);
  for (size_t f = 0; f < flags.regions().size(); ++f) {
    const FlaggedRegion& region = flags.regions()[f];
    text += fmt::format("  f{} [shape=hexagon, color=blue, label=\"flags of\\n{}\"];\n", f,
                        escaped(region_text(graph, region.buffer, region.box)));
    for (const int writer : region.writers) text += fmt::format("  t{} -> f{} [color=blue];\n", writer, f);
    for (const int reader : region.readers) text += fmt::format("  f{} -> t{} [color=blue];\n", f, reader);
  }
  return text + "}\n";
}

}  // namespace megalith::task
