# The tests of the Python package, in parts that take about as long. They take the package as it was built.
set(python_layers test_layers.py test_rules.py)
set(python_mpk test_mpk.py test_mpk_kernel.py test_mpk_script.py)
set(python_attention test_attention.py test_faults.py test_operators.py test_layer_operators.py test_profile.py test_in_place.py)
set(python_engine test_engine.py test_loops.py)
set(python_gpu test_cuda_compile.py test_fake_gpu.py test_misuse.py)
set(python_rest test_errors.py test_lifetime.py test_model.py test_examples.py test_graph.py test_docs.py test_token_loop.py test_speculation.py test_online.py
                test_interrupt.py test_types.py test_ends.py test_tensors.py)
foreach(part layers mpk attention engine gpu rest)
  list(TRANSFORM python_${part} PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/python/ OUTPUT_VARIABLE files)
  add_test(NAME python.${part} COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider -rsfE ${files}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(
    python.${part} PROPERTIES TIMEOUT ${seconds_a_program} COST 55
    ENVIRONMENT
    "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1;FAKE_CUDA=$<TARGET_FILE:fake_cuda>;FAKE_NVRTC=$<TARGET_FILE:fake_nvrtc>")
endforeach()
# A file that no part names would never run.
file(GLOB python_files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/python CONFIGURE_DEPENDS python/test_*.py)
list(REMOVE_ITEM python_files ${python_layers} ${python_mpk} ${python_attention} ${python_engine} ${python_gpu} ${python_rest})
if(python_files)
  message(FATAL_ERROR "tests/python/tests.cmake runs no ${python_files}")
endif()
