// What is built where xgrammar is not.
#include "megalith/base/error.h"
#include "megalith/grammar/grammar.h"

namespace megalith::grammar {

struct Grammar::Impl {};
struct Matcher::Impl {};
struct GrammarCompiler::Impl {};

namespace {

[[noreturn]] void refuse() {
  throw UserError(
      "this build of Megalith has no grammars: build it where xgrammar can be fetched from PyPI, with "
      "-DMEGALITH_GRAMMARS=ON");
}

}  // namespace

bool has_grammars() { return false; }

Grammar::Grammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Grammar::~Grammar() = default;
int64_t Grammar::bytes() const { return 0; }

Matcher::Matcher(const GrammarUse&, const std::vector<int>&) { refuse(); }
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
bool Matcher::accept(int) { refuse(); }
void Matcher::fill(uint32_t*) { refuse(); }
const std::string& Matcher::failure() const { refuse(); }

GrammarCompiler::GrammarCompiler(const Tokenizer&, int64_t, const CompilerLimits&) {}
GrammarCompiler::~GrammarCompiler() = default;
std::shared_ptr<const Grammar> GrammarCompiler::compile(const GrammarSource&) { refuse(); }
bool GrammarCompiler::is_at_hand(const GrammarSource&) const { return true; }
CompilerLoad GrammarCompiler::load() const { return {}; }

}  // namespace megalith::grammar
