#include "common/runtime/loop_handle.h"

#include <memory>
#include <utility>

#include "common/runtime/event_loop.h"

namespace muster {

LoopHandle MakeLoopHandle(EventLoop& loop) {
  return {.post = [&loop](std::function<void()> function) { loop.Post(std::move(function)); },
          .set_timer =
              [timer = std::make_shared<Timer>(loop)](std::optional<TimePoint> when,
                                                      std::function<void()> function) {
                if (when)
                  timer->StartAt(*when, std::move(function));
                else
                  timer->Cancel();
              }};
}

}  // namespace muster
