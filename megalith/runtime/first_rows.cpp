#include "megalith/runtime/first_rows.h"

#include "megalith/base/error.h"
#include "megalith/kernels/cpu/advance.h"

namespace megalith::runtime {

namespace {

// The tables as the body of `advance` knows them.
struct Rows {
  struct Checks {
    static constexpr u32 requests = 0;
  };
  // A kernel finds drafts by itself.
  static constexpr float draft_tokens = 0, draft_match = 0, draft_rows = 0, draft_free_rows = 0, draft_model = 0;
  kernels::FaultNote faults;
  int64_t N, S, T_largest, R_largest;
  int32_t *requests, *history, *counts, *row_token, *row_request, *row_position, *row_start, *sample_row,
      *sample_request;
};

Rows rows_of(const RowTables& tables, Fault& fault) {
  return {{&fault},           tables.num_requests,  tables.history_length, tables.max_rows,
          tables.max_samples, tables.requests,      tables.history,        tables.counts,
          tables.row_token,   tables.row_request,   tables.row_position,   tables.row_start,
          tables.sample_row,  tables.sample_request};
}

void check(const Fault& fault) {
  MEGALITH_ASSERT(fault.found == 0, "[batch] the first rows do not fit: {} of {}", fault.value, fault.extent);
}

}  // namespace

int64_t tokens_waiting(const RowTables& tables) {
  Fault fault{};
  const int64_t waiting = kernels::waiting_tokens(rows_of(tables, fault));
  check(fault);  // which is what -1 means
  return waiting;
}

void lay_out_first_rows(const RowTables& tables) {
  Fault fault{};
  const Rows rows = rows_of(tables, fault);
  const int32_t count = kernels::plan_rows(rows);
  check(fault);
  for (int32_t row = 0; row < count; ++row)
    rows.row_token[row] = kernels::token_at(rows, rows.row_request[row], rows.row_position[row]);
}

}  // namespace megalith::runtime
