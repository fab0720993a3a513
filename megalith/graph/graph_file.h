// A graph in a file: what print() says of it (text.h), and in front of that what whoever reads the file cannot know.
//
//   operator halve                                 # one that a script declared: its loop kernel, as in graph/declare.h
//     tasks h 16, t 1
//     test H=64 T=3
//     input x: f32[T, H]
//     output y: f32[T, H]
//     { [t, h] : 0 <= t < T and 0 <= h < H }
//     y[t, h] = 0.5 * f32(x[t, h])
//   end
//   graph two
//   state first_row: i32[3]
//   state x: bf16[2, 64]
//   y: f32[2, 64] = halve(x)  # half
//   values first_row = 0, 1, 2                     # what a state of integers holds before the first iteration
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"

namespace megalith::graph {

struct GraphFile {
  Graph graph;
  std::map<std::string, std::vector<int64_t>> values;  // state -> all of its elements
};

/// The text of a file. Operators that `known` has not are declared in it; UserError if one of them has a body of its own,
/// or is opaque, since neither is in a text.
std::string to_file(const GraphFile& file, const Registry& known);

/// Reads it; operators that are declared in it come on top of those of `known`. UserError naming line and cause.
GraphFile from_file(const std::string& text, const std::shared_ptr<const Registry>& known);

}  // namespace megalith::graph
