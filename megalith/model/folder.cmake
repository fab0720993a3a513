target_link_libraries(megalith_model ${scope} megalith::pcre2-8 megalith::utf8proc)
