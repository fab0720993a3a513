target_link_libraries(megalith_base ${scope} megalith::utf8proc)
