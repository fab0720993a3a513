#include "megalith/machine/products.h"

#include <string>

#include "megalith/base/amx.h"
#include "megalith/base/error.h"
#include "megalith/base/options.h"

namespace megalith::machine {

Products chosen_products() {
  const std::string products = option_value("MEGALITH_PRODUCTS");
  if (products == "f32") return Products::f32;
  if (products == "bf16") return Products::bf16;
  if (products == "amx") return Products::amx;
  MEGALITH_CHECK(products == "auto", "MEGALITH_PRODUCTS is \"{}\", want f32, bf16, amx or auto", products);
  return amx_is_usable() ? Products::amx : cpu_multiplies_pairs_faster() ? Products::bf16 : Products::f32;
}

bool cpu_multiplies_pairs_faster() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

}  // namespace megalith::machine
