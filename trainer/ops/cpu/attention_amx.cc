// Attention in bf16 with AMX tiles. Compiled for AVX512-BF16, the tile instructions are written
// out; only reached through the run-time choice in attention.cc.
#include "trainer/ops/cpu/attention_bf16.h"
#include "trainer/ops/cpu/attention_kernels.h"

namespace muster {
namespace {

using attention::kBlock;
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

  static MUSTER_INLINE void Multiply(Real* c, const Packed* a, const Packed* b, int count) {
    ZeroTile<0>();
    ZeroTile<1>();
    ZeroTile<2>();
    ZeroTile<3>();
    AddProducts(a, kBlock, b, kBlock, count);
    StoreSums(c);
  }

  static MUSTER_INLINE void MultiplyAdd(Real* c, const Packed* a, std::int64_t a_step,
                                        const Packed* b, std::int64_t b_step, int count) {
    LoadTile<0>(c, kRowBytes);
    LoadTile<1>(c + 16, kRowBytes);
    LoadTile<2>(c + kHalfBlock, kRowBytes);
    LoadTile<3>(c + kHalfBlock + 16, kRowBytes);
    AddProducts(a, a_step, b, b_step, count);
    StoreSums(c);
  }

 private:
  static constexpr int kHalfBlock = kBlock / 2;
  static constexpr std::int64_t kLeftBytes = kSide * sizeof(Packed);
  // Of results, and of two interleaved rows of a right factor.
  static constexpr std::int64_t kRowBytes = kSide * sizeof(Real);

  // Tiles 0 to 3 are the quarters of c, 4 and 5 the halves of a (rows), 6 and 7 of b (columns).
  static MUSTER_INLINE void AddProducts(const Packed* a, std::int64_t a_step, const Packed* b,
                                        std::int64_t b_step, int count) {
    for (int i = 0; i < count; ++i, a += a_step, b += b_step) {
      LoadTile<4>(a, kLeftBytes);
      LoadTile<6>(b, kRowBytes);
      MultiplyTiles<0, 4, 6>();
      LoadTile<7>(b + kSide, kRowBytes);
      MultiplyTiles<1, 4, 7>();
      LoadTile<5>(a + kHalfBlock, kLeftBytes);
      MultiplyTiles<2, 5, 6>();
      MultiplyTiles<3, 5, 7>();
    }
  }

  static MUSTER_INLINE void StoreSums(Real* c) {
    StoreTile<0>(c, kRowBytes);
    StoreTile<1>(c + 16, kRowBytes);
    StoreTile<2>(c + kHalfBlock, kRowBytes);
    StoreTile<3>(c + kHalfBlock + 16, kRowBytes);
  }
};

}  // namespace

constexpr AttentionKernels<BFloat16> kAmxAttention = attention::MakeKernels<Amx>();

}  // namespace muster
