#include "trainer/core/stream_copy.h"

namespace muster {

// Streaming stores are not ordered with the hand-over to another thread.
void StreamFence() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

void StreamCopy(void* to, const void* from, std::size_t bytes) {
  StreamPiece(to, from, bytes);
  StreamFence();
}

}  // namespace muster
