#include "megalith/loop/transform/schedule.h"

#include "fuzz.h"
#include "leak_of_isl.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/text.h"

// The text of a schedule, of a kernel that has a temporary, a sum and loops that share values.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megalith;
  return fuzz::run(data, size, [](std::string_view text) {
    loop::Kernel kernel = loop::parse_kernel(
        "input x: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n{ [i, j, k] : 0 <= i < n and 0 <= j, k < m }\n"
        "t[i, j] = 2 * x[i, j]\ny[i] = sum(k, t[i, k] * x[i, k])\n");
    loop::infer_types(kernel);
    loop::infer_shapes(kernel);
    const loop::Schedule schedule = loop::Schedule::parse(kernel, std::string(text));
    const loop::Schedule again = loop::Schedule::parse(kernel, schedule.text());
    MEGALITH_ASSERT(loop::print(again.kernel()) == loop::print(schedule.kernel()), "replayed it differs:\n{}", text);
  });
}
