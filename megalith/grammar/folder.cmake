# With xgrammar, or a stub that says what is missing.
if(MEGALITH_HAS_GRAMMARS)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/megalith/grammar/without_grammars.cpp PROPERTIES HEADER_FILE_ONLY ON)
  # Its headers stay out of the other sources of the folder, and warnings of theirs are not ours.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/megalith/grammar/grammar.cpp
                              ${PROJECT_SOURCE_DIR}/megalith/grammar/xgrammar_hooks.cpp
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(megalith_grammar PRIVATE xgrammar)
  target_link_libraries(xgrammar INTERFACE megalith_grammar)  # its hooks, for linkers that go by the order of archives
else()
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/megalith/grammar/grammar.cpp ${PROJECT_SOURCE_DIR}/megalith/grammar/xgrammar_hooks.cpp
    PROPERTIES HEADER_FILE_ONLY ON)
endif()
