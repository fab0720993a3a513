#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "megalith/base/log.h"
#include "megalith/engine/async_engine.h"
#include "megalith/engine/bad_words.h"
#include "megalith/engine/engine.h"
#include "megalith/engine/text_stream.h"
#include "megalith/engine/token_stream.h"
#include "megalith/model/tokenizer.h"
#include "python/src/bind.h"
#include "python/src/interpreter.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

using engine::Engine;

namespace {

const char* reason_name(batch::FinishReason reason) {
  switch (reason) {
    case batch::kNotFinished: return "none";
    case batch::kStopToken: return "stop";
    case batch::kLengthLimit: return "length";
    case batch::kCancelled: return "cancelled";
  }
  return "none";
}

void logits(Engine& engine, const std::vector<int>& prompt, uintptr_t to) {
  const Unlocked unlocked;
  engine::TokenStream stream(engine, {{.prompt = prompt, .max_new_tokens = 1, .ignore_stop_tokens = true}});
  stream.start("logits");
  while (stream.next()) {}
  stream.finish();
  std::memcpy(reinterpret_cast<void*>(to), engine.logits(),  // NOLINT: an address came through Python
              static_cast<size_t>(engine.config().vocab_size) * sizeof(float));
}

// A generation that is read from Python, and cancelled when that ends.
struct Tokens {
  Engine& engine;
  engine::TokenStream stream;
  Turn::For use;
  bool is_open = false;
  EndsWithInterpreter ends{[this] {
    if (is_open) engine.cancel();
  }};

  Tokens(Engine& engine_, std::vector<engine::Request> requests, bool is_stream)
      : engine(engine_), stream(engine_, std::move(requests)), use(is_stream ? Turn::For::stream : Turn::For::call) {}

  void enter() {
    {
      const Unlocked unlocked;
      stream.start("generate", use);
    }
    is_open = true;
  }
  // (request, token, whether it has finished, why, log-probability, and those of top tokens); None at the end.
  using Event = std::tuple<int, int, bool, const char*, float, std::vector<std::pair<int, float>>>;
  std::optional<Event> next() {
    const Unlocked unlocked;
    if (const std::optional<engine::TokenEvent> event = stream.next()) {
      std::vector<std::pair<int, float>> top;
      for (const engine::TopToken& one : event->top) top.emplace_back(one.token, one.logprob);
      return Event(event->request, event->token, event->finished, reason_name(event->reason), event->logprob,
                   std::move(top));
    }
    const engine::Generation generation = stream.finish();
    const std::string trouble = engine.logits_trouble(generation);
    if (!trouble.empty()) log_warn("[generate] {}", trouble);
    return std::nullopt;
  }
  void exit() {
    is_open = false;
    const Unlocked unlocked(Unlocked::For::cleaning_up);
    stream.end();
  }
};

void bind_requests(nb::module_& module) {
  nb::class_<engine::Sampling>(module, "Sampling",
                               "How tokens are chosen; temperature 0: greedy, the token with the largest logit.")
      .def(nb::init<>())
      .def_rw("temperature", &engine::Sampling::temperature)
      .def_rw("top_p", &engine::Sampling::top_p)
      .def_rw("min_p", &engine::Sampling::min_p)
      .def_rw("top_k", &engine::Sampling::top_k)
      .def_rw("repetition_penalty", &engine::Sampling::repetition_penalty)
      .def_rw("presence_penalty", &engine::Sampling::presence_penalty)
      .def_rw("frequency_penalty", &engine::Sampling::frequency_penalty)
      .def_rw("seed", &engine::Sampling::seed);
  nb::class_<engine::Request>(module, "Request", "A prompt, and what is wanted of it.")
      .def(nb::init<>())
      .def_rw("prompt", &engine::Request::prompt)
      .def_rw("max_new_tokens", &engine::Request::max_new_tokens)
      .def_rw("sampling", &engine::Request::sampling)
      .def_rw("ignore_stop_tokens", &engine::Request::ignore_stop_tokens)
      .def_rw("stop_token_ids", &engine::Request::stop_token_ids)
      .def_rw("min_tokens", &engine::Request::min_tokens)
      .def_rw("logit_bias", &engine::Request::logit_bias)
      .def_rw("allowed_token_ids", &engine::Request::allowed_token_ids)
      .def_rw("bad_words", &engine::Request::bad_words)
      .def_rw("logprobs", &engine::Request::logprobs)
      .def_rw("top_logprobs", &engine::Request::top_logprobs)
      .def_rw("prompt_logprobs", &engine::Request::prompt_logprobs)
      .def_rw("priority", &engine::Request::priority)
      .def_rw("cache_salt", &engine::Request::cache_salt);
}

void bind_stream(nb::module_& module) {
  nb::class_<Tokens>(module, "TokenStream", "A generation that is read token by token, within a `with`.")
      .def(nb::init<Engine&, std::vector<engine::Request>, bool>(), "engine"_a, "requests"_a, nb::kw_only(),
           "is_stream"_a, nb::keep_alive<1, 2>(),
           "`is_stream`: other calls of the thread may come between two tokens, and are told that it is open.")
      .def("__enter__", &Tokens::enter)
      .def("__exit__", [](Tokens& tokens, nb::args) { tokens.exit(); })
      .def("next", &Tokens::next,
           "(request, token, whether it has finished, why, its log-probability, and (token, log-probability) of the "
           "most "
           "probable ones in its place, if they were asked for); None when all have.");
}

void bind_text(nb::module_& module) {
  using engine::TextStream;
  module.def("bad_word_tokens", &engine::bad_word_tokens, "tokenizer"_a, "words"_a,
             "The sequences of tokens that words may be made of.");
  nb::class_<TextStream>(module, "TextStream", "The text of a request as it is made: tokens in, what may be shown out.")
      .def(
          "__init__",
          [](TextStream* self, const Tokenizer& tokenizer, std::vector<std::string> stops, std::vector<int> stop_tokens,
             bool show_special, int64_t min_tokens) {
            new (self) TextStream(&tokenizer, {.stops = std::move(stops),
                                               .stop_tokens = std::move(stop_tokens),
                                               .show_special = show_special,
                                               .min_tokens = min_tokens});
          },
          "tokenizer"_a, nb::kw_only(), "stops"_a, "stop_tokens"_a, "show_special"_a, "min_tokens"_a,
          nb::keep_alive<1, 2>())
      .def("push", &TextStream::push, "token"_a, "What this token completes, as far as it may be shown.")
      .def("finish", &TextStream::finish, "What was held back.")
      .def_prop_ro("is_over", &TextStream::is_over, "The request has ended, or its text has by a stop string.")
      .def_prop_ro("is_stopped", &TextStream::is_stopped, "Its text has, by a stop string.");
  module.def(
      "stop_strings", [](const std::string& folder) { return generation_config_read(folder).stop_strings; }, "folder"_a,
      "What ends a text, as the model's generation_config.json has it.");
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_requests(module);
  bind_text(module);

  nb::class_<Engine>(module, "Engine", "A model's folder, compiled and loaded.")
      .def(
          "__init__",
          [](Engine* self, const std::string& folder, const std::string& target, int num_workers, int64_t max_seq_len,
             int64_t max_batch, int64_t max_batched_tokens, int64_t draft_tokens, const std::string& draft_model,
             int64_t page_size, int64_t quant_columns, bool dummy, std::optional<int> end_token, bool serves) {
            engine::EngineOptions options;
            options.target = target;
            options.num_workers = num_workers == 0 && serves ? engine::default_service_workers(target) : num_workers;
            options.dummy_weights = dummy;
            options.end_token = end_token;
            options.starts_early = serves;
            options.decoder.max_seq_len = max_seq_len;
            options.decoder.max_requests = max_batch == 0 && serves ? engine::default_service_batch(target) : max_batch;
            options.decoder.max_rows = max_batched_tokens;
            options.decoder.draft_tokens = draft_tokens;
            options.draft_model = draft_model;
            options.decoder.page_size = page_size;
            options.decoder.quant_columns = quant_columns;
            const Unlocked unlocked;
            new (self) Engine(folder, options);
          },
          "folder"_a, nb::kw_only(), "target"_a, "num_workers"_a, "max_seq_len"_a, "max_batch"_a,
          "max_batched_tokens"_a, "draft_tokens"_a, "draft_model"_a, "page_size"_a, "quant_columns"_a, "dummy"_a,
          "end_token"_a = nb::none(), "serves"_a = false,
          "`serves`: it is for an AsyncEngine. Numbers of workers and requests that are 0 are chosen for that, and one "
          "compiled kernel of several makes it ready.")
      .def("logits", &logits, "prompt"_a, "address"_a,
           "Copies the logits behind a prompt, f32 [vocab_size], to memory.")
      .def_prop_ro("stop_tokens", &Engine::stop_tokens, "Ids of the tokens that end a text.")
      .def_prop_ro("graph", &Engine::graph, nb::rv_policy::reference_internal)
      .def_prop_ro("kernel", &Engine::kernel, nb::rv_policy::reference_internal)
      .def_prop_ro("num_workers", &Engine::num_workers)
      .def_prop_ro("vocab_size", [](const Engine& engine) { return engine.config().vocab_size; })
      .def_prop_ro("max_batch", [](const Engine& engine) { return engine.decoder_options().max_requests; })
      .def_prop_ro("max_seq_len", [](const Engine& engine) { return engine.decoder_options().max_seq_len; })
      .def_prop_ro("num_parameters", &Engine::num_parameters)
      .def_prop_ro("weight_bytes", &Engine::weight_bytes);
  bind_stream(module);
}

}  // namespace megalith::python
