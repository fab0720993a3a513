// The page at "/": a conversation with the model, and what the server is doing. One file, which fetches nothing from
// elsewhere, so it works where there is no network.
#pragma once

#include <string_view>

namespace megalith::serve {

/// HTML. Everything that a model or a user writes goes into it as text, never as markup.
std::string_view page_html();
/// What a browser lets the page do: its own script and style, and requests to this server.
std::string_view page_policy();

}  // namespace megalith::serve
