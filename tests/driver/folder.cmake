# The driver's stand-in, loaded at run time as libcuda is: a usual one, and one that is too old.
foreach(name fake_cuda fake_cuda_old)
  add_library(${name} SHARED ${CMAKE_CURRENT_LIST_DIR}/fake/fake_cuda.cpp)
  target_link_libraries(${name} PRIVATE megalith_flags)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR})
  add_dependencies(test_driver ${name})
endforeach()
add_library(fake_nvrtc SHARED ${CMAKE_CURRENT_LIST_DIR}/fake/fake_nvrtc.cpp)
target_link_libraries(fake_nvrtc PRIVATE megalith_flags)
target_compile_definitions(fake_cuda_old PRIVATE FAKE_CUDA_IS_OLD)
target_compile_definitions(test_driver PRIVATE FAKE_CUDA="$<TARGET_FILE:fake_cuda>"
                                               FAKE_CUDA_OLD="$<TARGET_FILE:fake_cuda_old>")
