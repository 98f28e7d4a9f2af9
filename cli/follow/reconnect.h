// Reconnect: how a command that follows something outlasts a restart of the coordinator.
//
// One per command and thread; the context outlives it.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "cli/client/command_context.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace muster {

class Reconnect {
 public:
  // `notice` gets a line for people when the coordinator is lost and when it is back.
  Reconnect(CommandContext& context, std::function<void(const std::string&)> notice)
      : context_(context), notice_(std::move(notice)) {}
  // Notices go to the standard error of the terminal.
  explicit Reconnect(CommandContext& context)
      : Reconnect(context, [&context](const std::string& text) {
          context.terminal.err << text << std::endl;
        }) {}

  // A call was answered.
  void Answered();
  // A call failed with `status`, or its stream ended (OK). Whether that is a lost coordinator; then
  // the next call reads the endpoint again.
  bool Lost(const Status& status);
  // The same, but returns OK after a pause if the call is worth another try, else why not: the
  // coordinator has never answered, does not answer for 30 s, or refuses; `deadline` is over
  // (kDeadlineExceeded); the user interrupts (kCancelled).
  Status Pause(const Status& status, TimePoint deadline = TimePoint::max());

 private:
  CommandContext& context_;
  const std::function<void(const std::string&)> notice_;
  bool answered_ = false;
  std::optional<TimePoint> lost_at_;
};

}  // namespace muster
