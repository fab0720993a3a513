// The rows of a run's first iteration. Those of the others `advance` lays out at the end of the one before; for the first
// the host does, by the same code: no kernel reads all weights once only to lay out rows.
#pragma once

#include <cstdint>

namespace megalith::runtime {

/// What rows are made of and where they go: tensors of the batch block (runtime/batch.h), and their sizes.
struct RowTables {
  int64_t num_requests, history_length, max_rows, max_samples;
  int32_t *requests, *history;
  int32_t *counts, *row_token, *row_request, *row_position, *row_start, *sample_row, *sample_request;
};

/// Of requests that have been checked: InternalError if their rows do not fit.
void lay_out_first_rows(const RowTables& tables);

}  // namespace megalith::runtime
