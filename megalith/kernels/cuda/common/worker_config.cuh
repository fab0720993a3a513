// What a kernel for a GPU is compiled for: one value, `kWorkerConfig`, that stands before all other headers. Codegen
// writes it into the source (codegen/emit.cpp), tests write their own. No other header reads a macro of Megalith's.
#pragma once

namespace megalith::kernels {

struct WorkerConfig {
  long long shared_bytes;      // of shared memory that a block may have: of the architecture
  long long area_bytes = 0;    // of it, the workspace of the bodies
  long long stream_rows = 0;   // tokens that bodies multiply with weights from the stream, at most; 0: nothing streams
  long long table_rows = 128;  // tokens whose positions a block keeps, at most (scheduler/position_table.cuh)
  long long scale_bytes = 0;   // beside each weight tile, where weights are int8
  int copies = 4;              // weight tiles on their way at a time
  int prefetch = 16;           // more of them that come into the L2 while the ring is full
  int registers = 96;          // of a thread that computes: 96 or 104
  bool has_partners = false;   // blocks 2 i and 2 i + 1 are a cluster, and some tasks both's (pipeline/partner.cuh)
  /// For compute-sanitizer's racecheck (pipeline/barrier.cuh): a flag of the compiler says so.
#if defined(MEGALITH_EVERY_THREAD_ARRIVES)
  bool every_thread_arrives = true;
#else
  bool every_thread_arrives = false;
#endif
};

}  // namespace megalith::kernels
