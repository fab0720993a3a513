# The verifier runs before every kernel, and much of it goes through arrays that have an element for each worker. GCC
# makes vectors of such loops at -O2 only if told to.
target_compile_options(megalith_task PRIVATE $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-fvect-cost-model=dynamic>)
# Behind a precompiled header GCC 12 takes the short string inside of a Finding that is moved for one that may be longer.
set_source_files_properties(megalith/task/verify.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
