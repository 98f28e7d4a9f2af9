# NF4 in one form per instruction set; nf4.cc chooses at run time. As with attention, sources of the
# x86 forms may not define what other objects share. A product and a sum are rounded apart, as in the
# program whose bytes these are.
muster_library(muster_nf4
  SOURCES nf4.cc
  DEPS muster_base muster_cpu_features
  PCH none)
set(nf4_options -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off)
set_source_files_properties(nf4.cc PROPERTIES COMPILE_OPTIONS "${nf4_options}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_sources(muster_nf4 PRIVATE nf4_avx2.cc nf4_avx512.cc)
  set_source_files_properties(nf4_avx2.cc PROPERTIES
    COMPILE_OPTIONS "${nf4_options};-mavx2;-mfma")
  set_source_files_properties(nf4_avx512.cc PROPERTIES
    COMPILE_OPTIONS "${avx512_options};-ffp-contract=off")
endif()
