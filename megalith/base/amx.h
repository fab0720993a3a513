// AMX, the tile registers of Intel's processors since Sapphire Rapids, which multiply matrices of bf16.
#pragma once

namespace megalith {

/// Whether this process may use tiles of bf16. The first call asks the system for them, so it comes before any thread
/// runs code that does; a system that has them and gives none is logged, once.
bool amx_is_usable();

}  // namespace megalith
