#include "megalith/graph/operator.h"

namespace megalith::ops {

using graph::operator_;

/// Writes each row's key and value into its request's page of the cache: G heads of D values, pages of B positions. No
/// two rows have the same position of the same request, and no page is two requests'.
graph::Operator kv_append() {
  return operator_("kv_append", "k_cache[page of row t, place in page] = k[t], and the same for v")
      .input("k", {"T", "G * D"})
      .input("v", {"T", "G * D"})
      .index("page_table", {"R", "Q"}, "P")
      .index("request", {"T"}, "R")
      .index("position", {"T"}, "Q * B")
      .inout("k_cache", {"P", "B", "G", "D"})
      .inout("v_cache", {"P", "B", "G", "D"})
      .loops(R"(
        { [t, g, d] : 0 <= t < T and 0 <= g < G and 0 <= d < D }
        k_cache[page_table[request[t], position[t] // B], position[t] mod B, g, d] = k[t, g * D + d]
        v_cache[page_table[request[t], position[t] // B], position[t] mod B, g, d] = v[t, g * D + d]
      )")
      .tasks({"g", "t"})
      .scatters("t")
      .test({{"T", 1}, {"G", 2}, {"D", 64}, {"R", 1}, {"Q", 2}, {"P", 2}, {"B", 4}})
      .test({{"T", 1}, {"G", 3}, {"D", 80}, {"R", 3}, {"Q", 5}, {"P", 16}, {"B", 1}});
}

}  // namespace megalith::ops
