#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/engine/async_engine.h"
#include "megalith/model/tokenizer.h"
#include "python/src/answers.h"
#include "python/src/bind.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

namespace {

// (text, token, log-probability or None)
using PieceTuple = std::tuple<std::string, int, std::optional<float>>;

std::optional<PieceTuple> tuple_of(std::optional<Answer::Piece> piece) {
  if (!piece) return std::nullopt;
  return PieceTuple(std::move(piece->text), piece->token, piece->logprob);
}

// [(token, log-probability), ...]
using TopList = std::vector<std::pair<int, float>>;

TopList list_of(const std::vector<engine::TopToken>& top) {
  TopList list;
  for (const engine::TopToken& one : top) list.emplace_back(one.token, one.logprob);
  return list;
}

// An answer as Python holds it: where Python lets it go unfinished, nobody wants it any more.
struct HeldAnswer {
  std::shared_ptr<Answers> answers;
  std::shared_ptr<Answer> answer;

  HeldAnswer(std::shared_ptr<Answers> all, std::shared_ptr<Answer> one)
      : answers(std::move(all)), answer(std::move(one)) {}
  ~HeldAnswer() {
    if (!answers->is_forked()) answers->abort(answer);
  }
  HeldAnswer(const HeldAnswer&) = delete;
  HeldAnswer& operator=(const HeldAnswer&) = delete;

  // Raises why it could not be completed. Where the interpreter ends, its threads are ended instead (python/src/interpreter.h).
  void check() const {
    Answer& one = get("Answer");
    const Unlocked unlocked;
    one.check();
  }
  // What is locked in the moment of a fork stays so in it.
  Answer& get(const char* where) const {
    answers->check_process(where);
    return *answer;
  }
  std::optional<PieceTuple> next() const {
    std::optional<Answer::Piece> piece;
    {
      Answer& one = get("Answer");
      const Unlocked unlocked;
      one.wait(Answer::For::piece);
      piece = one.take();
    }
    if (!piece) check();
    return tuple_of(std::move(piece));
  }
  bool wait(double seconds) const {
    Answer& one = get("result");
    const Unlocked unlocked;
    if (seconds < 0) return one.wait(Answer::For::end);
    const auto time = std::chrono::duration_cast<Answer::Clock::duration>(std::chrono::duration<double>(seconds));
    return one.wait(Answer::For::end, Answer::Clock::now() + time);
  }
};

// A pointer to what Python owns would take its lock when an answer lets go of it.
struct HeldWakeup {
  std::shared_ptr<Wakeup> wakeup = std::make_shared<Wakeup>();
};

const char* end_name(Answer::End end) {
  switch (end) {
    case Answer::End::none: break;
    case Answer::End::stop: return "stop";
    case Answer::End::length: return "length";
    case Answer::End::aborted: return "abort";
    case Answer::End::failed: return "error";
  }
  return nullptr;
}

// Closed when Python lets it go, and when the interpreter ends. In a fork all of it stays as it is.
struct Service {
  std::shared_ptr<Answers> answers;
  const int64_t vocab_size;
  std::optional<grammar::GrammarCompiler> grammars = {};  // with the first one
  EndsWithInterpreter ends{[this] {
    if (!answers->is_forked()) answers->close();
  }};

  Service(engine::Engine& engine, int64_t max_queue, bool prefix_cache)
      : answers(std::make_shared<Answers>(engine, AnswersOptions{max_queue, prefix_cache})),
        vocab_size(engine.config().vocab_size) {}
  ~Service() {
    if (answers->is_forked()) {
      new std::shared_ptr<Answers>(answers);  // never let go
    } else {
      const Unlocked unlocked(Unlocked::For::cleaning_up);
      answers->close();
    }
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Not as an object of Python's, whose lock the engine's thread would take when it lets go of it.
  std::shared_ptr<const grammar::Grammar> compile(const Tokenizer* tokenizer, const std::string& kind,
                                                  const std::vector<std::string>& texts) {
    using grammar::GrammarKind;
    if (kind.empty()) return nullptr;
    MEGALITH_CHECK(tokenizer, "[submit] {} needs a tokenizer, but the model's folder has none", kind);
    if (!grammars) grammars.emplace(*tokenizer, vocab_size);
    const Unlocked unlocked;
    if (kind == "choice") return grammars->compile(grammar::choice_of(texts));
    return grammars->compile({kind == "json_schema" ? GrammarKind::json_schema
                              : kind == "regex"     ? GrammarKind::regex
                                                    : GrammarKind::ebnf,
                              texts.at(0)});
  }

  std::unique_ptr<HeldAnswer> submit(engine::Request request, const Tokenizer* tokenizer, engine::TextOptions text) {
    std::shared_ptr<Answer> answer;
    {
      const Unlocked unlocked;
      answer = answers->submit(std::move(request), tokenizer, std::move(text));
    }
    return answer ? std::make_unique<HeldAnswer>(answers, std::move(answer)) : nullptr;
  }
};

void bind_load(nb::module_& module) {
  using engine::ServiceLoad;
  nb::class_<ServiceLoad>(module, "ServiceLoad", "What an engine is doing, and what it has done since it was made.")
      .def_ro("running", &ServiceLoad::running, "Requests with a place in the batch.")
      .def_ro("waiting", &ServiceLoad::waiting, "Requests that wait for one.")
      .def_ro("pages", &ServiceLoad::pages, "Pages of the KV cache.")
      .def_ro("pages_used", &ServiceLoad::pages_used, "Of them, those that requests have.")
      .def_ro("pages_kept", &ServiceLoad::pages_kept, "Of the others, those kept for prompts that begin alike.")
      .def_ro("prompt_tokens", &ServiceLoad::prompt_tokens)
      .def_ro("generated_tokens", &ServiceLoad::generated_tokens)
      .def_ro("preemptions", &ServiceLoad::preemptions, "Times that a request gave its pages to another one.")
      .def_ro("prefix_queries", &ServiceLoad::prefix_queries, "Prompt tokens looked for in the prefix cache.")
      .def_ro("prefix_hits", &ServiceLoad::prefix_hits, "Those that were there.")
      .def_ro("drafts", &ServiceLoad::drafts, "Iterations of a request that had drafts.")
      .def_ro("drafted_tokens", &ServiceLoad::drafted_tokens)
      .def_ro("accepted_tokens", &ServiceLoad::accepted_tokens)
      .def("__repr__", [](const ServiceLoad& load) {
        return fmt::format("<load: {} running, {} waiting, {} of {} pages used and {} kept>", load.running,
                           load.waiting, load.pages_used, load.pages, load.pages_kept);
      });
}

void bind_answer(nb::module_& module) {
  nb::class_<HeldWakeup>(module, "Wakeup",
                         "Wakes an event loop: a descriptor that can be read once an answer has called.")
      .def(nb::init<>())
      .def("fileno", [](const HeldWakeup& held) { return held.wakeup->descriptor(); })
      .def(
          "take", [](const HeldWakeup& held) { return held.wakeup->take(); }, "The ids of the answers that called.");
  const auto what = [](bool is_end) { return is_end ? Answer::For::end : Answer::For::piece; };
  nb::class_<HeldAnswer>(module, "Answer", "What is being made of one request; letting it go unfinished aborts it.")
      .def_prop_ro("id", [](const HeldAnswer& held) { return held.answer->id(); })
      .def("next", &HeldAnswer::next, "Waits for a piece: (text, token, log-probability or None); None at the end.")
      .def(
          "take", [](const HeldAnswer& held) { return tuple_of(held.get("Answer").take()); },
          "The next piece, if one is there.")
      .def("wait", &HeldAnswer::wait, "seconds"_a, "For the end; -1: as long as it takes. False if it did not come.")
      .def(
          "wake",
          [what](const HeldAnswer& held, const HeldWakeup& wakeup, bool is_end) {
            return held.get("Answer").wake(what(is_end), wakeup.wakeup);
          },
          "wakeup"_a, nb::kw_only(), "is_end"_a, "Calls it at the next piece or the end; False: that is there now.")
      .def("check", &HeldAnswer::check, "Raises why it could not be completed.")
      .def("abort",
           [](const HeldAnswer& held) {
             held.get("abort");
             held.answers->abort(held.answer);
           })
      .def_prop_ro("is_over", [](const HeldAnswer& held) { return held.get("Answer").end() != Answer::End::none; })
      .def_prop_ro("finish_reason",
                   [](const HeldAnswer& held) -> std::optional<std::string> {
                     const char* const name = end_name(held.get("Answer").end());
                     return name ? std::optional<std::string>(name) : std::nullopt;
                   })
      .def_prop_ro("text", [](const HeldAnswer& held) { return held.get("Answer").text(); })
      .def_prop_ro("tokens", [](const HeldAnswer& held) { return held.get("Answer").tokens(); })
      .def_prop_ro("logprobs", [](const HeldAnswer& held) { return held.get("Answer").logprobs(); })
      .def_prop_ro("top_logprobs",
                   [](const HeldAnswer& held) {
                     std::vector<TopList> all;
                     for (const auto& top : held.get("Answer").top_logprobs()) all.push_back(list_of(top));
                     return all;
                   })
      .def_prop_ro("prompt_logprobs",
                   [](const HeldAnswer& held) {
                     std::vector<std::pair<float, TopList>> all;
                     for (const auto& one : held.get("Answer").prompt_logprobs())
                       all.emplace_back(one.logprob, list_of(one.top));
                     return all;
                   })
      .def_prop_ro("prompt_tokens", [](const HeldAnswer& held) { return held.answer->prompt_tokens(); })
      .def_prop_ro("cached_tokens", [](const HeldAnswer& held) { return held.get("Answer").cached_tokens(); })
      .def_prop_ro("generated_tokens", [](const HeldAnswer& held) { return held.get("Answer").num_tokens(); });
}

}  // namespace

void bind_async(nb::module_& module) {
  bind_load(module);
  bind_answer(module);
  nb::class_<Service>(module, "AsyncEngine", "An engine that takes requests at any time, from any thread.")
      .def(
          "__init__",
          [](Service* self, engine::Engine& engine, int64_t max_queue, bool prefix_cache) {
            new (self) Service(engine, max_queue, prefix_cache);
          },
          "engine"_a, nb::kw_only(), "max_queue"_a, "prefix_cache"_a, nb::keep_alive<1, 2>())
      .def(
          "submit",
          [](Service& service, engine::Request request, const Tokenizer* tokenizer, std::vector<std::string> stops,
             std::vector<int> stop_tokens, bool show_special, int64_t min_tokens, const std::string& grammar_kind,
             const std::vector<std::string>& grammar_texts) {
            request.grammar.grammar = service.compile(tokenizer, grammar_kind, grammar_texts);
            return service
                .submit(std::move(request), tokenizer,
                        {.stops = std::move(stops),
                         .stop_tokens = std::move(stop_tokens),
                         .show_special = show_special,
                         .min_tokens = min_tokens})
                .release();
          },
          "request"_a, "tokenizer"_a.none(), nb::kw_only(), "stops"_a, "stop_tokens"_a, "show_special"_a,
          "min_tokens"_a, "grammar_kind"_a, "grammar_texts"_a, nb::rv_policy::take_ownership, nb::keep_alive<1, 3>(),
          "None if as many requests wait as may.")
      .def(
          "load", [](const Service& service) { return service.answers->load(); }, nb::call_guard<Unlocked>())
      .def(
          "clear_prefix_cache", [](const Service& service) { service.answers->clear_prefix_cache(); },
          nb::call_guard<Unlocked>())
      .def("close", [](const Service& service) {
        const Unlocked unlocked(Unlocked::For::cleaning_up);
        service.answers->close();
      });
}

}  // namespace megalith::python
