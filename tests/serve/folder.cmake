# The command against OpenAI's own client, where there is a Python.
if(MEGALITH_PYTHON AND MEGALITH_COMMAND)
  add_executable(echo_server ${CMAKE_CURRENT_LIST_DIR}/echo/echo_server.cpp)
  target_link_libraries(echo_server PRIVATE megalith_serve)
  target_compile_definitions(echo_server PRIVATE MEGALITH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME serve.openai COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider -rsfE
                                     ${CMAKE_CURRENT_LIST_DIR}/openai_test.py)
  set_tests_properties(serve.openai PROPERTIES TIMEOUT ${seconds_a_program}
                       ENVIRONMENT "MEGALITH_COMMAND=$<TARGET_FILE:megalith>;MEGALITH_ECHO=$<TARGET_FILE:echo_server>;PYTHONDONTWRITEBYTECODE=1")
  # And two of it behind HAProxy.
  add_test(NAME serve.replicas COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider -rsfE
                                       ${CMAKE_CURRENT_LIST_DIR}/replicas_test.py)
  set_tests_properties(serve.replicas PROPERTIES TIMEOUT ${seconds_a_program}
                       ENVIRONMENT "MEGALITH_COMMAND=$<TARGET_FILE:megalith>;PYTHONDONTWRITEBYTECODE=1")
endif()
if(MEGALITH_COMMAND)
  add_test(NAME serve.page COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/page.sh $<TARGET_FILE:megalith>)
  set_tests_properties(serve.page PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
endif()
