#include "megalith/loop/transform/random_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/random_dice.h"

namespace megalith::loop {

namespace {

// A few instructions that hand values on: point by point, turned round, transposed, summed, over triangles, along recurrences.
std::string random_kernel(Dice& dice) {
  std::string declarations =
                  "kernel random\ninput x: f32[n + 4, m + 4]\ninput w: f32[m + 4, n + 4]\ninput v: f32[m + 4]\n",
              domains, body;
  std::string last;  // the last temporary of [n, m]
  const int count = 1 + dice.below(3);
  for (int number = 0; number < count; ++number) {
    const bool is_last = number == count - 1;
    const std::string own = std::to_string(number), i = "i" + own, j = "j" + own, k = "k" + own;
    const std::string to = is_last ? "y" : "t" + own;
    if (!is_last && dice.chance(50)) declarations += fmt::format("temporary {}: f32[n, m]\n", to);
    if (is_last) declarations += fmt::format("{} y: f32[n, m]\n", dice.chance(25) ? "inout" : "output");
    const std::string input =
        fmt::format("x[{} + {}, {} + {}]", i, dice.below(3), j, dice.chance(40) ? 0 : dice.below(5));
    const std::string before = last.empty()      ? input
                               : dice.chance(60) ? fmt::format("{}[{}, {}]", last, i, j)
                                                 : fmt::format("{}[n - 1 - {}, {}]", last, i, j);
    const std::string box = fmt::format("0 <= {} < n and 0 <= {} < m", i, j);
    switch (dice.below(7)) {
      case 0:
        domains += fmt::format("{{ [{}, {}] : {} }}\n", i, j, box);
        body += fmt::format("{}[{}, {}] = 2 * {} + v[{}]\n", to, i, j, before, j);
        break;
      case 5:
        domains += fmt::format("{{ [{}, {}] : {} }}\n", i, j, box);
        body += fmt::format("{0}[{1}, {2}] = {3} * 0.5 - w[{2} + {4}, {1}] + w[{2} + {4}, {1}] * 2\n", to, i, j, before,
                            dice.below(4));
        break;
      case 1:
        domains += fmt::format("{{ [{}, {}, {}] : {} and 0 <= {} < m }}\n", i, j, k, box, k);
        body += fmt::format("{}[{}, {}] = {} + {}({}, x[{}, {}] * w[{}, {}])\n", to, i, j, before,
                            dice.chance(70) ? "sum" : "max", k, i, k, k, i);
        break;
      case 2:
        domains += fmt::format("{{ [{0}, {1}, {2}] : {3} and 0 <= {2} <= {1} }}\n", i, j, k, box);
        body += fmt::format("{}[{}, {}] = {} - sum({}, x[{}, {}] * v[{}])\n", to, i, j, before, k, i, k, k);
        break;
      case 3:
        domains += fmt::format("{{ [{}, {}] : {} }}\n{{ [{}o] : 0 <= {}o < m }}\n", i, j, box, j, j);
        body += fmt::format("s{0}[{1}o] = v[{1}o] * 3 + 1\n{2}[{3}, {1}] = s{0}[m - 1 - {1}] * {4}\n", own, j, to, i,
                            before);
        break;
      case 4:
        // Each row from the one before.
        domains += fmt::format("{{ [{}, {}] : {} }}\n{{ [{}f] : 0 <= {}f < m }}\n", i, j,
                               fmt::format("1 <= {} < n and 0 <= {} < m", i, j), j, j);
        body +=
            fmt::format("{0}[0, {1}f] = v[{1}f]\n{0}[{2}, {1}] = 0.5 * {0}[{2} - 1, {1}] + {3}\n", to, j, i, before);
        break;
      default:
        domains +=
            fmt::format("{{ [{}, {}] : {} }}\n{{ [{}e, {}e] : 0 <= {}e < n and 0 <= {}e < m and {}e mod 2 = {} }}\n", i,
                        j, box, i, j, i, j, j, dice.below(2));
        body += fmt::format("{0}[{1}, {2}] = {3}\n{0}[{1}e, {2}e] = {0}[{1}e, {2}e] + v[{2}e + 1]\n", to, i, j, before);
    }
    last = to;
  }
  return declarations + "assume n >= 1 and m >= 1\n" + domains + body;
}

// What a fused kernel does with y.
std::string random_consumer(Dice& dice) {
  const char* value = "0.5 * p[pi, pj] + 1";
  switch (dice.below(3)) {
    case 0: value = "p[n - 1 - pi, pj] - p[pi, m - 1 - pj]"; break;
    case 1: value = "sum(pk, p[pi, pk])"; break;
    default: break;
  }
  return fmt::format(
      "kernel post\ninput p: f32[n, m]\noutput z: f32[n, m]\nassume n >= 1 and m >= 1\n{{ [pi, pj, pk] : 0 <= pi < n "
      "and 0 "
      "<= pj < m and 0 <= pk < m }}\nz[pi, pj] = {}\n",
      value);
}

Kernel typed(const std::string& text) {
  Kernel kernel = parse_kernel(text);
  infer_types(kernel);
  infer_shapes(kernel);
  return kernel;
}

class StepMaker {
 public:
  StepMaker(Dice& dice, const Kernel& kernel, int number)
      : dice_(dice), kernel_(kernel), inames_(kernel.inames()), number_(number) {}

  std::string make() {
    const std::string i = iname(), a = fresh("a"), b = fresh("b");
    switch (dice_.below(39)) {
      case 0:
      case 1:
      case 2: return fmt::format("split {} {} -> {}{} {}{}", i, 1 + dice_.below(5), a, tag(), b, tag());
      case 3:
        return fmt::format("tile {} {} {} {} -> {} {} {} {}", i, iname(), 2 + dice_.below(3), 2 + dice_.below(3), a, b,
                           fresh("c"), fresh("d"));
      case 4: return fmt::format("join {} {} -> {}", i, iname(), a);
      case 5:
      case 6: {
        std::vector<std::string> some = inames_;
        dice_.shuffle(some);
        some.resize(1 + static_cast<size_t>(dice_.below(static_cast<int>(some.size()))));
        return fmt::format("order {}", fmt::join(some, " "));
      }
      case 7:
      case 8: {
        std::string text = "tag";
        for (int count = 1 + dice_.below(3); count > 0; --count)
          text += fmt::format(" {} {}", iname(), tag().substr(1));
        return text;
      }
      case 9: return fmt::format("duplicate {} -> {} in {}", i, a, instruction());
      case 10: return fmt::format("fuse_loops {} {}", i, dice_.chance(50) ? iname() : iname_within());
      case 11: return fmt::format("move {} before {}", instruction(), instruction());
      case 12: return fmt::format("accumulate {} -> {}", reduced(), a);
      case 13:
      case 14:
        if (dice_.chance(20))
          return fmt::format("{} {}[{}] -> {}", dice_.chance(60) ? "prefetch" : "precompute", tensor(), some_inames(),
                             a);
        return copy_of_a_read(a, b);
      case 15: return fmt::format("privatise {} {}", temporary(), dice_.chance(50) ? i : iname_within());
      case 16:
        return fmt::format("peel {} -> {} where {} {} {}", i, a, i, dice_.chance(50) ? ">=" : "<", dice_.below(6));
      case 17: {
        if (dice_.chance(40))
          return fmt::format("map [{0}] -> {1} = {2}{0}", i, a,
                             dice_.chance(30)   ? "n - "
                             : dice_.chance(50) ? "3 + "
                                                : "2 * ");
        const auto [outer, inner] = dice_.chance(20) ? std::pair(i, iname()) : inames_of_one();
        return fmt::format("map [{0}, {1}] -> {2} = {0} + {3} * {1}, {4} = {1}", outer, inner, a, dice_.below(3), b);
      }
      case 18: return fmt::format("reduction_{}ward {}", dice_.chance(50) ? "in" : "out", reduced());
      case 19: {
        static const std::vector<std::string> spaces = {"shared", "private", "lanes", "lanes"};
        return dice_.chance(50) ? fmt::format("substitute {}", temporary())
                                : fmt::format("space {} {}", temporary(), dice_.one_of(spaces));
      }
      case 20:
      case 21: {
        static const std::vector<std::string> lanes = {"", ":l.0", ":l.1", ":lane"};
        const std::string lane = dice_.one_of(lanes);
        const std::string number = lane == ":lane"    ? " 32"
                                   : dice_.chance(70) ? fmt::format(" {}", 1 + dice_.below(9))
                                                      : "";
        return fmt::format("tree {}{} -> {} {}{}", dice_.chance(20) ? i : reduced(), number, a, b, lane);
      }
      // What moves at once, and squares that a CPU turns round in registers.
      case 30:
      case 31:
        return fmt::format("split {} {} -> {}{} {}:vec", i, 2 << dice_.below(4), a, dice_.chance(30) ? tag() : "", b);
      case 32:
      case 37: return square(a, b);
      case 33: return dice_.chance(50) ? "stream y" : "fold_constants";
      case 34:
        return dice_.chance(50) ? "common_subexpressions" : fmt::format("common_subexpressions {}", instruction());
      case 35: return dice_.chance(30) ? "realise_reductions" : buffer_of_a_write(a, b);
      case 36: return buffer_of_a_write(a, b);
      case 22: return fmt::format("barrier before {}", instruction());
      case 23: return fmt::format("alias {} {} -> {}", temporary(), temporary(), a);
      case 24:
        return dice_.chance(50)
                   ? fmt::format("assignment_to_subst {}", temporary())
                   : fmt::format("split {} 2 -> {} {}, {} 3 -> c{} d{}", i, a, b, iname(), number_, number_);
      case 25: return fmt::format("fuse post p=y{}", dice_.chance(30) ? " keep y" : "");
      case 26: return fmt::format("rename {} {}", dice_.chance(70) ? i : temporary(), a);
      case 27: return fmt::format("pad {} {} {}", temporary(), dice_.below(2), 1 + dice_.below(3));
      case 28:
        if (dice_.chance(30))
          return fmt::format("{}_axis {} {}", dice_.chance(50) ? "vector" : "separate", temporary(), dice_.below(2));
        return dice_.chance(50) ? fmt::format("permute_axes {} 1 0", temporary())
                                : fmt::format("split_axis {} {} {}", temporary(), dice_.below(2), 1 + dice_.below(4));
      case 29:
        return dice_.chance(50) ? fmt::format("hoist_factors {}", instruction())
                                : fmt::format("no_barrier before {}", instruction());
      default:
        return dice_.chance(50) ? fmt::format("chunk {} {} -> {} {}", i, 1 + dice_.below(4), a, b)
                                : fmt::format("split_reduction {} {}", reduced(), a);
    }
  }

 private:
  Dice& dice_;
  const Kernel& kernel_;
  std::vector<std::string> inames_;
  int number_;

  std::string fresh(const char* base) const { return fmt::format("{}{}", base, number_); }
  std::string iname() { return dice_.one_of(inames_); }
  std::string instruction() { return dice_.one_of(kernel_.instructions).id; }
  // A loop around some instruction.
  std::string iname_within() {
    const Instruction& instruction = dice_.one_of(kernel_.instructions);
    return instruction.within.empty() ? iname() : dice_.one_of(instruction.within);
  }
  std::pair<std::string, std::string> inames_of_one() {
    std::vector<std::string> within = dice_.one_of(kernel_.instructions).within;
    if (within.size() < 2) return {iname(), iname()};
    dice_.shuffle(within);
    return {within[0], within[1]};
  }
  // An iname that a reduction runs over, if there is one.
  std::string reduced() {
    std::vector<std::string> found;
    for (const Instruction& instruction : kernel_.instructions)
      visit_expressions(instruction, [&](const Expr& expr, const Place&) {
        if (expr.kind == Expr::Kind::reduce) found.insert(found.end(), expr.inames.begin(), expr.inames.end());
      });
    return found.empty() ? iname() : dice_.one_of(found);
  }
  // A prefetch or precompute of something that is read, along some of the inames in its subscripts.
  std::string copy_of_a_read(const std::string& buffer, const std::string& own) {
    std::vector<const Expr*> reads;
    for (const Instruction& instruction : kernel_.instructions)
      visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
        if (expr.kind == Expr::Kind::subscript && !place.is_target) reads.push_back(&expr);
      });
    if (reads.empty()) return fmt::format("prefetch x[:, :] -> {}", buffer);
    const Expr& read = *dice_.one_of(reads);
    const TensorArgument* tensor = kernel_.find_tensor(read.name);
    std::vector<std::string> swept, named;
    for (const Expr& arg : read.args) {
      std::vector<std::string> inside;
      for (const std::string& one : inames_)
        if (mentions(arg, one)) inside.push_back(one);
      swept.push_back(inside.empty() || dice_.chance(30) ? ":" : dice_.one_of(inside));
      named.push_back(fmt::format("{}{}{}", own, named.size(), dice_.chance(40) ? tag() : ""));
    }
    const bool is_computed = tensor && tensor->role == Role::temporary;
    return fmt::format("{} {}[{}] -> {}{}", is_computed ? "precompute" : "prefetch", read.name, fmt::join(swept, ", "),
                       buffer, dice_.chance(50) ? fmt::format(" {}", fmt::join(named, " ")) : "");
  }
  // Two loops over vectors, of an instruction that reads along one of them and writes along the other, if there is one.
  std::string square(const std::string& a, const std::string& b) {
    std::string outer = iname(), inner = iname();
    for (const Instruction& instruction : kernel_.instructions) {
      if (instruction.target.args.empty()) continue;
      const auto last_of = [&](const Expr& subscript, const std::string& other) -> std::string {
        for (const std::string& one : instruction.within)
          if (one != other && mentions(subscript.args.back(), one)) return one;
        return "";
      };
      const std::string along = last_of(instruction.target, "");
      visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
        if (expr.kind != Expr::Kind::subscript || place.is_target || expr.args.empty()) return;
        if (const std::string read = last_of(expr, along); !read.empty() && !along.empty() && dice_.chance(70))
          outer = read, inner = along;
      });
    }
    const int width = 4 << dice_.below(3);
    return fmt::format("tile {} {} {} {} -> {} {} {}:vec {}:vec", outer, inner, width, width, a, b, fresh("c"),
                       fresh("d"));
  }
  // A buffer for what some instruction writes, along some of the inames in its subscripts.
  std::string buffer_of_a_write(const std::string& buffer, const std::string& own) {
    const Expr& target = dice_.one_of(kernel_.instructions).target;
    std::vector<std::string> swept, named;
    for (const Expr& arg : target.args) {
      std::vector<std::string> inside;
      for (const std::string& one : inames_)
        if (mentions(arg, one)) inside.push_back(one);
      swept.push_back(inside.empty() || dice_.chance(30) ? ":" : dice_.one_of(inside));
      named.push_back(fmt::format("{}{}{}", own, named.size(), dice_.chance(40) ? tag() : ""));
    }
    return fmt::format("buffer {}[{}] -> {}{}", target.name, fmt::join(swept, ", "), buffer,
                       dice_.chance(50) ? fmt::format(" {}", fmt::join(named, " ")) : "");
  }
  std::string temporary() {
    std::vector<std::string> names;
    for (const TensorArgument& tensor : kernel_.tensors)
      if (tensor.role == Role::temporary) names.push_back(tensor.name);
    return names.empty() ? "none" : dice_.one_of(names);
  }
  std::string tensor() { return dice_.one_of(kernel_.tensors).name; }
  std::string tag() {
    static const std::vector<std::string> tags = {":g.0", ":g.1", ":l.0", ":l.0",  ":l.1", ":unr",
                                                  ":vec", ":ilp", ":for", ":lane", ":w"};
    return dice_.one_of(tags);
  }
  std::string some_inames() {
    std::string text = iname();
    for (int more = dice_.below(3); more > 0; --more) text += ", " + iname();
    return text;
  }
};

}  // namespace

RandomCase random_case(uint64_t seed, int num_steps) {
  Dice dice(seed);
  const Kernel kernel = typed(random_kernel(dice));
  Binding binding;
  // Some such that whole vectors fit, and rows begin where they may.
  for (const char* size : {"n", "m"})
    binding.sizes[size] = dice.chance(70) ? 1 + dice.below(9) : dice.chance(70) ? 16 : 15 + 5 * dice.below(2);
  Schedule consumer(typed(random_consumer(dice)));
  std::vector<std::string> fixes;
  if (dice.chance(60))
    for (const auto& [size, value] : binding.sizes) fixes.push_back(fmt::format("fix {} {}", size, value));
  for (const std::string& fix : fixes) consumer = consumer.then(fix);
  RandomCase result{Schedule(kernel, {{"post", consumer.kernel()}}), consumer.kernel(), binding, {}};
  for (const std::string& fix : fixes) result.schedule = result.schedule.then(fix);
  std::string tree_of_lanes;
  for (int number = 0; number < num_steps; ++number) {
    std::string step = StepMaker(dice, result.schedule.kernel(), number).make();
    // What a tree of lanes sums may be theirs, without memory.
    if (!tree_of_lanes.empty() && dice.chance(60)) step = fmt::format("space {} lanes", tree_of_lanes);
    tree_of_lanes.clear();
    try {
      result.schedule = result.schedule.then(step);
      if (step.starts_with("tree ") && step.ends_with(":lane")) tree_of_lanes = fmt::format("a{}", number);
    } catch (const UserError& error) { result.refused.emplace_back(error.what()); }
  }
  return result;
}

}  // namespace megalith::loop
