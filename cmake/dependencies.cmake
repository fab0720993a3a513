# Every third-party library the build uses, and nothing else. Debian's package is named in the message when one is missing.
macro(megalith_require_header header package)
  string(MAKE_C_IDENTIFIER "have_${header}" _var)
  find_path(${_var} ${header})
  if(NOT ${_var})
    message(FATAL_ERROR "${header} not found: install the package ${package} (apt-get install ${package})")
  endif()
endmacro()

megalith_require_header(isl/cpp.h libisl-dev)
megalith_require_header(gmp.h libgmp-dev)
megalith_require_header(pcre2.h libpcre2-dev)
megalith_require_header(utf8proc.h libutf8proc-dev)
megalith_require_header(xxhash.h libxxhash-dev)
megalith_require_header(fmt/format.h libfmt-dev)
megalith_require_header(CLI/CLI.hpp libcli11-dev)
megalith_require_header(nlohmann/json.hpp nlohmann-json3-dev)
if(MEGALITH_COMMAND OR MEGALITH_TESTS)
  megalith_require_header(boost/beast/core.hpp libboost1.81-dev)
endif()

find_package(Threads REQUIRED)

# Static where there is a static library, so that one binary runs on machines without ours; but shared in the Python
# extension, which is a shared library itself: Debian's static ones may only go into programs.
function(megalith_import name)
  find_library(megalith_static_${name} NAMES lib${name}.a ${name} REQUIRED)
  find_library(megalith_shared_${name} NAMES ${name} REQUIRED)
  add_library(megalith::${name} INTERFACE IMPORTED)
  set(is_extension "$<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>")
  target_link_libraries(megalith::${name} INTERFACE
                        "$<IF:${is_extension},${megalith_shared_${name}},${megalith_static_${name}}>")
endfunction()
megalith_import(isl)
megalith_import(gmp)
megalith_import(pcre2-8)
megalith_import(utf8proc)
if(MEGALITH_COMMAND)
  megalith_require_header(histedit.h libedit-dev)
  foreach(library edit tinfo bsd md)  # what a static libedit needs
    megalith_import(${library})
  endforeach()
endif()

if(MEGALITH_TESTS)
  find_package(GTest REQUIRED)
endif()
