#include "megalith/grammar/grammar.h"

#include <dlpack/dlpack.h>
#include <support/logging.h>
#include <xgrammar/compiler.h>
#include <xgrammar/config.h>
#include <xgrammar/matcher.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/printable.h"
#include "megalith/grammar/budget.h"
#include "megalith/grammar/ignored_keywords.h"

namespace megalith::grammar {

namespace {

// Of the parser, whose frames are small; a worker's stack has room for many times as many.
constexpr int kMaxRecursion = 1000;
// Levels of brackets in a source: its reader is recursive.
constexpr int kMaxNesting = 200;
// Spaces and line ends in a row between the parts of JSON. A model that likes them would not stop otherwise.
constexpr int kMaxWhitespace = 20;
// Of a step of a matcher: what it keeps, and what it works in.
constexpr BudgetLimits kStepLimits = {256LL << 20, 2'000'000'000};
constexpr size_t kShownBytes = 400;

const char* name_of(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::json: return "JSON grammar";
    case GrammarKind::json_schema: return "JSON schema";
    case GrammarKind::regex: return "regular expression";
    case GrammarKind::ebnf: return "grammar";
    case GrammarKind::tag: return "structural tag";
  }
  return "";
}

// Brackets that are open at a time, wherever they stand: too many of them in a text are no loss.
int nesting_of(const std::string& text) {
  int now = 0, most = 0;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') most = std::max(most, ++now);
    if (c == ')' || c == ']' || c == '}') now = std::max(now - 1, 0);
  }
  return most;
}

// Of an error of xgrammar's, without the place in its sources.
std::string plain_message(const std::exception& error) {
  const auto* fatal = dynamic_cast<const xgrammar::LogFatalError*>(&error);
  std::string text = fatal ? fatal->std::runtime_error::what() : error.what();
  constexpr std::string_view kCheck = "Check failed: (", kFalse = ") is false: ";
  if (text.starts_with(kCheck))
    if (const size_t end = text.find(kFalse); end != std::string::npos && end + kFalse.size() < text.size())
      text = text.substr(end + kFalse.size());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return shortened(text, kShownBytes);
}

}  // namespace

bool has_grammars() { return true; }

// ---- grammars --------------------------------------------------------------------------------

/// What grammars of one tokenizer have in common.
struct Vocabulary {
  const Tokenizer& tokenizer;
  std::vector<int> spaces = {};  // tokens of white space alone
};

struct Grammar::Impl {
  xgrammar::CompiledGrammar compiled;
  std::shared_ptr<const Vocabulary> vocabulary;
};

Grammar::Grammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Grammar::~Grammar() = default;
int64_t Grammar::bytes() const { return static_cast<int64_t>(impl_->compiled.MemorySizeBytes()); }

struct GrammarCompiler::Impl {
  struct Kept {
    std::pair<GrammarKind, std::string> source;
    std::shared_ptr<const Grammar> grammar;
    int64_t bytes;
  };

  std::shared_ptr<Vocabulary> vocabulary;
  const int64_t vocab_size;
  const CompilerLimits limits;
  std::once_flag once = {};
  std::optional<xgrammar::GrammarCompiler> compiler;
  mutable std::mutex mutex;
  std::list<Kept> kept;  // the one used last in front
  std::map<std::pair<GrammarKind, std::string>, std::list<Kept>::iterator> places;
  CompilerLoad load;

  // Special tokens, and ids without a token, are of no grammar.
  void learn_tokens() {
    const Tokenizer& tokenizer = vocabulary->tokenizer;
    std::vector<std::string> tokens;
    const int64_t count = std::min<int64_t>(vocab_size, tokenizer.vocab_size());
    tokens.reserve(static_cast<size_t>(count));
    for (int token = 0; token < count; ++token) {
      tokens.emplace_back(tokenizer.is_special(token) ? std::string_view() : tokenizer.token_bytes(token));
      const bool is_space = tokens.back().find_first_not_of(" \r\n\t") == std::string::npos;
      if (is_space && !tokens.back().empty()) vocabulary->spaces.push_back(token);
    }
    const xgrammar::TokenizerInfo info(tokens, xgrammar::VocabType::RAW, static_cast<int>(vocab_size),
                                       std::vector<int32_t>());
    xgrammar::SetMaxRecursionDepth(kMaxRecursion);
    // On this thread alone, whose budget counts. What it would keep is kept here, where a bad one is not kept.
    compiler.emplace(info, 1, false);
  }

  xgrammar::CompiledGrammar compiled(const GrammarSource& source) {
    switch (source.kind) {
      case GrammarKind::json: return schema(R"({"type":"object"})", false);
      case GrammarKind::json_schema: return schema(source.text, true);
      case GrammarKind::regex: return compiler->CompileRegex(source.text);
      case GrammarKind::ebnf: return compiler->CompileGrammar(source.text);
      case GrammarKind::tag: return compiler->CompileStructuralTag(source.text);
    }
    throw InternalError("a grammar of no kind");
  }
  // `strict`: without members that the schema does not name, unless it says that it may have some.
  xgrammar::CompiledGrammar schema(const std::string& text, bool strict) {
    return compiler->CompileJSONSchema(text, true, std::nullopt, std::nullopt, strict, kMaxWhitespace);
  }

  std::shared_ptr<const Grammar> find(const GrammarSource& source) {
    const std::lock_guard lock(mutex);
    const auto found = places.find({source.kind, source.text});
    if (found == places.end()) return nullptr;
    ++load.found;
    kept.splice(kept.begin(), kept, found->second);
    return found->second->grammar;
  }
  void keep(const GrammarSource& source, const std::shared_ptr<const Grammar>& grammar) {
    const std::lock_guard lock(mutex);
    ++load.compiled;
    const int64_t bytes = grammar->bytes() + static_cast<int64_t>(source.text.size());
    if (bytes > limits.cache_bytes || places.contains({source.kind, source.text})) return;
    kept.push_front({{source.kind, source.text}, grammar, bytes});
    places[kept.front().source] = kept.begin();
    load.cache_bytes += bytes;
    while (load.cache_bytes > limits.cache_bytes) {
      load.cache_bytes -= kept.back().bytes;
      places.erase(kept.back().source);
      kept.pop_back();
    }
  }
  [[noreturn]] void refuse(const GrammarSource& source, const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      ++load.refused;
    }
    throw UserError(fmt::format("the {} {}", name_of(source.kind), why));
  }
};

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, const CompilerLimits& limits)
    : impl_(new Impl{
          .vocabulary = std::make_shared<Vocabulary>(tokenizer), .vocab_size = vocab_size, .limits = limits}) {}
GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<const Grammar> GrammarCompiler::compile(const GrammarSource& source) {
  Impl& impl = *impl_;
  if (source.text.size() > impl.limits.text_bytes)
    impl.refuse(source, fmt::format("has {} bytes, want at most {}", source.text.size(), impl.limits.text_bytes));
  if (const int nesting = nesting_of(source.text); nesting > kMaxNesting)
    impl.refuse(source, fmt::format("has {} brackets inside each other, want at most {}", nesting, kMaxNesting));
  if (source.text.find('\0') != std::string::npos) impl.refuse(source, "has a byte of zero");
  if (auto found = impl.find(source)) return found;
  if (source.kind == GrammarKind::json_schema) {
    std::string ignored;
    try {
      ignored = ignored_keyword(source.text);
    } catch (const UserError& error) { impl.refuse(source, fmt::format("is none: {}", error.what())); }
    if (!ignored.empty()) impl.refuse(source, fmt::format("has \"{}\", which no grammar can follow", ignored));
  }
  std::call_once(impl.once, [&] { impl.learn_tokens(); });
  std::shared_ptr<const Grammar> grammar;
  try {
    const Budget budget({impl.limits.grammar_bytes, impl.limits.processor_ms * 1'000'000});
    xgrammar::CompiledGrammar compiled = impl.compiled(source);
    // An answer that has what a part of the source leaves out would not be what was asked for. Schemas of tools say what their
    // authors thought of: they are followed as far as they can be.
    if (!budget.warning().empty() && source.kind != GrammarKind::tag)
      impl.refuse(source, fmt::format("cannot be followed: {}", budget.warning()));
    grammar = std::make_shared<const Grammar>(
        std::unique_ptr<const Grammar::Impl>(new Grammar::Impl{std::move(compiled), impl.vocabulary}));
  } catch (const UserError&) { throw; } catch (const BudgetExceeded& error) {
    impl.refuse(source, fmt::format("takes too much {} to compile: want fewer repetitions, alternatives and members",
                                    error.what()));
  } catch (const InternalError&) { throw; } catch (const std::exception& error) {
    impl.refuse(source, fmt::format("is none that can be followed: {}", plain_message(error)));
  }
  impl.keep(source, grammar);
  return grammar;
}

bool GrammarCompiler::is_at_hand(const GrammarSource& source) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->places.contains({source.kind, source.text});
}

CompilerLoad GrammarCompiler::load() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->load;
}

// ---- matchers --------------------------------------------------------------------------------

struct Matcher::Impl {
  enum class At : uint8_t { start, reasoning, behind, grammar };  // behind: reasoning, where white space may come

  GrammarUse use;
  std::vector<int> stop_tokens;
  int64_t vocab_size;
  std::optional<xgrammar::GrammarMatcher> matcher;
  At at = At::start;
  std::string tail = {};  // of the reasoning, in which its end may have begun
  std::string failure = {};

  bool fail(std::string why) {
    failure = std::move(why);
    matcher.reset();
    return false;
  }
  void fill_whole(uint32_t* mask) const {
    std::fill_n(mask, mask_words(vocab_size), ~uint32_t{0});
    if (const int64_t rest = vocab_size % 32; rest != 0) mask[vocab_size / 32] = (uint32_t{1} << rest) - 1;
  }
  const std::vector<int>& spaces() const { return use.grammar->impl().vocabulary->spaces; }
  bool is_space(int token) const { return std::ranges::binary_search(spaces(), token); }
  static void allow(uint32_t* mask, int token) { mask[token / 32] |= uint32_t{1} << token % 32; }
  // True once the reasoning is over: what of the token stands behind it is the grammar's.
  bool ends_reasoning(int token, std::string& behind) {
    if (use.end_token >= 0) return token == use.end_token;
    tail += use.grammar->impl().vocabulary->tokenizer.token_bytes(token);
    const size_t end = tail.find(use.reasoning_end);
    if (end == std::string::npos) {
      if (tail.size() > use.reasoning_end.size()) tail.erase(0, tail.size() - use.reasoning_end.size());
      return false;
    }
    behind = tail.substr(end + use.reasoning_end.size());
    behind.erase(0, std::min(behind.find_first_not_of(" \r\n\t"), behind.size()));
    return true;
  }
};

Matcher::Matcher(const GrammarUse& use, const std::vector<int>& stop_tokens)
    : impl_(new Impl{.use = use, .stop_tokens = stop_tokens, .vocab_size = 0, .matcher = {}}) {
  const xgrammar::CompiledGrammar& compiled = use.grammar->impl().compiled;
  impl_->vocab_size = compiled.GetTokenizerInfo().GetVocabSize();
  impl_->matcher.emplace(compiled, stop_tokens);
  if (use.begins_in_reasoning) impl_->at = Impl::At::reasoning;
}
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;

const std::string& Matcher::failure() const { return impl_->failure; }

bool Matcher::accept(int token) {
  Impl& impl = *impl_;
  if (!impl.failure.empty()) return false;
  try {
    const Budget budget(kStepLimits);
    if (impl.at == Impl::At::reasoning) {
      if (std::ranges::find(impl.stop_tokens, token) != impl.stop_tokens.end())
        return impl.fail("it ended in its reasoning");
      std::string behind;
      if (!impl.ends_reasoning(token, behind)) return true;
      impl.at = behind.empty() ? Impl::At::behind : Impl::At::grammar;
      return behind.empty() || impl.matcher->AcceptString(behind) ||
             impl.fail("what stands behind the reasoning is not of the grammar");
    }
    const Impl::At was = std::exchange(impl.at, Impl::At::grammar);
    if (was == Impl::At::start && token >= 0 && token == impl.use.reasoning_token) {
      impl.at = Impl::At::reasoning;
      return true;
    }
    if (was == Impl::At::behind && impl.is_space(token)) return true;
    if (impl.matcher->IsTerminated()) return impl.fail("a token came behind the end of the grammar");
    return impl.matcher->AcceptToken(token) || impl.fail("a token came that is not of the grammar");
  } catch (const std::exception& error) {
    return impl.fail(fmt::format("the grammar takes too much to follow: {}", plain_message(error)));
  }
}

void Matcher::fill(uint32_t* mask) {
  Impl& impl = *impl_;
  if (!impl.failure.empty()) return impl.fill_whole(mask);
  if (impl.at == Impl::At::reasoning) {
    impl.fill_whole(mask);  // but it goes on behind that
    for (const int token : impl.stop_tokens) mask[token / 32] &= ~(uint32_t{1} << token % 32);
    return;
  }
  try {
    const Budget budget(kStepLimits);
    int64_t words = mask_words(impl.vocab_size);
    DLTensor tensor{};
    tensor.data = mask;
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = &words;
    impl.matcher->FillNextTokenBitmask(&tensor);
    if (impl.at == Impl::At::start && impl.use.reasoning_token >= 0) Impl::allow(mask, impl.use.reasoning_token);
    if (impl.at == Impl::At::behind)
      for (const int token : impl.spaces()) Impl::allow(mask, token);
    if (std::all_of(mask, mask + words, [](uint32_t word) { return word == 0; }))
      impl.fail("no token of this model goes on with the grammar");
  } catch (const std::exception& error) {
    impl.fail(fmt::format("the grammar takes too much to follow: {}", plain_message(error)));
  }
  if (!impl.failure.empty()) impl.fill_whole(mask);
}

}  // namespace megalith::grammar
