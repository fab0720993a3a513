# The freestanding headers are compiled into the library as text (kernels/embedded.h), from the files themselves.
file(GLOB embedded_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/megalith
     ${PROJECT_SOURCE_DIR}/megalith/kernels/*.h ${PROJECT_SOURCE_DIR}/megalith/kernels/cpu/*.h
     ${PROJECT_SOURCE_DIR}/megalith/runtime/protocol.h ${PROJECT_SOURCE_DIR}/megalith/runtime/mailbox.h
     ${PROJECT_SOURCE_DIR}/megalith/runtime/profile.h ${PROJECT_SOURCE_DIR}/megalith/runtime/batch.h
     ${PROJECT_SOURCE_DIR}/megalith/runtime/view_error.h
     ${PROJECT_SOURCE_DIR}/megalith/runtime/cpu/*.h ${PROJECT_SOURCE_DIR}/megalith/kernels/cuda/*/*.cuh
     ${PROJECT_SOURCE_DIR}/megalith/runtime/cuda/*.cuh)
list(REMOVE_ITEM embedded_headers kernels/embedded.h)
list(TRANSFORM embedded_headers PREPEND ${PROJECT_SOURCE_DIR}/megalith/ OUTPUT_VARIABLE embedded_paths)
string(REPLACE ";" "," embedded_list "${embedded_headers}")
set(embedded_inc ${PROJECT_BINARY_DIR}/generated/megalith/kernels/embedded.inc)
add_custom_command(
  OUTPUT ${embedded_inc}
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}/megalith -DFILES=${embedded_list} -DOUT=${embedded_inc}
          -P ${PROJECT_SOURCE_DIR}/megalith/kernels/embed.cmake
  DEPENDS ${embedded_paths} ${PROJECT_SOURCE_DIR}/megalith/kernels/embed.cmake
  COMMENT "Embedding the freestanding headers")
target_sources(megalith_kernels PRIVATE ${embedded_inc})
