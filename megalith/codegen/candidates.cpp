#include "megalith/codegen/candidates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "megalith/base/error.h"
#include "megalith/codegen/body.h"
#include "megalith/loop/access.h"
#include "megalith/loop/tag.h"

namespace megalith::codegen {

using loop::Expr;
using loop::InameTag;
using loop::Instruction;

namespace {

// Where a loop is cut: iterations side by side that one thread has, and as many floats as a CPU's vectors have at most.
constexpr int kUnrolled = 4, kVector = 16;

// A loop, or the innermost iname of a sum, in the instructions in which it has the proposed tag.
struct Spot {
  std::string iname;
  bool is_sum = false;
  InameTag tag = InameTag::loop;
  std::vector<std::string> ids;
  bool is_everywhere = true;  // and nowhere is it anything else
  bool is_innermost = true;   // no loop of theirs is inside of it
};

// What may become of it. Of a loop that is cut the outer one stays a loop.
struct Choice {
  enum class Cut { none, unrolled, vectors };
  InameTag tag = InameTag::loop;
  Cut cut = Cut::none;
};

void look_for_sums(const Expr& expr, std::set<std::string>& innermost, std::set<std::string>& all) {
  if (expr.kind == Expr::Kind::reduce) {
    innermost.insert(expr.inames.back());
    all.insert(expr.inames.begin(), expr.inames.end());
  }
  for (const Expr& arg : expr.args) look_for_sums(arg, innermost, all);
}

std::vector<Spot> spots_of(const loop::Kernel& kernel) {
  std::vector<Spot> spots;
  const auto add = [&](const Instruction& instruction, const std::string& iname, bool is_sum) {
    const InameTag tag = loop::tag_of(kernel, instruction, iname);
    const auto same = std::ranges::find_if(
        spots, [&](const Spot& p) { return p.iname == iname && p.is_sum == is_sum && p.tag == tag; });
    const auto at = static_cast<size_t>(same - spots.begin());
    if (same == spots.end()) spots.push_back({iname, is_sum, tag, {}});
    spots[at].ids.push_back(instruction.id);
    return at;
  };
  for (const Instruction& instruction : kernel.instructions) {
    std::set<std::string> innermost, summed;
    look_for_sums(instruction.target, innermost, summed);
    look_for_sums(instruction.value, innermost, summed);
    if (instruction.condition) look_for_sums(*instruction.condition, innermost, summed);
    std::optional<size_t> outer;
    for (const std::string& iname : kernel.inames()) {
      if (innermost.contains(iname)) {
        add(instruction, iname, true);
      } else if (!summed.contains(iname) && loop::uses_iname(instruction, iname)) {
        if (outer) spots[*outer].is_innermost = false;
        outer = add(instruction, iname, false);
      }
    }
  }
  for (Spot& spot : spots) spot.is_everywhere = std::ranges::count(spots, spot.iname, &Spot::iname) == 1;
  return spots;
}

std::vector<Choice> choices_of(const Spot& spot, bool is_gpu) {
  using enum InameTag;
  std::vector<InameTag> tags = {loop, vector};
  if (is_gpu) tags = spot.is_sum ? std::vector{loop, thread_0, lane, vector} : std::vector{loop, thread_0, warp};
  std::vector<Choice> choices;
  for (const InameTag tag : tags) choices.push_back({tag});
  // A loop as long as a tensor is unrolled nowhere: compilers take minutes for it. On a GPU only an innermost loop is dealt out.
  if (!is_gpu && spot.is_everywhere && spot.is_innermost && !spot.is_sum)
    for (const Choice::Cut cut : {Choice::Cut::unrolled, Choice::Cut::vectors}) choices.push_back({loop, cut});
  return choices;
}

std::string text_of(const std::vector<Spot>& spots, const std::vector<Choice>& chosen) {
  std::string cuts, everywhere, some;
  for (size_t i = 0; i < spots.size(); ++i) {
    const std::string& iname = spots[i].iname;
    const bool is_cut = chosen[i].cut != Choice::Cut::none, is_unrolled = chosen[i].cut == Choice::Cut::unrolled;
    if (is_cut)
      cuts += fmt::format("split {0} {1} -> {0}_o {0}_i:{2}\n", iname, is_unrolled ? kUnrolled : kVector,
                          loop::tag_name(is_unrolled ? InameTag::unroll : InameTag::vector));
    if (chosen[i].tag == InameTag::loop || chosen[i].tag == InameTag::task) continue;
    if (spots[i].is_everywhere)
      everywhere += fmt::format(" {} {}", iname, loop::tag_name(chosen[i].tag));
    else
      some += fmt::format("tag {} {} in {}\n", iname, loop::tag_name(chosen[i].tag), fmt::join(spots[i].ids, " "));
  }
  return cuts + (everywhere.empty() ? "" : "tag" + everywhere + "\n") + some;
}

class Candidates {
 public:
  Candidates(const graph::LoweredKernel& lowered, const loop::Kernel& bound, const Dialect& dialect, size_t most)
      : lowered_(lowered), bound_(bound), dialect_(dialect), most_(most) {}

  std::vector<std::string> all() {
    const std::string proposed = default_schedule(lowered_, bound_, dialect_);
    take(proposed);
    const std::vector<Spot> spots = spots_of(scheduled_body(bound_, proposed));
    std::vector<Choice> base;
    for (const Spot& spot : spots) base.push_back({spot.tag});
    // What is legal with all else as it is proposed, then two of those together.
    std::vector<std::pair<size_t, Choice>> changes;
    for (size_t i = 0; i < spots.size(); ++i)
      for (const Choice& choice : choices_of(spots[i], dialect_.worker == Level::block)) {
        if (choice.tag == base[i].tag && choice.cut == Choice::Cut::none) continue;
        std::vector<Choice> chosen = base;
        chosen[i] = choice;
        if (take(text_of(spots, chosen))) changes.emplace_back(i, choice);
      }
    take_orders();
    for (size_t a = 0; a < changes.size(); ++a)
      for (size_t b = a + 1; b < changes.size(); ++b) {
        if (changes[a].first == changes[b].first) continue;
        std::vector<Choice> chosen = base;
        chosen[changes[a].first] = changes[a].second;
        chosen[changes[b].first] = changes[b].second;
        take(text_of(spots, chosen));
      }
    return std::move(found_);
  }

 private:
  // Two loops that follow each other change places, and go to threads as is proposed then.
  void take_orders() {
    const std::vector<std::string> inames = bound_.order.empty() ? bound_.inames() : bound_.order;
    for (size_t i = 0; i + 1 < inames.size(); ++i) {
      std::vector<std::string> order = inames;
      std::swap(order[i], order[i + 1]);
      const std::string step = fmt::format("order {}\n", fmt::join(order, " "));
      try {
        take(step + default_schedule(lowered_, checked_schedule(lowered_, bound_, dialect_, step).kernel(), dialect_));
      } catch (const UserError&) {}  // not legal
    }
  }

  // Whether it is legal and gives code that none before it gave.
  bool take(const std::string& steps) {
    if (found_.size() >= most_) return false;
    graph::LoweredKernel lowered = lowered_;
    lowered.steps = steps;
    try {
      checked_schedule(lowered, bound_, dialect_, steps);
      if (!codes_.insert(generate_body(lowered, bound_, dialect_).text).second) return false;
    } catch (const UserError&) { return false; }
    found_.push_back(steps);
    return true;
  }

  const graph::LoweredKernel& lowered_;
  const loop::Kernel& bound_;
  const Dialect& dialect_;
  size_t most_;
  std::vector<std::string> found_;
  std::set<std::string> codes_;
};

}  // namespace

std::vector<std::string> schedule_candidates(const graph::LoweredKernel& lowered, const loop::Kernel& bound,
                                             const Dialect& dialect, size_t most) {
  return Candidates(lowered, bound, dialect, most).all();
}

}  // namespace megalith::codegen
