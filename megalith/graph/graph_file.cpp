#include "megalith/graph/graph_file.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <optional>
#include <set>
#include <string_view>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"
#include "megalith/graph/declare.h"
#include "megalith/graph/text.h"

namespace megalith::graph {

namespace {

using std::string_view;

// ---- writing ------------------------------------------------------------------------------------------------------------

const char* role_name(loop::Role role) {
  return role == loop::Role::input ? "input" : role == loop::Role::output ? "output" : "inout";
}

std::string operator_text(const Operator& op) {
  MEGALITH_CHECK(!op.reference,
                 "[{}] what it does depends on a whole token loop: a graph with it cannot be kept in a file", op.name);
  MEGALITH_CHECK(op.bodies.empty(),
                 "[{}] has a body of its own ({}), and a graph's file has loop kernels alone: declare it without",
                 op.name, op.bodies.front().target);
  std::string text = fmt::format("operator {}\n", op.name);
  std::vector<std::string> axes, exact;
  for (const TaskAxis& axis : op.axes) axes.push_back(fmt::format("{} {}", axis.iname, axis.multiple));
  if (!axes.empty()) text += fmt::format("  tasks {}\n", fmt::join(axes, ", "));
  for (const Operand& operand : op.operands) {
    if (operand.exact_dtype) exact.push_back(operand.name);
    if (!operand.index_into.empty()) text += fmt::format("  index {}: {}\n", operand.name, operand.index_into);
  }
  text += fmt::format("  exact{}{}\n", exact.empty() ? "" : " ", fmt::join(exact, ", "));
  for (const auto& test : op.tests) {
    text += "  test";
    for (const auto& [size, value] : test) text += fmt::format(" {}={}", size, value);
    text += "\n";
  }
  for (const std::string& size : op.extra_sizes) text += fmt::format("  parameter {}\n", size);
  for (const loop::Attribute& attribute : op.attributes)
    text += fmt::format("  attribute {} = {:.9g}\n", attribute.name, attribute.value);
  for (const Operand& operand : op.operands)
    text += fmt::format("  {} {}: {}[{}]\n", role_name(operand.role), operand.name, dtype_name(operand.dtype),
                        fmt::join(operand.shape, ", "));
  return text + op.loops + (op.loops.ends_with('\n') ? "" : "\n") + "end\n";
}

// ---- reading ------------------------------------------------------------------------------------------------------------

[[noreturn]] void fail(string_view what) { throw UserError(std::string(what)); }

string_view trimmed(string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Takes `before` off the front of `text`, up to `mark` and that as well.
string_view take_until(string_view& text, string_view mark) {
  const size_t at = text.find(mark);
  if (at == string_view::npos) fail(fmt::format("\"{}\" is missing behind \"{}\"", mark, text));
  const string_view before = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return before;
}

bool take(string_view& text, string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

template <typename T>
T number(string_view text) {
  T value{};
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || rest != text.data() + text.size() || text.empty())
    fail(fmt::format("\"{}\" is no number", text));
  return value;
}

// Of "a, b, c", brackets held together.
std::vector<string_view> items(string_view text) {
  std::vector<string_view> all;
  size_t begin = 0;
  int open = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) open += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (i < text.size() && (text[i] != ',' || open != 0)) continue;
    const string_view item = trimmed(text.substr(begin, i - begin));
    if (!item.empty() || i < text.size()) all.push_back(item);
    begin = i + 1;
  }
  return all;
}

// As plain_text() wrote it.
std::string name_of(string_view text) {
  std::string name;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '\\' && i + 3 < text.size() && text[i + 1] == 'x' &&
        std::from_chars(&text[i + 2], &text[i + 4], value, 16).ptr == &text[i + 4]) {
      name += static_cast<char>(value);
      i += 3;
    } else {
      name += text[i];
    }
  }
  if (name.empty()) fail("a name is missing");
  return name;
}

struct Shaped {
  std::string name;
  DType dtype;
  std::vector<Dim> shape;
};

// "x: bf16[rows<=4, 64]"
Shaped shaped_of(string_view text) {
  Shaped tensor{.name = name_of(take_until(text, ": ")), .dtype = DType::f32, .shape = {}};
  tensor.dtype = dtype_parse(take_until(text, "["));
  if (!text.ends_with(']')) fail(fmt::format("the shape of \"{}\" does not end with ]", tensor.name));
  text.remove_suffix(1);
  for (const string_view dim : items(text)) {
    const size_t at = dim.rfind("<=");
    if (at == string_view::npos)
      tensor.shape.emplace_back(number<int64_t>(dim));
    else
      tensor.shape.emplace_back(number<int64_t>(dim.substr(at + 2)), name_of(dim.substr(0, at)));
  }
  return tensor;
}

std::map<std::string, int64_t> sizes_of(string_view text) {
  std::map<std::string, int64_t> sizes;
  while (!(text = trimmed(text)).empty()) {
    string_view item = text.substr(0, text.find(' '));
    text.remove_prefix(item.size());
    const std::string size(take_until(item, "="));
    sizes[size] = number<int64_t>(item);
  }
  return sizes;
}

// One line at a time, with its number for messages.
class Lines {
 public:
  explicit Lines(string_view text) : rest_(text) {}
  std::optional<string_view> next() {
    if (rest_.empty()) return std::nullopt;
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    const string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++number_;
    return line;
  }
  int number() const { return number_; }

 private:
  string_view rest_;
  int number_ = 0;
};

Operator read_operator(string_view name, Lines& lines) {
  Declaration declaration{.name = std::string(trimmed(name)),
                          .doc = "declared in a graph's file",
                          .text = {},
                          .one_task = true,
                          .index = {},
                          .tests = {},
                          .any_sizes = false,
                          .bodies = {},
                          .checks_tests = false};
  for (std::optional<string_view> line; (line = lines.next());) {
    string_view text = trimmed(*line);
    if (text == "end") return declare(declaration);
    if (take(text, "tasks ")) {
      declaration.one_task = false;
      for (string_view axis : items(text)) {
        const std::string iname(take_until(axis, " "));
        declaration.axes.push_back({iname, number<int64_t>(axis)});
      }
    } else if (take(text, "index ")) {
      const std::string operand(take_until(text, ": "));
      declaration.index[operand] = std::string(text);
    } else if (text == "exact" || text.starts_with("exact ")) {
      declaration.exact.emplace();
      for (const string_view operand : items(text.substr(5))) declaration.exact->emplace_back(operand);
    } else if (take(text, "test ")) {
      declaration.tests.push_back(sizes_of(text));
    } else {
      declaration.text += std::string(*line) + "\n";
    }
  }
  fail(fmt::format("the operator \"{}\" does not end: want a line \"end\"", declaration.name));
}

class Reader {
 public:
  explicit Reader(const std::shared_ptr<const Registry>& known)
      : registry_(std::make_shared<Registry>(*known)), graph_(registry_) {}

  GraphFile run(const std::string& text) {
    Lines lines(text);
    try {
      for (std::optional<string_view> line; (line = lines.next());) read(*line, lines);
      MEGALITH_CHECK(named_, "there is no line that begins with \"graph \"");
    } catch (const UserError& error) {
      throw UserError(fmt::format("line {} of the graph's file: {}", lines.number(), error.what()));
    }
    return {std::move(graph_), std::move(values_)};
  }

 private:
  void read(string_view line, Lines& lines) {
    string_view text = trimmed(line);
    if (text.empty() || text.starts_with('#')) return;
    if (take(text, "operator ")) {
      MEGALITH_CHECK(!named_, "operators stand before the line that begins with \"graph \"");
      registry_->add(read_operator(text, lines));
    } else if (take(text, "graph ")) {
      MEGALITH_CHECK(!named_, "a file has one graph");
      graph_ = Graph(registry_, name_of(text));
      named_ = true;
    } else if (!named_) {
      fail(fmt::format("\"{}\" stands before the line that begins with \"graph \"", text.substr(0, 60)));
    } else if (text.starts_with("constant ") || text.starts_with("state ")) {
      // What follows a dynamic size comes behind those, which are elements of states.
      if (text.find("<=") == string_view::npos)
        read_tensor(text);
      else
        following_.push_back(text);
    } else if (take(text, "dynamic ")) {
      read_dynamic(text);
    } else if (take(text, "gate ")) {
      const std::string node = name_of(take_until(text, ", stop "));
      graph_.set_gate(node, graph_.find(name_of(text)));
    } else if (take(text, "values ")) {
      read_values(text);
    } else {
      read_following();
      read_node(text);
    }
  }

  void read_following() {
    for (const string_view text : following_) read_tensor(text);
    following_.clear();
  }

  void read_tensor(string_view text) {
    const bool is_constant = take(text, "constant ");
    if (!is_constant) take(text, "state ");
    const auto ends = [&](string_view with) {
      if (!text.ends_with(with)) return false;
      text = trimmed(text.substr(0, text.size() - with.size()));
      return true;
    };
    const bool by_load = ends(" by load"), any_layout = ends(" in any layout");
    const size_t stacked = text.find(" = stacked(");
    const Shaped tensor = shaped_of(text.substr(0, stacked));
    if (!is_constant) {
      graph_.state(tensor.name, tensor.dtype, tensor.shape, any_layout, by_load);
    } else if (stacked == string_view::npos) {
      graph_.constant(tensor.name, tensor.dtype, tensor.shape);
    } else {
      take_until(text, " = stacked(");
      std::vector<std::string> parts;
      for (const string_view part : items(take_until(text, ") in "))) parts.push_back(name_of(part));
      graph_.stacked(tensor.name, tensor.dtype, tensor.shape, parts, number<int64_t>(take_until(text, " groups")));
    }
  }

  void read_dynamic(string_view text) {
    const std::string name = name_of(take_until(text, " = "));
    const size_t at = text.rfind('[');
    if (at == string_view::npos || !text.ends_with(']')) fail("want: dynamic NAME = STATE[ELEMENT]");
    graph_.dynamic_size(name, graph_.find(name_of(text.substr(0, at))),
                        number<int64_t>(text.substr(at + 1, text.size() - at - 2)));
  }

  void read_values(string_view text) {
    const std::string name = name_of(take_until(text, " = "));
    const Tensor& tensor = graph_.tensor(graph_.find(name));
    MEGALITH_CHECK(tensor.kind == TensorKind::state && !dtype_is_float(tensor.dtype),
                   "\"{}\" has values, and is no state of integers", name);
    std::vector<int64_t>& values = values_[name];
    for (const string_view value : items(text)) values.push_back(number<int64_t>(value));
    MEGALITH_CHECK(std::ssize(values) == tensor.num_elements(), "\"{}\" has {} values, want {}", name, values.size(),
                   tensor.num_elements());
  }

  // "y: f32[4, 64] = linear(x, w) tile.n=16  # node"
  void read_node(string_view text) {
    const size_t at = text.rfind("  # ");
    if (at == string_view::npos) fail(fmt::format("\"{}\" is no tensor and no node", text.substr(0, 60)));
    const std::string node = name_of(text.substr(at + 4));
    text = text.substr(0, at);
    std::deque<Shaped> written;
    for (const string_view output : items(take_until(text, " = "))) written.push_back(shaped_of(output));
    const std::string op_name(take_until(text, "("));
    MEGALITH_CHECK(registry_->has(op_name),
                   "there is no operator \"{}\" (node \"{}\"): one that Python declares must stand in the file, as "
                   "Graph.to_file() writes it",
                   op_name, node);
    const Operator& op = registry_->get(op_name);
    std::vector<TensorId> inputs;
    for (const string_view input : items(take_until(text, ")"))) inputs.push_back(graph_.find(name_of(input)));
    NodeOptions options;
    for (const Operand& operand : op.operands) {
      if (operand.role == loop::Role::input) continue;
      if (written.empty()) fail(fmt::format("[{}] writes \"{}\", too (node \"{}\")", op_name, operand.name, node));
      const Shaped tensor = std::move(written.front());
      written.pop_front();
      if (operand.role == loop::Role::output)
        options.outputs[operand.name] = graph_.has(tensor.name)
                                            ? graph_.find(tensor.name)
                                            : graph_.activation(tensor.name, tensor.dtype, tensor.shape);
    }
    if (!written.empty()) fail(fmt::format("[{}] does not write \"{}\" (node \"{}\")", op_name, written[0].name, node));
    while (!(text = trimmed(text)).empty()) {
      string_view item = text.substr(0, text.find(' '));
      text.remove_prefix(item.size());
      const std::string key(take_until(item, "="));
      if (key.starts_with("tile."))
        options.tile[key.substr(5)] = number<int64_t>(item);
      else if (key.starts_with("pieces."))
        options.pieces[key.substr(7)] = number<int64_t>(item);
      else if (std::ranges::find(op.extra_sizes, key) != op.extra_sizes.end())
        options.sizes[key] = number<int64_t>(item);
      else
        options.attributes[key] = number<double>(item);
    }
    graph_.add(op_name, node, inputs, options);
  }

  std::shared_ptr<Registry> registry_;
  Graph graph_;
  std::map<std::string, std::vector<int64_t>> values_;
  std::vector<string_view> following_;
  bool named_ = false;
};

}  // namespace

std::string to_file(const GraphFile& file, const Registry& known) {
  std::string text;
  std::set<std::string> declared;
  for (const Node& node : file.graph.nodes())
    if (!known.has(node.op->name) && declared.insert(node.op->name).second) text += operator_text(*node.op);
  text += print(file.graph);
  for (const auto& [name, values] : file.values)
    text += fmt::format("values {} = {}\n", plain_text(name, " ,()"), fmt::join(values, ", "));
  return text;
}

GraphFile from_file(const std::string& text, const std::shared_ptr<const Registry>& known) {
  return Reader(known).run(text);
}

}  // namespace megalith::graph
