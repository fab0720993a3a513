// Who writes and reads the tensors of a graph, as rules want to know it. Stale once the graph is changed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"

namespace megalith::optimize {

struct Use {
  size_t node, operand;
};

class Uses {
 public:
  explicit Uses(const graph::Graph& graph);

  std::span<const Use> readers(graph::TensorId tensor) const { return readers_.of(tensor); }
  /// The node that makes an activation, if one alone does; of a constant or a state none.
  const graph::Node* maker(graph::TensorId tensor) const;
  /// The same if it has this operator.
  const graph::Node* maker(graph::TensorId tensor, const std::string& op) const;
  /// The same of either if, besides, the tensor is read once.
  const graph::Node* only_maker(graph::TensorId tensor) const;
  const graph::Node* only_maker(graph::TensorId tensor, const std::string& op) const;
  /// Whether all readers take it as operand `operand` of a node with operator `op`; false if there are none.
  bool all_read_as(graph::TensorId tensor, const std::string& op, const std::string& operand) const;

 private:
  /// Of each tensor in turn, one behind the other.
  struct Table {
    std::vector<size_t> begin;
    std::vector<Use> uses;

    std::span<const Use> of(graph::TensorId tensor) const {
      const auto t = static_cast<size_t>(tensor);
      return std::span(uses).subspan(begin[t], begin[t + 1] - begin[t]);
    }
  };
  static Table table_of(const graph::Graph& graph, loop::Role but);

  const graph::Graph& graph_;
  const Table writers_, readers_;  // an inout is both
};

/// The tensor that a node has for an operand of its operator.
graph::TensorId operand(const graph::Node& node, const std::string& name);
/// Its number in Node::operands.
size_t operand_number(const graph::Node& node, const std::string& name);

/// What several names have in common, with what they differ in one behind the other between: "layer.0.qkv_proj" of
/// "layer.0.q_proj", "layer.0.k_proj" and "layer.0.v_proj".
std::string joined_name(const std::vector<std::string>& names);

}  // namespace megalith::optimize
