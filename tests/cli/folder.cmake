# The tests run the real command; the guard of Ctrl-C is also tested on its own, since it may end the process.
target_sources(test_cli PRIVATE ${PROJECT_SOURCE_DIR}/tools/interrupt.cpp)
target_compile_definitions(test_cli PRIVATE MEGALITH_COMMAND="$<TARGET_FILE:megalith>")
add_dependencies(test_cli megalith)
