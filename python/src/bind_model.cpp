#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "megalith/model/chat_template.h"
#include "megalith/model/config.h"
#include "megalith/model/stream_decoder.h"
#include "megalith/model/tokenizer.h"
#include "python/src/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace megalith::python {

void bind_model(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer", "Text to token ids and back, as a tokenizer.json says.")
      .def_static("open", &Tokenizer::open, "path"_a, "From a tokenizer.json, or a folder with one.")
      .def(
          "encode",
          [](const Tokenizer& tokenizer, const std::string& text, bool add_special, bool parse_special) {
            return tokenizer.encode(text, add_special, parse_special);
          },
          "text"_a, nb::kw_only(), "add_special"_a = true, "parse_special"_a = true,
          "Token ids. `add_special`: with those that the file puts around a text; `parse_special`: whether\n"
          "\"<|im_end|>\" in the text is that token.")
      .def(
          "decode",
          [](const Tokenizer& tokenizer, const std::vector<int>& ids, bool skip_special) {
            return tokenizer.decode(ids, skip_special);
          },
          "ids"_a, nb::kw_only(), "skip_special"_a = true)
      .def(
          "token_id", [](const Tokenizer& tokenizer, const std::string& name) { return tokenizer.token_id(name); },
          "name"_a)
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("end_token", &Tokenizer::end_token, "The id of the one that ends a text, if the files name it.")
      .def("__repr__",
           [](const Tokenizer& tokenizer) { return fmt::format("<tokenizer of {} tokens>", tokenizer.vocab_size()); });

  nb::class_<StreamDecoder>(module, "StreamDecoder", "Text from tokens as they come, always valid UTF-8.")
      .def(nb::init<const Tokenizer&>(), "tokenizer"_a, nb::keep_alive<1, 2>())
      .def("push", &StreamDecoder::push, "id"_a, "The text that this token completes.")
      .def("finish", &StreamDecoder::finish, "What was held back.");
}

}  // namespace megalith::python
