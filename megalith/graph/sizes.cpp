#include "megalith/graph/sizes.h"

#include <algorithm>
#include <charconv>

#include "megalith/base/error.h"

namespace megalith::graph {

namespace {

// "N * D * 2" as its named factors and the product of its numbers.
struct SizeProduct {
  std::vector<std::string> names;
  int64_t constant = 1;
};

SizeProduct parse_product(const std::string& text) {
  SizeProduct product;
  size_t at = 0;
  while (at <= text.size()) {
    size_t end = std::min(text.find('*', at), text.size());
    std::string factor = text.substr(at, end - at);
    factor.erase(0, factor.find_first_not_of(' '));
    factor.erase(factor.find_last_not_of(' ') + 1);
    int64_t number = 0;
    auto [rest, code] = std::from_chars(factor.data(), factor.data() + factor.size(), number);
    if (code == std::errc() && rest == factor.data() + factor.size())
      product.constant *= number;
    else
      product.names.push_back(factor);
    at = end + 1;
  }
  return product;
}

std::string tensor_text(const Tensor& tensor) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : tensor.shape) sizes.push_back(dim.size);
  return fmt::format("{} is [{}]", tensor.name, fmt::join(sizes, ", "));
}

class Solver {
 public:
  Solver(const Operator& op, const std::string& node, const std::map<std::string, const Tensor*>& shapes)
      : op_(op), node_(node), shapes_(shapes) {}

  SolvedSizes solve(const std::map<std::string, int64_t>& given) {
    solved_.sizes = given;
    check_ranks();
    // Each pass may make one more factor known; as many passes as there are dimensions suffice.
    for (bool progress = true; progress;) {
      progress = false;
      for (const auto& [operand, tensor] : shapes_)
        for (size_t d = 0; d < tensor->shape.size(); ++d) progress |= solve_dim(*op_.find(operand), *tensor, d);
    }
    for (const auto& [operand, tensor] : shapes_)
      for (size_t d = 0; d < tensor->shape.size(); ++d) check_dim(*op_.find(operand), *tensor, d);
    for (const Operand& operand : op_.operands)
      for (const std::string& dim : operand.shape)
        for (const std::string& name : parse_product(dim).names) check_known(name);
    for (const std::string& name : op_.extra_sizes) check_known(name);
    return std::move(solved_);
  }

 private:
  void check_known(const std::string& name) const {
    MEGALITH_CHECK(solved_.sizes.contains(name),
                   "[{}] the size {} follows from no operand's shape: give it in the node's options (node \"{}\")",
                   op_.name, name, node_);
  }

  void check_ranks() const {
    for (const auto& [name, tensor] : shapes_) {
      const Operand& operand = *op_.find(name);
      MEGALITH_CHECK(operand.shape.size() == tensor->shape.size(),
                     "[{}] {} has {} dimensions, want {} [{}] (operand \"{}\", node \"{}\")", op_.name,
                     tensor_text(*tensor), tensor->shape.size(), operand.shape.size(), fmt::join(operand.shape, ", "),
                     name, node_);
    }
  }

  // Learns the one unknown factor of a dimension, if there is exactly one. True if it learned something.
  bool solve_dim(const Operand& operand, const Tensor& tensor, size_t d) {
    const SizeProduct product = parse_product(operand.shape[d]);
    const Dim& dim = tensor.shape[d];
    int64_t known = product.constant;
    const std::string* unknown = nullptr;
    for (const std::string& name : product.names) {
      if (auto found = solved_.sizes.find(name); found != solved_.sizes.end())
        known *= found->second;
      else if (unknown)
        return false;
      else
        unknown = &name;
    }
    if (!unknown) return false;
    MEGALITH_CHECK(known > 0 && dim.size % known == 0,
                   "[{}] dimension {} of {} should be {}, a multiple of {} (node \"{}\")", op_.name, d,
                   tensor_text(tensor), operand.shape[d], known, node_);
    solved_.sizes[*unknown] = dim.size / known;
    return true;
  }

  void check_dim(const Operand& operand, const Tensor& tensor, size_t d) {
    const SizeProduct product = parse_product(operand.shape[d]);
    const Dim& dim = tensor.shape[d];
    int64_t want = product.constant;
    for (const std::string& name : product.names) {
      check_known(name);
      want *= solved_.sizes.at(name);
    }
    MEGALITH_CHECK(dim.size == want, "[{}] dimension {} of {} should be {} = {} (operand \"{}\", node \"{}\"){}",
                   op_.name, d, tensor_text(tensor), operand.shape[d], want, operand.name, node_, others(operand));
    if (dim.dynamic.empty()) return;
    MEGALITH_CHECK(product.names.size() == 1 && product.constant == 1,
                   "[{}] dimension {} of {} is dynamic ({}), but the operator sees it as {} (node \"{}\")", op_.name, d,
                   tensor_text(tensor), dim.dynamic, operand.shape[d], node_);
    auto [at, fresh] = solved_.dynamic.emplace(product.names[0], dim.dynamic);
    MEGALITH_CHECK(fresh || at->second == dim.dynamic,
                   "[{}] the size {} is {} in one operand and {} in \"{}\" (node \"{}\")", op_.name, product.names[0],
                   at->second, dim.dynamic, operand.name, node_);
  }

  std::string others(const Operand& except) const {
    std::string text;
    for (const auto& [name, tensor] : shapes_)
      if (name != except.name) text += fmt::format("{} {}", text.empty() ? "; beside it" : ",", tensor_text(*tensor));
    return text;
  }

  const Operator& op_;
  const std::string& node_;
  const std::map<std::string, const Tensor*>& shapes_;
  SolvedSizes solved_;
};

}  // namespace

SolvedSizes solve_sizes(const Operator& op, const std::string& node, const std::map<std::string, const Tensor*>& shapes,
                        const std::map<std::string, int64_t>& given) {
  return Solver(op, node, shapes).solve(given);
}

std::vector<Dim> operand_shape(const Operator& op, const Operand& operand, const SolvedSizes& solved) {
  std::vector<Dim> shape;
  for (const std::string& text : operand.shape) {
    const SizeProduct product = parse_product(text);
    Dim dim(product.constant);
    for (const std::string& name : product.names) dim.size *= solved.sizes.at(name);
    if (product.names.size() == 1 && product.constant == 1) {
      if (auto found = solved.dynamic.find(product.names[0]); found != solved.dynamic.end())
        dim.dynamic = found->second;
    } else {
      for (const std::string& name : product.names)
        MEGALITH_CHECK(!solved.dynamic.contains(name), "[{}] operand \"{}\": {} has a dynamic factor", op.name,
                       operand.name, text);
    }
    shape.push_back(dim);
  }
  return shape;
}

}  // namespace megalith::graph
