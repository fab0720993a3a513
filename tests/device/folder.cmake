# The blocks, each with shared memory of its own. Two headers are stood in for, so those folders come first.
foreach(block RANGE 3)
  add_library(device_block_${block} OBJECT ${CMAKE_CURRENT_LIST_DIR}/block/block.cpp)
  target_link_libraries(device_block_${block} PRIVATE megalith_flags)
  target_include_directories(device_block_${block} BEFORE PRIVATE ${CMAKE_CURRENT_LIST_DIR}/block
                             ${CMAKE_CURRENT_SOURCE_DIR}/support/block)
  target_include_directories(device_block_${block} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(device_block_${block} PRIVATE MEGALITH_BLOCK=${block})
  # Words are copied as a GPU's threads copy them, and #pragma unroll is NVRTC's.
  target_compile_options(device_block_${block} PRIVATE -fno-strict-aliasing -Wno-unknown-pragmas)
  target_link_libraries(test_device PRIVATE device_block_${block})
endforeach()
# One of them as compute-sanitizer's racecheck wants them all.
target_compile_definitions(device_block_3 PRIVATE MEGALITH_EVERY_THREAD_ARRIVES)
