#include "megalith/loop/transform/steps.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "megalith/loop/access.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/parse_expression.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

using Names = std::vector<std::string>;
using Kernels = std::map<std::string, Kernel>;

// Thrown where a line does not read as its step wants; the usage says how it would.
struct BadUsage {};

struct TaggedName {
  std::string name;
  std::optional<InameTag> tag;
};

class LineReader {
 public:
  explicit LineReader(const std::string& line) : tokens_(lex(line, "")) {}

  bool at_end() const { return peek().kind == Token::Kind::end || peek().kind == Token::Kind::newline; }
  const Token& peek() const { return tokens_[at_]; }
  bool accept(std::string_view symbol) {
    if (!peek().is(symbol)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) throw BadUsage{};
  }
  void end() const {
    if (!at_end()) throw BadUsage{};
  }
  std::string name() {
    if (peek().kind != Token::Kind::name) throw BadUsage{};
    return std::string(tokens_[at_++].text);
  }
  /// Names up to the next symbol, or one of the words `until`; at least one.
  Names names(std::initializer_list<std::string_view> until = {}) {
    Names result;
    while (peek().kind == Token::Kind::name && std::ranges::find(until, peek().text) == until.end()) {
      result.push_back(name());
      accept(",");
    }
    if (result.empty()) throw BadUsage{};
    return result;
  }
  int64_t number() {
    if (at_end()) throw BadUsage{};
    const bool negative = accept("-");
    const std::string_view text = peek().text;
    int64_t value = 0;
    const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    MEGALITH_CHECK(error == std::errc() && last == text.data() + text.size(), "\"{}\" is no whole number", text);
    constexpr int64_t kMost = int64_t{1} << 31;
    MEGALITH_CHECK(value <= kMost, "{} is too large: want at most {}", value, kMost);
    ++at_;
    return negative ? -value : value;
  }
  InameTag tag() {
    std::string text = name();
    if (!at_end() && peek().text.starts_with('.')) text += tokens_[at_++].text;
    const auto tag = tag_of_name(text);
    MEGALITH_CHECK(tag, "there is no tag \"{}\": want {}", text, tag_names());
    return *tag;
  }
  /// "a:g.0 b".
  std::vector<TaggedName> tagged_names(std::initializer_list<std::string_view> until = {}) {
    std::vector<TaggedName> result;
    while (peek().kind == Token::Kind::name && std::ranges::find(until, peek().text) == until.end()) {
      TaggedName next{name(), {}};
      if (accept(":")) next.tag = tag();
      result.push_back(std::move(next));
      accept(",");
    }
    return result;
  }
  std::vector<TaggedName> tagged_names(size_t count, std::initializer_list<std::string_view> until = {}) {
    std::vector<TaggedName> result = tagged_names(until);
    if (result.size() != count) throw BadUsage{};
    return result;
  }
  /// All that is left of the line, as it stands there.
  std::string rest() {
    std::string text;
    for (; !at_end(); ++at_) text += (peek().space_before && !text.empty() ? " " : "") + std::string(peek().text);
    if (text.empty()) throw BadUsage{};
    return text;
  }
  Expr expression(const Kernel& kernel) {
    const Names inames = kernel.inames();
    Cursor cursor(tokens_, kernel.name, at_);
    Expr expr = parse_expression(cursor, {inames.begin(), inames.end()});
    at_ = cursor.position();
    return expr;
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

Kernel with_tags(Kernel kernel, const std::vector<TaggedName>& names) {
  for (const auto& [name, tag] : names)
    if (tag) kernel = tag_iname(kernel, name, *tag);
  return kernel;
}

Names plain(const std::vector<TaggedName>& names) {
  Names result;
  for (const TaggedName& name : names) result.push_back(name.name);
  return result;
}

// ---- the steps ----------------------------------------------------------------------------------------------------------

Kernel split_step(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name();
  const int64_t factor = line.number();
  line.expect("->");
  const auto to = line.tagged_names(2);
  line.end();
  return with_tags(split_iname(kernel, iname, factor, to[0].name, to[1].name), to);
}

Kernel old_split_step(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name();
  const int64_t factor = line.number();
  const std::string outer = line.name(), inner = line.name();
  line.end();
  return split_iname(kernel, iname, factor, outer, inner);
}

Kernel chunk_step(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name();
  const int64_t count = line.number();
  line.expect("->");
  const auto to = line.tagged_names(2);
  line.end();
  return with_tags(chunk_iname(kernel, iname, count, to[0].name, to[1].name), to);
}

Kernel tile_step(const Kernel& kernel, LineReader& line) {
  const Names inames = line.names();
  std::vector<int64_t> factors;
  for (size_t i = 0; i < inames.size(); ++i) factors.push_back(line.number());
  line.expect("->");
  const auto to = line.tagged_names(2 * inames.size());
  line.end();
  Kernel result = kernel;
  for (size_t i = 0; i < inames.size(); ++i)
    result = split_iname(result, inames[i], factors[i], to[i].name, to[i + inames.size()].name);
  return with_tags(prioritise(result, plain(to)), to);
}

Kernel join_step(const Kernel& kernel, LineReader& line) {
  const std::string outer = line.name(), inner = line.name();
  line.expect("->");
  const auto to = line.tagged_names(1);
  line.end();
  return with_tags(join_inames(kernel, outer, inner, to[0].name), to);
}

Kernel map_step(const Kernel& kernel, LineReader& line) {
  line.expect("[");
  const Names before = line.names();
  line.expect("]");
  line.expect("->");
  Names after;
  std::vector<Expr> values;
  do {
    after.push_back(line.name());
    line.expect("=");
    values.push_back(line.expression(kernel));
  } while (line.accept(","));
  line.end();
  return map_domain(kernel, before, after, values);
}

// Several at once: what is legal with all of them need not be with some.
Kernel tag_step(const Kernel& kernel, LineReader& line) {
  Kernel result = kernel;
  do {
    const std::string iname = line.name();
    line.accept(":");
    result = tag_iname(result, iname, line.tag());
  } while (!line.at_end());
  return result;
}

template <InameTag tag>
Kernel tag_as(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name();
  line.end();
  return tag_iname(kernel, iname, tag);
}

Kernel order_step(const Kernel& kernel, LineReader& line) {
  const Names inames = line.names();
  line.end();
  return prioritise(kernel, inames);
}

Kernel duplicate_step(const Kernel& kernel, LineReader& line) {
  const Names inames = line.names();
  line.expect("->");
  const auto to = line.tagged_names(inames.size(), {"in"});
  line.expect("in");
  const Names ids = line.names();
  line.end();
  std::map<std::string, std::string> copies;
  for (size_t i = 0; i < inames.size(); ++i) copies[inames[i]] = to[i].name;
  return with_tags(duplicate_inames(kernel, copies, {ids.begin(), ids.end()}), to);
}

Kernel rename_step(const Kernel& kernel, LineReader& line) {
  const std::string from = line.name();
  line.accept("->");
  const std::string to = line.name();
  line.end();
  return rename(kernel, from, to);
}

Kernel fuse_loops_step(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name(), onto = line.name();
  line.end();
  return fuse_loops(kernel, iname, onto);
}

Kernel unify_step(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name(), onto = line.name();
  line.end();
  return unify_inames(kernel, iname, onto);
}

Kernel move_step(const Kernel& kernel, LineReader& line) {
  const std::string id = line.name();
  line.expect("before");
  const std::string before = line.name();
  line.end();
  return move_instruction(kernel, id, before);
}

Kernel peel_step(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name();
  line.expect("->");
  const auto to = line.tagged_names(1, {"where"});
  line.expect("where");
  return with_tags(peel(kernel, iname, to[0].name, line.rest()), to);
}

template <bool outward>
Kernel nest_step(const Kernel& kernel, LineReader& line) {
  const Names inames = line.names();
  line.end();
  return nest_reduction(kernel, inames, outward);
}

Kernel accumulate_step(const Kernel& kernel, LineReader& line) {
  const Names inames = line.names();
  line.expect("->");
  const std::string sum = line.name();
  line.end();
  return accumulate(kernel, inames, sum);
}

// "a:b part": inames with colons between.
Kernel split_reduction_step(const Kernel& kernel, LineReader& line) {
  Names outer;
  do outer.push_back(line.name());
  while (line.accept(":"));
  const std::string part = line.name();
  line.end();
  return split_reduction(kernel, outer, part);
}

Kernel assume_step(const Kernel& kernel, LineReader& line) { return assume(kernel, line.rest()); }

Kernel fix_step(const Kernel& kernel, LineReader& line) {
  const std::string parameter = line.name();
  const int64_t value = line.number();
  line.end();
  return fix_parameter(kernel, parameter, value);
}

Kernel substitute_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name();
  line.end();
  return substitute(kernel, temporary);
}

Kernel hoist_step(const Kernel& kernel, LineReader& line) {
  const std::string id = line.name();
  line.end();
  return hoist_factors(kernel, id);
}

Kernel space_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name(), word = line.name();
  line.end();
  const auto space = space_of_name(word);
  MEGALITH_CHECK(space, "there is no space \"{}\": want private, shared or global", word);
  return set_space(kernel, temporary, *space);
}

Kernel privatise_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name();
  const Names inames = line.names();
  line.end();
  return privatise(kernel, temporary, inames);
}

Kernel pad_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name();
  const int64_t axis = line.number(), by = line.number();
  line.end();
  return pad_axis(kernel, temporary, static_cast<int>(axis), by);
}

// All inames in the subscripts of that axis: what ":" sweeps.
void add_inames_of_axis(const Kernel& kernel, const std::string& tensor, size_t axis, Names& sweep) {
  for (const Instruction& instruction : kernel.instructions)
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      if (expr.kind != Expr::Kind::subscript || expr.name != tensor || place.is_target || axis >= expr.args.size())
        return;
      for (const std::string& iname : place.inames)
        if (mentions(expr.args[axis], iname) && !is_among(sweep, iname)) sweep.push_back(iname);
    });
}

template <Kernel (*function)(const Kernel&, const std::string&, const Names&, const std::string&, const Names&)>
Kernel copy_step(const Kernel& kernel, LineReader& line) {
  const std::string tensor = line.name();
  Names sweep;
  line.expect("[");
  for (size_t axis = 0; !line.accept("]"); ++axis) {
    if (line.accept(":"))
      add_inames_of_axis(kernel, tensor, axis, sweep);
    else
      sweep.push_back(line.name());
    if (!line.peek().is("]")) line.expect(",");
  }
  line.expect("->");
  const std::string buffer = line.name();
  const auto inames = line.tagged_names();
  line.end();
  return with_tags(function(kernel, tensor, sweep, buffer, plain(inames)), inames);
}

Kernel permute_step(const Kernel& kernel, LineReader& line) {
  const std::string tensor = line.name();
  std::vector<int> order;
  while (!line.at_end()) order.push_back(static_cast<int>(line.number()));
  return permute_axes(kernel, tensor, order);
}

Kernel split_axis_step(const Kernel& kernel, LineReader& line) {
  const std::string tensor = line.name();
  const int64_t axis = line.number(), factor = line.number();
  line.end();
  return split_axis(kernel, tensor, static_cast<int>(axis), factor);
}

Kernel fuse_step(const Kernel& kernel, LineReader& line, const Kernels& others) {
  const std::string name = line.name();
  const auto other = others.find(name);
  if (other == others.end()) refuse(kernel, "there is no kernel \"{}\" to fuse with", name);
  std::map<std::string, std::string> joined;
  std::set<std::string> kept;
  while (!line.at_end()) {
    const std::string input = line.name();
    if (input == "keep" && !line.peek().is("=")) {
      for (const std::string& output : line.names()) kept.insert(output);
      break;
    }
    line.expect("=");
    joined[input] = line.name();
  }
  line.end();
  return fuse(kernel, other->second, joined, kept);
}

struct Step {
  const char* usage;
  Kernel (*run)(const Kernel&, LineReader&);
};

const std::map<std::string, Step>& steps() {
  static const std::map<std::string, Step> table = {
      {"accumulate", {"accumulate INAME... -> SUM", accumulate_step}},
      {"assume", {"assume CONSTRAINTS", assume_step}},
      {"chunk", {"chunk INAME COUNT -> OUTER[:TAG] INNER[:TAG]", chunk_step}},
      {"duplicate", {"duplicate INAME... -> COPY[:TAG]... in INSTRUCTION...", duplicate_step}},
      {"fix", {"fix PARAMETER VALUE", fix_step}},
      {"fuse_loops", {"fuse_loops INAME ONTO", fuse_loops_step}},
      {"hoist_factors", {"hoist_factors INSTRUCTION", hoist_step}},
      {"ilp", {"ilp INAME", tag_as<InameTag::interleave>}},
      {"join", {"join OUTER INNER -> JOINED[:TAG]", join_step}},
      {"map", {"map [INAME, ...] -> INAME = VALUE, ...", map_step}},
      {"move", {"move INSTRUCTION before INSTRUCTION", move_step}},
      {"order", {"order INAME...", order_step}},
      {"pad", {"pad TEMPORARY AXIS BY", pad_step}},
      {"peel", {"peel INAME -> PEELED[:TAG] where CONSTRAINT", peel_step}},
      {"permute_axes", {"permute_axes TENSOR AXIS...", permute_step}},
      {"precompute", {"precompute TEMPORARY[INAME or :, ...] -> BUFFER [INAME[:TAG]...]", copy_step<precompute>}},
      {"prefetch", {"prefetch TENSOR[INAME or :, ...] -> BUFFER [INAME[:TAG]...]", copy_step<prefetch>}},
      {"privatise", {"privatise TEMPORARY INAME...", privatise_step}},
      {"reduction_inward", {"reduction_inward INAME...", nest_step<false>}},
      {"reduction_outward", {"reduction_outward INAME...", nest_step<true>}},
      {"rename", {"rename FROM TO", rename_step}},
      {"space", {"space TEMPORARY private|shared|global", space_step}},
      {"split", {"split INAME FACTOR -> OUTER[:TAG] INNER[:TAG]", split_step}},
      {"split_axis", {"split_axis TENSOR AXIS FACTOR", split_axis_step}},
      {"split_iname", {"split_iname INAME FACTOR OUTER INNER", old_split_step}},
      {"split_reduction", {"split_reduction OUTER[:OUTER...] PART", split_reduction_step}},
      {"substitute", {"substitute TEMPORARY", substitute_step}},
      {"tag", {"tag INAME TAG...", tag_step}},
      {"tag_iname", {"tag_iname INAME TAG...", tag_step}},
      {"tile", {"tile INAME... FACTOR... -> OUTER[:TAG]... INNER[:TAG]...", tile_step}},
      {"unify_inames", {"unify_inames INAME ONTO", unify_step}},
      {"unroll", {"unroll INAME", tag_as<InameTag::unroll>}},
      {"untag", {"untag INAME", tag_as<InameTag::loop>}},
      {"vectorise", {"vectorise INAME", tag_as<InameTag::vector>}},
  };
  return table;
}

constexpr const char* kFuseUsage = "fuse KERNEL INPUT=OUTPUT... [keep OUTPUT...]";

}  // namespace

std::vector<std::string> step_words(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream from(line);
  for (std::string word; from >> word && !word.starts_with('#');) words.push_back(word);
  return words;
}

std::vector<std::string> step_usages() {
  std::vector<std::string> usages = {kFuseUsage};
  for (const auto& [name, step] : steps()) usages.emplace_back(step.usage);
  return usages;
}

Kernel run_step(const Kernel& kernel, const std::string& text, const Kernels& others) {
  LineReader line(text);
  const std::string word(line.peek().text);
  const auto step = steps().find(word);
  const bool is_fuse = word == "fuse";
  if (!is_fuse && step == steps().end()) {
    Names known = {"fuse"};
    for (const auto& [name, unused] : steps()) known.push_back(name);
    throw UserError(fmt::format("there is no transformation \"{}\": want {}", word, fmt::join(known, ", ")));
  }
  const char* usage = is_fuse ? kFuseUsage : step->second.usage;
  line.accept(word);
  try {
    return is_fuse ? fuse_step(kernel, line, others) : step->second.run(kernel, line);
  } catch (const BadUsage&) { throw UserError(fmt::format("want \"{}\"", usage)); }
}

}  // namespace megalith::loop
