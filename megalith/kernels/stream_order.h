// In which order the weight tiles of a matrix come through a worker's stream, and what the kernel that packs them is told
// of each. Shared by the host, which plans streams, and that kernel (kernels/cuda/mainloop/pack_weights.cuh).
#pragma once

namespace megalith::stream {

/// How the weights of a task come through a stream, and in which order: groups of rows, cut into chunks by columns; a
/// turn of groups together, part by part of the columns, within a part group by group.
///   With slices, for few rows of activations, a chunk has rows of one matrix: in a part of a group come those of the
///   first matrix, then those of the next.
///   Without, for many, it has rows of every matrix, and turns are alike to within a group (wide_turn()).
///   With partners two tasks have a group together, half of its rows each: a task's chunks have all rows of the group, over
///   half of the columns.
struct Order {
  int slices = 0, group = 0;                 // as in PackRecord; rows of a chunk, of each matrix that it has
  long long chunks = 0, part = 0, turn = 0;  // of a group; of them, those of a part; most groups of a turn, 0: all
  bool partners = false;

  bool operator==(const Order&) const = default;
};

/// What a matrix has of one chunk of a stream, for the kernel that lays it out: `num_rows` rows from `first_row` on,
/// over chunk `column_chunk` of the columns.
struct PackRecord {
  const unsigned short* weights;  // [rows, columns] of bf16 or f16
  unsigned long long chunk;       // counted from the start of all streams; on sides twice the block, and which half
  unsigned long long columns, first_row;
  unsigned int num_rows, column_chunk;
  unsigned int slices;                   // or 0: for many rows of activations,
  unsigned int group, matrix, matrices;  // ... so many rows of each of so many matrices, of which this is one
  // In int8 (kernels/int8_layout.h): columns to a scale, whether they were f16, and the scales of all chunks. Else 0.
  unsigned int quant_columns, is_f16;
  unsigned char* scales;
};

}  // namespace megalith::stream
