target_link_libraries(megalith_loop ${scope} megalith::isl megalith::gmp)
