// The rules, one function each: applies it wherever it fits and is worth it, and says how often it did.
#pragma once

#include <optional>

#include "megalith/graph/graph.h"
#include "megalith/optimize/goal.h"

namespace megalith::optimize {

/// f(x)[rows] = f(x[rows]) where row t of f(x) is made of row t of x: of a prompt's tokens those behind the last layer's keys count
/// only if something is drawn behind them. Where that saves enough of the rows.
int gather_first(graph::Graph& graph, const Goal& goal);

/// What only tensor cores read is of 16 bits, as their other operand is: the precision policy. What is added up stays f32.
int cast_intermediate(graph::Graph& graph, const Goal& goal);

/// On a CPU a product with a quantised matrix, and a lookup in one, is an operator of its own, of its whole numbers and their
/// scales. On a GPU int8 is a layout of the matrix (graph::Layout), and there is nothing to do here.
int split_scales(graph::Graph& graph, const Goal& goal);

/// Projections of the same rows that attention and the cache's writer take, each with its bias, head norm and rotation,
/// become one matrix, and the rest a prologue of both. Of this iteration's rows attention takes keys and values from
/// where they were made, so the cache is written beside the next layer's attention; of many rows it is written first.
/// The same for q, k and v that split_heads takes out of one tensor, whoever made that. Without a rotation nothing is
/// fused: there is no operator for it. Where there is no body for so many rows, but one for a single row, only the matrix is
/// one, and split_rows takes its product apart: kernels for other numbers of rows have that matrix.
/// A graph says by a state "row_start", [T], where each row's request began in this iteration; or by an activation called
/// so, or "<anything>.row_start", made by a node that reads or makes the positions that attention reads.
int fuse_attention(graph::Graph& graph, const Goal& goal);

/// rmsnorm(x) W^T = rsqrt(sum x^2 / K + eps) * ((x norm) W^T): whoever writes x writes it times the norm's weight, too, and
/// the squares of some columns added up. For as many rows as do not travel as words. In f16 it is a fraction of x that is
/// written (kernels/half_range.h), and eps a fraction of eps.
int defer_norm(graph::Graph& graph, const Goal& goal);
/// Columns whose squares come as one sum, of a row of so many; nothing where norms are not deferred.
std::optional<int64_t> squares_columns(int64_t rows, int64_t columns);

/// A long product of many rows is made in slices of K, where there are fewer tiles of weights than workers.
int split_k(graph::Graph& graph, const Goal& goal);

/// A projection and what is added to it in one, with a copy in bf16 for who multiplies it next.
int fuse_residual(graph::Graph& graph, const Goal& goal);

/// A norm is worked out again by each of the products that it is for.
int fuse_prologue(graph::Graph& graph, const Goal& goal);

/// The two projections of an MLP with a gate and the gate in one, whatever it is: any operators that work element by element
/// (optimize/gates.h).
int pair(graph::Graph& graph, const Goal& goal);

/// The head's product looks for the largest of each chunk of logits, as it has them.
int fuse_argmax(graph::Graph& graph, const Goal& goal);

/// Attention over chunks of positions, and what puts them together (flash-decoding, https://arxiv.org/abs/2311.01282).
int split_kv(graph::Graph& graph, const Goal& goal);

/// The largest of a row by chunks.
int split_reduce(graph::Graph& graph, const Goal& goal);

/// What a body computes and the next node changes element by element: done where the body writes it. Wherever a body of the
/// first node takes an epilogue; where it streams weights, only with constants. The value in between rounds no more: it is f32.
int fuse_epilogue(graph::Graph& graph, const Goal& goal);

}  // namespace megalith::optimize
