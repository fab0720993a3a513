// What a CPU multiplies activations with weights in bf16 as. Kernels are compiled for it, and what is kept in between is
// as wide as it reads.
#pragma once

namespace megalith::machine {

/// What activations are before they are multiplied with weights in bf16, and the order of sums: f32, bf16 as vdpbf16ps
/// adds them up, or bf16 as AMX does (kernels/cpu/pairs.h).
enum class Products { f32, bf16, amx };

/// MEGALITH_PRODUCTS, and where that says "auto", what this processor multiplies fastest.
Products chosen_products();

/// Whether vdpbf16ps takes in twice as many terms a second as fused multiply-adds of f32 do. By vendor, not measured: a
/// machine must always choose the same, or a text would change from one run to the next. AMD's do, since there are any
/// (Zen 4: 220 beside 110 GFLOP/s a core); on Intel's it is the slower one (Sapphire Rapids: 86 beside 155).
bool cpu_multiplies_pairs_faster();

}  // namespace megalith::machine
