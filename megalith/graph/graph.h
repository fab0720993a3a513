// The tensor graph: operators over named tensors, in program order. What models and users build, and the first stage's
// artifact.
//
// Meaning: the nodes run one after the other; running all of them once is one iteration. Tensors are memory:
//   constant    weights; never written; bound from outside
//   state       lives on from one iteration to the next (KV cache, the batch block); bound from outside
//   activation  lives within one iteration; Megalith finds it a place in the arena
// A dimension may be dynamic: its size is the largest value, and the true one is an i32 in a state tensor, read by
// every task that needs it. That is how a decode step, a chunk of a prompt and a batch are one graph with more or fewer
// rows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "megalith/base/dtype.h"
#include "megalith/graph/operator.h"

namespace megalith::graph {

using TensorId = int;

enum class TensorKind { constant, state, activation };

/// A dimension: its (largest) size, and the name of the dynamic size that it follows, if any.
struct Dim {
  int64_t size = 0;
  std::string dynamic;

  Dim(int64_t size_) : size(size_) {}  // NOLINT: a plain number is a dimension
  Dim(int64_t largest, std::string dynamic_) : size(largest), dynamic(std::move(dynamic_)) {}
  bool operator==(const Dim&) const = default;
};

struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Dim> shape;
  TensorKind kind = TensorKind::activation;
  std::vector<std::string> parts = {};  // of a stacked constant: the tensors whose rows it has
  int64_t groups = 1;                   // ... dealt in so many rounds
  // Of a quantised constant: columns that share a scale. One of floats is still what it was; where a GPU streams it, its
  // values are rounded as those of one in int8 are.
  int64_t quant_columns = 0;
  bool any_layout = false;  // of a state: only nodes look at it, so bodies may lay it out as they like
  bool by_load = false;     // of a state: kernels for other loads look at it, too, and lay it out alike

  int64_t num_elements() const;
  int64_t bytes() const { return num_elements() * dtype_bytes(dtype); }
  /// Of a constant those that come to where it is multiplied: in int8 with scales if it is one of floats that is rounded.
  int64_t streamed_bytes() const;
};

/// Of so many weights in int8 as they are streamed: a byte each, and for every 32 of them a scale of two
/// (kernels/int8_layout.h).
constexpr int64_t int8_bytes(int64_t weights) { return weights + weights / 32 * 2; }

/// What the scales of a quantised constant are called.
inline std::string quant_scale_name(const std::string& weight) { return weight + ".scale"; }

struct Node {
  std::string name;
  const Operator* op = nullptr;
  std::vector<TensorId> operands;              // in the order of Operator::operands
  std::map<std::string, int64_t> sizes;        // every size of the operator, dynamic ones at their largest
  std::map<std::string, std::string> dynamic;  // size -> dynamic size it follows
  std::map<std::string, double> attributes;
  std::map<std::string, int64_t> tile;    // iname -> tile size chosen by the user; the rest is chosen for them
  std::map<std::string, int64_t> pieces;  // iname -> number of tasks along it, as a launch grid says it
};

/// Where the true value of a dynamic size is read: element `index` of the i32 state tensor.
struct DynamicSize {
  TensorId tensor = -1;
  int64_t index = 0;
};

/// What one call of Graph::add needs beyond its inputs; all of it may be left out.
struct NodeOptions {
  std::map<std::string, int64_t> sizes;  // those that shapes do not tell
  std::map<std::string, double> attributes;
  std::map<std::string, int64_t> tile;
  std::map<std::string, TensorId> outputs;  // existing tensors to write instead of new activations
  std::map<std::string, DType> dtypes;      // of new outputs
  /// Instead of a tile: so many tasks along an iname, or as many as the layout of its weights allows.
  std::map<std::string, int64_t> pieces = {};
};

/// What a rule has done to a graph (optimize/optimize.h), for people.
struct Rewrite {
  std::string rule, node;  // the node that was there then
  std::string before;      // operators that it stands for
  int64_t bytes_saved;     // that are no longer written and read in an iteration, with dynamic sizes at their largest
};

class Graph {
 public:
  explicit Graph(std::shared_ptr<const Registry> registry, std::string name = "graph");

  TensorId constant(const std::string& name, DType dtype, std::vector<Dim> shape);
  /// A constant whose rows are those of `parts`, dealt in `groups` rounds: of each part in turn the next groups-th of
  /// its rows. With one round they stand one behind the other.
  TensorId stacked(const std::string& name, DType dtype, std::vector<Dim> shape, std::vector<std::string> parts,
                   int64_t groups = 1);
  /// A constant matrix of floats is to be kept in int8, so many columns to a scale (Tensor::quant_columns).
  void quantize(TensorId constant, int64_t group_columns);
  /// Such a matrix, from here on in int8, made of the checkpoint's floats of that name. The result: its "<name>.scale",
  /// bf16, one for each row and so many columns (fewer in the last group). An element is the one times the other. Whoever
  /// reads it is to be replaced.
  TensorId split_scales(TensorId constant);
  /// `any_layout`: nobody but the graph's nodes looks at it where it lies, and those of graphs for other loads if `by_load`.
  TensorId state(const std::string& name, DType dtype, std::vector<Dim> shape, bool any_layout = false,
                 bool by_load = false);
  TensorId activation(const std::string& name, DType dtype, std::vector<Dim> shape);
  /// Makes a constant of a state that no node writes, so that bodies may lay it out as they like before anything runs.
  /// UserError naming the node that writes it.
  void make_constant(TensorId tensor);
  /// Puts one node in the place of two neighbours, the second of which is the only one to read what the first one writes: an
  /// activation, which goes. `fused.operands` count tensors as they are before. Ids of tensors behind that one change.
  void fuse_neighbours(size_t first, Node fused, std::shared_ptr<const Registry> registry);
  /// Which operators nodes to come may have; `registry` is a copy of the one before, with more in it.
  void set_registry(std::shared_ptr<const Registry> registry) { registry_ = std::move(registry); }
  /// What rules put a graph together of (optimize/): nodes go, others come in front of node number `at`, as add() makes them.
  /// Tensors that nobody uses any more stay until tidy(), so ids last as long.
  void erase(const std::string& node);
  void erase(const std::vector<std::string>& nodes);  // each named once
  std::vector<TensorId> insert(size_t at, const std::string& op, const std::string& node,
                               const std::vector<TensorId>& inputs, const NodeOptions& options = {});
  /// The same in the place of a node, which may have its name and its outputs.
  std::vector<TensorId> replace(size_t at, const std::string& op, const std::string& node,
                                const std::vector<TensorId>& inputs, const NodeOptions& options = {});
  /// Another dtype for an activation, or a constant that is rounded to it as it is loaded, whose writer and readers take
  /// any.
  void set_dtype(TensorId tensor, DType dtype);
  /// Another tensor of the same shape for one operand of a node, an input.
  void redirect(size_t node, size_t operand, TensorId tensor);
  /// Takes out activations and constants that no node uses, and counts all others in the order in which nodes use them.
  /// Ids change, names do not.
  void tidy();
  /// The number of a node; UserError if there is none.
  size_t number_of(const std::string& node) const;
  const std::vector<Rewrite>& rewrites() const { return rewrites_; }
  void remember(Rewrite rewrite) { rewrites_.push_back(std::move(rewrite)); }
  /// Names a dynamic size and where its value lives.
  void dynamic_size(const std::string& name, TensorId tensor, int64_t index);

  /// Adds a node. `inputs` are the operator's inputs and inouts in order; the result is its outputs in order (new
  /// activations named "<node>" or "<node>.<output>", unless options.outputs gives one). Sizes are solved from the
  /// shapes; UserError naming node, tensor, found and wanted if they do not fit.
  std::vector<TensorId> add(const std::string& op, const std::string& node, const std::vector<TensorId>& inputs,
                            const NodeOptions& options = {});
  /// The same for an operator with one output.
  TensorId apply(const std::string& op, const std::string& node, const std::vector<TensorId>& inputs,
                 const NodeOptions& options = {});

  const std::string& name() const { return name_; }
  const Registry& registry() const { return *registry_; }
  const std::shared_ptr<const Registry>& shared_registry() const { return registry_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::map<std::string, DynamicSize>& dynamic_sizes() const { return dynamic_sizes_; }
  const Tensor& tensor(TensorId id) const;  // UserError if there is none
  bool has(const std::string& name) const { return by_name_.contains(name); }
  TensorId find(const std::string& name) const;  // UserError if there is none
  /// The node whose signal lets the next iteration begin: it decides when the loop stops.
  void set_gate(const std::string& node, TensorId stop);
  std::optional<int> gate_node() const { return gate_node_; }
  std::optional<TensorId> stop_tensor() const { return stop_tensor_; }
  /// A state that dynamic sizes are read from, if one has sizes that last as long as an iteration: nobody but the gate's node
  /// writes it, and nobody behind that reads a size of it.
  std::optional<TensorId> lasting_sizes() const;

 private:
  TensorId new_tensor(const std::string& name, DType dtype, std::vector<Dim> shape, TensorKind kind);

  std::shared_ptr<const Registry> registry_;
  std::string name_;
  std::vector<Tensor> tensors_;
  std::map<std::string, TensorId> by_name_;
  std::vector<Node> nodes_;
  std::unordered_set<std::string> node_names_;
  std::map<std::string, DynamicSize> dynamic_sizes_;
  std::optional<int> gate_node_;
  std::optional<TensorId> stop_tensor_;
  std::vector<Rewrite> rewrites_;
};

}  // namespace megalith::graph
