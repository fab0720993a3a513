#include "megalith/loop/transform/script.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

using Words = std::vector<std::string>;

int64_t number(const std::string& word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  MEGALITH_CHECK(error == std::errc() && end == word.data() + word.size(), "\"{}\" is no whole number", word);
  return value;
}

Words split(const std::string& text, char at) {
  Words parts;
  std::istringstream from(text);
  for (std::string part; std::getline(from, part, at);) parts.push_back(part);
  return parts;
}

Kernel run_fuse(const Kernel& kernel, const Words& words, const Kernels& others) {
  const auto other = others.find(words[1]);
  if (other == others.end()) refuse(kernel, "there is no kernel \"{}\" to fuse with", words[1]);
  std::map<std::string, std::string> joined;
  std::set<std::string> kept;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "keep") {
      kept.insert(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      break;
    }
    const Words pair = split(words[i], '=');
    MEGALITH_CHECK(pair.size() == 2, "\"{}\" is not INPUT=OUTPUT", words[i]);
    joined[pair[0]] = pair[1];
  }
  return fuse(kernel, other->second, joined, kept);
}

InameTag tag(const std::string& word) {
  MEGALITH_CHECK(word == "task" || word == "loop", "there is no tag \"{}\": want task or loop", word);
  return word == "task" ? InameTag::task : InameTag::loop;
}

struct Step {
  const char* usage;
  size_t least, most;  // words behind the first
  Kernel (*run)(const Kernel&, const Words&, const Kernels&);
};

constexpr size_t kMany = 64;

const std::map<std::string, Step>& steps() {
  static const std::map<std::string, Step> table = {
      {"rename",
       {"rename FROM TO", 2, 2, [](const Kernel& k, const Words& w, const Kernels&) { return rename(k, w[1], w[2]); }}},
      {"unify_inames",
       {"unify_inames INAME ONTO", 2, 2,
        [](const Kernel& k, const Words& w, const Kernels&) { return unify_inames(k, w[1], w[2]); }}},
      {"tag_iname",
       {"tag_iname INAME TAG", 2, 2,
        [](const Kernel& k, const Words& w, const Kernels&) { return tag_iname(k, w[1], tag(w[2])); }}},
      {"split_iname",
       {"split_iname INAME FACTOR OUTER INNER", 4, 4,
        [](const Kernel& k, const Words& w, const Kernels&) {
          return split_iname(k, w[1], number(w[2]), w[3], w[4]);
        }}},
      {"split_reduction",
       {"split_reduction OUTER[:OUTER...] PART", 2, 2,
        [](const Kernel& k, const Words& w, const Kernels&) { return split_reduction(k, split(w[1], ':'), w[2]); }}},
      {"substitute",
       {"substitute TEMPORARY", 1, 1,
        [](const Kernel& k, const Words& w, const Kernels&) { return substitute(k, w[1]); }}},
      {"hoist_factors",
       {"hoist_factors INSTRUCTION", 1, 1,
        [](const Kernel& k, const Words& w, const Kernels&) { return hoist_factors(k, w[1]); }}},
      {"fuse", {"fuse KERNEL INPUT=OUTPUT... [keep OUTPUT...]", 2, kMany, run_fuse}},
      {"permute_axes",
       {"permute_axes TENSOR AXIS...", 1, kMany,
        [](const Kernel& k, const Words& w, const Kernels&) {
          std::vector<int> order;
          for (size_t i = 2; i < w.size(); ++i) order.push_back(static_cast<int>(number(w[i])));
          return permute_axes(k, w[1], order);
        }}},
      {"split_axis",
       {"split_axis TENSOR AXIS FACTOR", 3, 3,
        [](const Kernel& k, const Words& w, const Kernels&) {
          return split_axis(k, w[1], static_cast<int>(number(w[2])), number(w[3]));
        }}},
  };
  return table;
}

Words words_of(const std::string& line) {
  Words words;
  std::istringstream from(line);
  for (std::string word; from >> word && !word.starts_with('#');) words.push_back(word);
  return words;
}

Kernel run(const Kernel& kernel, const Words& words, const Kernels& others) {
  const auto step = steps().find(words[0]);
  if (step == steps().end()) {
    Words known;
    for (const auto& [name, unused] : steps()) known.push_back(name);
    throw UserError(fmt::format("there is no transformation \"{}\": want {}", words[0], fmt::join(known, ", ")));
  }
  const auto& [usage, least, most, function] = step->second;
  MEGALITH_CHECK(words.size() > least && words.size() <= most + 1, "want \"{}\"", usage);
  return function(kernel, words, others);
}

}  // namespace

Script& Script::apply(const std::string& line) {
  const Words words = words_of(line);
  if (words.empty()) return *this;
  try {
    kernel_ = run(kernel_, words, others_);
  } catch (const UserError& error) { throw UserError(fmt::format("{} (\"{}\")", error.what(), line)); }
  text_ += fmt::format("{}\n", fmt::join(words, " "));
  return *this;
}

Kernel replay(const Kernel& kernel, const std::string& script, const Kernels& others) {
  Kernel result = kernel;
  std::istringstream lines(script);
  std::string line;
  for (int number_of_line = 1; std::getline(lines, line); ++number_of_line) {
    const Words words = words_of(line);
    if (words.empty()) continue;
    try {
      result = run(result, words, others);
    } catch (const UserError& error) {
      throw UserError(fmt::format("line {}: {} (\"{}\")", number_of_line, error.what(), line));
    }
  }
  return result;
}

}  // namespace megalith::loop
