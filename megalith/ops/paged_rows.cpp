#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// From tables that stand one behind the other, as servers keep them, to one entry per row. Request r has the rows
/// first_row[r] to first_row[r + 1] and the pages pages[first_page[r]] to pages[first_page[r + 1]] of B positions, the
/// last of which holds last_length[r] of them; its last row is at its last position. I = R + 1 entries begin and end R
/// requests. Places of `page_table` behind a request's last page are left as they were.
graph::Operator paged_rows() {
  return operator_("paged_rows", "request and position of each token, and the pages of each request")
      .input("first_row", {"I"}, DType::i32)
      .index("first_page", {"I"}, "P")
      .input("pages", {"P"}, DType::i32)
      .input("last_length", {"R"}, DType::i32)
      .output("request", {"T"}, DType::i32)
      .output("position", {"T"}, DType::i32)
      .output("page_table", {"R", "Q"}, DType::i32)
      .size("B")
      .loops(R"(
        { [t, r, a, q] : 0 <= t < T and 0 <= r < R and 0 <= a < R and 0 <= q < Q }
        request[t]       = sum(r, 1, first_row[r + 1] <= t)
        position[t]      = sum(r, (first_page[r + 1] - first_page[r] - 1) * B + last_length[r] - first_row[r + 1] + t, first_row[r] <= t and t < first_row[r + 1])
        page_table[a, q] = pages[first_page[a] + q]  {if=first_page[a] + q < first_page[a + 1]}
      )")
      .test({{"T", 1}, {"I", 2}, {"R", 1}, {"P", 9}, {"Q", 4}, {"B", 16}})
      .test({{"T", 5}, {"I", 4}, {"R", 3}, {"P", 40}, {"Q", 7}, {"B", 3}});
}

}  // namespace megalith::ops
