// How weights lie in a worker's stream (docs/cuda.md): in chunks of 16 KB, each holding a group of rows over a run of
// columns, in the order in which the tensor cores take them. Shared by the host, which plans streams, the kernel that
// packs them, and the bodies that multiply.
//
// One multiply-accumulate of a warp (mma.m16n8k16) takes a tile of 16 x 16 weights and 8 columns of activations. Where
// few rows of activations are in flight the tile is cut into `slices`: with 2, it is 8 rows of weights over two runs of
// columns, and the 8 activation columns are 4 rows over the same two runs. So rows are dealt to workers in groups of 8
// rather than 16, which small models need to keep every worker busy.
//
// A chunk: warp w of 16, step j of 2, lane l (g = l / 4, t = l % 4), 16 bytes each. The warp's columns are 32 per
// slice, from column ((chunk * 16 + w) * slices + slice) * 32 on; lane t holds columns j / 2 * 32 + 8 t + j % 2 * 4 and
// the three after it of each of its two tile rows, g and g + 8, as the four registers of the A operand: (row g: 0 1)
// (row g + 8: 0 1) (row g: 2 3) (row g + 8: 2 3). Any order of columns is as good as another as long as both operands
// have it.
//
// With more than kMostRows rows of activations these are the first operand of a multiplication, 64 rows of it, and
// weights are the second, read by the tensor cores where they lie in the ring (wgmma, kernels/cuda/wide.cuh). A chunk
// then has all rows that are multiplied at a time, 32, 48 or 64, of one matrix or as many of each of two; its columns
// are taken 16 a step: for each eight rows, step, half k of a step, row: eight columns, 16 bytes. Of two steps' 32
// columns number 8 t + 4 (step % 2) + 2 k + i stands at place 2 t + i, which is where kernels/row_blocks.h has it in
// the activations.
#pragma once

namespace megalith::stream {

constexpr int kChunkBytes = 16384;
/// Where streams are dealt to the two sides of the L2 (runtime/cuda/sides.h), memory, of pages of 2 MB, is taken in
/// blocks of two chunks, a chunk for each side: pieces 0, 3, 4 and 7 of a block, and 1, 2, 5 and 6.
[[maybe_unused]] constexpr unsigned kPageBytes = 2 << 20;
[[maybe_unused]] constexpr int kPieceBytes = 4096, kChunkPieces = kChunkBytes / kPieceBytes,
                               kBlockBytes = 2 * kChunkBytes;
/// Of a chunk with a hole, and of each of its pieces, what is copied (is_short()).
[[maybe_unused]] constexpr int kShortBytes = 15360, kShortPieceBytes = kShortBytes / kChunkPieces;
/// Piece `index` of the half `half` of a block.
constexpr int half_piece(int half, int index) { return 2 * index + ((index ^ half) & 1); }
constexpr int kConsumerWarps = 16;
/// Columns of one slice that a warp takes from a chunk.
constexpr int kRunColumns = 32;

/// Most rows of activations that the streaming bodies for few of them take, and those for many.
[[maybe_unused]] constexpr long long kMostRows = 8;
[[maybe_unused]] constexpr long long kMostWideRows = 128;
/// Slices for at most `rows` rows of activations, and for how many rows at most so many slices are.
constexpr int slices(long long rows) { return 2 * rows <= kMostRows ? 2 : 1; }
constexpr int most_rows(int slices) { return static_cast<int>(kMostRows) / slices; }
constexpr int group_rows(int slices) { return 16 / slices; }
constexpr int chunk_columns(int slices) { return kConsumerWarps * kRunColumns * slices; }
/// Columns past K are zeros.
constexpr long long chunks_per_group(long long columns, int slices) {
  return (columns + chunk_columns(slices) - 1) / chunk_columns(slices);
}

/// Shared memory that is no ring and no scratch: what the compiler keeps there, a few words, and variables of the block
/// (kernels/cuda/shared.cuh): frames, barriers, sums of reductions. Each begins at a multiple of 1024.
constexpr int kStaticBytes = 1024, kVariablesBytes = 6144;
/// What the system keeps before all that, which counts for none of it: from sm_80 on a kilobyte (CUDA C++ Programming
/// Guide, shared memory of compute capability 8.x and 9.0).
[[maybe_unused]] constexpr int kSystemBytes = 1024;
constexpr long long kReservedBytes = 8192;
static_assert(kStaticBytes + 1023 + kVariablesBytes < kReservedBytes);
/// Copies of a stream that are under way at a time. When one is begun all but the last kMostCopies - 1 are in, however
/// they overtake each other.
constexpr int kMostCopies = 4;
/// Parts of a block that take chunks in turn, with many rows of activations.
constexpr int kMostParts = 4;
/// Slots of the ring in `shared_bytes` of shared memory, beside `scratch_bytes`, with at most `rows` rows of
/// activations: as many as there is room for, 0 if that is too few. What is in the ring when a worker begins to wait is
/// what memory does meanwhile.
///
/// A barrier tells a phase from the one before and the one behind it, no more. So who asks for chunk n must know that
/// chunk n - slots is in. With few rows every warp takes all chunks in order. With many a part has had chunk
/// n - kMostParts, and when that was begun all up to n - kMostParts - kMostCopies were in: with as many slots that is
/// enough. With fewer it is chunk n - kMostParts itself, or one before it, that has to be the slot's.
constexpr int ring_slots(long long shared_bytes, long long scratch_bytes, long long rows) {
  const long long room = (shared_bytes - kReservedBytes - scratch_bytes) / kChunkBytes;
  const int slots = room >= 12 ? 12 : room >= 2 ? static_cast<int>(room) : 0;
  return rows > kMostRows && slots < kMostParts + kMostCopies ? slots / kMostParts * kMostParts : slots;
}

/// Chunks that come into the L2 while the ring is full, with at most `rows` rows of activations. With many rows what is
/// handed from stage to stage comes through the L2 as well, and later beside them: Qwen3-8B with 64 rows takes 6.98 ms
/// a step with 16 chunks ahead, 6.68 with none.
[[maybe_unused]] constexpr int chunks_ahead(long long rows) { return rows > kMostRows ? 0 : 16; }

/// Whether warpgroups may have groups of their own, in a ring of so many slots: who asks for chunk n has had one of the
/// kMostParts before it then, and as said above knows of all that came kMostCopies before that one.
constexpr bool goes_abreast(long long slots) { return slots >= kMostParts + kMostCopies; }

/// Of the four warpgroups each has 64 of at most `rows` rows of activations and a part of a chunk's columns.
constexpr int kWideRows = 64;
constexpr int wide_parts(long long rows) { return rows > kWideRows ? kMostParts / 2 : kMostParts; }
/// Columns of a chunk of `chunk_rows` rows: whole blocks of activations (kernels/row_blocks.h).
constexpr int wide_columns(int chunk_rows) { return kChunkBytes / 2 / chunk_rows / 32 * 32; }
/// From eight rows of weights to the next.
constexpr int wide_block_bytes(int chunk_rows) { return wide_columns(chunk_rows) * 16; }
/// Whether a chunk is 15 KB of weights and a hole: of 48 rows whole blocks of columns fill no more. On the sides of the
/// L2 the hole is not copied: its pieces have a sixteenth of it each at their end.
constexpr bool is_short(int chunk_rows) { return chunk_rows / 8 * wide_block_bytes(chunk_rows) == kShortBytes; }
/// Groups of `group` of a matrix's `rows` rows that the busiest worker of a large GPU has.
constexpr long long wide_busiest(long long rows, long long group) {
  constexpr long long kWorkers = 132;
  return ((rows + group - 1) / group + kWorkers - 1) / kWorkers;
}
/// Rows of a chunk, of each of `matrices` matrices of `rows` rows: those with which the busiest worker of a large GPU
/// has the fewest. Of the same ones the longest, since every turn reads all activations.
constexpr int wide_group(long long rows, int matrices) {
  int best = 0;
  long long fewest = 0;
  for (int chunk_rows = 64; chunk_rows >= 32; chunk_rows -= 16) {
    const long long group = chunk_rows / matrices, busiest = wide_busiest(rows, group) * group;
    if (best != 0 && busiest >= fewest) continue;
    best = static_cast<int>(group);
    fewest = busiest;
  }
  return best;
}
/// Groups that are multiplied abreast, by as many parts of the block: none if the busiest worker had none for more than
/// one of them, who then share the chunks of one group.
constexpr int wide_abreast(long long rows, long long group, long long activation_rows) {
  const int parts = wide_parts(activation_rows);
  return wide_busiest(rows, group) >= (parts == kMostParts ? kMostParts - 1 : parts) ? parts : 1;
}
/// Of `groups` groups those of the next turn, of at most `most`: all turns are alike to within one.
constexpr int wide_turn(int groups, int most) {
  const int turns = (groups + most - 1) / most;
  return (groups + turns - 1) / turns;
}

/// What a matrix has of one chunk of a stream, for the kernel that lays it out: `num_rows` rows from `first_row` on,
/// over chunk `column_chunk` of the columns.
struct PackRecord {
  const unsigned short* weights;  // [rows, columns] of bf16
  unsigned long long chunk;       // counted from the start of all streams; on sides twice the block, and which half
  unsigned long long columns, first_row;
  unsigned int num_rows, column_chunk;
  unsigned int slices;                   // or 0: for many rows of activations,
  unsigned int group, matrix, matrices;  // ... so many rows of each of so many matrices, of which this is one
};

/// Room for the sums of the warps of at most kSumsPerWarp (row of weights, row of activations) pairs.
constexpr int kSumsPerWarp = 256;
constexpr int kSumsBytes = kConsumerWarps * kSumsPerWarp * 4;

/// Activations of more rows travel plain (graph::exchanged_tensors()).
constexpr long long kMostRowsOfWords = 2;
/// How a warp has its activations: in shared memory; or, of several rows that travel plain, in registers, all of them
/// or a part of the columns while the next part is under way.
enum class Activations { staged, held, parts };
/// Of so many chunks of a group at most, or at a time.
constexpr long long kMostHeldChunks = 8, kPartChunks = 2;
/// `splits`: columns may be taken in parts.
constexpr Activations activations(long long rows, long long columns, bool splits) {
  if (rows <= kMostRowsOfWords) return Activations::staged;
  if (chunks_per_group(columns, slices(rows)) <= kMostHeldChunks) return Activations::held;
  return splits ? Activations::parts : Activations::staged;
}

/// What is in shared memory at a time, where a multiplication may take its columns in parts.
constexpr long long kMostStagedBytes = 65536;
/// Chunks of a group whose activations are there at a time: all, or as many as fit.
constexpr long long chunks_per_part(long long rows, long long columns, bool splits) {
  const int s = slices(rows);
  const long long all = chunks_per_group(columns, s);
  const Activations form = activations(rows, columns, splits);
  if (form == Activations::held || !splits) return all;
  const long long most = form == Activations::parts ? kPartChunks : kMostStagedBytes / (rows * chunk_columns(s) * 2);
  return all > most ? most : all;
}
/// Groups that are taken through all parts before the next ones are begun: those whose sums there is room for.
constexpr long long groups_per_turn(long long rows) { return kSumsPerWarp / (group_rows(slices(rows)) * rows); }

/// How a matrix comes through a stream, and in which order: groups of rows, cut into chunks by columns; a turn of
/// groups together, part by part of the columns, within a part group by group.
struct Order {
  int slices, group;             // as in PackRecord; rows of a chunk
  long long chunks, part, turn;  // of a group; of them, those of a part; most groups of a turn, 0: all
};
/// For few rows of activations; for many, in groups of `group` rows of each of `matrices`.
constexpr Order order(long long rows, long long columns, bool splits) {
  const int s = slices(rows);
  const long long chunks = chunks_per_group(columns, s), part = chunks_per_part(rows, columns, splits);
  return {s, group_rows(s), chunks, part, part < chunks ? groups_per_turn(rows) : 0};
}
/// Chunk by chunk of the columns, group by group of a turn of `abreast`.
constexpr Order wide_order(long long columns, int group, int matrices, int abreast) {
  const long long width = wide_columns(group * matrices);
  return {0, group, (columns + width - 1) / width, 1, abreast};
}

/// Shared memory of a multiplication with many rows: what four warpgroups sum of a turn's rows of weights, with 64 rows
/// of activations each, or each of a group of its own. A row of sums is longer than it need be, so that neighbours are
/// in different banks.
constexpr long long wide_stride(long long turn_rows) { return turn_rows + 8; }
[[maybe_unused]] constexpr long long wide_bytes(long long turn_rows) {
  return 4 * kWideRows * wide_stride(turn_rows) * 4;
}

/// Where a residual is added, of 32 rows of weights: behind the sums it.
[[maybe_unused]] constexpr long long wide_residual_bytes(long long rows) { return wide_bytes(32) + rows * 32 * 4; }

/// Shared memory of a streaming multiplication: the sums, and activations of `rows` rows if they are there.
constexpr long long scratch_bytes(long long rows, long long columns, bool splits) {
  if (activations(rows, columns, splits) != Activations::staged) return kSumsBytes;
  return kSumsBytes + rows * chunks_per_part(rows, columns, splits) * chunk_columns(slices(rows)) * 2;
}

}  // namespace megalith::stream
