# xgrammar, of which structured output is made (megalith/grammar): a static library of its core. Its sources come from PyPI
# at the first configuration, into the build folder; where they cannot be had, or with MEGALITH_GRAMMARS off, Megalith is
# built without, and says so to requests that want a grammar.
#
# What it allocates goes through megalith/grammar/budget.h, so that a grammar of a stranger has limits of memory and time that
# xgrammar itself does not have. Its converters run once for a grammar: at -O1 they compile in half the time.
set(MEGALITH_HAS_GRAMMARS OFF)
if(MEGALITH_GRAMMARS)
  # One copy for all build folders of this tree; elsewhere (a wheel) in the build folder.
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/build)
    set(xgrammar ${PROJECT_SOURCE_DIR}/build/xgrammar)
  else()
    set(xgrammar ${PROJECT_BINARY_DIR}/xgrammar)
  endif()
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/fetch_xgrammar.sh ${xgrammar} RESULT_VARIABLE result
                  ERROR_VARIABLE why ERROR_STRIP_TRAILING_WHITESPACE)
  find_program(OBJCOPY objcopy)
  if(result EQUAL 0 AND OBJCOPY)
    set(MEGALITH_HAS_GRAMMARS ON)
  else()
    message(STATUS "without structured output (grammars): ${why}")
  endif()
endif()

if(MEGALITH_HAS_GRAMMARS)
  file(GLOB converters ${xgrammar}/cpp/converter_ext/*.cc)
  foreach(name regex_converter structural_tag grammar grammar_builder grammar_parser grammar_printer config
               support/recursion_guard json_schema_converter testing)
    list(APPEND converters ${xgrammar}/cpp/${name}.cc)
  endforeach()
  set(core "")
  foreach(name compiled_grammar earley_parser fsm fsm_builder grammar_compiler grammar_functor grammar_matcher
               suffix_automata tokenizer_info)
    list(APPEND core ${xgrammar}/cpp/${name}.cc)
  endforeach()
  add_library(xgrammar_converters OBJECT ${converters})
  add_library(xgrammar STATIC ${core} $<TARGET_OBJECTS:xgrammar_converters>)
  # A name of it is in others of the converters, too. The other one prints what an error quotes.
  set_source_files_properties(${xgrammar}/cpp/json_schema_converter.cc ${xgrammar}/cpp/testing.cc
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  foreach(target xgrammar xgrammar_converters)
    set_target_properties(${target} PROPERTIES CXX_STANDARD 17 UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    target_compile_options(${target} PRIVATE $<IF:$<STREQUAL:${target},xgrammar>,-O2,-O1> -w)
    target_compile_definitions(${target} PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
                                                XGRAMMAR_LOG_CUSTOMIZE=1)
    target_include_directories(${target} SYSTEM PUBLIC ${xgrammar}/include ${xgrammar}/cpp ${xgrammar}/3rdparty/picojson
                                                       ${xgrammar}/3rdparty/dlpack/include)
    if(MEGALITH_SANITIZE)
      target_compile_options(${target} PRIVATE -fsanitize=${MEGALITH_SANITIZE} -fno-omit-frame-pointer)
    endif()
  endforeach()
  add_custom_command(
    TARGET xgrammar POST_BUILD
    COMMAND ${OBJCOPY} --redefine-sym _Znwm=megalith_grammar_new $<TARGET_FILE:xgrammar>
    VERBATIM)
endif()
