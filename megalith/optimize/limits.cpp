#include "megalith/optimize/limits.h"

#include "megalith/base/ceil_div.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/panel_layout.h"
#include "megalith/kernels/row_blocks.h"
#include "megalith/kernels/stream_limits.h"

namespace megalith::optimize {

static_assert(kQuantMultiple == panel::kQuad && kQuantRun == int8::kRun && kMaxNarrowRows == stream::kMaxWideRows &&
              kRowBlock == row_blocks::kRows);

bool multiplies_narrow(const std::string& target, int64_t rows) {
  return target.starts_with("cuda") && rows <= kMaxNarrowRows;
}

int64_t whole_rows(const std::string& target, int64_t rows) {
  const bool in_blocks = target.starts_with("cuda") && rows > stream::kMaxRows && rows <= stream::kMaxWideRows;
  return in_blocks ? ceil_div(rows, kRowBlock) * kRowBlock : rows;
}

}  // namespace megalith::optimize
