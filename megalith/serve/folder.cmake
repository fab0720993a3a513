# Asio has a fence that ThreadSanitizer cannot see; what the fence orders goes through a mutex as well.
if(MEGALITH_SANITIZE MATCHES "thread")
  target_compile_options(megalith_serve PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
endif()
