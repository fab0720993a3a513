# The list of operators is the list of files: each ops/NAME.cpp but registry.cpp defines `Operator NAME()`.
file(GLOB op_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/megalith/ops ${PROJECT_SOURCE_DIR}/megalith/ops/*.cpp)
list(REMOVE_ITEM op_files registry.cpp)
set(op_list "")
foreach(file ${op_files})
  string(REPLACE ".cpp" "" op ${file})
  string(APPEND op_list "MEGALITH_OPERATOR(${op})\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/megalith/ops/operators.inc CONTENT "${op_list}" @ONLY)
