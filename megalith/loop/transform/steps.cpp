#include "megalith/loop/transform/steps.h"

#include <sstream>

#include "megalith/loop/rules.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/step_table.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

using Kernels = std::map<std::string, Kernel>;

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
  return fuse(kernel, without_rules(other->second), joined, kept);
}

const StepTable& steps() {
  static const StepTable table = [] {
    StepTable all = steps_of_loops();
    all.merge(steps_of_values());
    return all;
  }();
  return table;
}

// What other systems call these steps.
const std::map<std::string_view, std::string_view>& aliases() {
  static const std::map<std::string_view, std::string_view> table = {
      {"add_barrier", "barrier"},
      {"add_nosync", "no_sync"},
      {"add_padding", "pad"},
      {"add_prefetch", "prefetch"},
      {"alias_temporaries", "alias"},
      {"affine_map_inames", "map"},
      {"buffer_array", "buffer"},
      {"chunk_iname", "chunk"},
      {"duplicate_inames", "duplicate"},
      {"expand_subst", "expand"},
      {"fission", "duplicate"},
      {"fix_parameters", "fix"},
      {"fuse_kernels", "fuse"},
      {"interchange", "order"},
      {"join_inames", "join"},
      {"map_domain", "map"},
      {"prioritise", "order"},
      {"prioritize_loops", "order"},
      {"privatize", "privatise"},
      {"privatize_array", "privatise"},
      {"privatize_temporaries_with_inames", "privatise"},
      {"realize_reduction", "realise_reductions"},
      {"remove_unused_inames", "remove_unused"},
      {"rename_iname", "rename"},
      {"rename_inames", "rename"},
      {"set_temporary_address_space", "space"},
      {"split_array_axis", "split_axis"},
      {"split_array_dim", "split_axis"},
      {"split_reduction_inward", "reduction_inward"},
      {"split_reduction_outward", "reduction_outward"},
      {"tag_array_axes", "axes"},
      {"tag_data_axes", "axes"},
      {"tag_inames", "tag"},
      {"to_batched", "batch"},
      {"unroll_iname", "unroll"},
      {"untag_inames", "untag"},
      {"vectorize", "vectorise"},
  };
  return table;
}

// Words with points in them, which are no names to the lexer.
std::string with_own_words(std::string line) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"blockIdx.x", "g.0"},
      {"blockIdx.y", "g.1"},
      {"blockIdx.z", "g.2"},
      {"threadIdx.x", "l.0"},
      {"threadIdx.y", "l.1"},
      {"threadIdx.z", "l.2"},
      {"AddressSpace.PRIVATE", "private"},
      {"AddressSpace.LOCAL", "shared"},
      {"AddressSpace.GLOBAL", "global"},
  };
  for (const auto& [theirs, ours] : kWords)
    for (size_t at; (at = line.find(theirs)) != std::string::npos;) line.replace(at, theirs.size(), ours);
  return line;
}

constexpr const char* kFuseUsage = "fuse KERNEL INPUT=OUTPUT... [keep OUTPUT...]";

}  // namespace

Kernel with_tags(Kernel kernel, const std::vector<TaggedName>& names) {
  for (const auto& [name, tag] : names)
    if (tag) kernel.tags[name] = *tag;
  return kernel;
}

Names plain(const std::vector<TaggedName>& names) {
  Names result;
  for (const TaggedName& name : names) result.push_back(name.name);
  return result;
}

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

std::map<std::string, std::string> step_aliases() { return {aliases().begin(), aliases().end()}; }

Kernel run_step(const Kernel& kernel, const std::string& text, const Kernels& others) {
  const std::string own_words = with_own_words(text);
  LineReader line(own_words);
  const std::string given(line.peek().text);
  const auto alias = aliases().find(given);
  const std::string word(alias == aliases().end() ? std::string_view(given) : alias->second);
  const auto step = steps().find(word);
  const bool is_fuse = word == "fuse";
  if (!is_fuse && step == steps().end()) {
    Names known = {"fuse"};
    for (const auto& [name, unused] : steps()) known.push_back(name);
    throw UserError(fmt::format("there is no transformation \"{}\": want {}", word, fmt::join(known, ", ")));
  }
  const char* usage = is_fuse ? kFuseUsage : step->second.usage;
  line.accept(given);
  try {
    if (is_fuse) return fuse_step(without_rules(kernel), line, others);
    return step->second.run(step->second.keeps_rules ? kernel : without_rules(kernel), line);
  } catch (const BadUsage&) { throw UserError(fmt::format("want \"{}\"", usage)); }
}

}  // namespace megalith::loop
