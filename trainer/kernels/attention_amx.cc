// Attention in bf16 with AMX tiles. Compiled for AVX512-BF16, the tile instructions are written
// out; only reached through the run-time choice in attention.cc.
#include "trainer/kernels/attention_bf16.h"
#include "trainer/kernels/attention_kernels.h"

namespace muster {
namespace {

using attention::kSide;

// Written out because compilers disagree on the intrinsics, and GCC's let stores to memory be
// moved behind the loads of tiles that read it.
template <int kTile>
MUSTER_INLINE void LoadTile(const void* from, std::int64_t stride_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride_bytes), "i"(kTile)
               : "memory");
}
template <int kTile>
MUSTER_INLINE void StoreTile(void* to, std::int64_t stride_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride_bytes), "i"(kTile)
               : "memory");
}
template <int kTile>
MUSTER_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kSum, int kLeft, int kRight>
MUSTER_INLINE void MultiplyTiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kLeft), "i"(kRight));
}

struct AmxIsa {};

struct Amx : attention::Bf16Blocks<AmxIsa> {
  // Eight tiles of 16 rows of 64 bytes. Released at the end: other users of AMX in this thread set
  // up their own shapes, and a thread without live tiles is cheaper to switch.
  struct Session {
    Session() {
      struct alignas(64) {
        std::uint8_t palette = 1;
        std::uint8_t start_row = 0;
        std::uint8_t reserved[14] = {};
        std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
      } config;
      asm volatile("ldtilecfg %0" ::"m"(config));
    }
    ~Session() { asm volatile("tilerelease"); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
  };

  // Tiles 0 to 3 are the quarters of c, 4 and 5 the halves of a (rows), 6 and 7 of b (columns).
  static MUSTER_INLINE void Multiply(bool accumulate, Real* c, const Packed* a, std::int64_t a_step,
                                     const Packed* b, std::int64_t b_step, int count) {
    constexpr std::int64_t kRowBytes = kSide * sizeof(Real);
    constexpr int kHalfRows = 16 * kSide;
    if (accumulate) {
      LoadTile<0>(c, kRowBytes);
      LoadTile<1>(c + 16, kRowBytes);
      LoadTile<2>(c + kHalfRows, kRowBytes);
      LoadTile<3>(c + kHalfRows + 16, kRowBytes);
    } else {
      ZeroTile<0>();
      ZeroTile<1>();
      ZeroTile<2>();
      ZeroTile<3>();
    }
    for (int i = 0; i < count; ++i, a += a_step, b += b_step) {
      LoadTile<4>(a, 64);
      LoadTile<6>(b, 128);
      MultiplyTiles<0, 4, 6>();
      LoadTile<7>(b + kSide, 128);
      MultiplyTiles<1, 4, 7>();
      LoadTile<5>(a + kHalfRows, 64);
      MultiplyTiles<2, 5, 6>();
      MultiplyTiles<3, 5, 7>();
    }
    StoreTile<0>(c, kRowBytes);
    StoreTile<1>(c + 16, kRowBytes);
    StoreTile<2>(c + kHalfRows, kRowBytes);
    StoreTile<3>(c + kHalfRows + 16, kRowBytes);
  }
};

}  // namespace

constexpr AttentionKernels<BFloat16> kAmxAttention = attention::MakeKernels<Amx>();

}  // namespace muster
