#include "megalith/loop/transform/steps.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "megalith/loop/access.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/transform/line_reader.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

using Names = std::vector<std::string>;
using Kernels = std::map<std::string, Kernel>;

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

// ---- the steps ----------------------------------------------------------------------------------------------------------

// Several with commas between.
Kernel split_step(const Kernel& kernel, LineReader& line) {
  std::vector<Split> splits;
  std::vector<TaggedName> tags;
  do {
    const std::string iname = line.name();
    const int64_t factor = line.number();
    line.expect("->");
    const TaggedName outer = line.tagged_name(), inner = line.tagged_name();
    splits.push_back({iname, factor, outer.name, inner.name});
    tags.insert(tags.end(), {outer, inner});
  } while (line.accept(","));
  line.end();
  return with_tags(split_inames(kernel, splits), tags);
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
  const Names inames = kernel.inames();
  const std::set<std::string> known(inames.begin(), inames.end());
  std::vector<std::pair<std::string, InameTag>> tags;
  do {
    const std::string iname = line.name();
    line.accept(":");
    const InameTag tag = line.tag();
    if (!known.contains(iname)) check_has_iname(kernel, iname);
    tags.emplace_back(iname, tag);
  } while (!line.at_end() && !line.accept("in"));
  Kernel result = kernel;
  if (line.at_end()) {
    for (const auto& [iname, tag] : tags) result.tags[iname] = tag;
    return result;
  }
  const Names ids = line.names();
  line.end();
  for (const std::string& id : ids) {
    const auto found = std::ranges::find(result.instructions, id, &Instruction::id);
    if (found == result.instructions.end()) refuse(kernel, "there is no instruction \"{}\"", id);
    for (const auto& [iname, tag] : tags) {
      if (!uses_iname(*found, iname))
        refuse(kernel, "the instruction \"{}\" is not within \"{}\", and does not reduce over it", id, iname);
      found->tags[iname] = tag;
    }
  }
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

Kernel tree_step(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name();
  int64_t count = 0;
  if (!line.peek().is("->")) {
    count = line.number();
    MEGALITH_CHECK(count >= 1, "a tree of {} lanes, want at least 1", count);
  }
  line.expect("->");
  const std::string part = line.name();
  const auto lane = line.tagged_names(1);
  line.end();
  return reduce_by_tree(kernel, iname, count, part, lane[0].name, lane[0].tag.value_or(InameTag::loop));
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

Kernel space_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name(), word = line.name();
  line.end();
  const auto space = space_of_name(word);
  MEGALITH_CHECK(space, "there is no space \"{}\": want private, lanes, shared or global", word);
  return set_space(kernel, temporary, *space);
}

Kernel privatise_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name();
  const Names inames = line.names();
  line.end();
  return privatise(kernel, temporary, inames);
}

// "a b -> pool".
Kernel alias_step(const Kernel& kernel, LineReader& line) {
  const Names temporaries = line.names();
  line.expect("->");
  const std::string storage = line.name();
  line.end();
  return share(kernel, temporaries, storage);
}

Kernel pad_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name();
  const int64_t axis = line.number(), by = line.number();
  line.end();
  return pad_axis(kernel, temporary, static_cast<int>(axis), by);
}

// All inames in the subscripts of that axis: what ":" sweeps.
void add_inames_of_axis(const Kernel& kernel, const std::string& tensor, size_t axis, bool writes, Names& sweep) {
  for (const Instruction& instruction : kernel.instructions)
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      const bool counts =
          expr.kind == Expr::Kind::subscript ? writes || !place.is_target : kernel.find_rule(tensor) != nullptr;
      if (!counts || expr.name != tensor || axis >= expr.args.size()) return;
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
      add_inames_of_axis(kernel, tensor, axis, function == buffer, sweep);
    else
      sweep.push_back(line.name());
    if (!line.peek().is("]")) line.expect(",");
  }
  line.expect("->");
  const std::string buffer = line.name();
  const auto inames = line.tagged_names();
  line.end();
  if (kernel.find_rule(tensor)) return with_tags(precompute(kernel, tensor, sweep, buffer, plain(inames)), inames);
  return with_tags(function(without_rules(kernel), tensor, sweep, buffer, plain(inames)), inames);
}

// "square(a) = a * a".
Kernel extract_step(const Kernel& kernel, LineReader& line) {
  const std::string name = line.name();
  line.expect("(");
  Names arguments;
  if (!line.accept(")")) {
    arguments = line.names();
    line.expect(")");
  }
  line.expect("=");
  const Expr pattern = line.expression(kernel);
  line.end();
  return extract_rule(kernel, name, arguments, pattern);
}

template <Kernel (*function)(const Kernel&, const std::string&)>
Kernel name_step(const Kernel& kernel, LineReader& line) {
  const std::string name = line.name();
  line.end();
  return function(kernel, name);
}

template <Kernel (*function)(const Kernel&)>
Kernel plain_step(const Kernel& kernel, LineReader& line) {
  line.end();
  return function(kernel);
}

Kernel common_step(const Kernel& kernel, LineReader& line) {
  Names ids;
  if (!line.at_end()) ids = line.names();
  line.end();
  return common_subexpressions(kernel, ids);
}

Kernel batch_step(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name();
  std::string size;
  if (line.peek().kind == Token::Kind::name) {
    size = line.name();
  } else {
    const int64_t count = line.number();
    MEGALITH_CHECK(count >= 0, "a batch of {}, want at least 0", count);
    size = std::to_string(count);
  }
  Names shared;
  if (!line.at_end()) {
    line.expect("shared");
    shared = line.names();
  }
  line.end();
  return batch(kernel, iname, size, {shared.begin(), shared.end()});
}

Kernel permute_step(const Kernel& kernel, LineReader& line) {
  const std::string tensor = line.name();
  std::vector<int> order;
  while (!line.at_end()) order.push_back(static_cast<int>(line.number()));
  return permute_axes(kernel, tensor, order);
}

Kernel barrier_step(const Kernel& kernel, LineReader& line) {
  line.expect("before");
  const std::string id = line.name();
  line.end();
  return add_barrier(kernel, id);
}

Kernel no_barrier_step(const Kernel& kernel, LineReader& line) {
  line.expect("before");
  const std::string id = line.name();
  line.end();
  return remove_barrier(kernel, id);
}

Kernel no_sync_step(const Kernel& kernel, LineReader& line) {
  const std::string a = line.name(), b = line.name();
  line.end();
  return leave_unordered(kernel, a, b);
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
  return fuse(kernel, without_rules(other->second), joined, kept);
}

struct Step {
  const char* usage;
  Kernel (*run)(const Kernel&, LineReader&);
  bool keeps_rules = false;  // else it sees the kernel without them
};

const std::map<std::string, Step>& steps() {
  static const std::map<std::string, Step> table = {
      {"accumulate", {"accumulate INAME... -> SUM", accumulate_step}},
      {"assume", {"assume CONSTRAINTS", assume_step, true}},
      {"batch", {"batch INAME SIZE [shared INPUT...]", batch_step}},
      {"buffer", {"buffer TENSOR[INAME or :, ...] -> BUFFER [INAME[:TAG]...]", copy_step<buffer>}},
      {"barrier", {"barrier before INSTRUCTION", barrier_step}},
      {"chunk", {"chunk INAME COUNT -> OUTER[:TAG] INNER[:TAG]", chunk_step, true}},
      {"alias", {"alias TEMPORARY... -> STORAGE", alias_step, true}},
      {"assignment_to_subst", {"assignment_to_subst TEMPORARY", name_step<rule_of_temporary>, true}},
      {"common_subexpressions", {"common_subexpressions [INSTRUCTION...]", common_step}},
      {"duplicate", {"duplicate INAME... -> COPY[:TAG]... in INSTRUCTION...", duplicate_step}},
      {"expand", {"expand RULE", name_step<expand_rules>, true}},
      {"extract_subst", {"extract_subst RULE(ARGUMENT, ...) = EXPRESSION", extract_step, true}},
      {"fix", {"fix PARAMETER VALUE", fix_step, true}},
      {"fold_constants", {"fold_constants", plain_step<fold_constants>}},
      {"fuse_loops", {"fuse_loops INAME ONTO", fuse_loops_step}},
      {"hoist_factors", {"hoist_factors INSTRUCTION", name_step<hoist_factors>}},
      {"ilp", {"ilp INAME", tag_as<InameTag::interleave>, true}},
      {"join", {"join OUTER INNER -> JOINED[:TAG]", join_step}},
      {"map", {"map [INAME, ...] -> INAME = VALUE, ...", map_step}},
      {"move", {"move INSTRUCTION before INSTRUCTION", move_step}},
      {"no_barrier", {"no_barrier before INSTRUCTION", no_barrier_step}},
      {"no_sync", {"no_sync INSTRUCTION INSTRUCTION", no_sync_step}},
      {"order", {"order INAME...", order_step, true}},
      {"pad", {"pad TEMPORARY AXIS BY", pad_step}},
      {"peel", {"peel INAME -> PEELED[:TAG] where CONSTRAINT", peel_step}},
      {"permute_axes", {"permute_axes TENSOR AXIS...", permute_step}},
      {"precompute", {"precompute TEMPORARY[INAME or :, ...] -> BUFFER [INAME[:TAG]...]", copy_step<precompute>, true}},
      {"prefetch", {"prefetch TENSOR[INAME or :, ...] -> BUFFER [INAME[:TAG]...]", copy_step<prefetch>, true}},
      {"privatise", {"privatise TEMPORARY INAME...", privatise_step}},
      {"realise_reductions", {"realise_reductions", plain_step<realise_reductions>}},
      {"reduction_inward", {"reduction_inward INAME...", nest_step<false>}},
      {"reduction_outward", {"reduction_outward INAME...", nest_step<true>}},
      {"rename", {"rename FROM TO", rename_step, true}},
      {"space", {"space TEMPORARY private|lanes|shared|global", space_step}},
      {"split", {"split INAME FACTOR -> OUTER[:TAG] INNER[:TAG], ...", split_step, true}},
      {"split_axis", {"split_axis TENSOR AXIS FACTOR", split_axis_step}},
      {"split_iname", {"split_iname INAME FACTOR OUTER INNER", old_split_step, true}},
      {"split_reduction", {"split_reduction OUTER[:OUTER...] PART", split_reduction_step}},
      {"stream", {"stream TENSOR", name_step<stream>, true}},
      {"substitute", {"substitute TEMPORARY", name_step<substitute>}},
      {"tag", {"tag INAME TAG...", tag_step, true}},
      {"tag_iname", {"tag_iname INAME TAG...", tag_step, true}},
      {"tile", {"tile INAME... FACTOR... -> OUTER[:TAG]... INNER[:TAG]...", tile_step, true}},
      {"tree", {"tree INAME [LANES] -> PART LANE[:TAG]", tree_step}},
      {"unify_inames", {"unify_inames INAME ONTO", unify_step}},
      {"unroll", {"unroll INAME", tag_as<InameTag::unroll>, true}},
      {"untag", {"untag INAME", tag_as<InameTag::loop>, true}},
      {"vectorise", {"vectorise INAME", tag_as<InameTag::vector>, true}},
  };
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
      {"rename_iname", "rename"},
      {"rename_inames", "rename"},
      {"set_temporary_address_space", "space"},
      {"split_array_axis", "split_axis"},
      {"split_array_dim", "split_axis"},
      {"split_reduction_inward", "reduction_inward"},
      {"split_reduction_outward", "reduction_outward"},
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
