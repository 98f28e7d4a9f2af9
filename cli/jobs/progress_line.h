// The progress of a job for `muster attach` and `muster submit --wait`: one live line on a
// terminal, elsewhere a line from time to time, or one for each state.
//
// Pure apart from writing to the given stream; time is an argument. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "cli/base/output.h"
#include "common/base/clock.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

// "step 40/200  loss 5.123  1234 tok/s  eta 32s  running  ranks 2/2 forward"; with the reason for a
// job that waits: "queued: no node is ready".
std::string ProgressText(const v1::Job& job);
// "[####......]" of `cells` cells; empty when the total is not known.
std::string ProgressBar(const v1::Job& job, int cells);
// Bar and text in one line of at most `width` columns. Parts that do not fit are left out in this
// order: the ranks' phase, the ranks, half the bar, tokens/s, the bar, the loss. A line that is
// still too long is cut.
std::string ProgressLine(const v1::Job& job, std::size_t width);

class ProgressPrinter {
 public:
  struct Options {
    bool live = false;  // redraw one line in place
    bool color = false;
    std::function<int()> columns;  // of the live line's terminal, called for each line; empty: 80
    std::int64_t line_every_steps = 25;  // without `live`
    Duration line_at_least = std::chrono::seconds(5);
    bool states_only = false;  // without `live`: a line for each new state, and no other
  };
  ProgressPrinter(std::ostream& out, Options options) : out_(out), options_(options) {}

  void OnJob(const v1::Job& job, TimePoint now);
  void OnEvent(const v1::Event& event);
  // A line of the program itself, such as "reconnecting".
  void OnNotice(const std::string& text);
  // Ends the live line, so that what follows starts on its own.
  void Finish();
  void set_line_every_steps(std::int64_t steps) { options_.line_every_steps = steps; }

 private:
  void Clear();
  bool WantsLine(const v1::Job& job, const std::string& text, TimePoint now) const;

  std::ostream& out_;
  Options options_;
  std::string live_;  // what the live line shows
  std::string last_text_;
  std::int64_t last_line_step_ = -1;
  v1::JobState last_state_ = v1::JOB_STATE_UNSPECIFIED;
  TimePoint last_line_at_{};
};

}  // namespace muster
