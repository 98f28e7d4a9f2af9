#include "trainer/ops/cpu/cpu_features.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace muster {
namespace {

#if defined(__x86_64__)

// Bits of extended control register 0: the states that the operating system saves on a switch.
unsigned SavedStates() {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// asm/prctl.h of older distributions lacks the request.
bool TilesGranted() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures Detect() {
  CpuFeatures cpu;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return cpu;
  const bool fma = c & (1u << 12), osxsave = c & (1u << 27);
  if (!osxsave || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return cpu;
  const unsigned saved = SavedStates();
  const bool saves_ymm = (saved & 0x6) == 0x6;
  const bool saves_zmm = (saved & 0xe6) == 0xe6;
  const bool saves_tiles = (saved & 0x60000) == 0x60000;
  constexpr unsigned kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
  cpu.avx2 = saves_ymm && fma && (b & (1u << 5));
  cpu.avx512 = cpu.avx2 && saves_zmm && (b & kAvx512) == kAvx512;
  cpu.avx512_fp16 = cpu.avx512 && (d & (1u << 23));
  const bool amx = (d & (1u << 22)) && (d & (1u << 24));  // AMX-BF16, AMX-TILE
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) cpu.avx512_bf16 = cpu.avx512 && (a & (1u << 5));
  cpu.amx_bf16 = cpu.avx512_bf16 && amx && saves_tiles && TilesGranted();
  __get_cpuid(0, &a, &b, &c, &d);
  const bool amd = b == signature_AMD_ebx && d == signature_AMD_edx && c == signature_AMD_ecx;
  cpu.fast_bf16_dot = cpu.avx512_bf16 && amd;
  return cpu;
}

#else

CpuFeatures Detect() { return {}; }

#endif

}  // namespace

CpuFeatures LimitedTo(CpuFeatures cpu, std::string_view isa) {
  if (isa.empty() || isa == "DEFAULT" || isa.find("AMX") != isa.npos) return cpu;
  cpu.amx_bf16 = false;
  const bool avx10 = isa.starts_with("AVX10");
  const bool fp16 = avx10 || isa == "AVX512_CORE_FP16";
  const bool bf16 = fp16 || isa == "AVX512_CORE_BF16";
  const bool avx512 = avx10 || isa.starts_with("AVX512");
  cpu.avx512_fp16 = cpu.avx512_fp16 && fp16;
  cpu.avx512_bf16 = cpu.avx512_bf16 && bf16;
  cpu.fast_bf16_dot = cpu.fast_bf16_dot && bf16;
  cpu.avx512 = cpu.avx512 && avx512;
  cpu.avx2 = cpu.avx2 && (avx512 || isa.starts_with("AVX2"));
  return cpu;
}

const CpuFeatures& ThisCpu() {
  static const CpuFeatures cpu = [] {
    const char* isa = std::getenv("ONEDNN_MAX_CPU_ISA");
    return LimitedTo(Detect(), isa == nullptr ? "" : isa);
  }();
  return cpu;
}

}  // namespace muster
