// Writes the nest of a kernel, from the outside in: loops with their bounds, conditions where the domains need them, and
// statements. There is one for bodies of operators (body.cpp) and kernels of one's own (loop_emitter.h). What they want otherwise
// is what becomes of a loop that threads share or that moves elements at once, and what a statement does beside being written.
#pragma once

#include <isl/cpp.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "megalith/codegen/block.h"
#include "megalith/codegen/expression.h"
#include "megalith/codegen/loop_header.h"
#include "megalith/loop/nest.h"

namespace megalith::codegen {

/// Appends lines, and what follows a line's end in them, with two more spaces before each.
void append_indented(std::vector<std::string>& to, const std::vector<std::string>& lines);

class NestWriter {
 public:
  /// `context` must outlive it. `tiled`: inames that the tile of a task restricts.
  explicit NestWriter(ExpressionContext& context, const std::vector<std::string>& tiled = {})
      : context_(context), headers_(context, tiled), writer_(context) {}
  virtual ~NestWriter() = default;
  NestWriter(const NestWriter&) = delete;
  NestWriter& operator=(const NestWriter&) = delete;

 protected:
  using Inames = std::vector<std::string>;

  ExpressionContext& context_;
  LoopHeaders headers_;
  ExpressionWriter writer_;
  std::vector<Block> blocks_;

  const loop::Instruction& instruction(int index) const {
    return context_.kernel.instructions[static_cast<size_t>(index)];
  }

  // ---- blocks -------------------------------------------------------------------------------------------------------

  Block& block() { return blocks_.back(); }
  void line(std::string text) { block().lines.push_back(std::move(text)); }
  /// "HEAD {", or "{".
  void open(std::string head, std::set<std::string> writes = {}, std::string iname = "");
  /// "} else {" for the block that was closed last.
  void open_else();
  void close();
  /// The loop over the iname of `node`, with what `body` writes in it.
  void write_loop(const loop::NestNode& node, const Bounds& bounds, const std::function<void()>& body);

  // ---- the nest -----------------------------------------------------------------------------------------------------

  /// Nodes next to each other, inside of the loops `outer`, around which the points `implemented` are.
  virtual void emit(std::span<const loop::NestNode> nodes, const Inames& outer, const isl::set& implemented);
  void emit_node(const loop::NestNode& node, const Inames& outer, const isl::set& implemented);
  virtual void emit_loop(const loop::NestNode& node, const Inames& outer, const isl::set& implemented);
  void emit_instruction(int index, const Inames& outer, const isl::set& implemented);

  // ---- what is up to who uses it ------------------------------------------------------------------------------------

  /// Of a loop: what bounds it.
  virtual LoopForm form_of(const loop::NestNode&) const { return {}; }
  /// Whether all of the loop was written in another way. `inames`: its own, too.
  virtual bool emit_at_once(const loop::NestNode&, const LoopHeader&, const Bounds&, const Inames&) { return false; }
  /// The block of a loop is open, and nothing is in it.
  virtual void begin_loop(const loop::NestNode&, const LoopHeader&) {}
  /// The loop's block is closed: its head before it, and what stands around.
  virtual void end_loop(const loop::NestNode& node, const Bounds& bounds, const Block& done);
  /// A line before the loop, for the compiler; "" for none.
  virtual std::string pragma_of(const loop::NestNode&) const { return ""; }
  virtual void write_barrier(bool /*of_warp*/) {}

  /// Before an instruction's conditions; the writer's scope and instruction are its.
  virtual void begin_statement(int /*index*/) {}
  virtual std::vector<std::string> more_tests(int /*index*/) const { return {}; }
  /// Parts of an expression that are worked out elsewhere. `strict`: it is evaluated only sometimes.
  virtual void name_parts(loop::Expr&, bool /*strict*/) {}
  /// The same of one in a loop's header.
  virtual void name_reads(loop::Expr&) {}
  /// It stands behind conditions, which are about to open.
  virtual void begin_guarded(const loop::Instruction&) {}
  virtual void store(const loop::Instruction& instruction) = 0;
  virtual void end_statement(int /*index*/) {}

 private:
  Bounds bounds_text(const loop::NestNode& node, const LoopHeader& header);
};

}  // namespace megalith::codegen
