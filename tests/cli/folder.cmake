# The tests run the real command. Parts of it are also tested on their own: what needs no command, and the guard of
# Ctrl-C, since it may end the process.
foreach(part base_url chat_input chat_prompt interrupt load_answer load_figures load_plan statistics terminal)
  target_sources(test_cli PRIVATE ${PROJECT_SOURCE_DIR}/tools/${part}.cpp)
endforeach()
target_link_libraries(test_cli PRIVATE megalith_serve)
target_compile_definitions(test_cli PRIVATE MEGALITH_COMMAND="$<TARGET_FILE:megalith>")
add_dependencies(test_cli megalith)
target_compile_definitions(test_cli PRIVATE FAKE_NVRTC="$<TARGET_FILE:fake_nvrtc>")
add_dependencies(test_cli fake_nvrtc)
