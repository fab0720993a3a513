#include "megalith/graph/compose.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>

#include "megalith/base/error.h"
#include "megalith/graph/product.h"
#include "megalith/loop/domain_text.h"
#include "megalith/loop/text.h"

namespace megalith::graph {

namespace {

using loop::Expr;
using loop::Instruction;

// ---- the program --------------------------------------------------------------------------------------------------------

struct Call {
  std::vector<std::string> written, read;
  std::string op;
  std::map<std::string, std::string> sizes, loops, covers;  // A = G; t as u; n in C * L
};

std::string without_blanks(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> listed(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream from(text);
  for (std::string part; std::getline(from, part, ',');) parts.push_back(without_blanks(part));
  return parts;
}

Call read_call(const std::string& line) {
  const size_t equals = line.find('='), open = line.find('('), close = line.rfind(')');
  MEGALITH_CHECK(equals != std::string::npos && open != std::string::npos && close != std::string::npos &&
                     equals < open && open < close,
                 "\"{}\" is not y = operator(x; ...)", line);
  Call call{.written = listed(line.substr(0, equals)),
            .read = {},
            .op = without_blanks(line.substr(equals + 1, open - equals - 1)),
            .sizes = {},
            .loops = {},
            .covers = {}};
  const std::string inside = line.substr(open + 1, close - open - 1);
  const size_t semicolon = inside.find(';');
  call.read = listed(inside.substr(0, semicolon));
  if (semicolon == std::string::npos) return call;
  for (const std::string& word : listed(inside.substr(semicolon + 1))) {
    bool is_known = false;
    for (const auto& [between, table] :
         {std::pair{" as ", &call.loops}, {" in ", &call.covers}, {" = ", &call.sizes}}) {
      const size_t at = word.find(between);
      if (is_known || at == std::string::npos) continue;
      (*table)[without_blanks(word.substr(0, at))] = without_blanks(word.substr(at + std::string_view(between).size()));
      is_known = true;
    }
    MEGALITH_CHECK(is_known, "\"{}\" is none of \"SIZE = ...\", \"loop as other\", \"loop in C * L\"", word);
  }
  return call;
}

// ---- expressions --------------------------------------------------------------------------------------------------------

// Every expression, what it consists of first.
void visit(Expr& expr, const std::function<void(Expr&)>& at) {
  for (Expr& arg : expr.args) visit(arg, at);
  at(expr);
}
void visit(Instruction& instruction, const std::function<void(Expr&)>& at) {
  visit(instruction.target, at);
  visit(instruction.value, at);
  if (instruction.condition) visit(*instruction.condition, at);
}

void replace_names(Expr& expr, const std::map<std::string, Expr>& by) {
  visit(expr, [&](Expr& e) {
    if (e.kind != Expr::Kind::name) return;
    if (const auto found = by.find(e.name); found != by.end()) e = Expr(found->second);
  });
}

// A product of sizes, behind what is to be multiplied by it if that is given.
Expr product_expression(const std::string& text, std::optional<Expr> result = std::nullopt) {
  const Product product = Product::of(text);
  if (product.number != 1 || product.names.empty()) {
    const Expr number = loop::make_integer(product.number);
    result = result ? loop::make_call("*", {*result, number}) : number;
  }
  for (const std::string& name : product.names)
    result = result ? loop::make_call("*", {*result, loop::make_name(name)}) : loop::make_name(name);
  return *result;
}

// ---- composition --------------------------------------------------------------------------------------------------------

// What each iname of it runs up to; UserError unless all of them begin at 0 and end at a product of sizes.
std::map<std::string, std::string> ranges_of(const loop::Kernel& kernel) {
  std::map<std::string, std::string> ranges;
  for (const std::string& domain : kernel.domains) {
    std::string body = loop::read_domain(domain, kernel.name).body + " and ";
    for (size_t end; (end = body.find(" and ")) != std::string::npos; body = body.substr(end + 5)) {
      const std::string part = without_blanks(body.substr(0, end));
      const size_t first = part.find("0 <= "), below = part.find(" < ");
      MEGALITH_CHECK(first == 0 && below != std::string::npos, "[{}] \"{}\" is not 0 <= loop < SIZE", kernel.name,
                     part);
      ranges[without_blanks(part.substr(5, below - 5))] = without_blanks(part.substr(below + 3));
    }
  }
  return ranges;
}

class Composition {
 public:
  Composition(const Operator& signature, const Registry& registry) : signature_(signature), registry_(registry) {
    for (const Operand& operand : signature.operands) shapes_[operand.name] = operand.shape;
    for (const Operand& operand : signature.operands)
      for (const std::string& dim : operand.shape)
        for (const std::string& name : Product::of(dim).names) taken_.insert(name);
    taken_.insert(signature.extra_sizes.begin(), signature.extra_sizes.end());
    for (const loop::Attribute& attribute : signature.attributes) taken_.insert(attribute.name);
    for (const Operand& operand : signature.operands) taken_.insert(operand.name);
  }

  void add(const Call& call) {
    const Operator& op = registry_.get(call.op);
    MEGALITH_CHECK(!op.reference, "\"{}\" has no loop kernel: nothing can be made of it", call.op);
    loop::Kernel kernel = generic_kernel(op);
    const std::map<std::string, std::string> tensors = tensors_of(op, call), sizes = sizes_of(op, call, tensors);
    std::map<std::string, Expr> names;
    for (const auto& [size, value] : sizes) names[size] = product_expression(value);
    std::map<std::string, std::pair<Expr, std::string>> conditions;  // by iname: below its range
    std::map<std::string, std::string> reductions;
    name_loops(kernel, call, sizes, names, conditions, reductions);
    for (const loop::Attribute& attribute : op.attributes) {
      const auto given = call.sizes.find(attribute.name);
      const std::string name = given == call.sizes.end() ? attribute.name : given->second;
      MEGALITH_CHECK(
          std::ranges::find(signature_.attributes, name, &loop::Attribute::name) != signature_.attributes.end(),
          "the attribute \"{}\" of \"{}\" is none of the whole", name, op.name);
      names[attribute.name] = loop::make_name(name);
    }
    std::map<std::string, std::string> all = tensors;
    for (const loop::TensorArgument& tensor : kernel.tensors)
      if (!all.contains(tensor.name)) all[tensor.name] = free_name(tensor.name);
    note_pieces(op, ranges_of(kernel), call, tensors);
    for (Instruction& instruction : kernel.instructions) {
      for (const std::string& iname : instruction.within)
        if (const auto found = conditions.find(iname); found != conditions.end()) {
          Expr below = loop::make_call("<", {found->second.first, product_expression(found->second.second)});
          instruction.condition =
              instruction.condition ? loop::make_call("and", {*instruction.condition, below}) : below;
        }
      declare(instruction.target, all, kernel, sizes);
      rewrite(instruction, names, reductions, all);
      instructions_.push_back(std::move(instruction));
    }
  }

  std::string text() {
    inline_temporaries();
    std::vector<std::string> free, summed;  // loops, in the order in which they are met
    std::string lines;
    for (Instruction& instruction : instructions_) {
      visit(instruction, [&](Expr& expr) {
        for (const std::string& iname : expr.inames) note(summed, iname);
      });
      visit(instruction, [&](Expr& expr) {
        if (expr.kind == Expr::Kind::name && ranges_.contains(expr.name) &&
            std::ranges::find(summed, expr.name) == summed.end())
          note(free, expr.name);
      });
      instruction.within.clear();
      instruction.id.clear();
      lines += statement(instruction) + "\n";
    }
    std::vector<std::string> inames = free, constraints;
    for (const std::string& iname : summed) note(inames, iname);
    for (const std::string& iname : inames)
      constraints.push_back(fmt::format("0 <= {} < {}", iname, ranges_.at(iname)));
    return fmt::format("{{ [{}] : {} }}\n{}", fmt::join(inames, ", "), fmt::join(constraints, " and "), lines);
  }

 private:
  static void note(std::vector<std::string>& names, const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  static std::string statement(const Instruction& instruction) {
    std::string text = fmt::format("{} = {}", loop::print(instruction.target), loop::print(instruction.value));
    if (instruction.condition) text += fmt::format("  {{if={}}}", loop::print(*instruction.condition));
    return text;
  }

  std::string free_name(const std::string& base) {
    std::string name = base;
    for (int number = 2; !taken_.insert(name).second; ++number) name = fmt::format("{}_{}", base, number);
    return name;
  }
  bool is_operand(const std::string& name) const { return signature_.find(name) != nullptr; }

  // By the operator's names, the whole's.
  static std::map<std::string, std::string> tensors_of(const Operator& op, const Call& call) {
    std::map<std::string, std::string> tensors;
    size_t reads = 0, writes = 0;
    for (const Operand& operand : op.operands) {
      const bool is_written = operand.role == loop::Role::output;
      const std::vector<std::string>& list = is_written ? call.written : call.read;
      size_t& at = is_written ? writes : reads;
      MEGALITH_CHECK(at < list.size(), "\"{}\" has no tensor for \"{}\"", op.name, operand.name);
      tensors[operand.name] = list[at++];
    }
    MEGALITH_CHECK(reads == call.read.size() && (writes == call.written.size() || writes == 0),
                   "\"{}\" reads {} and writes {} tensors", op.name, reads, writes);
    return tensors;
  }

  std::map<std::string, std::string> sizes_of(const Operator& op, const Call& call,
                                              const std::map<std::string, std::string>& tensors) {
    std::map<std::string, std::string> sizes;
    for (const auto& [name, value] : call.sizes)
      if (std::ranges::find(op.attributes, name, &loop::Attribute::name) == op.attributes.end()) sizes[name] = value;
    for (const Operand& operand : op.operands) {
      const auto shape = shapes_.find(tensors.at(operand.name));
      if (shape == shapes_.end()) continue;
      MEGALITH_CHECK(shape->second.size() == operand.shape.size(), "\"{}\" of \"{}\" has {} axes and \"{}\" has {}",
                     operand.name, op.name, operand.shape.size(), shape->first, shape->second.size());
      for (size_t d = 0; d < operand.shape.size(); ++d)
        if (const Product dim = Product::of(operand.shape[d]); dim.is_name())
          sizes.emplace(dim.names[0], shape->second[d]);
    }
    for (const std::string& size : op.extra_sizes) sizes.emplace(size, size);
    for (const Operand& operand : op.operands)
      if (const auto shape = shapes_.find(tensors.at(operand.name)); shape != shapes_.end())
        for (size_t d = 0; d < operand.shape.size(); ++d)
          solve(Product::of(operand.shape[d]), Product::of(shape->second[d]), sizes);
    for (const Operand& operand : op.operands) {
      std::vector<std::string> dims;
      for (const std::string& text : operand.shape) {
        for (const std::string& name : Product::of(text).names)
          MEGALITH_CHECK(sizes.contains(name), "no shape tells the size {} of \"{}\": say \"{} = ...\"", name, op.name,
                         name);
        dims.push_back(Product::of(text).replaced(sizes).text());
      }
      const auto [shape, is_new] = shapes_.emplace(tensors.at(operand.name), dims);
      if (is_new) taken_.insert(shape->first);
      for (size_t d = 0; d < dims.size() && !is_new; ++d)
        MEGALITH_CHECK(same_product(Product::of(dims[d]), Product::of(shape->second[d])),
                       "\"{}\" is [{}], and \"{}\" wants [{}]", shape->first, fmt::join(shape->second, ", "), op.name,
                       fmt::join(dims, ", "));
    }
    return sizes;
  }

  // Of a product the one factor that is not known yet, if that is so and the others go into what is there.
  static void solve(const Product& formal, Product actual, std::map<std::string, std::string>& sizes) {
    std::string unknown;
    for (const std::string& name : formal.names) {
      if (sizes.contains(name)) continue;
      if (!unknown.empty()) return;
      unknown = name;
    }
    if (unknown.empty()) return;
    Product known = formal;
    std::erase(known.names, unknown);
    known = known.replaced(sizes);
    if (actual.number % known.number != 0) return;
    actual.number /= known.number;
    for (const std::string& name : known.names) {
      const auto found = std::ranges::find(actual.names, name);
      if (found == actual.names.end()) return;
      actual.names.erase(found);
    }
    sizes[unknown] = actual.text();
  }

  // A loop, or what a sum is over, with this name and range, if there is one; or another name.
  std::string loop_named(const std::string& base, const std::string& range, bool is_summed = false) {
    const auto found = ranges_.find(base);
    if (found != ranges_.end() && is_reduction_.contains(base) == is_summed &&
        same_product(Product::of(found->second), Product::of(range)))
      return base;
    const std::string name = free_name(base);
    ranges_[name] = range;
    if (is_summed) is_reduction_.insert(name);
    return name;
  }

  void name_loops(const loop::Kernel& kernel, const Call& call, const std::map<std::string, std::string>& sizes,
                  std::map<std::string, Expr>& names, std::map<std::string, std::pair<Expr, std::string>>& conditions,
                  std::map<std::string, std::string>& reductions) {
    std::set<std::string> free;
    for (const Instruction& instruction : kernel.instructions)
      free.insert(instruction.within.begin(), instruction.within.end());
    const std::map<std::string, std::string> ranges = ranges_of(kernel);
    for (const std::string& iname : kernel.inames()) {
      const Product range = Product::of(ranges.at(iname)).replaced(sizes);
      const auto renamed = call.loops.find(iname), cover = call.covers.find(iname);
      if (!free.contains(iname)) {
        const std::string name = loop_named(iname, range.text(), true);
        reductions[iname] = name;
        names[iname] = loop::make_name(name);
        continue;
      }
      const std::vector<std::string> axes =
          cover == call.covers.end() ? range.axes() : Product::of(cover->second).axes();
      std::optional<Expr> value;
      for (const std::string& axis : axes) {
        std::string base = renamed == call.loops.end() ? iname : renamed->second;
        if (axes.size() > 1) {
          base = axis;
          std::ranges::transform(base, base.begin(), [](unsigned char c) { return std::tolower(c); });
        }
        const Expr name = axis == "1" ? loop::make_integer(0) : loop::make_name(loop_named(base, axis));
        value = value ? loop::make_call("+", {product_expression(axis, *value), name}) : name;
      }
      names[iname] = *value;
      if (cover != call.covers.end()) conditions[iname] = {*value, range.text()};
    }
  }

  // A temporary of an operator's own has an axis for each loop that its first instruction names.
  void declare(const Expr& target, const std::map<std::string, std::string>& tensors, const loop::Kernel& kernel,
               const std::map<std::string, std::string>& sizes) {
    const std::string& name = tensors.at(target.name);
    if (shapes_.contains(name)) return;
    const std::map<std::string, std::string> ranges = ranges_of(kernel);
    std::vector<std::string> dims;
    for (const Expr& arg : target.args) {
      MEGALITH_CHECK(arg.kind == Expr::Kind::name && ranges.contains(arg.name),
                     "the temporary {} of \"{}\" is not one of a loop for each axis", loop::print(target), kernel.name);
      dims.push_back(Product::of(ranges.at(arg.name)).replaced(sizes).text());
    }
    shapes_[name] = dims;
  }

  void rewrite(Instruction& instruction, const std::map<std::string, Expr>& names,
               const std::map<std::string, std::string>& reductions,
               const std::map<std::string, std::string>& tensors) {
    for (Expr* expr :
         {&instruction.target, &instruction.value, instruction.condition ? &*instruction.condition : nullptr})
      if (expr) replace_names(*expr, names);
    visit(instruction, [&](Expr& expr) {
      for (std::string& iname : expr.inames) {
        const auto found = reductions.find(iname);
        const Expr& name = names.at(iname);  // of a loop that others have besides
        MEGALITH_CHECK(found != reductions.end() || name.kind == Expr::Kind::name,
                       "a sum over \"{}\" can't be one over {}", iname, loop::print(name));
        iname = found == reductions.end() ? name.name : found->second;
      }
      if (expr.kind != Expr::Kind::subscript) return;
      expr.name = tensors.at(expr.name);
      if (!is_operand(expr.name)) expr.args = by_axes(expr);
    });
  }

  // A temporary whose loop is taken in pieces lies in those.
  void note_pieces(const Operator& op, const std::map<std::string, std::string>& ranges, const Call& call,
                   const std::map<std::string, std::string>& tensors) {
    for (const auto& [iname, pieces] : call.covers)
      for (const Operand& operand : op.operands)
        for (size_t d = 0; d < operand.shape.size(); ++d)
          if (operand.role == loop::Role::output && operand.shape[d] == ranges.at(iname))
            pieces_[{tensors.at(operand.name), d}] = Product::of(pieces).axes();
  }

  // Temporaries have an axis for each factor of their shape.
  std::vector<Expr> by_axes(const Expr& read) const {
    std::vector<Expr> args;
    const std::vector<std::string>& shape = shapes_.at(read.name);
    for (size_t d = 0; d < shape.size(); ++d) {
      const auto pieces = pieces_.find({read.name, d});
      const auto parts =
          subscripts_of_axes(read.args[d], pieces == pieces_.end() ? Product::of(shape[d]).axes() : pieces->second);
      MEGALITH_CHECK(parts, "{} does not say where along {} it is", loop::print(read), shape[d]);
      args.insert(args.end(), parts->begin(), parts->end());
    }
    return args;
  }

  // ---- temporaries that go --------------------------------------------------------------------------------------------

  void inline_temporaries() {
    for (size_t i = 0; i < instructions_.size();) {
      const Instruction definition = instructions_[i];
      if (!may_be_inlined(definition, i)) {
        ++i;
        continue;
      }
      instructions_.erase(instructions_.begin() + static_cast<std::ptrdiff_t>(i));
      for (Instruction& instruction : instructions_)
        for (Expr* expr : {&instruction.value, instruction.condition ? &*instruction.condition : nullptr})
          if (expr) put(*expr, definition);
    }
  }

  bool may_be_inlined(const Instruction& definition, size_t at) {
    const std::string& name = definition.target.name;
    if (is_operand(name) || definition.condition) return false;
    if (signature_.epilogue && signature_.epilogue->is_value(name)) return false;
    std::set<std::string> subscripts;
    for (const Expr& arg : definition.target.args)
      if (arg.kind != Expr::Kind::name || !ranges_.contains(arg.name) || !subscripts.insert(arg.name).second)
        return false;
    bool has_sum = false, reads_written = false;
    Instruction copy = definition;
    visit(copy.value, [&](Expr& expr) {
      has_sum |= expr.kind == Expr::Kind::reduce;
      const Operand* operand = expr.kind == Expr::Kind::subscript ? signature_.find(expr.name) : nullptr;
      reads_written |= operand && operand->role == loop::Role::inout;
    });
    if (reads_written) return false;
    // A sum is worked out once for each of its elements: it goes where they are read once, in the same loops.
    int reads = 0;
    for (size_t i = 0; i < instructions_.size(); ++i) {
      if (i == at) continue;
      if (instructions_[i].target.name == name) return false;
      Instruction reader = instructions_[i];
      const int all = count_reads(reader, name, subscripts);
      if (has_sum && all > 0 && loops_of(reader.target) != subscripts) return false;
      reads += all;
    }
    return !has_sum || reads == 1;
  }

  std::set<std::string> loops_of(const Expr& target) const {
    std::set<std::string> loops;
    Expr copy = target;
    visit(copy, [&](Expr& expr) {
      if (expr.kind == Expr::Kind::name && ranges_.contains(expr.name)) loops.insert(expr.name);
    });
    return loops;
  }

  // Of the temporary; many where one is inside of a sum or at other subscripts than those.
  static int count_reads(Instruction& reader, const std::string& name, const std::set<std::string>& subscripts) {
    constexpr int kMany = 1000;
    int reads = 0;
    const auto is_read = [&](const Expr& expr) { return expr.kind == Expr::Kind::subscript && expr.name == name; };
    visit(reader, [&](Expr& expr) {
      if (is_read(expr)) {
        ++reads;
        for (const Expr& arg : expr.args)
          if (arg.kind != Expr::Kind::name || !subscripts.contains(arg.name)) reads += kMany;
      }
      if (expr.kind != Expr::Kind::reduce) return;
      for (Expr& arg : expr.args) visit(arg, [&](Expr& inner) { reads += is_read(inner) ? kMany : 0; });
    });
    return reads;
  }

  // Where it is read; what was cast to f32 there is f32 already.
  static void put(Expr& expr, const Instruction& definition) {
    const auto is_read = [&](const Expr& e) {
      return e.kind == Expr::Kind::subscript && e.name == definition.target.name;
    };
    const bool is_cast = expr.kind == Expr::Kind::call && expr.name == "f32" && is_read(expr.args[0]);
    if (!is_cast && !is_read(expr)) {
      for (Expr& arg : expr.args) put(arg, definition);
      return;
    }
    const Expr& read = is_cast ? expr.args[0] : expr;
    std::map<std::string, Expr> at;
    for (size_t i = 0; i < read.args.size(); ++i) at[definition.target.args[i].name] = read.args[i];
    Expr value = definition.value;
    replace_names(value, at);
    expr = std::move(value);
  }

  const Operator& signature_;
  const Registry& registry_;
  std::map<std::string, std::vector<std::string>> shapes_;
  std::map<std::pair<std::string, size_t>, std::vector<std::string>> pieces_;  // of an axis of a temporary
  std::map<std::string, std::string> ranges_;                                  // of the loops of the whole
  std::set<std::string> is_reduction_, taken_;
  std::vector<Instruction> instructions_;
};

}  // namespace

loop::Kernel generic_kernel(const Operator& op) {
  std::set<std::string> sizes(op.extra_sizes.begin(), op.extra_sizes.end());
  std::string text = fmt::format("kernel {}\n", op.name);
  for (const Operand& operand : op.operands)
    for (const std::string& dim : operand.shape)
      for (const std::string& name : Product::of(dim).names) sizes.insert(name);
  for (const std::string& size : sizes) text += fmt::format("parameter {}\n", size);
  for (const loop::Attribute& attribute : op.attributes) text += fmt::format("attribute {} = 1\n", attribute.name);
  for (const Operand& operand : op.operands)
    text += fmt::format("{} {}: {}[{}]\n",
                        operand.role == loop::Role::input    ? "input"
                        : operand.role == loop::Role::output ? "output"
                                                             : "inout",
                        operand.name, dtype_name(operand.dtype), fmt::join(operand.shape, ", "));
  return loop::parse_kernel_without_isl(text + op.loops);  // what is composed is read by isl when it is lowered
}

std::string compose(const Operator& signature, const std::string& program, const Registry& registry) {
  Composition composition(signature, registry);
  std::istringstream lines(program);
  for (std::string line; std::getline(lines, line);) {
    if (without_blanks(line).empty()) continue;
    try {
      composition.add(read_call(line));
    } catch (const UserError& error) {
      throw UserError(fmt::format("[{}] {} (\"{}\")", signature.name, error.what(), without_blanks(line)));
    }
  }
  return composition.text();
}

}  // namespace megalith::graph
