// Pause: a wait of a thread that has no loop of its own.
#pragma once

#include "common/runtime/event_loop.h"

namespace muster {

inline void Pause(Duration pause) {
  EventLoop loop;
  Timer timer(loop);
  timer.Start(pause, [&loop] { loop.Stop(); });
  loop.Run();
}

}  // namespace muster
