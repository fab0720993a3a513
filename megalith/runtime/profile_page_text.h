// The HTML of profile_page(): style, places and script in one text, with PROFILE_DATA where the data come.
#pragma once

namespace megalith::runtime {

extern const char* const kProfilePage;

}  // namespace megalith::runtime
