// MUSTER_VECTOR_CLONES: compiles a function for several generations of x86-64; the loader picks the
// one for the machine. One build then runs well everywhere, and anywhere else it changes nothing.
//
// Only for functions that are not templates; MUSTER_ROWS_KERNEL makes the functions of a kernel for
// all element types. Results may differ in the last bit between clones (fused multiply-add), hence
// "same instruction set" among the conditions for equal bits.
#pragma once

#include <cstdint>

#include "trainer/core/element.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define MUSTER_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MUSTER_VECTOR_CLONES
#endif

// Defines the declared template Name(const Rows<Element>&, begin, end) for every element type by
// the inline template Body, with the same arguments. In namespace muster, outside the unnamed one.
#define MUSTER_ROWS_KERNEL(Name, Rows, Body)        \
  MUSTER_ROWS_KERNEL_OF(Name, Rows, Body, double)   \
  MUSTER_ROWS_KERNEL_OF(Name, Rows, Body, float)    \
  MUSTER_ROWS_KERNEL_OF(Name, Rows, Body, BFloat16) \
  MUSTER_ROWS_KERNEL_OF(Name, Rows, Body, Float16)

#define MUSTER_ROWS_KERNEL_OF(Name, Rows, Body, Element)                               \
  namespace {                                                                          \
  MUSTER_VECTOR_CLONES                                                                 \
  void Name##Cloned(const Rows<Element>& rows, std::int64_t begin, std::int64_t end) { \
    Body(rows, begin, end);                                                            \
  }                                                                                    \
  }                                                                                    \
  template <>                                                                          \
  void Name(const Rows<Element>& rows, std::int64_t begin, std::int64_t end) {         \
    Name##Cloned(rows, begin, end);                                                    \
  }
