// What a sequence may be: JSON, JSON of a schema, what a regular expression or a grammar says. A grammar is compiled for a
// tokenizer; a matcher walks with a sequence and says before each token which ones may come. The work is xgrammar's
// (cmake/xgrammar.cmake); without it all of this is there, and compile() says what is missing.
//
//   grammar::GrammarCompiler compiler(tokenizer, vocab_size);
//   grammar::Matcher matcher({compiler.compile({GrammarKind::regex, "[0-9]+"})}, stop_tokens);
//   matcher.fill(mask);
//   matcher.accept(token);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megalith/model/tokenizer.h"

namespace megalith::grammar {

enum class GrammarKind {
  json,         // any object; `text` is empty
  json_schema,  // `text` is the schema
  regex,        // the whole of the sequence
  ebnf,         // rules in the form of llama.cpp's GBNF; the first one is "root"
  tag,          // a structural tag of xgrammar's, as JSON: text around JSON of schemas
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::json;
  std::string text = {};

  bool operator==(const GrammarSource&) const = default;
};

/// One of `choices`, letter for letter.
GrammarSource choice_of(const std::vector<std::string>& choices);

/// Words of a mask: a bit for each token, the lowest first.
constexpr int64_t mask_words(int64_t vocab_size) { return (vocab_size + 31) / 32; }

/// Whether this build has xgrammar.
bool has_grammars();

/// Compiled; immutable, so any number of matchers on any threads use one.
class Grammar {
 public:
  struct Impl;
  explicit Grammar(std::unique_ptr<const Impl> impl);
  ~Grammar();
  const Impl& impl() const { return *impl_; }
  /// Of memory, roughly.
  int64_t bytes() const;

 private:
  std::unique_ptr<const Impl> impl_;
};

/// A grammar for a sequence. One that reasons first begins behind that.
struct GrammarUse {
  std::shared_ptr<const Grammar> grammar = nullptr;
  bool begins_in_reasoning = false;  // its first tokens are reasoning
  int reasoning_token = -1;          // it may begin with this one, and reason then; -1: none
  int end_token = -1;                // ends reasoning, if that is one token
  std::string reasoning_end = {};    // and if it is not

  explicit operator bool() const { return grammar != nullptr; }
};

/// The way of one sequence. Once something went wrong, each token may come: whoever asks learns it by accept().
class Matcher {
 public:
  /// `stop_tokens`: may come where the grammar ends, and nowhere else.
  Matcher(const GrammarUse& use, const std::vector<int>& stop_tokens);
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  /// Takes the next token. False if it may not come, or if the grammar takes more memory or time than one may: failure() says
  /// which, and the sequence is to be given up.
  bool accept(int token);
  /// The tokens that may come next, mask_words() of them. There is always one.
  void fill(uint32_t* mask);
  /// Why the sequence cannot go on; "": it can.
  const std::string& failure() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct CompilerLimits {
  size_t text_bytes = 256 << 10;        // of a source
  int64_t grammar_bytes = 512LL << 20;  // of memory, while it is compiled
  int64_t processor_ms = 10'000;
  int64_t cache_bytes = 512LL << 20;
};

struct CompilerLoad {
  uint64_t compiled = 0, found = 0, refused = 0;  // grammars: compiled, had already, and bad ones
  int64_t cache_bytes = 0;
};

/// Makes grammars, and keeps those that were used last. From any thread.
class GrammarCompiler {
 public:
  /// `tokenizer` must outlive it. `vocab_size`: logits of the model. Cheap: what is known of the tokenizer is worked out with the
  /// first grammar.
  GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size, const CompilerLimits& limits = {});
  ~GrammarCompiler();

  /// UserError for a source that is no grammar, or too large a one, and if this build has no grammars.
  std::shared_ptr<const Grammar> compile(const GrammarSource& source);
  /// Whether compile() has it already.
  bool is_at_hand(const GrammarSource& source) const;
  CompilerLoad load() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megalith::grammar
