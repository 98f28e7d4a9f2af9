// MUSTER_VECTOR_CLONES: compiles a function for several generations of x86-64; the loader picks the
// one for the machine. One build then runs well everywhere, and anywhere else it changes nothing.
//
// Only for functions that are not templates: one that has element types branches over them within
// (trainer/ops/cpu/kernel.h). Results may differ in the last bit between clones (fused
// multiply-add), hence "same instruction set" among the conditions for equal bits.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define MUSTER_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MUSTER_VECTOR_CLONES
#endif

// For a lambda within such a function: it becomes part of it, and so is compiled for the same
// machine.
#define MUSTER_INLINE_CALL __attribute__((always_inline))
