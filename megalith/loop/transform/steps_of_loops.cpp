// Steps of loops, and of the order in which all runs.
#include <algorithm>
#include <set>

#include "megalith/loop/access.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/step_table.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

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
  bool is_in_some = false;
  do {
    const std::string iname = line.name();
    line.accept(":");
    const InameTag tag = line.tag();
    if (!known.contains(iname)) check_has_iname(kernel, iname);
    tags.emplace_back(iname, tag);
    is_in_some = line.accept("in");
  } while (!line.at_end() && !is_in_some);
  Kernel result = kernel;
  if (!is_in_some) {
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

}  // namespace

StepTable steps_of_loops() {
  return {
      {"accumulate", {"accumulate INAME... -> SUM", accumulate_step}},
      {"barrier", {"barrier before INSTRUCTION", barrier_step}},
      {"chunk", {"chunk INAME COUNT -> OUTER[:TAG] INNER[:TAG]", chunk_step, true}},
      {"duplicate", {"duplicate INAME... -> COPY[:TAG]... in INSTRUCTION...", duplicate_step}},
      {"fuse_loops", {"fuse_loops INAME ONTO", fuse_loops_step}},
      {"ilp", {"ilp INAME", tag_as<InameTag::interleave>, true}},
      {"join", {"join OUTER INNER -> JOINED[:TAG]", join_step}},
      {"map", {"map [INAME, ...] -> INAME = VALUE, ...", map_step}},
      {"move", {"move INSTRUCTION before INSTRUCTION", move_step}},
      {"no_barrier", {"no_barrier before INSTRUCTION", no_barrier_step}},
      {"no_sync", {"no_sync INSTRUCTION INSTRUCTION", no_sync_step}},
      {"order", {"order INAME...", order_step, true}},
      {"peel", {"peel INAME -> PEELED[:TAG] where CONSTRAINT", peel_step}},
      {"realise_reductions", {"realise_reductions", plain_step<realise_reductions>}},
      {"reduction_inward", {"reduction_inward INAME...", nest_step<false>}},
      {"reduction_outward", {"reduction_outward INAME...", nest_step<true>}},
      {"remove_unused", {"remove_unused", plain_step<remove_unused>}},
      {"rename", {"rename FROM TO", rename_step, true}},
      {"split", {"split INAME FACTOR -> OUTER[:TAG] INNER[:TAG], ...", split_step, true}},
      {"split_iname", {"split_iname INAME FACTOR OUTER INNER", old_split_step, true}},
      {"split_reduction", {"split_reduction OUTER[:OUTER...] PART", split_reduction_step}},
      {"tag", {"tag INAME TAG... [in INSTRUCTION...]", tag_step, true}},
      {"tag_iname", {"tag_iname INAME TAG... [in INSTRUCTION...]", tag_step, true}},
      {"tile", {"tile INAME... FACTOR... -> OUTER[:TAG]... INNER[:TAG]...", tile_step, true}},
      {"tree", {"tree INAME [LANES] -> PART LANE[:TAG]", tree_step}},
      {"unify_inames", {"unify_inames INAME ONTO", unify_step}},
      {"unroll", {"unroll INAME", tag_as<InameTag::unroll>, true}},
      {"untag", {"untag INAME", tag_as<InameTag::loop>, true}},
      {"vectorise", {"vectorise INAME", tag_as<InameTag::vector>, true}},
  };
}

}  // namespace megalith::loop
