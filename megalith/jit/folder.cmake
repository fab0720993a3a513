# The build-id note is how the cache of plans tells one build of Megalith from another without reading the binary.
target_link_options(megalith_jit ${scope} -Wl,--build-id=sha1)
