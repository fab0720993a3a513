// How a node takes the weights that its body streams: the choices that are the schedule's (graph::NodeSchedule::stream),
// those that are taken where nobody chose, and the order of weight tiles that follows.
//
//   few tokens (kernels/stream_layout.h)
//     slices     2 or 1 runs of columns side by side in a tile
//     part       chunks of a group of rows whose activations are there at a time
//     registers  1: those are in registers; 0: in shared memory
//   many tokens (kernels/gemm_layout.h)
//     group      rows of each matrix in a weight tile
//     turn       groups that warpgroups multiply side by side, one each; 1: all of them share a group's chunks
//     partners   1: two workers multiply a group together, half of the columns each; 0: a worker has all of them
//
// Groups for many tokens are chosen for the workers of the GPU that all this was tuned on, one a multiprocessor; right on
// any other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "megalith/base/ceil_div.h"
#include "megalith/graph/operator.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/machine/machine.h"

namespace megalith::ops {

using StreamChoices = std::map<std::string, int64_t>;

// ---- few tokens -----------------------------------------------------------------------------------------------------

/// How activations are there while weights stream past.
struct FewChoices {
  int slices;
  int64_t part;
  bool registers;

  bool operator==(const FewChoices&) const = default;
};

/// One slice where an eighth of what two would bring were zeros behind the last column (Qwen3-4B: 2560 columns are five
/// chunks of one slice, but three of two, a sixth of them zeros). Activations that do not travel as words lie as
/// stream::slices(rows) says, whatever they are multiplied with.
constexpr int few_slices(int64_t rows, int64_t columns) {
  const int usual = stream::slices(rows);
  if (rows > stream::kMaxRowsOfWords) return usual;
  const int64_t whole = stream::chunks_per_group(columns, usual) * stream::chunk_columns(usual),
                single = stream::chunks_per_group(columns, 1) * stream::chunk_columns(1);
  return 8 * single <= 7 * whole ? 1 : usual;
}
/// `splits`: columns may be taken in parts. What travels as words, of few rows, is staged in shared memory; of more rows all
/// columns are held in registers or, where there are too many, a part while the next one is under way.
constexpr FewChoices few_choices(int64_t rows, int64_t columns, bool splits) {
  constexpr int64_t kMaxStagedBytes = 65536;
  const int slices = few_slices(rows, columns);
  const int64_t chunks = stream::chunks_per_group(columns, slices);
  if (rows > stream::kMaxRowsOfWords && chunks <= stream::kMaxHeldChunks) return {slices, chunks, true};
  if (!splits) return {slices, chunks, false};
  if (rows > stream::kMaxRowsOfWords) return {slices, std::min<int64_t>(chunks, stream::kPartChunks), true};
  return {slices, std::min(chunks, kMaxStagedBytes / (rows * stream::chunk_columns(slices) * 2)), false};
}
/// Shared memory of a multiplication by them.
constexpr int64_t few_bytes(int64_t rows, const FewChoices& choices) {
  return stream::few_bytes(rows, choices.slices, choices.part, choices.registers);
}

// ---- many tokens ----------------------------------------------------------------------------------------------------

/// Tasks for the same weights, of tile_rows() rows of activations each.
inline int64_t wide_tiles(int64_t activation_rows) { return ceil_div(activation_rows, stream::kTileRows); }
/// Groups of `group` of a matrix's `rows` rows that the busiest worker has, with so many tiles of activations.
inline int64_t wide_busiest(int64_t rows, int64_t group, int64_t tiles = 1) {
  return ceil_div(ceil_div(rows, group) * tiles, machine::gpu_of_target("cuda").multiprocessors);
}

/// Rows that a chunk may have with so many rows of activations, the most first.
inline std::vector<int> wide_chunk_rows(int64_t activation_rows) {
  std::vector<int> rows;
  for (const int of_chunk : stream::kWideChunkRows)
    if (of_chunk <= stream::wide_most_chunk_rows(activation_rows)) rows.push_back(of_chunk);
  return rows;
}

/// Of 16 columns of a chunk, in cycles of an H100, where each warpgroup has rows of its own: of 256 tokens 274 with 128 rows of
/// weights, 244 with 96 and 202 with 64, since shared memory gives 128 bytes a cycle.
constexpr int64_t wide_step_cycles(int64_t chunk_rows) { return 128 + chunk_rows * 5 / 4; }

/// Rows of a chunk, of each of `matrices` matrices of `rows` rows, a multiple of `step`: those with which the busiest worker
/// is done first. Of the same ones the longest, since every turn reads all activations. What takes steps adds to sums, and beside
/// those of kMostRowsOfSteps rows there are registers for that.
inline int wide_group(int64_t rows, int matrices, int64_t activation_rows, int64_t step = 1) {
  constexpr int kMostRowsOfSteps = 96;
  int best = 0;
  int64_t fewest = 0;
  for (const int chunk_rows : wide_chunk_rows(activation_rows)) {
    if (chunk_rows / matrices % step != 0 || (step > 1 && chunk_rows > kMostRowsOfSteps)) continue;
    const int64_t group = chunk_rows / matrices,
                  of_group = stream::wide_parts(activation_rows) == 1 ? wide_step_cycles(chunk_rows) : group,
                  busiest = wide_busiest(rows, group, wide_tiles(activation_rows)) * of_group;
    if (best != 0 && busiest >= fewest) continue;
    best = static_cast<int>(group);
    fewest = busiest;
  }
  return best;
}

/// Groups that warpgroups have side by side: none if the busiest worker had none for more than one of them, who then share
/// the chunks of one group.
inline int wide_turn_groups(int64_t rows, int64_t group, int64_t activation_rows) {
  const int parts = stream::wide_parts(activation_rows);
  return wide_busiest(rows, group) >= (parts == stream::kMaxParts ? stream::kMaxParts - 1 : parts) ? parts : 1;
}

/// Whether a group may be several steps of the task axis: where nothing but a warp's own rows has to do with its sums.
inline bool takes_steps(const graph::StreamedWeights& streamed, int64_t activation_rows) {
  return !streamed.step.empty() && !streamed.n_parallel && stream::wide_parts(activation_rows) == 1;
}

// ---- many tokens, two workers for a group -----------------------------------------------------------------------------

/// What a worker takes, in cycles of an H100, for the groups of a product that it has.
inline int64_t wide_cycles(int64_t rows, int64_t group, int64_t columns, int64_t activation_rows) {
  return wide_busiest(rows, group, wide_tiles(activation_rows)) * wide_step_cycles(group) * columns / 16;
}
/// Of partners: two workers count as one, and hand each other half of their sums.
inline int64_t wide_cycles_of_partners(int64_t rows, int64_t group, int64_t columns, int64_t activation_rows) {
  constexpr int64_t kHandOver = 6500;  // of 128 rows, 256 tokens
  const int64_t groups = wide_busiest(rows, group, 2 * wide_tiles(activation_rows));
  return groups * (wide_cycles(group, group, columns / 2, stream::kTileRows) + kHandOver);
}
/// Of S slices that a node behind them adds up: what it moves, at what memory gives, and one more wait for all workers.
inline int64_t wide_cycles_of_slices(int64_t rows, int64_t group, int64_t columns, int64_t activation_rows,
                                     int64_t slices) {
  constexpr int64_t kBytesPerCycle = 1900, kWait = 8000;
  return wide_cycles(rows * slices, group, columns / slices, activation_rows) +
         (2 * slices + 3) * rows * activation_rows * 4 / kBytesPerCycle + kWait;
}

/// Rows of weights that partners multiply together, half of which each finishes, a multiple of `step`; 0: they cannot, or
/// are no good. Neighbours are on one side of the L2, so no stream is dealt to its sides: with up to kTileRows tokens that
/// costs more than is won (Qwen3-8B, a prompt of 256 on an H100: 9.94 ms instead of 9.42).
inline int partners_group(int64_t rows, int64_t columns, int64_t activation_rows, int64_t step, bool int8) {
  int best = 0;
  if (activation_rows <= stream::kTileRows) return best;
  for (const int group : wide_chunk_rows(activation_rows)) {
    const int64_t width = stream::wide_columns(group) * (int8 ? int8::kSpans : 1);
    if (group % (2 * step) != 0 || rows % group != 0 || columns % (2 * width) != 0) continue;
    if (best == 0 || wide_cycles_of_partners(rows, group, columns, activation_rows) <
                         wide_cycles_of_partners(rows, best, columns, activation_rows))
      best = group;
  }
  return best;
}

/// Rows of weights that a node's partners multiply together, on a GPU that can; 0 where a worker is better off alone.
inline int partners_group(const graph::StreamedWeights& streamed, const std::map<std::string, int64_t>& sizes,
                          bool int8) {
  if (!streamed.may_have_partners) return 0;
  const int64_t step = sizes.at(streamed.step), rows = sizes.at("C") * step, columns = sizes.at(streamed.columns),
                activation_rows = sizes.at(streamed.activations);
  const int group = partners_group(rows, columns, activation_rows, step, int8);
  if (group == 0 || !takes_steps(streamed, activation_rows)) return 0;
  const int alone = wide_group(rows, 1, activation_rows, step);
  return wide_cycles_of_partners(rows, group, columns, activation_rows) <
                 wide_cycles(rows, alone, columns, activation_rows)
             ? group
             : 0;
}

// ---- either ---------------------------------------------------------------------------------------------------------

/// What is chosen where nobody says otherwise.
inline StreamChoices stream_choices(const graph::StreamedWeights& streamed,
                                    const std::map<std::string, int64_t>& sizes) {
  const int64_t rows = sizes.at(streamed.activations);
  if (rows <= stream::kMaxRows) {
    const FewChoices few = few_choices(rows, sizes.at(streamed.columns), streamed.splits);
    return {{"slices", few.slices}, {"part", few.part}, {"registers", few.registers}};
  }
  if (!streamed.step.empty()) {
    const int64_t step = sizes.at(streamed.step);
    if (takes_steps(streamed, rows)) {
      StreamChoices choices = {{"group", wide_group(sizes.at("C") * step, 1, rows, step)}, {"turn", 1}};
      if (streamed.may_have_partners) choices["partners"] = 0;
      return choices;
    }
    return {{"group", step}, {"turn", streamed.n_parallel ? stream::wide_parts(rows) : 1}};
  }
  const int64_t n = sizes.at("N") * (streamed.slice_count.empty() ? 1 : sizes.at(streamed.slice_count));
  const int group = wide_group(n, static_cast<int>(streamed.operands.size()), rows);
  return {{"group", group}, {"turn", wide_turn_groups(n, group, rows)}};
}

/// `chosen`, and what stream_choices() says where nothing is.
inline StreamChoices all_choices(const graph::StreamedWeights& streamed, const graph::BodyQuery& query) {
  StreamChoices choices = query.stream;
  choices.merge(stream_choices(streamed, query.sizes));
  return choices;
}

/// Whether two tasks take them together.
inline bool has_partners(const graph::StreamedWeights& streamed, const graph::BodyQuery& query) {
  const StreamChoices choices = all_choices(streamed, query);
  const auto found = choices.find("partners");
  return found != choices.end() && found->second == 1;
}

/// In which order a node takes streamed weights, of a row or a split-K slice of it.
inline stream::Order stream_order(const graph::StreamedWeights& streamed, const graph::BodyQuery& query) {
  const StreamChoices choices = all_choices(streamed, query);
  const int64_t rows = query.sizes.at(streamed.activations), columns = query.sizes.at(streamed.columns);
  if (rows <= stream::kMaxRows)
    return stream::few_order(rows, columns, static_cast<int>(choices.at("slices")), choices.at("part"));
  return stream::wide_order(columns, static_cast<int>(choices.at("group")), static_cast<int>(streamed.operands.size()),
                            static_cast<int>(choices.at("turn")), has_partners(streamed, query));
}
/// Whether its activations are held in registers.
inline bool holds_activations(const graph::StreamedWeights& streamed, const graph::BodyQuery& query) {
  const StreamChoices choices = all_choices(streamed, query);
  return choices.contains("registers") && choices.at("registers") == 1;
}
/// Shared memory that a multiplication of few tokens takes.
inline int64_t few_area_bytes(const graph::StreamedWeights& streamed, const graph::BodyQuery& query) {
  const StreamChoices choices = all_choices(streamed, query);
  return stream::few_bytes(query.sizes.at(streamed.activations), static_cast<int>(choices.at("slices")),
                           choices.at("part"), choices.at("registers") == 1);
}

/// Why a body cannot take its weights so; "" if it can.
inline std::string why_not_stream(const graph::StreamedWeights& streamed, const graph::BodyQuery& query) {
  const StreamChoices usual = stream_choices(streamed, query.sizes);
  for (const auto& [name, value] : query.stream)
    if (!usual.contains(name)) {
      std::string known;
      for (const auto& [other, _] : usual) known += (known.empty() ? "" : ", ") + other;
      return fmt::format("{} is nothing that is chosen with {} tokens: want {}", name,
                         query.sizes.at(streamed.activations), known);
    }
  const StreamChoices choices = all_choices(streamed, query);
  const int64_t rows = query.sizes.at(streamed.activations), columns = query.sizes.at(streamed.columns);
  const auto wrong = [](const char* name, int64_t found, const std::string& wanted) {
    return fmt::format("{} is {}: want {}", name, found, wanted);
  };
  if (rows <= stream::kMaxRows) {
    const int64_t slices = choices.at("slices"), part = choices.at("part"), registers = choices.at("registers");
    const bool may_choose = rows <= stream::kMaxRowsOfWords && streamed.step.empty();
    if (may_choose ? slices != 1 && slices != 2 : slices != usual.at("slices"))
      return wrong("slices", slices, may_choose ? "1 or 2" : fmt::format("{}, as activations lie", usual.at("slices")));
    const bool may_hold = rows > stream::kMaxRowsOfWords, may_stage = !may_hold || !streamed.holds;
    if (registers != 0 && registers != 1) return wrong("registers", registers, "0 or 1");
    if (registers == 1 && !may_hold) return wrong("registers", registers, "0 with so few tokens");
    if (registers == 0 && !may_stage) return wrong("registers", registers, "1");
    const int64_t chunks = stream::chunks_per_group(columns, static_cast<int>(slices));
    if (registers == 1) {
      const int64_t wanted = chunks <= stream::kMaxHeldChunks ? chunks : stream::kPartChunks;
      if (part != wanted && !(streamed.splits && part == stream::kPartChunks))
        return wrong("part", part, std::to_string(wanted));
      return "";
    }
    // A chunk in int8 has the columns of two.
    const int64_t multiple = query.int8 ? int8::kSpans : 1;
    if (part < 1 || part > chunks || (part < chunks && (!streamed.splits || part % multiple != 0)))
      return wrong("part", part,
                   !streamed.splits ? std::to_string(chunks)
                   : multiple > 1   ? fmt::format("{} or an even number below", chunks)
                                    : fmt::format("1 to {}", chunks));
    return "";
  }
  const int64_t group = choices.at("group"), turn = choices.at("turn");
  const auto matrices = static_cast<int64_t>(streamed.operands.size());
  if (takes_steps(streamed, rows)) {
    std::vector<int64_t> possible;
    for (const int chunk_rows : wide_chunk_rows(rows))
      if (chunk_rows % query.sizes.at(streamed.step) == 0) possible.push_back(chunk_rows);
    if (std::ranges::find(possible, group) == possible.end())
      return wrong("group", group, fmt::format("one of {}", fmt::join(possible, ", ")));
  } else if (!streamed.step.empty()) {
    if (group != usual.at("group")) return wrong("group", group, std::to_string(usual.at("group")));
  } else {
    std::vector<int64_t> possible;
    for (const int chunk_rows : wide_chunk_rows(rows)) possible.push_back(chunk_rows / matrices);
    if (std::ranges::find(possible, group) == possible.end())
      return wrong("group", group, fmt::format("one of {}", fmt::join(possible, ", ")));
  }
  const int64_t parts = stream::wide_parts(rows);
  const bool may_take_turns = streamed.step.empty() || streamed.n_parallel;
  if (turn != 1 && !(may_take_turns && turn == parts))
    return wrong("turn", turn, may_take_turns ? fmt::format("1 or {}", parts) : "1");
  const int64_t width = stream::wide_columns(static_cast<int>(group * matrices)) * (query.int8 ? int8::kSpans : 1);
  if (const auto partners = choices.find("partners"); partners != choices.end() && partners->second != 0) {
    if (partners->second != 1) return wrong("partners", partners->second, "0 or 1");
    const int64_t step = query.sizes.at(streamed.step), all = query.sizes.at("C") * step;
    if (group % (2 * step) != 0 || all % group != 0 || columns % (2 * width) != 0)
      return wrong(
          "partners", 1,
          fmt::format("0, or a group whose halves are whole steps of {} rows, which divides {} rows, and whose "
                      "tiles of {} columns make up half of {}",
                      step, all, width, columns));
  }
  if (!streamed.slice_count.empty() && columns % width != 0)
    return wrong("group", group, fmt::format("one whose tiles of {} columns make up slices of {}", width, columns));
  return "";
}

}  // namespace megalith::ops
