# The lists of operators are what the files define: each `graph::Operator NAME()` in ops/*.cpp, and of each
# ops/fused/NAME.cpp its `std::vector<Operator> NAME()`.
set(dir ${PROJECT_SOURCE_DIR}/megalith/ops)

set(op_list "")
file(GLOB op_files CONFIGURE_DEPENDS ${dir}/*.cpp)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${op_files})
foreach(file ${op_files})
  file(STRINGS ${file} definitions REGEX "^graph::Operator [a-z0-9_]+\\(\\) {")
  foreach(definition ${definitions})
    string(REGEX REPLACE "^graph::Operator ([a-z0-9_]+).*" "MEGALITH_OPERATOR(\\1)\n" entry ${definition})
    string(APPEND op_list ${entry})
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/megalith/ops/operators.inc CONTENT "${op_list}" @ONLY)

set(op_list "")
file(GLOB op_files CONFIGURE_DEPENDS ${dir}/fused/*.cpp)
foreach(file ${op_files})
  cmake_path(GET file STEM op)
  string(APPEND op_list "MEGALITH_OPERATOR(${op})\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/megalith/ops/fused.inc CONTENT "${op_list}" @ONLY)
