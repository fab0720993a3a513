#include "megalith/graph/schedule_text.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"

namespace megalith::graph {

namespace {

constexpr const char* kGenerated = "generated";

// Words are what stands between spaces; a # begins a comment where a word would begin.
std::string word(const std::string& name) { return plain_text(name, " #"); }

// A body by its file and function, and where that says too little by its number among those that it fits.
std::string body_text(const Operator& op, const TunedBody* body) {
  if (!body) return kGenerated;
  int number = 0;
  for (const TunedBody& other : op.bodies) {
    if (&other == body) break;
    number += other.target == body->target && other.file == body->file && other.name == body->name;
  }
  const std::string text = word(fmt::format("{}:{}", body->file, body->name));
  return number == 0 ? text : fmt::format("{}:{}", text, number);
}

const TunedBody* parse_body(const Operator& op, const std::string& text, const std::string& target) {
  if (text == kGenerated) return nullptr;
  std::vector<std::string> known = {kGenerated};
  for (const TunedBody& body : op.bodies) {
    if (body.target != target) continue;
    known.push_back(body_text(op, &body));
    if (known.back() == text) return &body;
  }
  throw UserError(fmt::format("[{}] has no body {}: want {}", op.name, text, fmt::join(known, ", ")));
}

int64_t parse_number(const std::string& text, int64_t least = 1) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  MEGALITH_CHECK(error == std::errc() && end == text.data() + text.size() && number >= least,
                 "\"{}\" is no number of {} or more", text, least);
  return number;
}

// "tile.n=64", "pieces.c=4" and "stream.group=32".
void parse_choice(const Node& node, const std::string& text, NodeSchedule& schedule) {
  const size_t dot = text.find('.'), equals = text.find('=');
  const bool is_choice = dot != std::string::npos && equals != std::string::npos && dot < equals;
  const std::string kind = is_choice ? text.substr(0, dot) : text;
  MEGALITH_CHECK(is_choice && (kind == "tile" || kind == "pieces" || kind == "stream"),
                 "\"{}\" is none of tile.INAME=SIZE, pieces.INAME=NUMBER and stream.CHOICE=NUMBER", text);
  const std::string iname = text.substr(dot + 1, equals - dot - 1);
  if (kind == "stream") {
    MEGALITH_CHECK(schedule.stream.emplace(iname, parse_number(text.substr(equals + 1), 0)).second,
                   "stream.{} stands there twice", iname);
    return;
  }
  const bool is_axis = std::ranges::any_of(node.op->axes, [&](const TaskAxis& axis) { return axis.iname == iname; });
  MEGALITH_CHECK(is_axis, "[{}] is not cut along \"{}\"", node.op->name, iname);
  auto& cuts = kind == "tile" ? schedule.tile : schedule.pieces;
  MEGALITH_CHECK(cuts.emplace(iname, parse_number(text.substr(equals + 1))).second, "{}.{} stands there twice", kind,
                 iname);
  MEGALITH_CHECK(!schedule.tile.contains(iname) || !schedule.pieces.contains(iname),
                 "\"{}\" is cut by tile and by pieces: take one of them", iname);
}

// "copies=4 prefetch=16 registers=104", in any order.
WorkerSchedule parse_worker(const std::vector<std::string>& words) {
  WorkerSchedule worker;
  for (size_t i = 1; i < words.size(); ++i) {
    int64_t* const to = words[i].starts_with("copies=")      ? &worker.copies
                        : words[i].starts_with("prefetch=")  ? &worker.prefetch
                        : words[i].starts_with("registers=") ? &worker.registers
                                                             : nullptr;
    MEGALITH_CHECK(to, "\"{}\" is none of copies=NUMBER, prefetch=NUMBER and registers=NUMBER", words[i]);
    *to = parse_number(words[i].substr(words[i].find('=') + 1), 0);
  }
  return worker;
}

Layout parse_layout(const std::string& text) {
  const auto found = std::ranges::find(kLayoutNames, text);
  MEGALITH_CHECK(found != kLayoutNames.end(), "there is no layout \"{}\": want {}", text,
                 fmt::join(kLayoutNames, ", "));
  return static_cast<Layout>(found - kLayoutNames.begin());
}

class Parser {
 public:
  Parser(const Graph& graph, const std::string& target) : graph_(graph) {
    schedule_.target = target;
    schedule_.layouts.assign(graph.tensors().size(), Layout::rows);
    for (size_t t = 0; t < graph.tensors().size(); ++t) tensors_.emplace(word(graph.tensors()[t].name), t);
  }

  void line(const std::vector<std::string>& words) {
    if (words[0] == "tensor") {
      MEGALITH_CHECK(words.size() == 3, "want \"tensor NAME LAYOUT\"");
      const auto found = tensors_.find(words[1]);
      MEGALITH_CHECK(found != tensors_.end(), "there is no tensor \"{}\"", words[1]);
      MEGALITH_CHECK(seen_.insert(found->second).second, "the tensor \"{}\" stands there twice", words[1]);
      schedule_.layouts[found->second] = parse_layout(words[2]);
      return;
    }
    if (words[0] == "worker") {
      MEGALITH_CHECK(schedule_.target == "cuda", "a worker of the target {} has nothing to choose", schedule_.target);
      MEGALITH_CHECK(!std::exchange(has_worker_, true), "the worker stands there twice");
      schedule_.worker = parse_worker(words);
      return;
    }
    MEGALITH_CHECK(words[0] == "node" && words.size() >= 4,
                   "want \"node NAME OPERATOR BODY [tile.INAME=SIZE] [pieces.INAME=NUMBER] [stream.CHOICE=NUMBER]\", "
                   "\"tensor NAME LAYOUT\" or \"worker [copies=NUMBER] [prefetch=NUMBER] [registers=NUMBER]\"");
    const size_t index = schedule_.nodes.size();
    MEGALITH_CHECK(index < graph_.nodes().size(), "the graph has {} nodes, and this is one more", index);
    const Node& node = graph_.nodes()[index];
    MEGALITH_CHECK(words[1] == word(node.name) && words[2] == node.op->name,
                   "the node {} {} comes here, not {} {}: they stand in the graph's order", word(node.name),
                   node.op->name, words[1], words[2]);
    NodeSchedule& scheduled = schedule_.nodes.emplace_back();
    scheduled.body = parse_body(*node.op, words[3], schedule_.target);
    for (size_t i = 4; i < words.size(); ++i) parse_choice(node, words[i], scheduled);
  }

  Schedule take() {
    const size_t found = schedule_.nodes.size();
    if (found < graph_.nodes().size())
      throw UserError(fmt::format("there are {} nodes, and the graph has {}: \"{}\" is missing", found,
                                  graph_.nodes().size(), graph_.nodes()[found].name));
    return std::move(schedule_);
  }

 private:
  const Graph& graph_;
  std::map<std::string, size_t> tensors_;
  std::set<size_t> seen_;
  bool has_worker_ = false;
  Schedule schedule_;
};

}  // namespace

std::string print(const Graph& graph, const Schedule& schedule) {
  std::string text = fmt::format("# {} for {}: what runs each node, how it is cut, how tensors lie (else in rows)\n",
                                 plain_text(graph.name()), schedule.target);
  if (schedule.target == "cuda")
    text += fmt::format("worker copies={} prefetch={} registers={}\n", schedule.worker.copies, schedule.worker.prefetch,
                        schedule.worker.registers);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const NodeSchedule& scheduled = schedule.nodes[n];
    text += fmt::format("node {} {} {}", word(node.name), node.op->name, body_text(*node.op, scheduled.body));
    for (const auto& [iname, size] : scheduled.tile) text += fmt::format(" tile.{}={}", iname, size);
    for (const auto& [iname, number] : scheduled.pieces) text += fmt::format(" pieces.{}={}", iname, number);
    for (const auto& [name, value] : scheduled.stream) text += fmt::format(" stream.{}={}", name, value);
    text += "\n";
  }
  for (size_t t = 0; t < graph.tensors().size(); ++t)
    if (schedule.layouts[t] != Layout::rows)
      text += fmt::format("tensor {} {}\n", word(graph.tensors()[t].name),
                          kLayoutNames[static_cast<size_t>(schedule.layouts[t])]);
  return text;
}

Schedule parse_schedule(const std::string& text, const Graph& graph, const std::string& target) {
  Parser parser(graph, target);
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream from(line);
    std::vector<std::string> words;
    for (std::string one; from >> one && !one.starts_with('#');) words.push_back(one);
    if (words.empty()) continue;
    try {
      parser.line(words);
    } catch (const UserError& error) { throw UserError(fmt::format("line {}: {}", number, error.what())); }
  }
  return parser.take();
}

}  // namespace megalith::graph
