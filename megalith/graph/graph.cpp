#include "megalith/graph/graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "megalith/base/ceil_div.h"
#include "megalith/base/error.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/sizes.h"

namespace megalith::graph {

int64_t Tensor::num_elements() const {
  int64_t n = 1;
  for (const Dim& dim : shape) n *= dim.size;
  return n;
}

namespace {

void check_dtype(const Operator& op, const std::string& node, const Operand& operand, const Tensor& tensor) {
  const bool fits = operand.exact_dtype ? tensor.dtype == operand.dtype
                                        : dtype_is_float(tensor.dtype) == dtype_is_float(operand.dtype);
  MEGALITH_CHECK(fits, "[{}] operand \"{}\" is {} of {}, want {} (node \"{}\")", op.name, operand.name, tensor.name,
                 dtype_name(tensor.dtype),
                 operand.exact_dtype             ? dtype_name(operand.dtype)
                 : dtype_is_float(operand.dtype) ? "a float dtype"
                                                 : "an integer dtype",
                 node);
}

}  // namespace

Graph::Graph(std::shared_ptr<const Registry> registry, std::string name)
    : registry_(std::move(registry)), name_(std::move(name)) {}

TensorId Graph::new_tensor(const std::string& name, DType dtype, std::vector<Dim> shape, TensorKind kind) {
  MEGALITH_CHECK(!by_name_.contains(name), "two tensors are named \"{}\"", name);
  constexpr int64_t kMaxElements = int64_t{1} << 48;  // so that sums of bytes keep to 64 bits
  int64_t elements = 1;
  for (const Dim& dim : shape) {
    MEGALITH_CHECK(dim.size > 0 && dim.size < (int64_t{1} << 40), "tensor \"{}\" has a dimension of size {}", name,
                   dim.size);
    MEGALITH_CHECK(dim.size <= kMaxElements / elements, "tensor \"{}\" has more than {} elements", name, kMaxElements);
    elements *= dim.size;
  }
  for (const Dim& dim : shape)
    MEGALITH_CHECK(dim.dynamic.empty() || dynamic_sizes_.contains(dim.dynamic),
                   "tensor \"{}\" follows the dynamic size \"{}\", which the graph does not have", name, dim.dynamic);
  const TensorId id = static_cast<TensorId>(tensors_.size());
  tensors_.push_back({name, dtype, std::move(shape), kind});
  by_name_[name] = id;
  return id;
}

TensorId Graph::constant(const std::string& name, DType dtype, std::vector<Dim> shape) {
  return new_tensor(name, dtype, std::move(shape), TensorKind::constant);
}

TensorId Graph::stacked(const std::string& name, DType dtype, std::vector<Dim> shape, std::vector<std::string> parts,
                        int64_t groups) {
  MEGALITH_CHECK(!parts.empty() && groups >= 1 && !shape.empty() && shape[0].size % groups == 0,
                 "the stacked constant \"{}\" has {} parts and {} rows for {} groups", name, parts.size(),
                 shape.empty() ? 0 : shape[0].size, groups);
  const TensorId id = constant(name, dtype, std::move(shape));
  tensors_.back().parts = std::move(parts);
  tensors_.back().groups = groups;
  return id;
}

int64_t Tensor::streamed_bytes() const {
  return quant_columns > 0 && dtype_is_float(dtype) ? int8_bytes(num_elements()) : bytes();
}

void Graph::quantize(TensorId constant, int64_t group_columns) {
  Tensor& tensor = tensors_.at(static_cast<size_t>(constant));
  MEGALITH_CHECK(tensor.kind == TensorKind::constant && tensor.shape.size() == 2 && dtype_is_float(tensor.dtype),
                 "\"{}\" cannot be quantized: want a constant matrix of floats", tensor.name);
  tensor.quant_columns = group_columns;
}

TensorId Graph::split_scales(TensorId constant) {
  Tensor& tensor = tensors_.at(static_cast<size_t>(constant));
  MEGALITH_ASSERT(tensor.quant_columns > 0 && dtype_is_float(tensor.dtype), "[graph] \"{}\" is not to be quantized",
                  tensor.name);
  tensor.dtype = DType::i8;
  const int64_t groups = ceil_div(tensor.shape[1].size, tensor.quant_columns);
  return this->constant(quant_scale_name(tensor.name), DType::bf16, {tensor.shape[0], groups});
}

TensorId Graph::state(const std::string& name, DType dtype, std::vector<Dim> shape, bool any_layout, bool by_load) {
  const TensorId state = new_tensor(name, dtype, std::move(shape), TensorKind::state);
  tensors_[static_cast<size_t>(state)].any_layout = any_layout;
  tensors_[static_cast<size_t>(state)].by_load = by_load;
  return state;
}

TensorId Graph::activation(const std::string& name, DType dtype, std::vector<Dim> shape) {
  return new_tensor(name, dtype, std::move(shape), TensorKind::activation);
}

void Graph::dynamic_size(const std::string& name, TensorId tensor, int64_t index) {
  const Tensor& t = this->tensor(tensor);
  MEGALITH_CHECK(t.kind == TensorKind::state && t.dtype == DType::i32 && index >= 0 && index < t.num_elements(),
                 "the dynamic size \"{}\" must be an element of an i32 state tensor, not element {} of \"{}\"", name,
                 index, t.name);
  dynamic_sizes_[name] = {tensor, index};
}

void Graph::make_constant(TensorId tensor) {
  const Tensor& t = this->tensor(tensor);
  MEGALITH_CHECK(t.kind != TensorKind::activation, "\"{}\" is an activation: a constant is bound from outside", t.name);
  for (const Node& node : nodes_)
    for (size_t i = 0; i < node.operands.size(); ++i)
      MEGALITH_CHECK(node.operands[i] != tensor || node.op->operands[i].role == loop::Role::input,
                     "[{}] writes \"{}\", which is to be a constant (node \"{}\")", node.op->name, t.name, node.name);
  tensors_[static_cast<size_t>(tensor)].kind = TensorKind::constant;
}

void Graph::fuse_neighbours(size_t first, Node fused, std::shared_ptr<const Registry> registry) {
  MEGALITH_ASSERT(
      first + 1 < nodes_.size() && gate_node_ != static_cast<int>(first) && gate_node_ != static_cast<int>(first) + 1,
      "[graph] node {} of {} cannot be fused with the next", first, nodes_.size());
  std::set<TensorId> gone;
  for (size_t i = 0; i < nodes_[first].operands.size(); ++i)
    if (nodes_[first].op->operands[i].role != loop::Role::input) gone.insert(nodes_[first].operands[i]);
  MEGALITH_ASSERT(gone.size() == 1 && tensor(*gone.begin()).kind == TensorKind::activation,
                  "[graph] \"{}\" does not write one activation", nodes_[first].name);
  const TensorId removed = *gone.begin();
  node_names_.erase(nodes_[first].name);
  node_names_.erase(nodes_[first + 1].name);
  node_names_.insert(fused.name);
  nodes_[first] = std::move(fused);
  nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  by_name_.erase(tensors_[static_cast<size_t>(removed)].name);
  tensors_.erase(tensors_.begin() + removed);
  const auto move_up = [&](TensorId& id) {
    MEGALITH_ASSERT(id != removed, "[graph] somebody still uses what was fused away");
    id -= id > removed;
  };
  for (auto& [name, id] : by_name_) move_up(id);
  for (Node& node : nodes_)
    for (TensorId& id : node.operands) move_up(id);
  for (auto& [name, where] : dynamic_sizes_) move_up(where.tensor);
  if (stop_tensor_) move_up(*stop_tensor_);
  if (gate_node_ && static_cast<size_t>(*gate_node_) > first) --*gate_node_;
  registry_ = std::move(registry);
}

size_t Graph::number_of(const std::string& name) const {
  const auto found = std::ranges::find(nodes_, name, &Node::name);
  MEGALITH_CHECK(found != nodes_.end(), "the graph \"{}\" has no node \"{}\"", name_, name);
  return static_cast<size_t>(found - nodes_.begin());
}

void Graph::erase(const std::string& name) { erase(std::vector{name}); }

// All in one pass: to move a node is some work, and a graph has hundreds.
void Graph::erase(const std::vector<std::string>& names) {
  std::vector<size_t> numbers;
  for (const std::string& name : names) {
    numbers.push_back(number_of(name));
    MEGALITH_ASSERT(gate_node_ != static_cast<int>(numbers.back()), "[graph] \"{}\" lets the next iteration begin",
                    name);
  }
  if (numbers.empty()) return;
  for (const std::string& name : names) node_names_.erase(name);
  std::ranges::sort(numbers);
  size_t kept = numbers[0], gone = 0;
  for (size_t n = kept; n < nodes_.size(); ++n) {
    if (gone < numbers.size() && numbers[gone] == n)
      ++gone;
    else
      nodes_[kept++] = std::move(nodes_[n]);
  }
  nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(kept), nodes_.end());
  if (gate_node_)
    *gate_node_ -= static_cast<int>(
        std::ranges::count_if(numbers, [&](size_t n) { return n < static_cast<size_t>(*gate_node_); }));
}

std::vector<TensorId> Graph::insert(size_t at, const std::string& op, const std::string& node,
                                    const std::vector<TensorId>& inputs, const NodeOptions& options) {
  std::vector<TensorId> outputs = add(op, node, inputs, options);
  Node added = std::move(nodes_.back());
  nodes_.pop_back();
  nodes_.insert(nodes_.begin() + static_cast<std::ptrdiff_t>(at), std::move(added));
  if (gate_node_ && static_cast<size_t>(*gate_node_) >= at) ++*gate_node_;
  return outputs;
}

std::vector<TensorId> Graph::replace(size_t at, const std::string& op, const std::string& node,
                                     const std::vector<TensorId>& inputs, const NodeOptions& options) {
  node_names_.erase(nodes_.at(at).name);
  std::vector<TensorId> outputs = add(op, node, inputs, options);
  nodes_[at] = std::move(nodes_.back());
  nodes_.pop_back();
  return outputs;
}

void Graph::set_dtype(TensorId id, DType dtype) {
  MEGALITH_ASSERT(tensor(id).kind != TensorKind::state && dtype_is_float(dtype), "[graph] \"{}\" is bound from outside",
                  tensor(id).name);
  tensors_[static_cast<size_t>(id)].dtype = dtype;
}

void Graph::redirect(size_t node, size_t operand, TensorId to) {
  TensorId& id = nodes_.at(node).operands.at(operand);
  MEGALITH_ASSERT(nodes_[node].op->operands[operand].role == loop::Role::input && tensor(to).shape == tensor(id).shape,
                  "[graph] \"{}\" cannot read \"{}\" instead", nodes_[node].name, tensor(to).name);
  id = to;
}

void Graph::tidy() {
  std::vector<TensorId> number(tensors_.size(), -1), order;
  const auto take = [&](TensorId id) {
    TensorId& mine = number[static_cast<size_t>(id)];
    if (mine >= 0) return;
    mine = static_cast<TensorId>(order.size());
    order.push_back(id);
  };
  for (const Node& node : nodes_) std::ranges::for_each(node.operands, take);
  for (size_t t = 0; t < tensors_.size(); ++t)
    if (tensors_[t].kind == TensorKind::state) take(static_cast<TensorId>(t));
  std::vector<Tensor> tensors;
  for (const TensorId id : order) tensors.push_back(std::move(tensors_[static_cast<size_t>(id)]));
  tensors_ = std::move(tensors);
  by_name_.clear();
  for (size_t t = 0; t < tensors_.size(); ++t) by_name_[tensors_[t].name] = static_cast<TensorId>(t);
  for (Node& node : nodes_)
    for (TensorId& id : node.operands) id = number[static_cast<size_t>(id)];
  for (auto& [name, where] : dynamic_sizes_) where.tensor = number[static_cast<size_t>(where.tensor)];
  if (stop_tensor_) stop_tensor_ = number[static_cast<size_t>(*stop_tensor_)];
}

const Tensor& Graph::tensor(TensorId id) const {
  MEGALITH_CHECK(id >= 0 && static_cast<size_t>(id) < tensors_.size(),
                 "the graph \"{}\" has {} tensors, and none with the id {}", name_, tensors_.size(), id);
  return tensors_[static_cast<size_t>(id)];
}

TensorId Graph::find(const std::string& name) const {
  auto found = by_name_.find(name);
  MEGALITH_CHECK(found != by_name_.end(), "the graph \"{}\" has no tensor \"{}\"", name_, name);
  return found->second;
}

void Graph::set_gate(const std::string& node, TensorId stop) {
  const Tensor& t = tensor(stop);
  MEGALITH_CHECK(t.kind == TensorKind::state && t.dtype == DType::i32 && t.num_elements() == 1,
                 "the termination flag must be an i32 state tensor of one element, not \"{}\"", t.name);
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].name == node) gate_node_ = static_cast<int>(i);
  MEGALITH_CHECK(gate_node_ && nodes_[static_cast<size_t>(*gate_node_)].name == node, "there is no node \"{}\"", node);
  stop_tensor_ = stop;
}

std::optional<TensorId> Graph::lasting_sizes() const {
  if (!gate_node_) return std::nullopt;
  const auto gate = static_cast<size_t>(*gate_node_);
  const auto last = [&](TensorId sizes) {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const Node& node = nodes_[n];
      const auto is_of_sizes = [&](const auto& size) { return dynamic_sizes_.at(size.second).tensor == sizes; };
      if (n > gate && std::ranges::any_of(node.dynamic, is_of_sizes)) return false;
      for (size_t i = 0; n != gate && i < node.operands.size(); ++i)
        if (node.operands[i] == sizes && node.op->operands[i].role != loop::Role::input) return false;
    }
    return true;
  };
  for (const auto& [name, where] : dynamic_sizes_)
    if (last(where.tensor)) return where.tensor;
  return std::nullopt;
}

std::vector<TensorId> Graph::add(const std::string& op_name, const std::string& node_name,
                                 const std::vector<TensorId>& inputs, const NodeOptions& options) {
  const Operator& op = registry_->get(op_name);
  MEGALITH_CHECK(!node_names_.contains(node_name), "[{}] two nodes are named \"{}\"", op_name, node_name);

  std::vector<const Operand*> given, made;
  for (const Operand& operand : op.operands) (operand.role == loop::Role::output ? made : given).push_back(&operand);
  std::vector<std::string> wanted;
  for (const Operand* operand : given) wanted.push_back(operand->name);
  MEGALITH_CHECK(inputs.size() == given.size(), "[{}] {} inputs given, want {}: {} (node \"{}\")", op_name,
                 inputs.size(), given.size(), fmt::join(wanted, ", "), node_name);

  std::map<std::string, TensorId> by_operand;
  std::map<std::string, const Tensor*> shapes;
  for (size_t i = 0; i < given.size(); ++i) {
    MEGALITH_CHECK(inputs[i] >= 0 && inputs[i] < static_cast<TensorId>(tensors_.size()),
                   "[{}] input \"{}\" is no tensor of this graph (node \"{}\")", op_name, given[i]->name, node_name);
    by_operand[given[i]->name] = inputs[i];
    const Tensor& t = tensor(inputs[i]);
    shapes[given[i]->name] = &t;
    check_dtype(op, node_name, *given[i], t);
    MEGALITH_CHECK(given[i]->role != loop::Role::inout || t.kind != TensorKind::constant,
                   "[{}] writes \"{}\", which is a constant (node \"{}\")", op_name, t.name, node_name);
  }
  for (const auto& [name, id] : options.outputs) {
    const Operand* operand = op.find(name);
    MEGALITH_CHECK(operand && operand->role == loop::Role::output, "[{}] has no output \"{}\" (node \"{}\")", op_name,
                   name, node_name);
    MEGALITH_CHECK(tensor(id).kind != TensorKind::constant, "[{}] writes \"{}\", which is a constant (node \"{}\")",
                   op_name, tensor(id).name, node_name);
    check_dtype(op, node_name, *operand, tensor(id));
    by_operand[name] = id;
    shapes[name] = &tensor(id);
  }

  Node node;
  node.name = node_name;
  node.op = &op;
  const SolvedSizes solved = solve_sizes(op, node_name, shapes, options.sizes);
  node.sizes = solved.sizes;
  node.dynamic = solved.dynamic;
  for (const loop::Attribute& attribute : op.attributes) node.attributes[attribute.name] = attribute.value;
  for (const auto& [name, value] : options.attributes) {
    MEGALITH_CHECK(node.attributes.contains(name), "[{}] has no attribute \"{}\" (node \"{}\")", op_name, name,
                   node_name);
    // It becomes a constant of f32 in the generated source.
    MEGALITH_CHECK(std::abs(value) <= std::numeric_limits<float>::max(),
                   "[{}] the attribute \"{}\" is {}, want a finite number (node \"{}\")", op_name, name, value,
                   node_name);
    node.attributes[name] = value;
  }
  const auto is_axis = [&](const std::string& iname) {
    return std::any_of(op.axes.begin(), op.axes.end(), [&](const TaskAxis& axis) { return axis.iname == iname; });
  };
  for (const auto& [iname, tile] : options.tile)
    MEGALITH_CHECK(is_axis(iname) && tile > 0, "[{}] cannot be cut along \"{}\" into tiles of {} (node \"{}\")",
                   op_name, iname, tile, node_name);
  for (const auto& [iname, pieces] : options.pieces)
    MEGALITH_CHECK(is_axis(iname) && pieces > 0 && !options.tile.contains(iname),
                   "[{}] cannot be cut along \"{}\" into {} pieces (node \"{}\")", op_name, iname, pieces, node_name);
  node.tile = options.tile;
  node.pieces = options.pieces;

  const size_t num_tensors = tensors_.size();
  std::vector<TensorId> outputs;
  for (const Operand* operand : made) {
    if (!by_operand.contains(operand->name)) {
      auto dtype = options.dtypes.find(operand->name);
      by_operand[operand->name] = activation(made.size() == 1 ? node_name : node_name + "." + operand->name,
                                             dtype == options.dtypes.end() ? operand->dtype : dtype->second,
                                             operand_shape(op, *operand, solved));
    }
    outputs.push_back(by_operand[operand->name]);
  }
  for (const Operand& operand : op.operands) node.operands.push_back(by_operand.at(operand.name));
  try {
    check_shared_operands(*this, node);
  } catch (...) {  // who is told may take another tensor and ask again
    for (; tensors_.size() > num_tensors; tensors_.pop_back()) by_name_.erase(tensors_.back().name);
    throw;
  }
  node_names_.insert(node.name);
  nodes_.push_back(std::move(node));
  return outputs;
}

TensorId Graph::apply(const std::string& op, const std::string& node, const std::vector<TensorId>& inputs,
                      const NodeOptions& options) {
  std::vector<TensorId> outputs = add(op, node, inputs, options);
  MEGALITH_CHECK(outputs.size() == 1, "[{}] has {} outputs, use add() (node \"{}\")", op, outputs.size(), node);
  return outputs[0];
}

}  // namespace megalith::graph
