// Two products of the same rows and what a gate makes of both, element by element: the first half of an MLP with a gate
// (https://arxiv.org/abs/2002.05202). Bodies compute the products; the gate is their epilogue.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "megalith/graph/operator.h"

namespace megalith::ops {

struct Gate {
  std::string name;     // "silu_mul"
  std::string program;  // "y = silu_mul(a, b; i as n)": y of the products a and b (graph/compose.h)
  std::vector<graph::Operand> operands = {};  // that it reads besides, a value for each column
  std::vector<loop::Attribute> attributes = {};
};

/// A product that comes in pairs.
struct PairedProduct {
  const char* product;                   // the operator of one
  std::vector<std::string> shared, own;  // its operands: what both have, then what each has
  graph::Operator (*with)(const Gate& gate, const graph::Registry& of);  // the operator of both
};

const std::vector<PairedProduct>& paired_products();

}  // namespace megalith::ops
