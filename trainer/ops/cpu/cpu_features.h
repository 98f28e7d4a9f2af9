// Which vector and matrix instructions this processor has and this kernel of the operating system
// lets a process use. Kernels that exist in several forms choose by it at run time.
//
// Asked once per process; any thread. On other architectures than x86-64 everything is false. The
// variable ONEDNN_MAX_CPU_ISA, by which oneDNN is kept from newer instructions, counts here as
// well: a run then stands in for one on an older machine.
#pragma once

#include <string_view>

namespace muster {

struct CpuFeatures {
  bool avx2 = false;         // with FMA
  bool avx512 = false;       // F, BW, DQ, VL: what x86-64-v4 means
  bool avx512_bf16 = false;  // VDPBF16PS and conversions
  bool avx512_fp16 = false;  // arithmetic on halves
  bool amx_bf16 = false;     // TDPBF16PS, and this process has permission to use the tiles
  // VDPBF16PS does more multiplications per second than a fused multiply-add on singles: AMD's
  // does twice as many, Intel's (Sapphire Rapids) half as many.
  bool fast_bf16_dot = false;
};

// The first call asks the operating system for the permission to use AMX tiles, which Linux grants
// per process; threads started before or after have it too.
const CpuFeatures& ThisCpu();

// What is left of `cpu` under a value of ONEDNN_MAX_CPU_ISA (AVX2, AVX512_CORE, AVX512_CORE_BF16,
// AVX512_CORE_AMX, ...). Pure.
CpuFeatures LimitedTo(CpuFeatures cpu, std::string_view isa);

}  // namespace muster
