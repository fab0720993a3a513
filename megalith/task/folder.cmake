# The verifier runs before every kernel, and much of it goes through arrays that have an element for each worker. GCC
# makes vectors of such loops at -O2 only if told to.
target_compile_options(megalith_task PRIVATE $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-fvect-cost-model=dynamic>)
