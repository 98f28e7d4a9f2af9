// FetchDisplay: the progress of a download for a person: a bar on a terminal, lines elsewhere.
//
// Not for several threads at once. Time is an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/clock.h"

namespace muster {

class FetchDisplay {
 public:
  // `write` puts text on the terminal or into the log.
  FetchDisplay(bool is_terminal, std::function<void(const std::string&)> write, TimePoint now)
      : is_terminal_(is_terminal), write_(std::move(write)), begun_(now) {}

  void Plan(std::size_t files, std::int64_t bytes, TimePoint now);
  void Bytes(std::int64_t bytes, TimePoint now);
  void File(const std::string& name, TimePoint now);
  void Note(const std::string& note);
  // Takes the bar away.
  void End();

 private:
  std::string Line(TimePoint now) const;
  void Refresh(TimePoint now, bool must);

  const bool is_terminal_;
  const std::function<void(const std::string&)> write_;
  const TimePoint begun_;
  TimePoint shown_{};
  std::size_t files_ = 0, files_done_ = 0;
  std::int64_t bytes_ = 0, bytes_done_ = 0;
  bool bar_ = false;  // on the terminal's last line
};

}  // namespace muster
