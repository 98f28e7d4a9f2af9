# Attention in one form per instruction set; attention.cc chooses at run time. Sources of the x86
# forms are compiled for their own processor and may not define what other objects share.
muster_library(muster_attention
  SOURCES attention.cc attention_portable.cc
  DEPS muster_base muster_cpu_features
  PCH none)
set(attention_options -O3 -fno-math-errno -fno-trapping-math)
set_source_files_properties(attention_portable.cc PROPERTIES COMPILE_OPTIONS "${attention_options}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx512_options ${attention_options}
    -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 takes the deliberately undefined operands in its own intrinsics for mistakes.
    list(APPEND avx512_options -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  target_sources(muster_attention PRIVATE
    attention_amx.cc attention_avx2.cc attention_avx512.cc attention_bf16_dot.cc)
  set_source_files_properties(attention_avx2.cc PROPERTIES
    COMPILE_OPTIONS "${attention_options};-mavx2;-mfma")
  set_source_files_properties(attention_avx512.cc PROPERTIES
    COMPILE_OPTIONS "${avx512_options}")
  set_source_files_properties(attention_amx.cc attention_bf16_dot.cc PROPERTIES
    COMPILE_OPTIONS "${avx512_options};-mavx512bf16")
endif()
muster_test(attention_test
  SOURCES attention_test.cc
  DEPS muster_attention)
