// The rows of a kernel's first iteration, in a run or behind another kernel. Those of the others `advance` lays out at the
// end of the one before; for the first the host does, by the same code: no kernel reads all weights once only to lay out
// rows.
#pragma once

#include <cstdint>

namespace megalith::runtime {

/// What rows are made of and where they go: tensors of the batch block (runtime/batch.h), and their sizes. Of `history`
/// only prompts are read.
struct RowTables {
  int64_t num_requests, history_length, max_rows, max_samples;
  int32_t *requests, *history;
  int32_t *counts, *row_token, *row_request, *row_position, *row_start, *sample_row, *sample_request;
};

/// Tokens that wait to be worked through: as many rows as the next iteration has, if there is room. Of requests that have
/// been checked.
int64_t tokens_waiting(const RowTables& tables);
/// InternalError if the rows do not fit.
void lay_out_first_rows(const RowTables& tables);

}  // namespace megalith::runtime
